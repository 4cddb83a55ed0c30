"""The report: figures as the board counts them, causes in words, pages that need nothing else."""

from __future__ import annotations

import json
import math
import re
import time
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sim.recorded_runs import MIXED, NAMES, TRACED, on_spark, unpacked

from taut import cli
from taut.watch.board import Board
from taut.watch.recorded import Recorded, load
from taut.watch.records import (
    Batch,
    Ended,
    Expected,
    Lane,
    LeftOut,
    Record,
    Reduced,
    Run,
    Source,
    Started,
    Turn,
    encode,
)
from taut.watch.report import compare, figures, report
from taut.watch.report.figures import QueryFigures
from taut.watch.report.page import rows
from taut.watch.report.svg import Mark, joined, nice_top, thinned, ticks
from taut.watch.snapshot import QueryNow

AT = 1_700_000_000.0
RUN = Run(AT, "a-run", "least-slack", 2, 60.0, machine={"cores": 2, "spark": {"version": "4.3"}})


def started(name: str, objective: float | None = 1.0, window: float | None = 10.0) -> Started:
    slo = None if objective is None else f"p99 <= {objective:g} s"
    quantile = None if objective is None else 0.99
    return Started(
        AT, name, slo, objective, quantile, None if window is None else (window, window, 0.0)
    )


def batch(
    name: str,
    n: int,
    begun: float,
    run: float,
    written: float,
    *ends: float,
    planned: float | None = None,
    objective: float = 1.0,
) -> Batch:
    """A batch by seconds into the run."""
    return Batch(
        name,
        n,
        AT + begun,
        AT + begun,
        AT + (begun if planned is None else planned),
        AT + run,
        AT + written,
        ends=tuple(AT + end for end in ends),
        windows=len(ends),
        late=sum(written - end > objective for end in ends),
    )


def turn(name: str, since: float, at: float) -> Turn:
    """A turn by seconds into the run: held since, granted at."""
    return Turn(AT + at, name, AT + since, "batch", "policy")


class Pages(HTMLParser):
    """Checks that a page is well formed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag not in {"meta", "path"}:
            self.open.append(tag)
        for name, value in attrs:
            assert name not in {"src", "href", "onload", "onclick"}, (tag, name, value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag


def checked(page: str) -> str:
    """A page that stands alone: no script, nothing from elsewhere, every picture told in words."""
    seen = Pages(page).seen
    assert "script" not in seen
    assert "link" not in seen
    assert not re.search(r"https?://|url\(|@import", page)
    pictures = seen.count("svg")
    assert page.count("<desc>") == pictures
    assert page.count('role="img"') == pictures
    assert "nan" not in re.sub(r"<[^>]*>", "", page).split()
    assert not re.search(r'd="[^"]*(nan|inf)', page)
    return page


def of(*records: Record) -> Recorded:
    return Recorded.of([RUN, *records])


def page_of(recorded: Recorded) -> str:
    return checked(report(recorded, figures(recorded)))


# -- figures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, TRACED, MIXED])
def test_counts_are_those_of_the_board(name: str, tmp_path: Path) -> None:
    recorded = on_spark(name, tmp_path)
    board = Board()
    for record in [recorded.run, *recorded.started.values()]:
        board.observe(record)
    for them in [*recorded.turns.values(), *recorded.batches.values()]:
        for each in them:
            board.observe(each)
    found = figures(recorded)
    snapshot = board.snapshot(recorded.ends)
    for query, now in zip(found.queries, snapshot.queries, strict=True):
        assert (query.name, query.results, query.late) == (now.name, now.results, now.late)
        assert query.batches == now.batches
        assert query.on_time == now.on_time
        assert query.budget == now.budget
        if now.latency is not None and query.latency is not None:
            # the board's sketch has seen the last two minutes, which is all of it; from their ends
            assert query.latency.max == pytest.approx(now.latency.max, abs=0.1)


def both(records: list[Record], now: float) -> tuple[dict[str, QueryNow], dict[str, QueryFigures]]:
    """Queries as the live page shows them, and as the report does."""
    board = Board()
    for record in records:
        board.observe(record)
        board.check()
    live = {query.name: query for query in board.snapshot(now).queries}
    return live, {query.name: query for query in figures(Recorded.of(records)).queries}


def test_a_query_that_was_started_again_is_another_one() -> None:
    late = [batch("q", n, 10 * n, 10 * n + 0.1, 10 * n + 1.3, 10.0 * n) for n in range(1, 11)]
    again = msgspec.structs.replace(
        started("q"), at=AT + 120.0, slo="p99 <= 2 s", objective=2.0, quantile=0.99
    )
    on_time = [batch("q", n, 10 * n, 10 * n + 0.1, 10 * n + 0.3, 10.0 * n) for n in range(13, 20)]
    reduced = Reduced(AT + 200.0, "other", 0, 1.0, on_time=4)
    for between in ([Ended(AT + 115.0, "q", "boom")], []):
        records = [RUN, started("q"), *late, *between, again, *on_time, started("other"), reduced]
        live, found = both(records, AT + 200.0)
        assert list(found) == ["q", "q (2)", "other"]
        assert (live["q"].results, live["q"].late, live["q"].verdict) == (7, 0, "met")
        first, second = found["q"], found["q (2)"]
        assert (second.results, second.late, second.verdict, second.objective) == (7, 0, "met", 2.0)
        assert (first.results, first.late, first.verdict, first.objective) == (
            10, 10, "failed" if between else "missed", 1.0,
        )  # fmt: skip
        assert first.worst[0].query == "q"
        assert first.state == ("failed" if between else "running")
        recorded = Recorded.of(records)
        page = page_of(recorded)
        assert "q (2)" in page
        assert [len(recorded.batches[name]) for name in ("q", "q (2)")] == [10, 7]


def test_a_window_that_is_learned_is_no_other_query_and_begins_the_count() -> None:
    before = [
        Batch("q", n, AT + n, AT + n, AT + n + 0.1, AT + n + 0.2, AT + n + 0.4, input=1.0)
        for n in range(60)
    ]
    after = [batch("q", n, 10 * n, 10 * n + 0.1, 10 * n + 5.0, 10.0 * n) for n in range(7, 12)]
    live, found = both([RUN, started("q", window=None), *before, started("q"), *after], AT + 120.0)
    assert list(found) == ["q"]
    for query in (live["q"], found["q"]):
        assert (query.results, query.late, query.verdict) == (5, 5, "missed")
        assert query.budget == pytest.approx(-99.0)
    assert live["q"].latency is not None
    assert live["q"].latency.count == 5
    assert len(live["q"].latencies) == 5


moments = st.floats(0.0, 100.0).map(lambda at: AT + at)
told = st.one_of(
    st.builds(
        Started, st.sampled_from([AT, AT + 50.0]), st.just("q"), st.just("p90 <= 1 s"),
        st.just(1.0), st.just(0.9), st.sampled_from([None, (10.0, 10.0, 0.0)]),
    ),
    st.builds(Ended, moments, st.just("q")),
    st.builds(
        Batch, st.just("q"), st.integers(0, 9), moments, moments, moments, moments, moments,
        st.floats(0.0, 9.0), moments, st.lists(moments, max_size=3).map(tuple), st.integers(0, 3),
        st.integers(0, 5),
    ),
    st.builds(
        Reduced, moments, st.just("q"), st.integers(0, 9), st.just(1.0),
        on_time=st.integers(0, 9), late=st.integers(0, 9),
        shed=st.dictionaries(st.sampled_from("ab"), st.integers(0, 9)),
    ),
)  # fmt: skip


@settings(derandomize=True, max_examples=150, deadline=None)
@given(st.lists(told, max_size=25))
def test_whatever_is_told_report_and_board_count_alike(records: list[Record]) -> None:
    live, found = both([RUN, started("q", window=None), *records], AT + 100.0)
    last = list(found.values())[-1]
    now = live["q"]
    counted = (now.results, now.late, now.batches, now.on_time)
    assert counted == (last.results, last.late, last.batches, last.on_time)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 2.0), st.floats(0.01, 3.0), st.booleans()),
        max_size=12,
    ),
    st.sampled_from([None, 0.5, 2.0]),
)
def test_any_run_can_be_reported(
    steps: list[tuple[float, float, float, bool]], objective: float | None
) -> None:
    records: list[Record] = [started("q", objective), started("other", objective, None)]
    at = 10.0
    for n, (held, planning, running, out) in enumerate(steps):
        begun, run = at + held, at + held + planning
        records.append(turn("q", at, begun))
        at = run + running
        ends = (begun - 0.1,) if out else ()
        records.append(batch("q", n, begun, run, at, *ends, objective=objective or 1e9))
        records.append(batch("other", n, begun, begun, at))
    recorded = of(*records)
    found = figures(recorded)
    page_of(recorded)
    query = found.queries[0]
    assert query.late == sum(query.phases.values())
    assert query.late <= query.results
    assert query.held == pytest.approx(sum(step[0] for step in steps), abs=1e-3)
    assert found.queries[1].held == 0.0, "it takes no turns"
    for cause in query.worst:
        assert sum(cause.seconds.values()) == pytest.approx(cause.out - cause.due, abs=1e-3)


def test_a_query_that_was_held_while_others_ran_says_so() -> None:
    recorded = of(
        started("slow"), started("ads-3"), started("ads-7"), started("far"),
        batch("slow", 0, 8.0, 8.1, 8.2),
        batch("ads-3", 0, 10.0, 10.1, 10.7),
        batch("ads-7", 0, 10.2, 10.3, 11.1),
        batch("far", 0, 1.0, 1.1, 9.0),
        turn("slow", 8.2, 11.2),
        batch("slow", 1, 11.2, 11.25, 11.4, 10.0),
    )  # fmt: skip
    query = next(q for q in figures(recorded).queries if q.name == "slow")
    (cause,) = query.worst
    assert cause.words == "late by 0.4 s: held 1.2 s while ads-7 and ads-3 ran"
    assert cause.phase == "held"
    assert "late by 0.4 s: held 1.2 s while ads-7 and ads-3 ran" in page_of(recorded)


def test_only_the_first_batch_of_a_turn_was_held_as_on_the_board() -> None:
    records = [
        RUN,
        started("turns"),
        turn("turns", 4.0, 10.0),
        batch("turns", 0, 10.0, 10.3, 10.5),
        msgspec.structs.replace(batch("turns", 1, 10.6, 10.7, 10.9), granted=AT + 10.0),
        started("free", window=None),
        *(batch("free", n, 10.0 * n, 10.0 * n, 10.0 * n + 0.5) for n in range(5)),
    ]
    board = Board()
    for record in records:
        board.observe(record)
    live = {query.name: query.held_seconds for query in board.snapshot(AT + 50.0).queries}
    held = {query.name: query.held for query in figures(Recorded.of(records)).queries}
    assert live == held == {"turns": pytest.approx(6.0), "free": 0.0}


def cause_of(*batches: Batch, turns: tuple[Turn, ...] = ()) -> str:
    recorded = of(started("q"), *turns, *batches)
    (cause,) = figures(recorded).queries[0].worst
    return cause.words


def test_causes_in_words() -> None:
    before = batch("q", 0, 8.0, 8.1, 8.2)
    held = (turn("q", 8.2, 11.4),)
    assert cause_of(before, batch("q", 1, 11.4, 11.45, 11.5, 10.0), turns=held) == (
        "late by 0.5 s: held 1.4 s although nothing else ran"
    )
    assert cause_of(before, batch("q", 1, 11.4, 11.45, 11.5, 10.0)) == (
        "late by 0.5 s: no batch of it began for 1.4 s"
    ), "it takes no turns"
    assert cause_of(before, batch("q", 1, 10.1, 10.2, 11.9, 10.0)) == (
        "late by 0.9 s: its batches ran 1.7 s (one usually 0.9 s)"
    )
    assert cause_of(before, batch("q", 1, 10.1, 11.5, 11.6, 10.0)) == (
        "late by 0.6 s: planning took 1.4 s (one usually 0.8 s)"
    )
    early = batch("q", 1, 9.8, 9.9, 11.4)
    assert cause_of(early, batch("q", 2, 11.4, 11.5, 11.8, 10.0)) == (
        "late by 0.8 s: still busy for 1.4 s with a batch that had read before it was due"
    )
    waited = Turn(AT + 11.5, "q", AT + 11.4, "batch", "planned")
    assert cause_of(before, batch("q", 1, 11.5, 11.6, 11.7, 10.0), turns=(waited,)) == (
        "late by 0.7 s: no rows came for 1.4 s"
    )


def test_verdicts() -> None:
    on_time = [batch("met", n, 10 * n, 10 * n + 0.1, 10 * n + 0.3, 10.0 * n) for n in range(1, 5)]
    near = [batch("near", n, 10 * n, 10 * n + 0.1, 10 * n + 0.95, 10.0 * n) for n in range(1, 5)]
    late = [batch("late", n, 10 * n, 10 * n + 0.1, 10 * n + 1.3, 10.0 * n) for n in range(1, 5)]
    recorded = of(
        started("met"), started("near"), started("late"), started("silent"),
        started("free", objective=None), *on_time, *near, *late,
        batch("free", 0, 1.0, 1.1, 1.2, 0.5),
        Ended(AT + 45.0, "late", "the <sink> said no"), Ended(AT + 45.0, "met"),
    )  # fmt: skip
    found = {q.name: q for q in figures(recorded).queries}
    assert {name: q.verdict for name, q in found.items()} == {
        "met": "met", "near": "at risk", "late": "failed", "silent": "no data",
        "free": "no objective",
    }  # fmt: skip
    assert (found["late"].state, found["met"].state, found["near"].state) == (
        "failed", "ended", "running",
    )  # fmt: skip
    page = page_of(recorded)
    assert "2 of 4 queries met their objectives (1 failed, 1 gave no result): 66.7 %" in page
    assert "the &lt;sink&gt; said no" in page


def test_a_query_that_was_starved_until_the_end_is_shown() -> None:
    recorded = of(
        started("starved"), started("broken"), started("busy"),
        turn("starved", 0.5, 1.0), batch("starved", 0, 1.0, 1.1, 1.2),
        turn("busy", 0.5, 1.0), batch("busy", 0, 1.0, 1.1, 90.0, 10.0),
        turn("broken", 2.0, 60.0), Ended(AT + 62.0, "broken", "no"), Ended(AT + 95.0, "starved"),
    )  # fmt: skip
    found = {q.name: q for q in figures(recorded).queries}
    assert found["starved"].waited == pytest.approx(95.0 - 1.2)
    assert found["broken"].waited == pytest.approx(58.0)
    assert found["busy"].waited == pytest.approx(95.0 - 90.0)
    held = {row.name: row.stretches["held"] for row in rows(recorded)}
    assert held["starved"][-1] == pytest.approx((AT + 1.2, AT + 95.0))
    ran = {row.name: row.stretches["running"] for row in rows(recorded)}
    assert ran["broken"] == [pytest.approx((AT + 60.0, AT + 62.0))]
    page = page_of(recorded)
    assert "0 of 3 queries met their objectives (1 failed, 1 gave no result)" in page
    assert "starved gave no result; it was held for 94 s." in page


def test_a_query_that_never_got_a_turn_was_held_all_the_time() -> None:
    recorded = of(
        started("starved"), started("busy"), started("broken"),
        turn("busy", 0.5, 1.0), batch("busy", 0, 1.0, 1.1, 90.0, 10.0),
        Ended(AT, "broken", "no such table"), Ended(AT + 95.0, "starved"),
    )  # fmt: skip
    (held,) = [row.stretches["held"] for row in rows(recorded) if row.name == "starved"]
    assert held[-1][1] == pytest.approx(AT + 95.0)
    page = page_of(recorded)
    assert "starved gave no result; it was held for" in page
    assert "broken failed: no such table" in page
    assert "broken gave no result" not in page
    stock = of(started("silent"), started("busy"), batch("busy", 0, 1.0, 1.1, 90.0, 10.0))
    assert "silent gave no result.</li>" in page_of(stock), "nothing holds what takes no turns"


def test_of_a_largest_latency_none_may_be_late() -> None:
    late = Started(AT, "q", "max <= 1 s", 1.0, 1.0, (10.0, 10.0, 0.0))
    page = page_of(of(late, batch("q", 0, 1.0, 1.1, 9.0, 1.0)))
    assert "late, none may be" in page
    assert "overdrawn" not in page


def test_late_rows_are_told_apart_by_phase_as_well() -> None:
    slow = Batch("rows", 0, AT, AT + 4.0, AT + 4.0, AT + 4.1, AT + 4.2, input=2.0)
    recorded = of(started("rows", window=None), slow)
    (query,) = figures(recorded).queries
    assert 0 < query.late < query.results
    assert sum(query.phases.values()) == query.late
    page_of(recorded)


def test_windows_and_rows_are_not_added_up(tmp_path: Path) -> None:
    recorded = on_spark(MIXED, tmp_path)
    found = figures(recorded)
    assert list(found.groups) == ["windows", "rows"]
    windows = sum(len(b.ends) for them in recorded.batches.values() for b in them)
    assert found.groups["windows"].results == windows
    assert found.results == sum(query.results for query in found.queries) > 10 * windows
    assert re.search(r"% of the windows and [\d.]+ % of the rows were on time", page_of(recorded))


def test_an_empty_run_and_one_with_one_batch() -> None:
    assert "No result was recorded." in page_of(of())
    assert "No result was recorded." in page_of(of(started("q")))
    page = page_of(of(started("q"), batch("q", 0, 10.0, 10.1, 10.2, 10.0)))
    assert "The objective was met: 100.0 % of the windows were on time." in page


def test_sources_reduces_and_plans_are_shown_where_recorded() -> None:
    recorded = of(
        started("q", window=None),
        Source(AT + 1, "q", issued=100, replayed=3, backlog={"0": 50}, lanes=(Lane(0, "here"),)),
        Source(AT + 2, "q", issued=200, replayed=7, backlog={"0": 20}),
        Reduced(AT + 1, "sums", 0, 0.5, rows=90, on_time=80, late=2, shed={"deadline": 8}),
        Reduced(AT + 2, "sums", 1, 0.5, rows=10, on_time=10),
        Started(AT, "sums"),
        Expected(AT + 2, "q", "p99", 0.4, 0.3, 0.5, 0.41, 1000.0, 1200.0),
        LeftOut(AT + 3, 12, "disk full"),
    )
    page = page_of(recorded)
    for text in (
        "Sources",
        "Reduces",
        "Plans",
        "deadline 8",
        "0.30 and 0.50",
        "12 records are missing",
    ):
        assert text in page
    sums = next(q for q in figures(recorded).queries if q.name == "sums")
    assert (sums.results, sums.late, sums.verdict) == (100, 10, "missed")
    assert "sums: of 100 rows 2 came out late and 8 were shed (deadline 8)." in page


def test_every_source_of_a_query_is_shown() -> None:
    recorded = of(
        started("q"),
        Source(AT + 1.0, "q", issued=1_000, backlog={"a": 5_000}, source="1"),
        Source(AT + 1.1, "q", issued=7, backlog={"b": 1}, source="2"),
        Source(AT + 2.0, "q", issued=2_000, backlog={"a": 4_000}, source="1"),
    )
    found = figures(recorded).sources
    assert {name: source.issued for name, source in found.items()} == {"q/1": 2_000, "q/2": 7}
    page = page_of(recorded)
    for text in ("offsets issued", "q/1: waiting", "q/2: waiting"):
        assert text in page


def test_a_reduce_that_sheds_is_judged_by_its_rows_alone() -> None:
    records = [
        RUN,
        started("sums", window=None),
        batch("sums", 0, 10.0, 10.0, 12.0),
        Reduced(AT + 12.0, "sums", 0, 1.0, rows=100, on_time=50, shed={"deadline": 50}),
    ]
    board = Board()
    for record in records:
        board.observe(record)
    (now,) = board.snapshot(AT + 13.0).queries
    recorded = Recorded.of(records)
    (query,) = figures(recorded).queries
    assert (query.results, query.late, query.verdict, query.on_time) == (100, 50, "missed", 0.5)
    assert (query.budget, query.observed, query.latency) == (now.budget, None, None)
    assert (query.phases, query.worst) == ({}, ()), "its batches do not tell"
    assert "of 100 rows 0 came out late and 50 were shed (deadline 50)." in page_of(recorded)


def test_names_are_shown_as_they_are_and_do_nothing() -> None:
    name = "<script>alert('&')</script>"
    recorded = of(started(name), batch(name, 0, 10.0, 10.1, 12.2, 10.0))
    assert "&lt;script&gt;" in page_of(recorded)


def test_an_hour_of_sixteen_queries_is_a_small_page() -> None:
    records: list[Record] = [started(f"query-{n:02}", window=12.0) for n in range(16)]
    for n in range(16):
        for k in range(1, 300):
            end = 12.0 * k + 0.75 * n
            slow = 1.2 if k % 7 == 0 else 0.0
            name = f"query-{n:02}"
            records.append(batch(name, 2 * k, end + 0.02, end + 0.15, end + 0.3))
            records.append(
                batch(name, 2 * k + 1, end + 0.3, end + 0.4 + slow, end + 0.6 + slow, end)
            )
    recorded = of(*records)
    began = time.process_time()
    page = page_of(recorded)
    assert len(page.encode()) < 1_000_000
    assert time.process_time() - began < 20.0  # measured: about a second


# -- two runs ----------------------------------------------------------------------------------


def test_two_runs_side_by_side(tmp_path: Path) -> None:
    them = on_spark("round-robin", tmp_path), on_spark("least-slack", tmp_path)
    found = figures(them[0]), figures(them[1])
    page = checked(compare(them, found))
    for text in ("differs", "round-robin", "(better)", "points (better)", "ads-7, B"):
        assert text in page
    assert "(worse)" in checked(compare(them[::-1], found[::-1]))


def test_latencies_of_two_runs_are_compared_from_the_windows_end() -> None:
    """The same windows out at the same times, but with another delay learned."""

    def run_with(delay: float, late: float) -> Recorded:
        them = [batch("q", n, 10 * n, 10 * n + 0.1, 10 * n + late, 10.0 * n) for n in range(1, 5)]
        return of(started("q"), *(msgspec.structs.replace(each, delay=delay) for each in them))

    a, b = run_with(0.4, 0.8), run_with(0.02, 0.8)
    found = figures(a), figures(b)
    assert [f.queries[0].latency.mean for f in found if f.queries[0].latency] == [
        pytest.approx(0.4), pytest.approx(0.78),
    ]  # fmt: skip
    assert [f.queries[0].from_end.mean for f in found if f.queries[0].from_end] == [
        pytest.approx(0.8), pytest.approx(0.8),
    ]  # fmt: skip
    page = checked(compare((a, b), found))
    assert "(worse)" not in page
    assert 'windows, mean s</td><td class="n">0.80</td><td class="n">0.80</td>' in page
    assert "its windows were due 0.40 s after their end in A and 0.020 s in B" in page
    alike = run_with(0.4, 0.8), run_with(0.44, 1.2)
    page = checked(compare(alike, (figures(alike[0]), figures(alike[1]))))
    assert "its windows were due" not in page
    assert "+50 % (worse)" in page


def test_two_runs_that_have_little_in_common() -> None:
    a = of(started("only-a"), started("both"), batch("both", 0, 10.0, 10.1, 10.3, 10.0))
    b = Recorded.of([Run(AT + 1e6, "b", "fcfs", 1, 60.0), started("both", 2.0)])
    page = checked(compare((a, b), (figures(a), figures(b))))
    assert "Only in A: only-a." in page
    assert "Objectives differ: both." in page
    assert "The machines or their settings differ" in page
    checked(compare((of(), b), (figures(of()), figures(b))))


# -- pictures ----------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.floats(0.0, 1e4), st.floats(0.0, 100.0), st.booleans()), max_size=300),
    st.integers(1, 50),
)
def test_thinning_keeps_the_worst(values: list[tuple[float, float, bool]], most: int) -> None:
    marks = [Mark(*each) for each in sorted(values)]
    kept, behind = thinned(marks, most)
    assert len(kept) <= most
    assert len(kept) * behind >= len(marks)
    assert all(mark in marks for mark in kept)
    if marks:
        worst = max(marks, key=lambda mark: (mark.bad, mark.value))
        assert any((m.bad, m.value) == (worst.bad, worst.value) for m in kept)


@given(
    st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 10.0)), max_size=30),
    st.floats(0.0, 5.0),
)
def test_what_is_joined_covers_the_same_and_little_more(
    pieces: list[tuple[float, float]], near: float
) -> None:
    stretches = [(a, a + long) for a, long in pieces if long > 0.0]
    found = joined(stretches, near, 0.0, 200.0)
    assert all(a[1] < b[0] for a, b in pairwise(found))
    for begin, end in stretches:
        assert any(a <= begin and end <= b for a, b in found)


@given(st.floats(1e-3, 1e6), st.integers(2, 10))
def test_ticks_are_few_and_inside(high: float, about: int) -> None:
    found = ticks(0.0, high, about)
    assert 1 <= len(found) <= about + 1
    assert all(0.0 <= tick <= high * (1 + 1e-6) for tick in found)
    assert high * (1 - 1e-6) <= nice_top(high) <= 2.0 * high + 1e-9
    assert math.isfinite(nice_top(math.nan))


# -- the command -------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.main, ["report", *arguments])
    return done.exit_code, " ".join(done.output.split())


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = unpacked("round-robin", tmp_path)
    code, said = run(str(folder), "--json", "figures.json")
    assert code == 0, said
    assert "0 of 8 queries met their objectives" in said
    assert "report: report.html" in said
    checked(Path("report.html").read_text(encoding="utf-8"))
    written = json.loads(Path("figures.json").read_text())
    assert len(written["queries"]) == 8
    code, said = run(str(folder), "--json", "-")
    assert (code, json.loads(said)) == (0, written)


def test_what_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    folder = unpacked("least-slack", tmp_path)
    (tmp_path / "file").write_text("no folder")
    page, below = tmp_path / "page.html", tmp_path / "file" / "x"
    for arguments in (["-o", str(below)], ["-o", str(page), "--json", str(below)]):
        code, said = run(str(folder), *arguments)
        assert code == 1
        assert f"Error: {below} cannot be written: " in said
    assert page.exists()


def test_paths_are_told_as_they_are(tmp_path: Path) -> None:
    folder = unpacked("least-slack", tmp_path / "runs[" / "eu]")
    page = tmp_path / "page[" / "eu].html"
    code, said = run(str(folder), "-o", str(page))
    assert code == 0, said
    assert f"report: {page}" in said
    code, said = run(str(tmp_path / "gone[" / "eu]"))
    assert (code, "gone[/eu]" in said.replace(" ", "")) == (1, True)


def test_the_command_compares(tmp_path: Path) -> None:
    folders = [str(unpacked(name, tmp_path)) for name in ("round-robin", "least-slack")]
    page, file = tmp_path / "out" / "both.html", tmp_path / "both.json"
    code, said = run(*folders, "-o", str(page), "--json", str(file))
    assert code == 0, said
    assert "B against A" in checked(page.read_text(encoding="utf-8"))
    assert [each["policy"] for each in json.loads(file.read_text())] == [
        "round-robin",
        "least-slack",
    ]
    assert run(*folders, *folders)[0] == 2


def test_the_newest_run_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_TRACE", str(tmp_path))
    for name, policy in (("20260101-000000-aa", "fcfs"), ("20260102-000000-bb", "streambox")):
        (tmp_path / name).mkdir()
        lines = [encode(Run(AT, name, policy, 1, 60.0)), encode(started("q"))]
        (tmp_path / name / "000001.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    code, said = run("-o", str(tmp_path / "page.html"))
    assert code == 0, said
    assert "20260102-000000-bb: No result was recorded." in said


def test_what_was_looked_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_TRACE", str(tmp_path / "nowhere"))
    code, said = run()
    assert code == 1
    assert str(tmp_path / "nowhere") in said.replace(" ", "")
    monkeypatch.setenv("TAUT_TRACE", "off")
    code, said = run()
    assert (code, "TAUT_TRACE=off" in said) == (1, True)
    code, said = run(str(tmp_path / "gone"))
    assert (code, "gone" in said) == (1, True)
    (tmp_path / "000001.jsonl").write_bytes(encode(started("q")) + b"\n")
    code, said = run(str(tmp_path))
    assert (code, "holds no run" in said) == (1, True)
    newer = encode(Run(AT, "r", "fcfs", 1, 60.0, version=99)) + b"\n"
    (tmp_path / "000001.jsonl").write_bytes(newer)
    code, said = run(str(tmp_path))
    assert (code, "newer Taut" in said) == (1, True)


def test_a_run_that_was_cut_off_is_reported_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = unpacked("least-slack", tmp_path)
    whole = (folder / "000001.jsonl").read_bytes()
    (folder / "000001.jsonl").write_bytes(whole[: len(whole) * 2 // 3])
    assert 0 < figures(load(folder)).results < 61

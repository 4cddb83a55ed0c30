from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.slo import Slo
from taut.watch.board import MOST_ENDED, MOST_OTHERS, Board
from taut.watch.metrics import VERDICTS
from taut.watch.query_board import MOST_BARS, MOST_POINTS, Live
from taut.watch.records import (
    Batch,
    Chunk,
    Ended,
    Expected,
    Lane,
    LeftOut,
    Record,
    Reduced,
    Run,
    SlackParts,
    Source,
    Started,
    Turn,
)
from taut.watch.snapshot import QueryNow, decode, encode
from taut.watch.verdict import Turnout, budget, measured, verdict, waiting_for

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)
WINDOW = (10.0, 10.0, 0.0)


def board(*records: Record) -> Board:
    made = Board()
    made.observe(Run(0.0, "r", "least-slack", concurrency=2, hold_limit=60.0))
    for record in records:
        made.observe(record)
    made.check()
    return made


def started(query: str = "q", slo: str = "p90 <= 1 s", **more: object) -> Started:
    read = Slo(slo)
    return Started(0.0, query, slo, read.seconds, read.quantile, **more)  # type: ignore[arg-type]


def out(end: float, latency: float, *, batch: int = 0, late: int = 0, delay: float = 0.0) -> Batch:
    """A batch with one window, out so long after its end."""
    written = end + latency
    return Batch(
        "q", batch, written - 0.3, written - 0.3, written - 0.2, written - 0.1, written,
        input=10.0, watermark=end + 1.0, ends=(end,), windows=1, late=late, delay=delay,
    )  # fmt: skip


def only(made: Board, now: float, live: Live | None = None) -> QueryNow:
    (query,) = made.snapshot(now, {} if live is None else {"q": live}).queries
    return query


def test_the_objective_counts_from_when_a_window_was_due() -> None:
    made = board(started(window=WINDOW), out(10.0, 5.4, delay=5.0))
    seen = only(made, 16.0)
    assert seen.verdict == "met"
    assert seen.observed == pytest.approx(0.4)
    assert seen.latencies == ((15.4, pytest.approx(0.4)),)
    assert seen.latency is not None
    assert seen.latency.max == pytest.approx(5.4), "from its end"


def test_windows_are_on_time_late_and_counted() -> None:
    turn = Turn(9.7, "q", held_since=5.0, until="swept", why="policy")
    on_time = [out(10.0 * n, 0.4, batch=n) for n in range(1, 10)]
    made = board(started(window=WINDOW), turn, *on_time)
    seen = only(made, 91.0)
    assert (seen.verdict, seen.results, seen.late) == ("met", 9, 0)
    assert (seen.on_time, seen.budget) == (1.0, 1.0)
    assert seen.latency is not None
    assert seen.latency.max == pytest.approx(0.4)
    assert seen.due == 100.0
    assert len(seen.bars) == len(seen.latencies) == 9
    made.observe(out(100.0, 1.5, batch=10, late=1))
    seen = only(made, 101.6)
    assert (seen.verdict, seen.budget) == ("met", 0.0), "one of ten may be late"
    assert seen.on_time == pytest.approx(0.9)
    made.observe(out(110.0, 1.5, batch=11, late=1))
    seen = only(made, 111.6)
    assert seen.verdict == "missed"
    assert seen.budget is not None
    assert seen.budget < 0


def test_a_window_is_measured_against_its_objective_from_when_it_was_due() -> None:
    made = board(started(slo="max <= 1 s", window=WINDOW), out(10.0, 3.2, delay=3.0))
    seen = only(made, 14.0)
    assert seen.observed == pytest.approx(0.2)
    assert seen.latency is not None
    assert seen.latency.max == pytest.approx(3.2)
    assert seen.verdict == "met"


def test_two_minutes_later_nothing_is_known() -> None:
    made = board(started(window=WINDOW), out(10.0, 5.0, late=1))
    assert only(made, 16.0).verdict == "missed"
    seen = only(made, 300.0, Live("running", 20.0))
    assert (seen.verdict, seen.latency, seen.observed, seen.bars) == ("no data", None, None, ())
    assert (seen.results, seen.late) == (1, 1)
    assert seen.whole is not None
    assert (seen.whole.count, seen.whole.p999) == (1, 5.0), "of the whole run it is"


def test_rows_without_a_window_came_evenly() -> None:
    batch = Batch("q", 0, 9.9, 9.9, 10.0, 10.1, 10.5, input=2.0)
    seen = only(board(started(slo="p50 <= 2 s"), batch), 11.0)
    assert seen.latency is not None
    assert seen.results == seen.latency.count == 40
    assert seen.late == 10
    assert seen.latency.mean == pytest.approx(1.5)
    assert 0.5 < seen.latency.p50 < seen.latency.max < 2.5
    assert seen.latencies == ((10.5, 2.5),)
    assert seen.observed == pytest.approx(seen.latency.p50)


def test_rows_that_waited_nobody_knows_how_long_are_not_counted() -> None:
    first = Batch("q", 0, 9.9, 9.9, 10.0, 10.1, 10.5, input_known=False)
    seen = only(board(Started(0.0, "q", "p99 <= 1 s", 1.0, 0.99), first), 11.0)
    assert (seen.results, seen.on_time, seen.latency, seen.latencies) == (0, None, None, ())
    assert seen.batches == 1


def test_only_the_first_batch_of_a_turn_was_held() -> None:
    made = board(
        started(window=WINDOW),
        Turn(10.0, "q", held_since=4.0, until="swept", why="policy"),
        Batch("q", 0, 10.0, 10.1, 10.2, 10.3, 10.5, goes_on=True),
    )
    assert only(made, 10.6).state == "running"
    made.observe(Batch("q", 1, 10.0, 10.5, 10.6, 10.7, 10.9))
    seen = only(made, 11.0)
    assert seen.state == "held"
    assert [bar.held for bar in seen.bars] == [4.0, 10.5]
    assert seen.held_seconds == pytest.approx(6.1)
    assert {p: q.count for p, q in seen.phases.items()} == {"held": 2, "planning": 2, "running": 2}
    assert seen.phases["planning"].max == pytest.approx(0.2)


def test_a_batch_that_caught_up_counts_all_its_windows() -> None:
    batch = Batch("q", 0, 99.0, 99.0, 99.1, 99.2, 100.0, ends=(80.0, 90.0), windows=9, late=8)
    seen = only(board(started(window=WINDOW), batch), 100.0)
    assert seen.latency is not None
    assert (seen.results, seen.late, seen.latency.count) == (9, 8, 9)
    assert seen.latency.max == pytest.approx(90.0)


def test_what_only_the_runtime_knows_is_taken_from_it() -> None:
    made = board(started(window=WINDOW), out(10.0, 0.2))
    slack = SlackParts(5.0, 20.0, 19.0, 21.0, 0.4)
    seen = only(made, 15.0, Live("held", 10.3, 20.5, slack))
    assert (seen.state, seen.since, seen.due, seen.slack) == ("held", 10.3, 20.5, slack)
    assert seen.waiting_for == "Its next window, expected to be complete in 5.5 s."
    free = board(Started(0.0, "q", window=WINDOW), out(10.0, 0.2))
    assert only(free, 15.0, Live("held", 10.3, 20.5, slack)).slack is None, "nothing can be late"
    short = Live("held", 10.3, 20.5, SlackParts(0.1, 20.0, 19.0, 21.0, 0.4))
    assert only(made, 15.0, short).verdict == "at risk"
    assert only(made, 22.0, Live("held", 10.3, 20.5)).verdict == "at risk", "it is overdue"


def test_a_resident_query_has_no_latency_of_batches() -> None:
    seen = only(board(Started(0.0, "q", resident=2), Batch("q", 0, 1, 1, 1, 1, 30, 29.0)), 31.0)
    assert (seen.latency, seen.results, seen.batches, seen.state) == (None, 0, 1, "running")


def test_rows_of_a_reduce_are_what_counts() -> None:
    made = board(started(slo="p80 <= 1 s"), Batch("q", 0, 1.0, 1.0, 1.0, 1.0, 2.0, 1.0))
    assert only(made, 3.0).observed is not None
    made.observe(Reduced(2.0, "q", 0, 1.0, rows=110, on_time=95, late=5, shed={"late": 10}))
    made.observe(Reduced(3.0, "q", 1, 1.0, rows=20, on_time=20, shed={"late": 1}, hot=3))
    made.observe(Batch("q", 1, 2.0, 2.0, 2.0, 2.0, 3.0, 1.0))
    snapshot = made.snapshot(3.0)
    (seen,), (reduce,) = snapshot.queries, snapshot.reduces
    assert (seen.results, seen.late, seen.verdict) == (131, 16, "met")
    assert (reduce.rows, reduce.on_time, reduce.late, reduce.hot) == (130, 115, 5, 3)
    assert reduce.shed == {"late": 11}
    assert reduce.history == ((2.0, 95, 5, 10), (3.0, 20, 0, 1))
    assert (seen.observed, seen.latency, seen.latencies) == (None, None, ()), "batches do not tell"
    assert seen.bars[-1].late == 1


@pytest.mark.parametrize("slo", ["p99 <= 1 s", "mean <= 1 s"])
def test_a_reduce_that_sheds_instead_of_being_late_misses(slo: str) -> None:
    shed = Reduced(2.0, "q", 0, 1.0, rows=100, processed=50, on_time=50, shed={"late": 50})
    seen = only(board(started(slo=slo), shed), 3.0)
    assert (seen.results, seen.late, seen.on_time) == (100, 50, 0.5)
    assert seen.verdict == "missed"
    if "p99" in slo:
        assert seen.budget == -49.0


def test_sources_lanes_and_stragglers() -> None:
    chunks = tuple(Chunk(n % 2, n, 10, 5.0, 5.1) for n in range(40))
    lanes = (Lane(0, "a", 200, 20, 3.0), Lane(1, "b", 200, 20, 4.0))
    made = board(Source(5.5, "q", 400, 0, backlog={"p": 7}, lanes=lanes, chunks=chunks))
    later = (Lane(0, "a", 300, 30, 3.5, open_since=6.4), Lane(1, "b", 250, 25, 4.5, 7.4))
    made.observe(Source(7.5, "q", 550, 50, 0.01, {"a": 0.6}, {"p": 3, "r": 4}, later))
    (seen,) = made.snapshot(8.0).sources
    assert (seen.issued, seen.replayed, seen.cost) == (550, 50, 0.1)
    assert seen.busy == pytest.approx((0.8, 0.3))
    assert seen.stragglers == (0,)
    assert seen.history == ((5.5, 7, 0.0), (7.5, 7, 75.0))
    assert seen.share_history == ((7.5, {"a": 0.6}),)
    assert seen.chunk is not None
    assert seen.chunk.count == 40
    assert {lane: q.count for lane, q in seen.lane_chunks.items()} == {0: 20, 1: 20}


def test_a_lane_on_a_long_chunk_is_busy() -> None:
    at_work = [Source(t, "q", lanes=(Lane(0, "a", open_since=0.5),)) for t in range(1, 31)]
    made = board(*at_work)
    assert made.snapshot(30.0).sources[0].busy == (1.0,)
    # done at 31: only what it worked since the first look counts, and not all of the chunk
    for t in range(31, 37):
        made.observe(Source(t, "q", lanes=(Lane(0, "a", rows=1, chunks=1, busy=30.5),)))
    assert made.snapshot(36.0).sources[0].busy == pytest.approx((0.5,), abs=0.05)


def test_a_lane_is_busy_after_a_clock_was_set_back() -> None:
    def look(at: float, busy: float) -> Source:
        return Source(at, "q", lanes=(Lane(0, "a", busy=busy),))

    made = board(look(1_000.0, 0.0), look(1_001.0, 0.5))
    made.observe(look(500.0, 0.6))
    made.observe(look(502.0, 1.6))
    assert made.snapshot(502.0).sources[0].busy == pytest.approx((0.5,))


def test_plans_ends_failures_and_what_is_missing() -> None:
    made = board(
        started(),
        Expected(1.0, "q", "p90", 0.5, 0.4, 0.6, observed=0.55, phases={"read": 0.1}),
        Ended(2.0, "q", error="boom"),
        LeftOut(3.0, 12, "disk full"),
    )
    snapshot = made.snapshot(4.0, notes=["policy failed"])
    assert snapshot.plans[0].expected == 0.5
    assert snapshot.notes == ("policy failed", "12 records were left out: disk full")
    (seen,) = snapshot.queries
    assert (seen.state, seen.verdict, seen.error) == ("failed", "failed", "boom")
    assert seen.waiting_for == "Nothing: it has failed (boom)."
    made.observe(started())
    assert only(made, 5.0).state == "waiting for data", "started again under the same name"


def test_memory_is_bounded_whatever_ends() -> None:
    made = board()
    for n in range(300):
        made.observe(Started(n, f"q{n}"))
        made.observe(Batch(f"q{n}", 0, n, n, n, n, n + 0.5))
        made.observe(Ended(n + 1.0, f"q{n}"))
    for n in range(3_000):
        made.observe(out(n, 0.3, batch=n))
    made.check()
    snapshot = made.snapshot(3_000.0)
    assert len(snapshot.queries) == MOST_ENDED + 1
    busy = next(q for q in snapshot.queries if q.name == "q")
    assert busy.batches == 3_000
    assert len(busy.bars) <= MOST_BARS
    assert len(busy.latencies) == MOST_POINTS
    assert decode(encode(snapshot)) == snapshot


def test_a_source_of_files_counts_bytes() -> None:
    made = board(Source(1.0, "q", backlog={"a": 7}, unit="bytes"), Source(1.0, "r"))
    assert {source.query: source.unit for source in made.snapshot(2.0).sources} == {
        "q": "bytes",
        "r": "rows",
    }


def test_sources_of_ended_queries_go_with_them() -> None:
    made = board()
    for n in range(150):
        made.observe(Started(n, f"q{n}"))
        for source in ("", "1", "2"):
            made.observe(Source(n, f"q{n}", source=source))
        made.observe(Ended(n + 0.5, f"q{n}"))
    names = {source.query for source in made.snapshot(200.0).sources}
    assert names == {f"q{n}{s}" for n in range(50, 150) for s in ("", "/1", "/2")}


def test_what_was_not_heard_of_for_longest_goes_first() -> None:
    made = board()
    for n in range(MOST_OTHERS):
        made.observe(Source(n + 0.1, "first"))
        made.observe(Reduced(n + 0.1, "first", n))
        made.observe(Expected(n + 0.1, "first", "p9", 1, 1, 1))
        made.observe(Source(n, f"q{n}"))
        made.observe(Reduced(n, f"q{n}", 0))
        made.observe(Expected(n, f"q{n}", "p9", 1, 1, 1))
        made.check()
    snapshot = made.snapshot(1_000.0)
    for them in (snapshot.sources, snapshot.reduces, snapshot.plans):
        names = {each.query for each in them}
        assert len(names) == MOST_OTHERS
        assert "first" in names
        assert "q0" not in names


def test_a_query_that_was_started_again_counts_anew() -> None:
    first = Started(1.0, "q", "p90 <= 1 s", 1.0, 0.9)
    made = board(first, out(10.0, 5.0, late=1), Source(11.0, "q", 9))
    made.observe(Reduced(12.0, "q", 0, 1.0, rows=5, on_time=5))
    made.observe(Started(1.0, "q", "p90 <= 1 s", 1.0, 0.9, WINDOW))
    assert only(made, 20.0).results == 5, "told again while it lives"
    made.observe(Started(20.0, "q", "p90 <= 1 s", 1.0, 0.9, WINDOW))
    snapshot = made.snapshot(20.0)
    assert [query.results for query in snapshot.queries] == [0]
    assert (snapshot.sources, snapshot.reduces) == ((), ()), "they count since their start as well"


def test_what_is_heard_of_before_its_start_is_the_same_query() -> None:
    made = board(
        Turn(9.9, "q", held_since=5.0, until="swept", why="policy"),
        Started(9.95, "q", "p90 <= 1 s", 1.0, 0.9, WINDOW),
        Batch("q", 0, 9.9, 9.9, 10.0, 10.1, 10.2),
    )
    assert only(made, 10.3).held_seconds == pytest.approx(4.9)


def test_a_clock_that_is_set_back_does_not_freeze_a_verdict() -> None:
    late = [Batch("q", n, *[10_000.0 + n] * 4, 10_009.0 + n) for n in range(20)]
    fine = [Batch("q", n, *[9_400.0 + n] * 4, 9_400.1 + n) for n in range(100)]
    made = board(started(slo="mean <= 1 s"), *late)
    assert only(made, 10_030.0).verdict == "missed"
    for batch in fine:
        made.observe(batch)
    seen = only(made, 9_500.0)
    assert (seen.verdict, seen.observed) == ("met", pytest.approx(0.1))


times = st.floats(0.0, 500.0)
names = st.sampled_from(["a", "b"])
records = st.one_of(
    st.builds(Started, times, names, st.sampled_from([None, "p90 <= 1 s"]), st.just(1.0)),
    st.builds(Started, times, names, window=st.just(WINDOW)),
    st.builds(Ended, times, names),
    st.builds(Turn, times, names, times, st.just("batch"), st.just("policy")),
    st.builds(
        Batch, names, st.integers(0, 9), times, times, times, times, times, times, times,
        st.lists(times, max_size=3).map(tuple), st.integers(0, 3), st.integers(0, 5),
    ),
    st.builds(
        Reduced, times, names, st.integers(0, 9), on_time=st.integers(0, 9),
        late=st.integers(0, 9), shed=st.dictionaries(names, st.integers(0, 9)),
    ),
)  # fmt: skip


@STEADY
@given(st.lists(records, max_size=40), times)
def test_whatever_is_told_it_stands(told: list[Record], now: float) -> None:
    made = board()
    for record in told:
        made.observe(record)
        made.check()
    snapshot = made.snapshot(now)
    assert snapshot == made.snapshot(now), "looking changes nothing"
    assert decode(encode(snapshot)) == snapshot
    for query in snapshot.queries:
        assert query.on_time is None or 0.0 <= query.on_time <= 1.0
        assert query.budget is None or query.budget <= 1.0
        assert query.verdict in VERDICTS
        assert query.waiting_for.endswith(".")


def test_verdicts_of_means_and_of_objectives_without_a_share() -> None:
    mean = Slo("mean <= 1 s")
    assert measured(mean, 1.0, 0.5, 10, 3) == "met"
    assert measured(mean, 1.0, 0.95, 10, 3) == "at risk"
    assert measured(mean, 1.0, 1.05, 10, 3) == "missed"
    assert measured(None, 1.0, 0.5, 10, 0) == "met"
    assert measured(None, 1.0, 0.5, 10, 1) == "missed"
    assert measured(None, None, None, 10, 1) == "no objective"
    assert measured(mean, 1.0, None, 0, 0) == "no data"
    assert budget(mean, 10, 3) is budget(None, 10, 3) is None


def test_the_result_to_come_is_at_risk_once_it_is_late_and_then_missed() -> None:
    short = SlackParts(0.1, 20.0, 19.0, 21.0, 0.4)
    for state in ("held", "planned", "running"):
        for said in ("met", "at risk", "no data"):
            assert verdict(said, 4.0, 1.0, 3.5, None, state) == said
            assert verdict(said, 4.6, 1.0, 3.5, None, state) == "at risk"
            assert verdict(said, 5.6, 1.0, 3.5, None, state) == "missed"
    assert verdict("met", 4.0, 1.0, 3.5, short, "held") == "at risk"
    assert verdict("met", 4.0, 1.0, 3.5, short, "running") == "met"
    for state in ("waiting for data", "ended"):
        assert verdict("met", 500.0, 1.0, 3.0, short, state) == "met", "nothing is due"
    for said in ("met", "no data", "no objective"):
        assert verdict(said, 500.0, None, None, None, "failed") == "failed"


def test_an_idle_stream_is_not_late() -> None:
    made = board(started(window=WINDOW), out(100.0, 0.4))
    idle = Live("waiting for data", 101.0, 110.5)
    assert only(made, 115.0, idle).verdict == "met"
    assert only(made, 500.0, idle).verdict == "no data"


def test_a_query_that_hangs_is_missed_for_as_long_as_it_does() -> None:
    made = board(started(window=WINDOW), out(100.0, 0.4))
    for state in ("held", "running"):
        for now in (113.0, 500.0):
            assert only(made, now, Live(state, 101.0, 110.5)).verdict == "missed"


def test_a_batch_without_windows_that_hangs_is_missed() -> None:
    done = Batch("q", 0, 100.0, 100.0, 100.1, 100.2, 100.4, input=0.5)
    turn = Turn(101.0, "q", held_since=100.5, until="batch", why="policy")
    made = board(started(), Turn(100.0, "q", 99.0, "batch", "policy"), done, turn)
    verdicts = [
        only(made, now, Live("running", 101.0)).verdict for now in (101.9, 102.5, 103.5, 700.0)
    ]
    assert verdicts == ["met", "at risk", "missed", "missed"]
    assert only(made, 700.0, Live("planned", 101.0)).verdict == "missed"
    assert only(made, 700.0, Live("waiting for data", 101.0)).verdict == "no data"
    free = board(started(), Batch("q", 0, 100.0, 100.0, 100.1, 100.2, 100.4, goes_on=True))
    seen = only(free, 130.0, Live("running", 0.0))
    assert seen.verdict == "met", "who takes no turns may be idle"


def test_rows_that_wait_for_a_turn_are_late_as_well() -> None:
    done = Batch("q", 0, 100.0, 100.0, 100.1, 100.2, 100.4, input=0.5)
    made = board(started(), Turn(100.0, "q", 99.0, "batch", "policy"), done)
    moments = (101.0, 101.2, 102.2, 190.0, 700.0)
    for live in (Live("held", 100.4), None):
        verdicts = [only(made, now, live).verdict for now in moments]
        assert verdicts == ["met", "at risk", "missed", "missed", "missed"]
    first = board(started())
    assert only(first, 109.0, Live("planned", 100.0)).verdict == "missed", "its first turn"
    assert only(first, 109.0, Live("waiting for data", 100.0)).verdict == "no data"
    assert only(first, 109.0, Live("running", 100.0)).verdict == "no data", "it takes no turns"


def test_a_first_window_that_waits_for_a_turn_is_late_as_well() -> None:
    """A query that was let read nothing but its empty first batch has no watermark yet."""
    first = Batch("q", 0, 101.0, 101.0, 101.1, 101.2, 101.4, input_known=False)
    made = board(started(window=WINDOW), Turn(101.0, "q", 100.5, "batch", "planned"), first)
    for live in (Live("held", 101.4), None):
        moments = (105.0, 110.9, 111.1, 112.1, 200.0)
        verdicts = [only(made, now, live).verdict for now in moments]
        assert verdicts == ["no data", "no data", "at risk", "missed", "missed"]
    assert only(made, 200.0, Live("waiting for data", 101.4)).verdict == "no data"
    assert only(made, 112.1, Live("running", 111.5)).verdict == "no data", "its window ends at 120"
    made.observe(Batch("q", 1, 200.0, 200.0, 200.1, 200.2, 200.4, input=99.0))
    assert only(made, 200.5, Live("held", 200.4)).verdict == "missed", "of what it has read"
    assert only(made, 112.1, Live("held", 101.4)).awaited is not None, "since when, for the page"
    seen = only(made, 200.0, Live("held", 101.4))
    assert (seen.results, seen.budget, seen.on_time) == (0, None, None), "nothing is known of them"


@pytest.mark.parametrize(
    ("state", "due", "turns", "said"),
    [
        ("running", None, Turnout(1, 0, 2), "The batch that runs."),
        ("waiting for data", None, Turnout(0, 0, 2), "Rows to read: its sources have none."),
        ("held", 5.0, Turnout(2, 3, 2), "A turn: 2 of 2 run, and 2 more wait."),
        ("planned", None, Turnout(2, 1, 2), "A turn: 2 of 2 run."),
        ("held", 5.0, Turnout(1, 1, 2), "Its turn: its next window has been due for 5 s."),
        ("held", None, Turnout(0, 1, 2), "Its turn: the policy lets rows gather first."),
        ("ended", None, Turnout(0, 0, 2), "Nothing: it has ended."),
    ],
)
def test_what_a_query_waits_for(state: str, due: float | None, turns: Turnout, said: str) -> None:
    assert waiting_for(state, 10.0, due, turns) == said

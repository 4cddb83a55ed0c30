"""Replay: a run that was recorded comes out as it did, and other policies as they would have."""

from __future__ import annotations

import json
import re
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.console import Console
from tests.sim.recorded_runs import (
    MIXED,
    NAMES,
    RATE,
    RUNS,
    TRACED,
    ZERO,
    made_up,
    on_spark,
    past,
    unpacked,
)

from taut import cli
from taut.errors import TautError
from taut.sim.replay import Replay, known_policies, replay
from taut.sim.replay.command import show
from taut.sim.replay.costs import Pace, fit
from taut.sim.replay.past import ROWS_EVERY, pasts, results
from taut.sim.replay.query import Front
from taut.sim.replay.run import Figures, Outcome, _doubts
from taut.watch.recorded import Recorded, load
from taut.watch.records import Batch, Ended, Run, Started, Turn, encode

ALONE = Pace(0.0, 2.0, 8)
RUN = Run(ZERO, "r", "least-slack", 2, 60.0, machine={"cores": 2})


def mean(found: Replay, policy: str) -> float:
    outcome = found.outcome(policy)
    assert outcome is not None
    assert outcome.all is not None
    return outcome.all.mean


# -- runs on Spark -----------------------------------------------------------------------------


@pytest.mark.parametrize("after", [0.0, 30.0])
@pytest.mark.parametrize("name", [*NAMES, TRACED, MIXED])
def test_the_policy_that_was_recorded_gives_what_was_recorded(
    name: str, after: float, tmp_path: Path
) -> None:
    recorded = on_spark(name, tmp_path)
    found = replay(recorded, [recorded.run.policy], after=after)
    was, again = found.recorded.all, found.outcomes[0].all
    assert was is not None
    assert again is not None
    assert again.mean == pytest.approx(was.mean, rel=0.1)
    assert again.p50 == pytest.approx(was.p50, rel=0.1)
    if after or name != TRACED:
        # that run's worst result is one of its first, while all queries start at once
        assert again.p99 == pytest.approx(was.p99, rel=0.15)
    assert again.results == was.results
    assert again.on_time == pytest.approx(was.on_time, abs=2)
    for query, figures in found.recorded.queries.items():
        if query.startswith("rows"):
            assert found.outcomes[0].queries[query].mean == pytest.approx(figures.mean, rel=0.1)
    assert found.outcomes[0].batches == pytest.approx(found.recorded.batches, rel=0.1)


def test_a_watermark_that_moved_on_takes_a_batch_without_rows(tmp_path: Path) -> None:
    """Rows come once a second: what is due comes out before the next ones, not with them."""
    recorded = on_spark(RATE, tmp_path)
    found = replay(recorded, [recorded.run.policy])
    was, again = found.recorded.all, found.outcomes[0].all
    assert was is not None
    assert again is not None
    assert again.mean == pytest.approx(was.mean, rel=0.1)
    assert again.p99 == pytest.approx(was.p99, rel=0.1)
    assert not [note for note in found.notes if "rely" in note]


def test_a_replay_that_is_far_off_says_so(tmp_path: Path) -> None:
    was = Figures(100, 100, 90, 1.0, 1.0, 1.0, 2.0, 2.0)

    def told(**figures: float) -> str:
        again = replace(was, **figures)
        return " ".join(_doubts(Outcome("fcfs", was, {}, 1), [Outcome("fcfs", again, {}, 1)]))

    assert told(mean=1.24, p99=1.6) == ""
    assert told(mean=1.26).startswith("Do not rely on this replay: fcfs")
    assert told(mean=0.5).startswith("Do not rely on this replay: fcfs")
    assert told(missing=1).startswith("Do not rely on this replay: fcfs")
    assert told(p99=1.4).startswith("Do not rely on p99 and max here")
    recorded = on_spark(TRACED, tmp_path)
    (note,) = [n for n in replay(recorded, ["least-slack"]).notes if "rely" in n]
    assert "p99 and max" in note, "its worst result is one of its first"
    assert not [n for n in replay(recorded, ["least-slack"], after=30.0).notes if "rely" in n]


@pytest.mark.parametrize("name", NAMES)
def test_one_run_tells_how_another_policy_does(name: str, tmp_path: Path) -> None:
    """Runs of the same queries, one after the other, on a machine with others on it."""
    found = replay(on_spark(name, tmp_path), NAMES)
    for other in NAMES:
        was = replay(on_spark(other, tmp_path), [other]).recorded.all
        assert was is not None
        assert mean(found, other) == pytest.approx(was.mean, rel=0.25)


def test_windows_and_rows_are_told_apart(tmp_path: Path) -> None:
    found = replay(on_spark(MIXED, tmp_path), ["fcfs"])
    assert "results are 46 windows and 176 rows" in " ".join(found.notes)


def test_latencies_recorded_are_those_of_the_batches(tmp_path: Path) -> None:
    recorded = on_spark("least-slack", tmp_path)
    latencies = [
        batch.written - end for them in recorded.batches.values() for b in [them] for batch in b
        for end in batch.ends
    ]  # fmt: skip
    figures = replay(recorded, ["fcfs"]).recorded.all
    assert figures is not None
    assert figures.results == len(latencies)
    assert figures.mean == pytest.approx(sum(latencies) / len(latencies))
    assert figures.max == pytest.approx(max(latencies))


# -- runs that are made up ---------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    policy=st.sampled_from([*known_policies()]),
    queries=st.integers(1, 6),
    fixed=st.floats(0.05, 0.5),
    per_second=st.sampled_from([0.0, 0.02]),
    noise=st.lists(st.floats(0.7, 1.4), min_size=1, max_size=6),
)
def test_a_made_up_run_comes_out_again(
    policy: str, queries: int, fixed: float, per_second: float, noise: list[float]
) -> None:
    them = [
        past(f"q{n}", offset=1.5 * n, fixed=fixed, per_second=per_second, noise=noise, seconds=120)
        for n in range(queries)
    ]
    stock = policy == "spark-default"
    recorded = made_up(them, None if stock else policy, Pace.usual(2.0, 2), 125.0)
    found = replay(recorded, [policy])
    was, again = found.recorded.all, found.outcomes[0].all
    assert was is not None
    assert again is not None
    assert again.missing == 0
    assert again.mean == pytest.approx(was.mean, rel=0.15, abs=0.05)


def test_how_much_batches_slow_each_other_down_is_found() -> None:
    """Eight at once now and then, and else one or two at a time."""
    them = [past(f"q{n}", offset=0.6 * n % 2.4, fixed=0.3, seconds=300) for n in range(8)]
    recorded = made_up(them, "least-slack", Pace(0.8, 2.0, 8), 300.0, concurrency=4)
    pace, costs = fit(recorded.batches, 2.0)
    assert not pace.assumed
    assert pace.slowed == pytest.approx(0.8, abs=0.1)
    assert all(cost.predict(5.0) == pytest.approx(0.3, rel=0.1) for cost in costs.values())


def test_what_input_costs_is_found() -> None:
    """Windows of 4 and of 10 seconds, so that batches find little and much."""
    them = [
        past(f"q{n}", slide=4.0 if n % 2 else 10.0, offset=n, fixed=0.1, per_second=0.05)
        for n in range(3)
    ]
    recorded = made_up(them, "least-slack", Pace.usual(2.0, 2), 200.0)
    _, costs = fit(recorded.batches, 2.0)
    for cost in costs.values():
        assert cost.per_second == pytest.approx(0.05, rel=0.4)
        assert cost.predict(10.0) == pytest.approx(0.6, rel=0.2)


def test_a_slow_stretch_of_the_machine_is_no_cost_of_input() -> None:
    slow = [1.0] * 10 + [2.5] * 5 + [1.0] * 5
    them = [past(f"q{n}", fixed=0.2, noise=slow) for n in range(6)]
    recorded = made_up(them, "round-robin", ALONE, 200.0)
    _, costs = fit(recorded.batches, 2.0)
    assert max(cost.per_second for cost in costs.values()) < 0.05


def test_always_as_many_at_a_time_tell_nothing_and_that_is_said() -> None:
    them = [past(f"q{n}") for n in range(4)]
    found = replay(made_up(them, "round-robin", ALONE, 200.0), ["least-slack"])
    assert found.assumed
    assert "is assumed" in " ".join(found.notes)


def test_a_pace_beyond_what_was_recorded_is_never_better_than_an_even_share() -> None:
    pace = Pace(0.1, cores=2.0, most=2)
    assert pace.of(1) == 1.0
    assert pace.of(2) == pytest.approx(1 / 1.1)
    assert pace.of(8) == pytest.approx(2.0 / 8.0)


def test_a_query_without_windows_is_due_row_by_row() -> None:
    them = [past("rows", slide=None, fixed=0.1), past("windows")]
    recorded = made_up(them, "least-slack", ALONE, 200.0)
    found = replay(recorded, ["least-slack", "round-robin"])
    rows = found.recorded.queries["rows"]
    assert rows.results == pytest.approx(195 / ROWS_EVERY, abs=5)
    for outcome in found.outcomes:
        assert outcome.queries["rows"].missing == 0
    # let alone, rows wait for half of their second; run at all times, for a batch or two
    assert found.outcomes[0].queries["rows"].mean == pytest.approx(rows.mean, rel=0.1)
    assert found.outcomes[1].queries["rows"].mean < 0.5


def test_rows_that_came_before_the_run_are_no_results_of_a_policy() -> None:
    first = Batch("q", 7, 100.0, 100.0, 102.5, 102.6, 103.0, input=600_000.0)
    out = results([first], Started(100.0, "q", objective=1.0), 100.0)
    assert [each.end for each in out] == [1.0, 2.0]


def test_a_query_that_has_ended_takes_no_more_of_the_machine() -> None:
    long = [past("long", seconds=200.0), past("short", seconds=60.0, ends=60.0)]
    recorded = made_up(long, "round-robin", ALONE, 200.0)
    recorded.ended["short"] = Ended(ZERO + 60.0, "short", "the sink said no")
    (outcome,) = replay(recorded, ["round-robin"]).outcomes
    assert outcome.batches == pytest.approx(sum(map(len, recorded.batches.values())), rel=0.1)
    assert outcome.all is not None
    assert outcome.all.missing == 0


def test_nothing_is_read_in_a_gap() -> None:
    gaps = [(50.0, 90.0)]
    them = [past("gap", gaps=gaps), past("other", offset=3.0)]
    recorded = made_up(them, "round-robin", ALONE, 200.0)
    reads = [batch.planned - ZERO for batch in recorded.batches["gap"]]
    assert len([read for read in reads if 50.5 < read < 90.0]) <= 1, "for its watermark"
    n = next(n for n, read in enumerate(reads) if read >= 90.0)
    # on Spark such a batch is planned before it has a turn
    first = replace(recorded.batches["gap"][n], planned=ZERO + 90.0)
    recorded.batches["gap"][n] = first
    recorded.turns["gap"] = [Turn(first.granted, "gap", first.planned, "batch", "planned")]
    _, found, _ = pasts(recorded)
    assert found[0].front.next_data(70.0) == pytest.approx(90.0, abs=0.1)
    assert found[0].front.next_data(95.0) == 95.0


@given(
    st.lists(
        st.tuples(st.floats(0.0, 1e3, allow_subnormal=False), st.floats(-1e3, 1e3)),
        min_size=1,
        max_size=20,
    ),
    st.lists(st.floats(-10.0, 2e3), min_size=2, max_size=20),
)
def test_event_time_never_goes_back(reads: list[tuple[float, float]], times: list[float]) -> None:
    front = Front(sorted(reads), [])
    marks = [front.at(time) for time in sorted(times)]
    assert all(a <= b + 1e-6 for a, b in pairwise(marks))
    assert all(front.next_data(time) == time for time in times)


NEAR = st.floats(0.0, 20.0)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            lambda query, n, times, read, mark, ends, delay: Batch(
                query,
                n,
                *(ZERO + at for at in times),
                read,
                mark and ZERO + mark,
                tuple(ZERO + end for end in ends),
                len(ends),
                0,
                delay,
            ),
            st.sampled_from(["a", "b", "c"]),
            st.integers(0, 9),
            st.tuples(*[NEAR] * 5),
            NEAR,
            NEAR,
            st.lists(NEAR, max_size=2),
            st.floats(-1.0, 5.0),
        ),
        max_size=12,
    ),
    st.sampled_from(known_policies()),
    st.booleans(),
)
def test_whatever_was_recorded_can_be_replayed(
    batches: list[Batch], policy: str, known: bool
) -> None:
    """Clocks that were set back, batches that come again, queries nobody told of."""
    started = [Started(ZERO, "a", "p99 <= 1 s", 1.0, 0.99, (5.0, 5.0, 1.0)), Started(ZERO, "b")]
    recorded = Recorded.of([RUN, *(started if known else []), *batches])
    found = replay(recorded, [policy])
    (outcome,) = found.outcomes
    if found.recorded.all is not None:
        assert outcome.all is not None
        assert outcome.all.results == found.recorded.all.results
        assert found.recorded.all.missing == 0


# -- runs with little in them ------------------------------------------------------------------


def test_an_empty_run() -> None:
    found = replay(Recorded.of([RUN]), known_policies())
    assert found.recorded.all is None
    assert all(outcome.all is None and outcome.batches == 0 for outcome in found.outcomes)


def test_queries_that_cannot_be_replayed_are_named() -> None:
    records = [RUN, Started(ZERO, "none"), Started(ZERO, "resident", resident=2)]
    records.append(Batch("resident", 0, ZERO, ZERO, ZERO, ZERO, ZERO + 1.0))
    found = replay(Recorded.of(records), ["fcfs"])
    assert [note.split(":")[0] for note in found.notes if ":" in note][-2:] == ["none", "resident"]


@pytest.mark.parametrize("policy", known_policies())
def test_one_batch(policy: str) -> None:
    started = Started(ZERO, "q", "p99 <= 1 s", 1.0, 0.99, (10.0, 10.0, 0.0))
    batch = Batch("q", 7, 0.0, ZERO + 10.1, ZERO + 10.2, ZERO + 10.3, ZERO + 10.6)
    found = replay(Recorded.of([RUN, started, batch]), [policy])
    assert found.recorded.all is None
    out = Batch(
        "q", 8, 0.0, ZERO + 20.1, ZERO + 20.2, ZERO + 20.3, ZERO + 20.6,
        10.0, ZERO + 20.0, (ZERO + 20.0,), 1,
    )  # fmt: skip
    found = replay(Recorded.of([RUN, started, out]), [policy])
    assert found.recorded.all is not None
    assert found.recorded.all.mean == pytest.approx(0.6)


def test_a_run_that_was_cut_off(tmp_path: Path) -> None:
    folder = unpacked("least-slack", tmp_path)
    whole = (folder / "000001.jsonl").read_bytes()
    (folder / "000001.jsonl").write_bytes(whole[: len(whole) // 2])
    found = replay(load(folder), ["least-slack"])
    assert found.recorded.all is not None
    assert mean(found, "least-slack") == pytest.approx(found.recorded.all.mean, rel=0.15)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["oldest"], "'oldest' is not known; one of: least-slack, fcfs"),
        (["fcfs", "fcfs"], "named twice"),
        ([], "no policy is named; one or more of: least-slack"),
    ],
)
def test_policies_that_are_none(names: list[str], told: str) -> None:
    with pytest.raises(TautError, match=told):
        replay(Recorded.of([RUN]), names)


# -- the command -------------------------------------------------------------------------------


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli.main, ["replay", *arguments])
    return done.exit_code, done.output


def test_the_command(tmp_path: Path) -> None:
    folder = unpacked("round-robin", tmp_path)
    file = tmp_path / "out" / "figures.json"
    code, said = run(str(folder), "--policies", "least-slack, fcfs", "--json", str(file))
    assert code == 0, said
    assert "recorded: round-robin" in said
    assert "round-robin replayed: mean" in said
    written = json.loads(file.read_text())
    assert [each["policy"] for each in written["outcomes"]] == [
        "round-robin",
        "least-slack",
        "fcfs",
    ]
    assert set(written["recorded"]["queries"]) == {f"ads-{n}" for n in range(8)}


def test_the_command_prints_figures_and_reads_packed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(
        cli.main, ["replay", str(RUNS / "rate.jsonl.gz"), "--policies", "fcfs", "--json", "-"]
    )
    assert done.exit_code == 0, done.output
    assert [each["policy"] for each in json.loads(done.stdout)["outcomes"]] == [
        "round-robin",
        "fcfs",
    ]
    assert not list(tmp_path.iterdir()), "no file of that name"


def test_the_command_shows_every_query(tmp_path: Path) -> None:
    folder = unpacked("least-slack", tmp_path)
    code, said = run(
        str(folder), "--policies", "fcfs", "--by-query", "--concurrency", "1", "--after", "60"
    )
    assert code == 0, said
    assert "1 at a time" in said
    assert all(f"ads-{n}" in said for n in range(8))
    assert len(re.findall(r"^ fcfs +[345] ", said, re.MULTILINE)) == 8


@pytest.mark.parametrize("name", ["views[eu]", "views[/eu]", "views[bold]"])
def test_names_are_shown_as_they_are(name: str) -> None:
    figures = Figures(1, 1, 1, 1.0, 1.0, 1.0, 1.0, 1.0)
    outcome = Outcome(name, figures, {name: figures}, 1)
    notes = (f"{name}: wrote no batch",)
    console = Console(width=100, file=StringIO())
    show(console, Replay(name, name, 1, outcome, (outcome,), 0.1, False, 1, notes), by_query=True)
    assert isinstance(console.file, StringIO)
    said = [line for line in console.file.getvalue().splitlines() if "views" in line]
    assert len(said) == 8
    assert all(name in line for line in said)


def test_paths_are_shown_as_they_are(tmp_path: Path) -> None:
    folder = unpacked("least-slack", tmp_path / "runs[" / "eu]")
    file = tmp_path / "figures[" / "eu].json"
    code, said = run(str(folder), "--policies", "least-slack", "--json", str(file))
    assert code == 0, said
    assert str(file) in said


def test_the_newest_run_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAUT_TRACE", str(tmp_path))
    code, said = run("--policies", "fcfs")
    assert (code, "none is recorded in" in " ".join(said.split())) == (1, True), said
    unpacked("least-slack", tmp_path)
    code, said = run("--policies", "fcfs")
    assert (code, "recorded: least-slack" in said) == (0, True), said


def test_the_command_refuses(tmp_path: Path) -> None:
    code, said = run(str(tmp_path / "none"), "--policies", "fcfs")
    assert (code, "none" in said) == (1, True), said
    code, said = run(str(unpacked("least-slack", tmp_path)), "--policies", "oldest")
    assert code == 1
    assert "one of: least-slack" in " ".join(said.split())
    run_of_a_minute = str(unpacked("least-slack", tmp_path))
    code, said = run(run_of_a_minute, "--policies", "fcfs", "--after", "100000")
    assert (code, "no result ended so late" in said) == (1, True), said
    assert re.search(r"recorded for \d+ s", " ".join(said.split()))
    code, said = run(run_of_a_minute, "--policies", "fcfs", "--after", "-5")
    assert (code, "-5" in said) == (2, True), said
    (tmp_path / "file").write_text("")
    code, said = run(run_of_a_minute, "--policies", "fcfs", "--json", str(tmp_path / "file" / "x"))
    assert (code, "cannot be written" in said, "Traceback" in said) == (1, True, False), said
    newer = tmp_path / "000001.jsonl"
    newer.write_bytes(encode(Run(ZERO, "r", "fcfs", 1, 60.0, version=99)) + b"\n")
    code, said = run(str(newer), "--policies", "fcfs")
    assert code == 1
    assert "newer Taut" in said

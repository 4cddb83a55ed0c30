"""The simulated Spark with tasks, where the answer is known by hand or by brute force."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.planning.profile import PHASES
from taut.planning.settings import Cluster, Settings
from taut.sim.draws import Constant, Exponential, Gamma, Lognormal
from taut.sim.queries.tasks import Engine, Job, Outcome, Stage, dealt, executors_end

PLAIN = Engine()
ALONE = Cluster(1, 1)
FIXED = Job(
    "fixed",
    plan=Constant(0.05),
    log=Constant(0.05),
    map=Stage(0.02, 1e-5),
    reduce=Stage(0.03, 3e-5, 1e-4),
    write=Constant(0.05),
    after=Constant(0.1),
    write_out=1e-4,
    ratio=0.1,
)
"""0.3 s and 60 us a row: 10 and 30 for it, 10 + 10 for the tenth of a row that comes out."""
BATCH, ROW, AFTER = 0.3, 60e-6, 0.1
NOISY = Engine(0.001, 0.1, Lognormal(1.0, 0.1), 5.0, Gamma(0.1, 0.5))
SKEWED = replace(FIXED, plan=Exponential(0.05), keys=1_000, zipf=1.0, ratio=None)


def run(job: Job = FIXED, rate: float = 5_000.0, **changes: object) -> Outcome:
    given = {"lanes": 1, "reducers": 1, "trigger": 0.0, "cap": None}
    chosen = Settings(**{name: changes.pop(name, value) for name, value in given.items()})  # type: ignore[arg-type]
    engine, cluster = changes.pop("engine", PLAIN), changes.pop("cluster", ALONE)
    more = {"batches": 20, "warm_up": 60} | changes
    return job.run(engine, cluster, chosen, rate, **more)  # type: ignore[arg-type]


# One task, nothing random


@pytest.mark.parametrize("rate", [1_000.0, 5_000.0, 12_000.0])
def test_batches_one_after_another_are_as_by_hand(rate: float) -> None:
    """A batch of length c has the rows of the last: c = fixed + each * rate * c."""
    found = run(rate=rate)
    cycle = BATCH / (1.0 - ROW * rate)
    assert found.mean == pytest.approx(cycle - AFTER + cycle / 2.0, rel=2e-3)
    assert found.quantile(1.0) == pytest.approx(2.0 * cycle - AFTER, rel=2e-3)
    assert found.quantile(0.5) == pytest.approx(found.mean, rel=2e-3)


def test_an_interval_is_waited_for() -> None:
    found = run(trigger=1.0)
    written = BATCH - AFTER + 5_000 * ROW
    assert found.mean == pytest.approx(0.5 + written, rel=2e-3)
    assert found.quantile(1.0) == pytest.approx(1.0 + written, rel=2e-3)
    for batch in found.batches:
        assert batch.start[0] == pytest.approx(round(batch.start[0]), abs=1e-9)


def test_a_late_batch_is_followed_at_once_and_an_early_one_at_the_next_multiple() -> None:
    slow = replace(FIXED, plan=Constant(1.25))  # 1.5 s without rows
    found = run(slow, 10.0, trigger=1.0, warm_up=0, batches=6)
    first = found.batches[0].start[0]
    assert 0.0 < first < 1.0, "a query starts at any moment"
    starts = [batch.start[0] for batch in found.batches]
    assert np.diff(starts) == pytest.approx(1.5, abs=2e-3)
    early = run(FIXED, 10.0, trigger=1.0, warm_up=0, batches=3)
    assert [batch.next_start[0] for batch in early.batches] == [1.0, 2.0, 3.0]


def test_a_window_that_ends_with_a_trigger_is_seen_by_the_next_one() -> None:
    """Both go by the clock, and its last rows are still on their way."""
    windowed = replace(FIXED, window=2.0, delay=0.05, keys=50)
    written = BATCH - AFTER + 5_000 * 40e-6 + 50 * 2e-4
    found = run(windowed, trigger=1.0)
    assert found.mean == pytest.approx(2.0 + written, rel=2e-3)
    assert {float(batch.out[0]) for batch in found.batches} == {0.0, 50.0}
    # every second one ends in the middle of an interval
    found = run(replace(windowed, window=2.5), trigger=1.0)
    assert found.mean == pytest.approx(1.75 + written, rel=2e-3)
    assert found.quantile(0.5) == pytest.approx(1.5 + written, rel=2e-3)


def test_windows_end_at_any_moment_of_batches_one_after_another() -> None:
    """A part of a cycle, then two batches: the one that sees it, and the one it is out with."""
    windowed = replace(FIXED, window=7.03, keys=1, map=Stage(), reduce=Stage(), write_out=0.0)
    found = run(windowed, batches=4_000, warm_up=2)
    assert found.mean == pytest.approx(0.5 * 0.25 + 0.25 + 0.25 - AFTER, rel=0.02)
    assert found.quantile(1.0) <= 3 * 0.25 - AFTER + 1e-6


def test_a_cap_leaves_rows_for_the_next_batch() -> None:
    found = run(cap=100, backlog=10.0, batches=5, warm_up=0)
    assert all(batch.rows[0] == 100 for batch in found.batches)
    sample = next(found.samples())
    assert (sample.lanes, sample.reducers, sample.rows, sample.out) == (1, 1, 100, 10)
    assert tuple(sample.seconds) == PHASES
    assert sample.total == pytest.approx(BATCH + 100 * ROW)
    assert sample.seconds["reduce"] == pytest.approx(0.03 + 100 * 3e-5 + 10 * 1e-4)
    assert found.mean > 9.0


def test_more_than_can_be_done_is_late_for_ever() -> None:
    found = run(rate=1.2 / ROW, batches=200)
    assert found.endless
    assert found.mean == found.quantile(0.5) == math.inf


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [({"rate": 0.0}, "rate"), ({"batches": 0}, "batches"), ({"beside": 0}, "beside")],
)
def test_what_cannot_be_run_is_refused(changes: dict[str, float], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        run(**changes)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keys=0"):
        replace(FIXED, keys=0)
    with pytest.raises(ValueError, match="dispatch=-1"):
        Engine(dispatch=-1.0)
    with pytest.raises(ValueError, match="row=-1"):
        Stage(row=-1.0)


# Stages


def _stepped(work: list[float], crowding: float, started: list[float]) -> float:
    """Tasks of one executor, in small steps: who is at work slows all others."""
    left, step, now, ends = list(work), 1e-4, 0.0, [0.0] * len(work)
    while any(each > 0.0 for each in left):
        busy = [n for n, each in enumerate(left) if each > 0.0]
        now += step
        for n in busy:
            left[n] -= step / (1.0 + crowding * (len(busy) - 1))
            ends[n] = now
    return max(end + start for end, start in zip(ends, started, strict=True))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.05, 0.5), min_size=1, max_size=8), st.sampled_from([0.0, 0.2]),
    st.sampled_from([0.0, 0.01]),
)  # fmt: skip
def test_a_wave_ends_when_its_last_task_does(
    work: list[float], crowding: float, dispatch: float
) -> None:
    cluster = Cluster(2, 4)
    ends = executors_end(np.array([work]), cluster, dispatch, crowding)[0]
    for executor in range(2):
        mine = range(executor, len(work), 2)
        if mine:
            started = [dispatch * (n + 1) for n in mine]
            by_hand = _stepped([work[n] for n in mine], crowding, started)
            assert ends[executor] == pytest.approx(by_hand, abs=3e-3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=7, max_size=30))
def test_more_tasks_than_slots_go_to_the_slot_that_is_free_first(work: list[float]) -> None:
    free = [0.0] * 6
    for each in work:
        heapq.heapreplace(free, free[0] + each)
    ends = executors_end(np.array([work]), Cluster(2, 3), 0.0, 0.0)
    assert ends.shape == (1, 2)
    assert ends.max() == pytest.approx(max(free))


def test_neighbours_and_waves_take_longer() -> None:
    even = np.ones((1, 4))
    assert executors_end(even, Cluster(4, 1), 0.0, 0.5).max() == 1.0
    assert executors_end(even, Cluster(2, 2), 0.0, 0.5).max() == 1.5
    assert executors_end(even, Cluster(1, 2), 0.0, 0.5).max() == 3.0
    assert executors_end(even, Cluster(4, 1), 0.1, 0.0).max() == pytest.approx(1.4)


# Keys, noise, pauses


def test_keys_are_dealt_by_a_hash_that_does_not_change() -> None:
    rows, keys = dealt(20_000, 1.0, 8)
    assert rows.sum() == pytest.approx(1.0)
    assert keys.sum() == pytest.approx(1.0)
    assert rows.max() > 1.5 * keys.max(), "one reducer has the most frequent word"
    assert dealt(20_000, 0.0, 8)[0] == pytest.approx(keys)
    half = dealt(20_000, 1.0, 4)[0]
    assert rows[:4] + rows[4:] == pytest.approx(half), "as a remainder"


def test_as_many_keys_come_as_are_drawn() -> None:
    chances = np.arange(1.0, 1_001.0) ** -1.0
    drawn = np.random.default_rng(3).choice(1_000, 5_000, p=chances / chances.sum())
    assert float(SKEWED.came(5_000)) == pytest.approx(len(set(drawn)), rel=0.03)
    assert float(SKEWED.came(0)) == 0.0
    assert float(SKEWED.came(1)) == pytest.approx(1.0, rel=0.05)


def test_the_reducer_with_most_rows_holds_the_batch() -> None:
    cluster, tasks = Cluster(1, 4), {"lanes": 4, "reducers": 4}
    even, skewed = (
        run(replace(FIXED, keys=1_000, zipf=zipf, ratio=0.0), cluster=cluster, **tasks)
        for zipf in (0.0, 1.5)
    )
    shares = [float(dealt(1_000, zipf, 4)[0].max()) for zipf in (0.0, 1.5)]
    for found, share in zip((even, skewed), shares, strict=True):
        batch = found.batches[-1]
        by_hand = 0.03 + 3e-5 * share * batch.rows[0]
        assert batch.seconds["reduce"][0] == pytest.approx(by_hand, rel=0.1)
    assert skewed.mean > even.mean


def test_pauses_come_as_often_and_as_long_as_they_should() -> None:
    engine = Engine(pause_every=2.0, pause=Constant(0.5))
    still, paused = (run(engine=each, rate=10.0, batches=400, beside=8) for each in (PLAIN, engine))
    longer = [np.mean([b.ended - b.start for b in found.batches]) for found in (still, paused)]
    assert longer[1] / longer[0] == pytest.approx(1.0 + 0.5 / 2.0, rel=0.03)


def test_the_same_seed_gives_the_same_batches() -> None:
    def noisy(seed: int, beside: int = 4) -> Outcome:
        return run(SKEWED, engine=NOISY, cluster=Cluster(2, 2), lanes=4, reducers=5, trigger=0.3,
                   seed=seed, beside=beside)  # fmt: skip

    first, again, other = noisy(1), noisy(1), noisy(2)
    assert list(first.samples()) == list(again.samples())
    assert first.mean == again.mean != other.mean


def test_queries_side_by_side_know_nothing_of_each_other() -> None:
    def cycles(**changes: int) -> list[float]:
        found = run(SKEWED, engine=NOISY, **changes)
        return [float(np.mean(b.ended - b.start)) for b in found.batches]

    many, one = cycles(batches=40, beside=50), cycles(batches=2_000)
    assert np.mean(many) == pytest.approx(np.mean(one), rel=0.02)

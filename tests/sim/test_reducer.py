"""A reducer under overload."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from taut.policy.deadline import CHOICES, SCHEDULES, Job, Schedule
from taut.sim.draws import Constant
from taut.sim.reducer import Microbatches, Outcome, Reducer

FITS = Reducer(rate=20_000.0, keys=2_000, hot_cost=20e-6, cold_cost=200e-6)


def test_load_is_what_comes() -> None:
    assert FITS.load == pytest.approx(20_000 * 20e-6)
    less = Reducer(rate=20_000.0, keys=2_000, hot_cost=20e-6, cold_cost=200e-6, memory=0.25)
    assert 0.0 < less.cold_share < 0.4
    assert less.load > FITS.load


@pytest.mark.parametrize("name", SCHEDULES)
def test_with_time_enough_all_are_on_time(name: str) -> None:
    outcome = FITS.run(SCHEDULES[name](), 5.0, seed=1)
    assert outcome.share == 1.0


@pytest.mark.parametrize("memory", [0.05, 0.1])
def test_with_little_memory_cost_aware_keeps_the_most(memory: float) -> None:
    reducer = Reducer(rate=20_000.0, keys=2_000, hot_cost=20e-6, cold_cost=200e-6, memory=memory)
    assert reducer.load > 1.0
    shares = {name: reducer.run(build(), 5.0, seed=1).share for name, build in SCHEDULES.items()}
    assert max(shares, key=lambda name: shares[name]) == "cost-aware"
    assert shares["fifo"] < shares["cost-aware"] / 2


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="memory=2"):
        Reducer(rate=1.0, memory=2.0)
    with pytest.raises(ValueError, match="rate=0"):
        Reducer(rate=0.0)


SHORT = Reducer(rate=9_500.0, keys=2_000, hot_cost=100e-6, cold_cost=2.5e-3, stamp_s=0.1)
"""At 95 % of what it can do while all state is in memory."""


@pytest.mark.parametrize("load", [1.0, 1.36, 1.8])
@pytest.mark.parametrize("memory", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("stamp_s", [0.0, 0.1])
def test_cost_aware_is_never_behind(load: float, memory: float, stamp_s: float) -> None:
    reducer = replace(SHORT, rate=load * SHORT.rate, memory=memory, stamp_s=stamp_s)
    shares = {name: reducer.run(build(), 3.0, seed=1).share for name, build in SCHEDULES.items()}
    assert shares["cost-aware"] == max(shares.values())


def test_with_half_the_memory_nine_of_ten_are_on_time() -> None:
    reducer = replace(SHORT, memory=0.5)
    assert reducer.run(SCHEDULES["cost-aware"](), 8.0, seed=1).share >= 0.9
    assert reducer.run(SCHEDULES["fifo"](), 8.0, seed=1).share < 0.5


Come = list[tuple[float, Job]]


def optimum(rows: Come) -> int:
    """The most rows on time of one who knows all that will come, by trying every set.

    For a set, when it can be done at the earliest: from that of each set with a row less.
    """
    done = [0.0] + [float("inf")] * (2 ** len(rows) - 1)
    for some in range(len(done)):
        for n, (at, job) in enumerate(rows):
            if not some >> n & 1 and done[some] < float("inf"):
                end = max(done[some], at) + job.cost
                if end <= job.deadline + 1e-9:
                    done[some | 1 << n] = min(done[some | 1 << n], end)
    return max(some.bit_count() for some, end in enumerate(done) if end < float("inf"))


def online(schedule: Schedule, rows: Come) -> int:
    now, on_time = 0.0, 0
    coming = sorted({at for at, _ in rows}, reverse=True)
    while True:
        while coming and coming[-1] <= now:
            at = coming.pop()
            schedule.release([job for when, job in rows if when == at], now)
        job = schedule.next(now)
        if job is not None:
            now += job.cost
            on_time += now <= job.deadline + 1e-9
        elif coming:
            now = coming[-1]
        else:
            return on_time


def small(draw: random.Random, load: float, constraint: float, ratio: float) -> Come:
    """Up to ten rows in two to five batches, some of them so many times as expensive."""
    batches = draw.randint(2, 5)
    cheap = load * batches / 10 / (0.7 + 0.3 * ratio)
    rows = []
    for n in range(10):
        came = batches * draw.random()
        cost = cheap * (ratio if draw.random() < 0.3 else 1.0)
        rows.append((float(int(came) + 1), Job(n, came + constraint, cost)))
    return rows


@pytest.mark.parametrize("load", [1.0, 1.36, 1.8, 3.0])
def test_close_to_who_knows_all_that_will_come(load: float) -> None:
    draw = random.Random(1)
    best, made = 0, dict.fromkeys(SCHEDULES, 0)
    for constraint in (1.5, 2.0, 3.0, 5.0):
        for ratio in (2.0, 5.0, 20.0):
            for _ in range(15):
                rows = small(draw, load, constraint, ratio)
                best += optimum(rows)
                for name, build in SCHEDULES.items():
                    made[name] += online(build(), rows)
    assert 0.98 * best <= made["cost-aware"] <= best
    assert made["cost-aware"] == max(made.values())


def test_the_optimum_of_instances_that_are_known() -> None:
    waits = [(0.0, Job(1, 10.0, 5.0)), (1.0, Job(2, 2.0, 1.0)), (2.0, Job(3, 3.0, 1.0))]
    assert optimum(waits) == 3, "it waits for what has not come yet"
    assert online(SCHEDULES["cost-aware"](), waits) == 1
    assert optimum([(0.0, Job(n, 2.0, 1.0)) for n in range(5)]) == 2
    assert optimum([]) == 0


@pytest.mark.parametrize("memory", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("load", [0.5, 0.8, 1.0, 1.36, 1.8, 3.0])
@pytest.mark.parametrize("overhead", [0.02, 0.2])
def test_in_micro_batches_cost_aware_is_never_behind(
    load: float, memory: float, overhead: float
) -> None:
    reducer = replace(SHORT, rate=load / SHORT.hot_cost, memory=memory, stamp_s=0.0)
    batches = Microbatches(reducer, overhead / 2, overhead / 2)
    shares = {name: batches.run(choice, 8.0, seed=1).share for name, choice in CHOICES.items()}
    assert shares["cost-aware"] == max(shares.values())
    if shares["fifo"] < 0.9:
        assert shares["cost-aware"] > shares["fifo"] + 0.1


@pytest.mark.parametrize("memory", [1.0, 0.5, 0.25])
def test_in_micro_batches_with_time_enough_all_choices_are_one(memory: float) -> None:
    reducer = replace(SHORT, memory=memory)
    half = replace(reducer, rate=0.5 * reducer.rate / reducer.load)
    outcomes = {Microbatches(half).run(choice, 8.0, seed=1) for choice in CHOICES.values()}
    (outcome,) = outcomes
    assert (outcome.late, outcome.given_up) == (0, 0)


def test_in_micro_batches_nothing_is_left_out_for_coarse_steps() -> None:
    """All can be on time, but hardly; a deadline rounded down by a step could not be kept."""
    reducer = replace(SHORT, cold_cost=5e-4, memory=0.5, stamp_s=0.0)
    batches = Microbatches(replace(reducer, rate=0.8 * reducer.rate / reducer.load))
    for name in ("fifo", "cost-aware"):
        assert batches.run(CHOICES[name], 15.0, seed=1).share == 1.0


def test_a_micro_batch_is_on_time_as_a_whole() -> None:
    """Rows come together at 0 and at 1; half a second before and half a second behind the work."""
    reducer = Reducer(rate=100.0, batch_s=1.0, keys=1, hot_cost=0.01, constraint=2.5, stamp_s=1.0)
    rows = [len(came) for _, came, _ in reducer.rows(2.0, seed=1)]
    batches = Microbatches(reducer, lead=0.5, after=0.5, step_s=0.5)
    first = 1.0 + 0.01 * rows[0]
    fits = int((3.5 - (first + 1.0)) / 0.01 + 1e-6)
    assert first < 2.5
    assert 0 < fits < rows[1]
    assert batches.run(CHOICES["fifo"], 2.0, seed=1) == Outcome(rows[0], rows[1], 0)
    kept = Outcome(rows[0] + fits, 0, rows[1] - fits)
    assert batches.run(CHOICES["cost-aware"], 2.0, seed=1) == kept


def test_micro_batches_come_out_the_same_again() -> None:
    reducer = replace(SHORT, memory=0.25, lag=Constant(0.01))
    batches = Microbatches(reducer)
    outcomes = [batches.run(CHOICES["cost-aware"], 3.0, seed) for seed in (1, 1, 2)]
    assert outcomes[0] == outcomes[1] != outcomes[2]
    with pytest.raises(ValueError, match="step_s=0"):
        Microbatches(reducer, step_s=0.0)
    with pytest.raises(ValueError, match="lead=-1"):
        Microbatches(reducer, lead=-1.0)
    with pytest.raises(ValueError, match="after=-1"):
        Microbatches(reducer, after=-1.0)
    assert Microbatches(replace(reducer, rate=1e-9)).run(CHOICES["fifo"], 1.0).share == 0.0

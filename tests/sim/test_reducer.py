"""A reducer under overload."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.policy.deadline import CHOICES, SCHEDULES, Fifo, Job, Schedule, tree
from taut.sim.kernel import Kernel
from taut.sim.optimum import batches, instance, optimum
from taut.sim.reducer import Microbatches, Outcome, Reducer, work

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


def test_the_optimum_of_instances_that_are_known() -> None:
    waits = [(0.0, Job(1, 10.0, 5.0)), (1.0, Job(2, 2.0, 1.0)), (2.0, Job(3, 3.0, 1.0))]
    assert optimum(waits) == 3, "it waits for what has not come yet"
    assert work(SCHEDULES["cost-aware"](), batches(waits)) == Outcome(1, 0, 2)
    assert optimum([(0.0, Job(n, 2.0, 1.0)) for n in range(5)]) == 2
    assert optimum([]) == 0


@given(st.integers(0, 2**32), st.sampled_from(list(SCHEDULES)), st.floats(0.5, 3.0))
def test_nobody_has_more_on_time_than_one_who_knows_all(seed: int, name: str, load: float) -> None:
    rows = instance(np.random.default_rng(seed), load, 2.0, 5.0)
    outcome = work(SCHEDULES[name](), batches(rows))
    assert outcome.on_time <= optimum(rows)
    assert outcome.on_time + outcome.late + outcome.given_up == len(rows)


def test_rows_of_the_warm_up_and_after_do_not_count() -> None:
    """A backlog that has grown before is there, and the last rows are not alone."""
    over = replace(SHORT, rate=2.0 / SHORT.hot_cost)
    rows = sum(len(came) for _, came, _ in over.rows(6.0, seed=1)) / 6.0
    cold, warm = (
        over.run(SCHEDULES["fifo"](), 3.0, seed=1, warm_up=warm_up, after=1.0)
        for warm_up in (0.0, 2.0)
    )
    assert sum((warm.on_time, warm.late, warm.given_up)) == pytest.approx(3.0 * rows, rel=0.02)
    assert warm.share == 0.0 < cold.share
    alone, among = (
        over.run(SCHEDULES["cost-aware"](), 3.0, seed=1, warm_up=2.0, after=after)
        for after in (0.0, 1.0)
    )
    assert among.share == pytest.approx(0.5, abs=0.01)
    assert among.share < alone.share
    together = Microbatches(over).run(CHOICES["fifo"], 3.0, seed=1, warm_up=2.0, after=1.0)
    assert together.late == pytest.approx(3.0 * rows, rel=0.02)


class Forgets(Fifo):
    """Loses a row of every batch."""

    def release(self, batch: Sequence[Job], now: float) -> None:
        super().release(batch[1:], now)


class Repeats(Fifo):
    """Says at the end that it has given up a row that it had done."""

    def __init__(self) -> None:
        super().__init__()
        self.last: Job | None = None

    def next(self, now: float) -> Job | None:
        job = super().next(now)
        if job is None and self.last is not None:
            self._up.append(self.last)
        self.last = job
        return job


@pytest.mark.parametrize("wrong", [Forgets, Repeats])
def test_a_schedule_that_loses_rows_or_makes_them_up_is_found_out(wrong: type[Schedule]) -> None:
    with pytest.raises(AssertionError):
        FITS.run(wrong(), 0.5, seed=1)


def test_the_tree_of_a_schedule_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tree whose sums are wrong is found out, though each row is done or given up."""
    told = tree._told

    def wrong(node: tree._Node) -> tree._Node:
        told(node)
        node.cost += 1e-6
        return node

    FITS.run(SCHEDULES["cost-aware"](), 0.5, seed=1)
    monkeypatch.setattr(tree, "_told", wrong)
    with pytest.raises(AssertionError):
        FITS.run(SCHEDULES["cost-aware"](), 0.5, seed=1)


def test_the_kernel_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kernel: Kernel) -> None:
        raise AssertionError("out of order")

    monkeypatch.setattr(Kernel, "check", broken)
    with pytest.raises(AssertionError, match="out of order"):
        FITS.run(SCHEDULES["fifo"](), 0.5, seed=1)


@pytest.mark.parametrize("rows", [-1, 10**6])
def test_a_choice_of_rows_that_are_not_there_is_found_out(rows: int) -> None:
    with pytest.raises(AssertionError, match="no more rows of a group than there are"):
        Microbatches(FITS).run(lambda groups, now, after: [rows] * len(groups), 0.5, seed=1)


@pytest.mark.parametrize("memory", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("load", [0.5, 0.8, 1.0, 1.36, 1.8, 3.0])
@pytest.mark.parametrize("overhead", [0.02, 0.2])
def test_in_micro_batches_cost_aware_is_never_behind(
    load: float, memory: float, overhead: float
) -> None:
    reducer = replace(SHORT, rate=load / SHORT.hot_cost, memory=memory, stamp_s=0.0)
    made = Microbatches(reducer, overhead / 2, overhead / 2)
    shares = {name: made.run(choice, 8.0, seed=1).share for name, choice in CHOICES.items()}
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
    made = Microbatches(replace(reducer, rate=0.8 * reducer.rate / reducer.load))
    for name in ("fifo", "cost-aware"):
        assert made.run(CHOICES[name], 15.0, seed=1).share == 1.0


def test_a_micro_batch_is_on_time_as_a_whole() -> None:
    """Rows come together at 0 and at 1; half a second before and half a second behind the work."""
    reducer = Reducer(rate=100.0, batch_s=1.0, keys=1, hot_cost=0.01, constraint=2.5, stamp_s=1.0)
    rows = [len(came) for _, came, _ in reducer.rows(2.0, seed=1)]
    made = Microbatches(reducer, lead=0.5, after=0.5, step_s=0.5)
    first = 1.0 + 0.01 * rows[0]
    fits = int((3.5 - (first + 1.0)) / 0.01 + 1e-6)
    assert first < 2.5
    assert 0 < fits < rows[1]
    assert made.run(CHOICES["fifo"], 2.0, seed=1) == Outcome(rows[0], rows[1], 0)
    kept = Outcome(rows[0] + fits, 0, rows[1] - fits)
    assert made.run(CHOICES["cost-aware"], 2.0, seed=1) == kept


def test_micro_batches_come_out_the_same_again() -> None:
    reducer = replace(SHORT, memory=0.25)
    made = Microbatches(reducer)
    outcomes = [made.run(CHOICES["cost-aware"], 3.0, seed) for seed in (1, 1, 2)]
    assert outcomes[0] == outcomes[1] != outcomes[2]
    with pytest.raises(ValueError, match="step_s=0"):
        Microbatches(reducer, step_s=0.0)
    with pytest.raises(ValueError, match="lead=-1"):
        Microbatches(reducer, lead=-1.0)
    with pytest.raises(ValueError, match="after=-1"):
        Microbatches(reducer, after=-1.0)
    assert Microbatches(replace(reducer, rate=1e-9)).run(CHOICES["fifo"], 1.0).share == 0.0

"""The wait for a turn, by formula, against queries that take turns."""

from __future__ import annotations

import heapq

import numpy as np
import pytest

from taut.planning.queueing import Moments
from taut.planning.turns import Load, Wait, between, wait_for

CHAINS = 60


def waits(intervals: list[float], takes: list[float], turns: int, spread: float) -> np.ndarray:
    """Of each query, on average over many ways in which their batches may fall."""
    random = np.random.default_rng(5)
    total, many = np.zeros(len(intervals)), np.zeros(len(intervals))
    for _ in range(CHAINS):
        due = [(interval * random.random(), nth) for nth, interval in enumerate(intervals)]
        heapq.heapify(due)
        free = [0.0] * turns
        while due[0][0] < 60.0 * max(intervals):
            at, nth = due[0]
            start = max(at, free[0])
            if at > 10.0 * max(intervals):
                total[nth] += start - at
                many[nth] += 1
            took = takes[nth] * random.lognormal(-(spread**2) / 2, spread)
            heapq.heapreplace(free, start + took)
            heapq.heapreplace(due, (at + intervals[nth], nth))
    return total / many


def told(intervals: list[float], takes: list[float], turns: int, spread: float) -> np.ndarray:
    variance = np.expm1(spread**2)
    loads = [
        Load(interval, Moments(took, took**2 * variance))
        for interval, took in zip(intervals, takes, strict=True)
    ]
    found = [wait_for(loads[:nth] + loads[nth + 1 :], turns) for nth in range(len(loads))]
    return np.array([one.mean for one in found])


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8, 0.92])
@pytest.mark.parametrize(
    ("many", "turns"), [(2, 1), (3, 1), (8, 1), (20, 1), (3, 2), (8, 2), (8, 4), (20, 4)]
)
def test_waits_are_about_what_the_formula_says(many: int, turns: int, load: float) -> None:
    """Rather more, where there are several turns; and a wait is a small part of an interval."""
    intervals = [1.0 + 0.0618 * nth for nth in range(many)]
    takes = [load * turns / many * interval for interval in intervals]
    seen, expected = (of(intervals, takes, turns, 0.1) for of in (waits, told))
    assert np.abs(expected - seen).max() <= 0.07 * min(intervals)
    if seen.mean() > 0.02:
        assert 0.6 <= expected.mean() / seen.mean() <= 2.0
    if turns == 1:
        assert expected.mean() == pytest.approx(seen.mean(), rel=0.3, abs=0.01)


def test_long_batches_of_one_keep_the_others_waiting_and_not_itself() -> None:
    intervals, takes = [1.0, 7.3], [0.1, 3.0]
    seen, expected = (of(intervals, takes, 1, 0.0) for of in (waits, told))
    assert expected[0] > 20 * expected[1]
    # batches that fall into a long one wait for each other as well, and are fewer than planned
    assert expected[1] == pytest.approx(seen[1], abs=0.03)


def test_as_many_turns_as_queries_and_nobody_waits() -> None:
    others = [Load(1.0, Moments(0.9, 0.1))] * 3
    assert wait_for(others, 4) == Wait()
    assert wait_for(others, 3).mean > 0.0
    with pytest.raises(ValueError, match="turns=0"):
        wait_for(others, 0)


def test_turns_that_are_all_taken_still_give_a_number() -> None:
    over = wait_for([Load(1.0, Moments(1.5, 0.1))] * 4, 2)
    assert over.busy == pytest.approx(1.0, abs=0.01)
    assert 0.0 < over.mean < 4 * 1.5


def test_what_comes_at_intervals() -> None:
    intervals = [1.0, 1.7, 2.9]
    random = np.random.default_rng(1)
    gaps = []
    for _ in range(400):
        at = [np.arange(each * random.random(), 60.0, each) for each in intervals]
        gaps.append(np.diff(np.sort(np.concatenate(at))))
    seen = np.concatenate(gaps)
    expected = between(intervals)
    assert expected.mean == pytest.approx(seen.mean(), rel=0.02)
    assert expected.scv == pytest.approx(seen.var() / seen.mean() ** 2, rel=0.05)


def test_quantiles_have_the_moments() -> None:
    wait = Wait(0.4, Moments(0.5, 0.1))
    drawn = wait.quantiles((np.arange(20_000) + 0.5) / 20_000)
    assert drawn.mean() == pytest.approx(wait.mean, rel=0.01)
    assert (drawn > 0.0).mean() == pytest.approx(0.4, abs=0.01)
    assert drawn[drawn > 0.0].var() == pytest.approx(0.1, rel=0.03)

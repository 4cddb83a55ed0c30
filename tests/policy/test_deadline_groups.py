"""Rows that are alike, by count: the same choice as one by one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.deadline import Alike, CostAware, GroupedCostAware, Job

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=300)
# whole numbers: what is compared here are choices, not the last digit of a sum
GROUP = st.tuples(st.integers(0, 30), st.sampled_from([0, 1, 4, 9]), st.integers(0, 7))
STEP = st.tuples(
    st.lists(GROUP, max_size=5),
    st.lists(st.integers(1, 5), max_size=6),
    st.sampled_from([0, 0, 0, 3]),
)


def counts(groups: Iterable[Alike]) -> Counter[tuple[float, float]]:
    return sum((Counter({(g.deadline, g.cost): g.rows}) for g in groups), Counter())


def counted(jobs: Iterable[Job]) -> Counter[tuple[float, float]]:
    return Counter((job.deadline, job.cost) for job in jobs)


class Both:
    """The two forms, that must agree at every step."""

    def __init__(self) -> None:
        self.one_by_one, self.grouped, self.ids = CostAware(), GroupedCostAware(), 0

    def release(self, groups: list[Alike], now: float) -> None:
        jobs = [Job(0, g.deadline, g.cost) for g in groups for _ in range(g.rows)]
        self.one_by_one.release([Job(self.ids + n, j.deadline, j.cost)
                                 for n, j in enumerate(jobs)], now)  # fmt: skip
        self.ids += len(jobs)
        self.grouped.release(groups, now)
        self.check()

    def next(self, now: float, most: int) -> float:
        """Seconds of the rows that are next."""
        some = self.grouped.next(now, most)
        if some is None:
            assert self.one_by_one.next(now) is None
        for n in range(some.rows if some else 0):
            assert some is not None
            job = self.one_by_one.next(now + n * some.cost)
            assert job is not None
            assert (job.deadline, job.cost) == (some.deadline, some.cost)
        self.check()
        return some.rows * some.cost if some else 0.0

    def check(self) -> None:
        self.one_by_one.tree.check()
        self.grouped.check()
        assert len(self.grouped) == len(self.one_by_one)
        assert counts(self.grouped.groups()) == counted(self.one_by_one.tree)
        assert counts(self.grouped.given_up()) == counted(self.one_by_one.given_up())


@STEADY
@given(st.lists(STEP, max_size=5))
def test_by_count_is_the_same_as_one_by_one(
    steps: list[tuple[list[tuple[int, int, int]], list[int], int]],
) -> None:
    both, now = Both(), 0.0
    for groups, takes, longer in steps:
        both.release([Alike(now + d, float(cost), rows) for d, cost, rows in groups], now)
        for most in takes:
            now += both.next(now, most)
        now += longer


def test_many_rows_over_a_long_time() -> None:
    draw, both, now = random.Random(4), Both(), 0.0
    for step in range(300):
        at = max(now, step * 100.0)
        while now < at and len(both.grouped):
            now += both.next(now, draw.randint(1, 9)) + draw.choice([0, 0, 0, 1])
        now = max(now, at)
        fresh = []
        for _ in range(6):
            due = 100.0 * (step + draw.randint(1, 4))
            fresh.append(Alike(due, draw.choice([1.0, 12.0]), draw.randint(0, 9)))
        both.release(fresh, now)


def test_rows_that_cost_nothing_are_late_as_others_are() -> None:
    schedule = GroupedCostAware()
    schedule.release([Alike(1.0, 0.0, 5), Alike(1.0, 0.5, 2), Alike(9.0, 0.0, 3)], now=2.0)
    assert counts(schedule.given_up()) == {(1.0, 0.0): 5, (1.0, 0.5): 2}
    assert schedule.groups() == [Alike(9.0, 0.0, 3)]
    schedule.check()


def test_what_hardly_costs_anything_is_counted_too() -> None:
    schedule = GroupedCostAware()
    schedule.release([Alike(1.0, 5e-324, 10), Alike(1.0, 0.3, 4)], now=0.9)
    assert counts(schedule.given_up()) == {(1.0, 0.3): 4}
    schedule.release([], now=1.1)
    assert counts(schedule.given_up()) == {(1.0, 5e-324): 10}
    schedule.check()


def test_at_least_one_row_is_asked_for() -> None:
    with pytest.raises(ValueError, match="most=0"):
        GroupedCostAware().next(0.0, most=0)

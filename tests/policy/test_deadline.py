from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.deadline import SCHEDULES, CostAware, DeadlineTree, Job, Schedule

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=300)
# whole numbers: what is compared here are choices, not the last digit of a sum
JOBS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9)), max_size=9)


def jobs(given_: list[tuple[int, int]]) -> list[Job]:
    return [Job(n, float(deadline), float(cost)) for n, (deadline, cost) in enumerate(given_)]


def schedulable(some: list[Job], now: float) -> bool:
    """Whether all are on time when they are done by deadline."""
    for job in sorted(some, key=lambda job: job.deadline):
        now += job.cost
        if now > job.deadline:
            return False
    return True


def largest(some: list[Job], now: float) -> int:
    """How many can be on time at most, by trying all sets."""
    return next(
        size
        for size in range(len(some), -1, -1)
        if any(schedulable(list(kept), now) for kept in itertools.combinations(some, size))
    )


@STEADY
@given(JOBS, st.integers(0, 20))
def test_a_largest_set_is_kept(given_: list[tuple[int, int]], now: int) -> None:
    schedule = CostAware()
    released = jobs(given_)
    schedule.release(released, float(now))
    schedule.tree.check()
    kept = list(schedule.tree)
    assert schedulable(kept, float(now))
    assert len(kept) == largest(released, float(now))
    assert sorted(job.id for job in [*kept, *schedule.given_up()]) == [job.id for job in released]


@STEADY
@given(st.lists(JOBS, max_size=4), st.lists(st.integers(0, 12), min_size=4, max_size=4))
def test_batches_that_come_one_after_the_other(
    batches: list[list[tuple[int, int]]], gaps: list[int]
) -> None:
    """After each batch what is kept is a largest set of what was kept and what came."""
    schedule, now, ids = CostAware(), 0.0, itertools.count()
    for batch, gap in zip(batches, gaps, strict=False):
        fresh = [Job(next(ids), now + job.deadline, job.cost) for job in jobs(batch)]
        before = list(schedule.tree)
        schedule.release(fresh, now)
        assert len(schedule) == largest(before + fresh, now)
        schedule.tree.check()
        end = now + gap
        while now < end and (job := schedule.next(now)) is not None:
            now += job.cost
            assert now <= job.deadline, "none that was kept is late"
            schedule.tree.check()
        now = max(now, end)


@STEADY
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=60))
def test_the_tree_says_which_deadline_is_late_first(given_: list[tuple[int, int]]) -> None:
    tree, released = DeadlineTree(), jobs(given_)
    tree.insert(released)
    tree.check()
    for now in range(0, 40, 3):
        expected = None
        for deadline in sorted({job.deadline for job in released}):
            if now + sum(j.cost for j in released if j.deadline <= deadline) > deadline:
                expected = deadline
                break
        assert tree.first_late(float(now)) == expected
        assert tree.schedulable(float(now)) == (expected is None)


@STEADY
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=60))
def test_the_most_expensive_up_to_a_deadline_goes(given_: list[tuple[int, int]]) -> None:
    tree, left = DeadlineTree(), jobs(given_)
    tree.insert(left)
    draw = random.Random(len(given_))
    while left:
        upto = draw.choice(left).deadline
        dropped = tree.drop_most_expensive(upto)
        assert dropped.cost == max(job.cost for job in left if job.deadline <= upto)
        left.remove(dropped)
        tree.check()
        assert len(tree) == len(left)
    with pytest.raises(LookupError, match="no row with a deadline up to 5"):
        tree.drop_most_expensive(5.0)


@pytest.mark.parametrize("many", [1_000, 16_000])
def test_every_operation_looks_at_few_nodes(many: int) -> None:
    draw = random.Random(1)
    tree = DeadlineTree()
    most = 0
    limit = 4 * 1.45 * math.log2(many)

    def counted(before: int) -> None:
        nonlocal most
        most = max(most, tree.steps - before)

    for n in range(many):
        before = tree.steps
        tree.insert([Job(n, draw.random(), draw.random())])
        counted(before)
    for _ in range(200):
        before = tree.steps
        tree.first_late(draw.uniform(-many, 1.0))
        counted(before)
        before = tree.steps
        tree.drop_most_expensive(draw.uniform(0.7, 1.0))
        counted(before)
        before = tree.steps
        tree.first()
        counted(before)
    tree.check()
    assert most <= limit


def fold(schedule: Schedule, batches: list[list[Job]], every: float) -> tuple[set[int], set[int]]:
    """On time and not, of rows worked on one after the other."""
    now, on_time, others = 0.0, set(), set()
    coming = [(n * every, batch) for n, batch in enumerate(batches)]
    while True:
        while coming and coming[0][0] <= now:
            schedule.release(coming.pop(0)[1], now)
        job = schedule.next(now)
        others |= {up.id for up in schedule.given_up()}
        if job is not None:
            now += job.cost
            (on_time if now <= job.deadline else others).add(job.id)
        elif coming:
            now = coming[0][0]
        else:
            return on_time, others


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("load", [0.5, 1.36, 3.0])
def test_every_row_is_done_or_given_up(name: str, load: float) -> None:
    draw = random.Random(2)
    batches = []
    for n in range(60):
        costs = [draw.choice([0.002, 0.002, 0.05]) for _ in range(10)]
        batches.append([Job(10 * n + i, n * 0.1 + 1.0, c) for i, c in enumerate(costs)])
    every = 0.1
    work = sum(job.cost for batch in batches for job in batch) / (60 * every)
    batches = [[Job(j.id, j.deadline, j.cost * load / work) for j in b] for b in batches]
    on_time, others = fold(SCHEDULES[name](), batches, every)
    assert not on_time & others
    assert len(on_time | others) == 600
    if load < 1.0:
        assert not others


def test_cost_aware_keeps_more_than_all_others_under_overload() -> None:
    draw = random.Random(3)
    batches = [
        [Job(20 * n + i, n * 0.1 + 1.0, draw.choice([0.002] * 4 + [0.06])) for i in range(20)]
        for n in range(80)
    ]
    kept = {name: len(fold(build(), batches, 0.1)[0]) for name, build in SCHEDULES.items()}
    assert kept["cost-aware"] == max(kept.values())
    assert kept["fifo"] < 0.3 * kept["cost-aware"]
    assert kept["cost-aware"] > 1.05 * max(kept["edf"], kept["dover"])

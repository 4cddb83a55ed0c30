from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.deadline import (
    SCHEDULES,
    Alike,
    CostAware,
    DeadlineTree,
    GroupedCostAware,
    Job,
    Schedule,
)

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
    """How many can be on time at most, by trying with and without each."""

    def most(rest: list[Job], start: float) -> int:
        if not rest:
            return 0
        first, *others = rest
        without = most(others, start)
        if start + first.cost > first.deadline:
            return without
        return max(without, 1 + most(others, start + first.cost))

    return most(sorted(some, key=lambda job: job.deadline), now)


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


def test_thousands_of_small_instances() -> None:
    """Against trying everything, with rows that cost nothing, and checked after every step."""
    draw, batches = random.Random(1), 0
    for _ in range(1_500):
        schedule, now, ids = CostAware(), 0.0, itertools.count()
        latest, dearest = draw.choice([4, 12, 30]), draw.choice([1, 3, 9])
        for _ in range(draw.randint(1, 4)):
            fresh = [
                Job(next(ids), now + draw.randint(0, latest), float(draw.randint(0, dearest)))
                for _ in range(draw.randint(0, 6))
            ]
            before = list(schedule.tree)
            schedule.release(fresh, now)
            schedule.tree.check()
            up = schedule.given_up()
            assert schedulable(list(schedule.tree), now)
            assert len(schedule) == largest(before + fresh, now)
            assert {*schedule.tree, *up} == {*before, *fresh}
            batches += 1
            for _ in range(draw.randint(0, 4)):
                # now and then a row takes longer than expected, and others go for it
                before = list(schedule.tree)
                job = schedule.next(now)
                schedule.tree.check()
                up = schedule.given_up()
                if job is None:
                    assert not largest(before, now)
                    break
                assert len(schedule) + 1 == largest(before, now)
                assert {*schedule.tree, *up, job} == set(before)
                now += job.cost + draw.choice([0, 0, 0, 2])
    assert batches > 3_000


@STEADY
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)), min_size=1, max_size=60))
def test_the_tree_says_which_deadline_is_late_first(given_: list[tuple[int, int]]) -> None:
    tree, released = DeadlineTree(), jobs(given_)
    tree.insert(released)
    tree.check()
    for now in range(0, 40, 3):
        ends = {
            deadline: now + sum(j.cost for j in released if j.deadline <= deadline)
            for deadline in sorted({job.deadline for job in released})
        }
        late = [(deadline, end - deadline) for deadline, end in ends.items() if end > deadline]
        assert tree.first_late(float(now)) == (late[0] if late else None)
        assert tree.schedulable(float(now)) == (not late)


@STEADY
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), st.integers(1, 9)), max_size=80))
def test_rows_come_and_go_in_any_order(steps: list[tuple[int, int, int]]) -> None:
    """The tree against a list; what is taken is the cheapest of the earliest deadline."""
    tree, kept = DeadlineTree(), list[Job]()
    for n, (what, deadline, cost) in enumerate(steps):
        if what == 0 and kept:
            (gone,) = tree.drop_most_expensive(max(job.deadline for job in kept))
            assert gone.cost == max(job.cost for job in kept)
            kept.remove(gone)
        elif what == 1:
            first = tree.first()
            least = min(((job.deadline, job.cost) for job in kept), default=None)
            assert (first and (first.deadline, first.cost)) == least
            if first is not None:
                kept.remove(first)
        else:
            fresh = [Job(9 * n + i, float(deadline + i % 3), float(cost)) for i in range(what**2)]
            tree.insert(fresh)
            kept += fresh
        tree.check()
        assert len(tree) == len(kept)
        assert set(tree) == set(kept)
        assert tree.schedulable(5.0) == schedulable(kept, 5.0)


@STEADY
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9)), min_size=1, max_size=60))
def test_the_most_expensive_up_to_a_deadline_goes(given_: list[tuple[int, int]]) -> None:
    tree, left = DeadlineTree(), jobs(given_)
    tree.insert(left)
    draw = random.Random(len(given_))
    while left:
        upto = draw.choice(left).deadline
        seconds = draw.randint(0, 20)
        dropped = tree.drop_most_expensive(upto, float(seconds))
        most = max(job.cost for job in left if job.deadline <= upto)
        first = min(job.deadline for job in left if job.cost == most)
        alike = [job for job in left if (job.cost, job.deadline) == (most, first)]
        assert set(dropped) <= set(alike)
        assert len(dropped) == min(len(alike), max(1, math.ceil(seconds / most)))
        left = [job for job in left if job not in dropped]
        tree.check()
        assert len(tree) == len(left)
    with pytest.raises(LookupError, match="no row with a deadline up to 5"):
        tree.drop_most_expensive(5.0)


@pytest.mark.parametrize("many", [1_000, 16_000])
def test_every_operation_looks_at_few_nodes(many: int) -> None:
    draw, ids = random.Random(1), itertools.count()
    tree = DeadlineTree()
    most: dict[str, float] = {}
    height = 1.45 * math.log2(many)

    def insert() -> object:
        return tree.insert([Job(next(ids), draw.random(), draw.random())])

    def counted(name: str, operation: Callable[[], object]) -> None:
        before = tree.steps
        operation()
        most[name] = max(most.get(name, 0.0), (tree.steps - before) / height)

    for _ in range(many):
        counted("insert", insert)
    for _ in range(60):
        counted("late", lambda: tree.first_late(draw.uniform(-many, 1.0)))
        counted("drop", lambda: tree.drop_most_expensive(draw.uniform(0.9, 1.0)))
        counted("insert", insert)
        # from a tree that lies open, too
        for operation in (insert, lambda: tree.drop_most_expensive(1.0)):
            for _ in range(draw.randint(1, 9)):
                counted("first", tree.first)
            counted("from open", operation)
    tree.check()
    assert most["late"] <= 1.0
    assert most["first"] <= 1.0
    assert most["insert"] <= 2.0
    assert most["drop"] <= 3.0
    assert most["from open"] <= 4.0


def test_many_rows_at_once_look_at_fewer_nodes_each() -> None:
    many = 16_000
    tree = DeadlineTree()
    tree.insert([Job(n, float(n), 1.0) for n in range(many)])
    assert tree.steps <= 1.1 * many
    before = tree.steps
    tree.insert([Job(many + n, float(many + n), 1.0) for n in range(1_000)])
    assert tree.steps - before <= 1_100, "behind all others"
    before = tree.steps
    while tree.first() is not None:
        pass
    assert tree.steps - before <= 1.1 * (many + 1_000), "one each, whatever is behind"


def test_what_is_no_row_is_refused() -> None:
    for deadline, cost in ((math.nan, 1.0), (-math.inf, 1.0), (1.0, -1.0), (1.0, math.inf)):
        with pytest.raises(ValueError, match="a deadline, and a cost"):
            Job(1, deadline, cost)
        with pytest.raises(ValueError, match="a deadline, a cost"):
            Alike(deadline, cost, 1)
    with pytest.raises(ValueError, match="rows=-1"):
        Alike(1.0, 1.0, -1)
    for schedule in (CostAware(), GroupedCostAware()):
        schedule.release([], 0.0)
        assert (len(schedule), schedule.given_up()) == (0, [])
    assert CostAware().next(0.0) is None
    assert GroupedCostAware().next(0.0, most=1) is None


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

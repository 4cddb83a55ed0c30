import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.admission import proportional
from taut.policy.backlog import (
    ADMISSIONS,
    EGRESSES,
    LargestBacklog,
    RoundRobinAdmission,
    RoundRobinSignal,
    Signals,
    largest_first,
)

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=300)
NAMES = st.text("abcd", min_size=1, max_size=2)
FEW = st.dictionaries(NAMES, st.integers(0, 40), max_size=8)
MANY = st.dictionaries(NAMES, st.integers(0, 10**9), max_size=12)
Arrivals = Sequence[Sequence[int]]
"""Rows that come in each slot, for each queue; then one row of one queue is served."""


# What a batch takes


@STEADY
@given(waiting=MANY, most=st.integers(0, 10**10), name=st.sampled_from(sorted(ADMISSIONS)))
def test_all_of_the_budget_and_never_more_than_waits(
    waiting: dict[str, int], most: int, name: str
) -> None:
    taken = ADMISSIONS[name]()(waiting, most)
    assert list(taken) == list(waiting)
    assert all(0 <= taken[p] <= waiting[p] for p in waiting)
    assert sum(taken.values()) == min(most, sum(waiting.values()))


@STEADY
@given(waiting=FEW, most=st.integers(0, 200))
def test_largest_first_takes_one_by_one_where_most_is_left(
    waiting: dict[str, int], most: int
) -> None:
    left = dict(waiting)
    for _ in range(min(most, sum(waiting.values()))):
        left[min(left, key=lambda p: (-left[p], p))] -= 1
    assert largest_first(waiting, most) == {p: waiting[p] - left[p] for p in waiting}


@STEADY
@given(waiting=MANY, most=st.integers(0, 10**9))
def test_largest_first_leaves_the_backlogs_level(waiting: dict[str, int], most: int) -> None:
    taken = largest_first(waiting, most)
    left = {p: waiting[p] - taken[p] for p in waiting}
    touched = [left[p] for p in waiting if taken[p]]
    if touched:
        assert max(left.values()) - min(touched) <= 1


@STEADY
@given(calls=st.lists(st.tuples(FEW, st.integers(0, 100)), max_size=5))
def test_round_robin_is_one_offset_a_turn(calls: list[tuple[dict[str, int], int]]) -> None:
    admission = RoundRobinAdmission()
    last = ""
    for waiting, most in calls:
        left, budget = dict(waiting), most
        names = sorted(waiting)
        order = [p for p in names if p > last] + [p for p in names if p <= last]
        while budget and any(left.values()):
            reached = [p for p in order if left[p]]
            served = reached[:budget]
            for p in served:
                left[p] -= 1
            budget -= len(served)
            if len(served) < len(reached):
                last = served[-1]
        assert admission(waiting, most) == {p: waiting[p] - left[p] for p in waiting}


def test_what_is_left_of_a_round_goes_to_another_each_time() -> None:
    admission = RoundRobinAdmission()
    waiting = {"a": 100, "b": 100, "c": 0, "d": 100}
    assert [[p for p, n in admission(waiting, 4).items() if n == 2] for _ in range(4)] == [
        ["a"], ["b"], ["d"], ["a"]
    ]  # fmt: skip


def test_a_partition_that_is_gone_does_not_stop_the_turns() -> None:
    admission = RoundRobinAdmission()
    assert admission({"a": 5, "b": 5, "c": 5}, 2) == {"a": 1, "b": 1, "c": 0}
    assert admission({"a": 5, "c": 5}, 1) == {"a": 0, "c": 1}
    assert admission({"a": 5}, 1) == {"a": 1}


@pytest.mark.parametrize("name", ["round-robin", "largest-backlog"])
def test_a_negative_budget_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="most=-1 offsets"):
        ADMISSIONS[name]()({"a": 1}, -1)


# Who may send


@STEADY
@given(backlogs=st.lists(st.integers(0, 3), max_size=6))
def test_the_largest_backlog_has_the_signal(backlogs: list[int]) -> None:
    order = sorted(range(len(backlogs)), key=lambda n: (-backlogs[n], n))
    expected = next((n for n in order if backlogs[n]), None)
    assert LargestBacklog().pick(backlogs) == expected


def test_round_robin_waits_for_empty_ones() -> None:
    signals = RoundRobinSignal()
    assert [signals.pick([0, 0, 9]) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert signals.pick([]) is None
    assert [signals.pick([1, 1]) for _ in range(2)] == [0, 1], "one has gone"


class SmallestBacklog:
    """As bad as can be while it always serves someone."""

    def pick(self, backlogs: Sequence[int]) -> int | None:
        waiting = [n for n, rows in enumerate(backlogs) if rows]
        return min(waiting, key=lambda n: backlogs[n], default=None)


def largest_seen(signals: Signals, arrivals: Arrivals) -> int:
    """The largest backlog of any queue in any slot, before it is served."""
    backlogs = [0] * len(arrivals[0])
    largest = 0
    for come in arrivals:
        backlogs = [had + new for had, new in zip(backlogs, come, strict=True)]
        largest = max(largest, *backlogs)
        chosen = signals.pick(backlogs)
        if chosen is not None and backlogs[chosen]:
            backlogs[chosen] -= 1
    return largest


def optimum_by_search(arrivals: Arrivals) -> int:
    """The least that ``largest_seen`` could be, by trying every schedule there is."""
    reached = {(0,) * len(arrivals[0]): 0}
    for come in arrivals:
        after: dict[tuple[int, ...], int] = {}
        for state, largest in reached.items():
            now = tuple(had + new for had, new in zip(state, come, strict=True))
            seen = max(largest, *now)
            served = [(*now[:n], now[n] - 1, *now[n + 1 :]) for n in range(len(now)) if now[n]]
            for following in [now, *served]:
                after[following] = min(seen, after.get(following, seen))
        reached = after
    return min(reached.values())


def optimum(arrivals: Arrivals) -> int:
    """The same by deadlines, for more queues and slots than can be searched.

    No backlog exceeds a bound if and only if each queue's n-th row is served before the slot in
    which its row n + bound comes: jobs of one slot with deadlines, for which the earliest deadline
    first is best.
    """
    came = [[slot for slot, come in enumerate(arrivals) for _ in range(come[queue])]
            for queue in range(len(arrivals[0]))]  # fmt: skip

    def kept(bound: int) -> bool:
        served = [0] * len(came)
        for slot in range(len(arrivals)):
            ready = [(rows[done + bound] if done + bound < len(rows) else math.inf, queue)
                     for queue, (rows, done) in enumerate(zip(came, served, strict=True))
                     if done < len(rows) and rows[done] <= slot]  # fmt: skip
            if not ready:
                continue
            deadline, queue = min(ready)
            if deadline <= slot:
                return False
            served[queue] += 1
        return True

    return next(bound for bound in range(sum(map(len, came)) + 1) if kept(bound))


def bound(queues: int) -> int:
    return 3 + math.ceil(math.log2(queues))


@st.composite
def instances(draw: st.DrawFn, queues: int, slots: int) -> list[list[int]]:
    """Mostly one row or none, now and then a burst."""
    rows = st.sampled_from([0, 0, 0, 1, 1, 3])
    n = draw(st.integers(2, queues))
    return draw(st.lists(st.lists(rows, min_size=n, max_size=n), min_size=1, max_size=slots))


@STEADY
@given(arrivals=instances(queues=4, slots=6))
def test_never_far_above_the_optimum_of_a_search(arrivals: list[list[int]]) -> None:
    best = optimum_by_search(arrivals)
    assert best == optimum(arrivals)
    seen = largest_seen(LargestBacklog(), arrivals)
    assert best <= seen <= bound(len(arrivals[0])) * best


@STEADY
@given(batches=instances(queues=4, slots=8), budget=st.integers(1, 4))
def test_admission_is_never_far_above_the_optimum(batches: list[list[int]], budget: int) -> None:
    """A batch spends its budget at once, after all its rows have come."""
    names = [str(n) for n in range(len(batches[0]))]
    waiting, seen = dict.fromkeys(names, 0), 0
    for come in batches:
        waiting = {name: waiting[name] + n for name, n in zip(names, come, strict=True)}
        seen = max(seen, *waiting.values())
        taken = largest_first(waiting, budget)
        waiting = {name: waiting[name] - taken[name] for name in names}
    nothing = [0] * len(names)
    slots = [row for come in batches for row in (come, *[nothing] * (budget - 1))]
    best = optimum(slots)
    assert best <= seen <= bound(len(names)) * best


def skewed(queues: int, slots: int) -> list[list[int]]:
    """Each slot a row for the first queue, three at first, and one for another in turn."""
    return [[1 if slot else 3] + [int(slot % (queues - 1) == n) for n in range(queues - 1)]
            for slot in range(slots)]  # fmt: skip


@pytest.mark.parametrize("queues", [8, 12])
@pytest.mark.parametrize("seed", range(6))
def test_never_far_above_the_optimum_of_many_queues(queues: int, seed: int) -> None:
    draw = random.Random(seed)
    weights = [draw.choice([0.02, 0.1, 0.3]) for _ in range(queues)]
    arrivals = [[draw.choice([1, 1, 4]) * (draw.random() < weight) for weight in weights]
                for _ in range(150)]  # fmt: skip
    for instance in (arrivals, skewed(queues, 200)):
        best = optimum(instance)
        assert best <= largest_seen(LargestBacklog(), instance) <= bound(queues) * best


def test_a_bad_policy_is_told_apart() -> None:
    """That takes more than a few queues: with six or less whoever always serves someone is within.

    As many rows wait under each such policy, at worst in one queue, at best an even part in each:
    N times the optimum at most, and the bound is below N from seven on.
    """
    instance = skewed(queues=8, slots=200)
    best = optimum(instance)
    assert largest_seen(SmallestBacklog(), instance) > bound(8) * best
    assert largest_seen(RoundRobinSignal(), instance) > bound(8) * best
    assert largest_seen(LargestBacklog(), instance) <= best + 1
    assert bound(7) < 7
    assert all(bound(n) >= n for n in range(2, 7))


def test_smaller_backlogs_than_round_robin() -> None:
    """The published simulation, shorter: queues that share a link which is almost busy."""
    draw = random.Random(3)
    arrivals = [[int(draw.random() < 0.095) for _ in range(10)] for _ in range(5_000)]
    by_turns = largest_seen(RoundRobinSignal(), arrivals)
    assert largest_seen(LargestBacklog(), arrivals) < 0.5 * by_turns


def test_names() -> None:
    assert list(ADMISSIONS) == ["proportional", "round-robin", "largest-backlog"]
    assert ADMISSIONS["proportional"]() is proportional
    assert ADMISSIONS["round-robin"]() is not ADMISSIONS["round-robin"]()
    assert list(EGRESSES) == ["all", "buffered", "round-robin", "largest-backlog"]
    assert EGRESSES["all"] is EGRESSES["buffered"] is None
    builders: list[Callable[[], Signals]] = [b for b in EGRESSES.values() if b is not None]
    assert [build().pick([1, 2]) for build in builders] == [0, 1]

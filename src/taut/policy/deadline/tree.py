"""Rows by deadline, in a balanced tree that knows whether all of them can be on time.

A node is a deadline and the rows that have it. Of the rows below and at a node it keeps the total
cost, the largest cost, and the latest moment to begin with them so that none is late. From those of
its two children they follow in a few steps, so that a row comes and goes in O(log m), and whether
all rows can be on time is seen at the root.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final

from taut.policy.deadline.jobs import Job


class _Node:
    __slots__ = (
        "cost", "deadline", "height", "jobs", "latest", "left", "most", "own", "right",
    )  # fmt: skip

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.jobs: list[tuple[float, int, Job]] = []
        """A heap, the most expensive first."""
        self.own = 0.0
        self.left: _Node | None = None
        self.right: _Node | None = None
        self.height = 1
        self.cost = 0.0
        self.most = 0.0
        self.latest = math.inf


class DeadlineTree:
    """The rows that are kept; ``steps`` counts the nodes that were looked at."""

    def __init__(self) -> None:
        self._root: _Node | None = None
        self._size = 0
        self.steps = 0

    def __len__(self) -> int:
        return self._size

    def insert(self, jobs: Sequence[Job]) -> None:
        """Rows of any deadlines. O(log m) for each deadline among them, and for each row."""
        by_deadline: dict[float, list[Job]] = {}
        for job in jobs:
            by_deadline.setdefault(job.deadline, []).append(job)
        for deadline, same in by_deadline.items():
            self._root = self._insert(self._root, deadline, same)
        self._size += len(jobs)

    def schedulable(self, now: float) -> bool:
        """Whether all rows can be on time when they are begun with now. O(1)."""
        return self._root is None or now <= self._root.latest

    def first_late(self, now: float) -> float | None:
        """The first deadline that the rows up to it cannot make from now on. O(log m)."""
        node, start = self._root, now
        while node is not None:
            self.steps += 1
            if node.left is not None and start > node.left.latest:
                node = node.left
                continue
            start += _cost(node.left) + node.own
            if start > node.deadline:
                return node.deadline
            node = node.right
        return None

    def drop_most_expensive(self, upto: float) -> Job:
        """Take out the most expensive row of those with deadlines up to this one. O(log m)."""
        most, node = -math.inf, self._root
        best: _Node | None = None
        whole = False
        while node is not None:
            self.steps += 1
            if node.deadline > upto:
                node = node.left
                continue
            # all on its left count, and those on its right up to the deadline
            if -node.jobs[0][0] > most:
                most, best, whole = -node.jobs[0][0], node, False
            if node.left is not None and node.left.most > most:
                most, best, whole = node.left.most, node.left, True
            node = node.right
        if best is None:
            raise LookupError(f"no row with a deadline up to {upto}")
        at = self._deadline_of(best) if whole else best.deadline
        return self._take(at, most_expensive=True)

    def first(self) -> Job | None:
        """Take out a row of the earliest deadline; not its most expensive, if there are more."""
        node = self._root
        if node is None:
            return None
        while node.left is not None:
            self.steps += 1
            node = node.left
        return self._take(node.deadline, most_expensive=False)

    def __iter__(self) -> Iterator[Job]:
        """By deadline."""
        yield from _jobs(self._root)

    def check(self) -> None:
        """Assert that every node is what its rows and children make it."""
        assert len(list(self)) == self._size
        deadlines = [job.deadline for job in self]
        assert deadlines == sorted(deadlines)
        _check(self._root)

    def _deadline_of(self, node: _Node) -> float:
        """Where the most expensive row below a node is."""
        while True:
            self.steps += 1
            if node.jobs and -node.jobs[0][0] == node.most:
                return node.deadline
            if node.left is not None and node.left.most == node.most:
                node = node.left
            else:
                assert node.right is not None
                node = node.right

    def _insert(self, node: _Node | None, deadline: float, jobs: Sequence[Job]) -> _Node:
        self.steps += 1
        if node is None:
            node = _Node(deadline)
        if deadline < node.deadline:
            node.left = self._insert(node.left, deadline, jobs)
        elif deadline > node.deadline:
            node.right = self._insert(node.right, deadline, jobs)
        else:
            for job in jobs:
                heappush(node.jobs, (-job.cost, job.id, job))
                node.own += job.cost
        return _balanced(node)

    def _take(self, deadline: float, *, most_expensive: bool) -> Job:
        taken: list[Job] = []
        self._root = self._without(self._root, deadline, most_expensive, taken)
        self._size -= 1
        return taken[0]

    def _without(
        self, node: _Node | None, deadline: float, most_expensive: bool, taken: list[Job]
    ) -> _Node | None:
        assert node is not None
        self.steps += 1
        if deadline < node.deadline:
            node.left = self._without(node.left, deadline, most_expensive, taken)
        elif deadline > node.deadline:
            node.right = self._without(node.right, deadline, most_expensive, taken)
        else:
            # the last place of a heap is a leaf of it, and can go without a look at the others
            _, _, job = heappop(node.jobs) if most_expensive else node.jobs.pop()
            taken.append(job)
            node.own -= job.cost
            if not node.jobs:
                return self._removed(node)
        return _balanced(node)

    def _removed(self, node: _Node) -> _Node | None:
        """What comes in the place of a node without rows."""
        if node.left is None or node.right is None:
            return node.left or node.right
        following: list[_Node] = []
        right = self._without_first(node.right, following)
        (new,) = following
        new.left, new.right = node.left, right
        return _balanced(new)

    def _without_first(self, node: _Node, taken: list[_Node]) -> _Node | None:
        self.steps += 1
        if node.left is None:
            taken.append(node)
            return node.right
        node.left = self._without_first(node.left, taken)
        return _balanced(node)


_NONE: Final = 0.0


def _cost(node: _Node | None) -> float:
    return _NONE if node is None else node.cost


def _height(node: _Node | None) -> int:
    return 0 if node is None else node.height


def _told(node: _Node) -> _Node:
    """Work out what a node knows of the rows below it."""
    left, right = node.left, node.right
    before = _cost(left) + node.own
    most = -node.jobs[0][0] if node.jobs else -math.inf
    latest = node.deadline - before
    height = 0
    if left is not None:
        most = max(most, left.most)
        latest = min(latest, left.latest)
        height = left.height
    cost = before
    if right is not None:
        most = max(most, right.most)
        latest = min(latest, right.latest - before)
        height = max(height, right.height)
        cost += right.cost
    node.cost, node.most, node.latest, node.height = cost, most, latest, height + 1
    return node


def _balanced(node: _Node) -> _Node:
    """Turn a node whose sides differ by more than one level, and work out what it knows."""
    tilt = _height(node.left) - _height(node.right)
    if tilt > 1:
        assert node.left is not None
        if _height(node.left.left) < _height(node.left.right):
            node.left = _turned_left(node.left)
        return _turned_right(node)
    if tilt < -1:
        assert node.right is not None
        if _height(node.right.right) < _height(node.right.left):
            node.right = _turned_right(node.right)
        return _turned_left(node)
    return _told(node)


def _turned_right(node: _Node) -> _Node:
    up = node.left
    assert up is not None
    node.left = up.right
    up.right = _told(node)
    return _told(up)


def _turned_left(node: _Node) -> _Node:
    up = node.right
    assert up is not None
    node.right = up.left
    up.left = _told(node)
    return _told(up)


def _jobs(node: _Node | None) -> Iterator[Job]:
    if node is not None:
        yield from _jobs(node.left)
        yield from (job for _, _, job in node.jobs)
        yield from _jobs(node.right)


def _check(node: _Node | None) -> None:
    if node is None:
        return
    _check(node.left)
    _check(node.right)
    assert node.jobs, "a deadline without rows is no node"
    assert abs(_height(node.left) - _height(node.right)) <= 1
    assert node.height == 1 + max(_height(node.left), _height(node.right))
    below = list(_jobs(node))
    costs = [job.cost for job in below]
    assert math.isclose(node.cost, math.fsum(costs), rel_tol=1e-9, abs_tol=1e-9)
    assert node.most == max(costs)
    spent, latest = 0.0, math.inf
    for n, job in enumerate(below):
        spent += job.cost
        if n + 1 == len(below) or below[n + 1].deadline != job.deadline:
            latest = min(latest, job.deadline - spent)
    assert math.isclose(node.latest, latest, rel_tol=1e-9, abs_tol=1e-9)

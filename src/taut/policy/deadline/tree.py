"""Rows by deadline, in a balanced tree that knows whether all of them can be on time.

A node is a deadline and the rows that have it. Of the rows below and at a node it keeps the total
cost, the largest cost, and the latest moment to begin with them so that none is late. From those of
its two children they follow in a few steps, so that a row comes and goes in O(log m), and whether
all rows can be on time is seen at the root.

Rows are taken from the front one after the other, and what follows them does not change by that. So
while rows are taken, the tree lies open on its left: the way from the root to the first deadline is
a list, of which each node knows the latest moment to begin with it and all that follows. The first
row comes off its end, without a look at the nodes above. Whatever else happens closes the tree.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from operator import attrgetter

from taut.policy.deadline.jobs import Job

_DEADLINE = attrgetter("deadline")
_COST = attrgetter("cost")


class _Node:
    __slots__ = (
        "cost", "deadline", "height", "jobs", "latest", "left", "most", "own", "right",
    )  # fmt: skip
    left: _Node
    right: _Node

    def __init__(self, deadline: float, jobs: list[Job]) -> None:
        self.deadline = deadline
        self.jobs = jobs
        """The most expensive first; of equals those that came last."""
        self.own = 0.0
        self.cost = 0.0
        self.most = -math.inf
        self.latest = math.inf
        self.height = 0


_NONE = _Node(math.inf, [])
_NONE.left = _NONE.right = _NONE


class DeadlineTree:
    """The rows that are kept; ``steps`` counts the nodes that were looked at."""

    def __init__(self) -> None:
        self._root = _NONE
        self._way: list[_Node] = []
        """While the tree is open: from the root to the first deadline; the root is none then."""
        self._latest: list[float] = []
        """For each node on the way: when to begin with it, at the latest, for none to be late."""
        self._size = 0
        self.steps = 0

    def __len__(self) -> int:
        return self._size

    def insert(self, jobs: Sequence[Job]) -> None:
        """Rows of any deadlines. O(k log(m / k)) for k deadlines, not more than O(log m) each."""
        self._close()
        fresh: list[_Node] = []
        backwards = jobs[::-1]  # of equals those that came last are the first to go
        for job in sorted(backwards, key=_DEADLINE):
            if fresh and fresh[-1].deadline == job.deadline:
                fresh[-1].jobs.append(job)
            else:
                fresh.append(_Node(job.deadline, [job]))
        for node in fresh:
            _priced(node)
        deadlines = [node.deadline for node in fresh]
        self._root = self._with(self._root, fresh, deadlines, 0, len(fresh))
        self._size += len(jobs)

    def schedulable(self, now: float) -> bool:
        """Whether all rows can be on time when they are begun with now. O(1)."""
        return now <= (self._latest[-1] if self._latest else self._root.latest)

    def first_late(self, now: float) -> tuple[float, float] | None:
        """The first deadline that cannot be kept from now on, and by how much. O(log m)."""
        self._close()
        node, start = self._root, now
        while node.height:
            self.steps += 1
            if start > node.left.latest:
                node = node.left
                continue
            start += node.left.cost + node.own
            if start > node.deadline:
                return node.deadline, start - node.deadline
            node = node.right
        return None

    def drop_most_expensive(self, upto: float, seconds: float = 0.0) -> list[Job]:
        """Take out one row of the most expensive with deadlines up to this one. O(log m).

        Of equals it is one of the earliest deadline: what remains has more time. More rows of its
        cost and deadline go with it, until they would have taken so many seconds.
        """
        self._close()
        node, best, most = self._root, _NONE, -math.inf
        while node.height:
            self.steps += 1
            if node.deadline > upto:
                node = node.left
                continue
            # all on its left count, and those on its right up to the deadline
            if node.left.most > most:
                most, best = node.left.most, node.left
            if node.jobs[0].cost > most:
                most, best = node.jobs[0].cost, node
            node = node.right
        if not best.height:
            raise LookupError(f"no row with a deadline up to {upto}")
        while best.left.most == most or best.jobs[0].cost < most:
            self.steps += 1
            best = best.left if best.left.most == most else best.right
        return self._take_out(best, seconds)

    def first(self) -> Job | None:
        """Take out the cheapest row of the earliest deadline. O(1) when done again and again."""
        if not self._way:
            self._open(self._root)
            self._root = _NONE
            if not self._way:
                return None
        node = self._way.pop()
        self._latest.pop()
        job = node.jobs.pop()
        self._size -= 1
        if node.jobs:
            node.own -= job.cost
            node.left = _NONE  # all of it is done
            self._open(node)
        else:
            self._open(node.right)
        return job

    def __iter__(self) -> Iterator[Job]:
        """By deadline."""
        for node in reversed(self._way):
            yield from _from(node)
        yield from _jobs(self._root)

    def check(self) -> None:
        """Assert that every node is what its rows and children make it."""
        kept = list(self)
        assert len(kept) == self._size
        assert kept == sorted(kept, key=_DEADLINE)
        _check(self._root)
        assert not self._way or not self._root.height, "either open or closed"
        for n, (node, latest) in enumerate(zip(self._way, self._latest, strict=True)):
            _check_own(node)
            _check(node.right)
            behind = [job for above in reversed(self._way[: n + 1]) for job in _from(above)]
            assert _same(latest, _latest(behind))

    def _with(
        self, node: _Node, fresh: list[_Node], deadlines: list[float], begin: int, end: int
    ) -> _Node:
        """A tree and some of the fresh nodes, which are in order."""
        if begin == end:
            return node
        self.steps += 1
        if not node.height:
            middle = (begin + end) // 2
            node = fresh[middle]
            node.left = self._with(_NONE, fresh, deadlines, begin, middle)
            node.right = self._with(_NONE, fresh, deadlines, middle + 1, end)
            return _told(node)
        at = after = bisect_left(deadlines, node.deadline, begin, end)
        if at < end and deadlines[at] == node.deadline:
            after += 1
            node.jobs[:0] = fresh[at].jobs
            _priced(node)
        left = self._with(node.left, fresh, deadlines, begin, at)
        right = self._with(node.right, fresh, deadlines, after, end)
        return self._joined(left, node, right)

    def _joined(self, left: _Node, node: _Node, right: _Node) -> _Node:
        """One tree of two and a node between them. O(difference of their heights)."""
        self.steps += 1
        if left.height > right.height + 1:
            left.right = self._joined(left.right, node, right)
            return _balanced(left)
        if right.height > left.height + 1:
            right.left = self._joined(left, node, right.left)
            return _balanced(right)
        node.left, node.right = left, right
        return _told(node)

    def _open(self, node: _Node) -> None:
        """Add the way from a node to its first deadline."""
        latest = self._latest[-1] if self._latest else math.inf
        while node.height:
            self.steps += 1
            right = node.right
            latest -= right.cost
            latest = min(latest, right.latest, node.deadline) - node.own
            self._way.append(node)
            self._latest.append(latest)
            node = node.left

    def _close(self) -> None:
        """Make a tree of what is on the way. O(log m), for the heights grow along it."""
        if self._way:
            root = _NONE
            for node in reversed(self._way):
                root = self._joined(root, node, node.right)
            self._root = root
            self._way.clear()
            self._latest.clear()

    def _take_out(self, at: _Node, seconds: float) -> list[Job]:
        """The most expensive rows of a node."""
        cost, jobs = at.jobs[0].cost, at.jobs
        going = 1
        while going < len(jobs) and jobs[going].cost == cost and going * cost < seconds:
            going += 1
        taken = jobs[:going]
        del jobs[:going]
        at.own -= going * cost
        self._size -= going
        way, node = list[_Node](), self._root
        while node is not at:
            way.append(node)
            node = node.left if at.deadline < node.deadline else node.right
        self.steps += len(way)
        node = _told(at) if jobs else self._joined_without(at)
        for above in reversed(way):
            if at.deadline < above.deadline:
                above.left = node
            else:
                above.right = node
            node = _balanced(above)
        self._root = node
        return taken

    def _joined_without(self, node: _Node) -> _Node:
        """What comes in the place of a node without rows."""
        if not node.left.height:
            return node.right
        if not node.right.height:
            return node.left
        way, first = list[_Node](), node.right
        while first.left.height:
            way.append(first)
            first = first.left
        self.steps += len(way)
        right = first.right
        for above in reversed(way):
            above.left = right
            right = _balanced(above)
        first.left, first.right = node.left, right
        return _balanced(first)


def _priced(node: _Node) -> None:
    """Put the rows of a node in order, and add up what they cost."""
    if len(node.jobs) > 1:
        node.jobs.sort(key=_COST, reverse=True)
        node.own = math.fsum(map(_COST, node.jobs))
    else:
        node.own = node.jobs[0].cost


def _told(node: _Node) -> _Node:
    """Work out what a node knows of the rows below it."""
    left, right = node.left, node.right
    before = left.cost + node.own
    node.cost = before + right.cost
    latest = node.deadline if node.deadline < right.latest else right.latest
    latest -= before
    node.latest = latest if latest < left.latest else left.latest
    most = left.most if left.most > right.most else right.most
    own = node.jobs[0].cost
    node.most = own if own > most else most
    node.height = 1 + (left.height if left.height > right.height else right.height)
    return node


def _balanced(node: _Node) -> _Node:
    """Turn a node whose sides differ by more than one level, and work out what it knows."""
    left, right = node.left, node.right
    tilt = left.height - right.height
    if tilt > 1:
        if left.left.height < left.right.height:
            node.left = _turned_left(left)
        return _turned_right(node)
    if tilt < -1:
        if right.right.height < right.left.height:
            node.right = _turned_right(right)
        return _turned_left(node)
    return _told(node)


def _turned_right(node: _Node) -> _Node:
    up = node.left
    node.left = up.right
    up.right = _told(node)
    return _told(up)


def _turned_left(node: _Node) -> _Node:
    up = node.right
    node.right = up.left
    up.left = _told(node)
    return _told(up)


def _jobs(node: _Node) -> Iterator[Job]:
    if node.height:
        yield from _jobs(node.left)
        yield from _from(node)


def _from(node: _Node) -> Iterator[Job]:
    """The rows of a node and of those on its right."""
    yield from node.jobs
    yield from _jobs(node.right)


def _latest(by_deadline: Sequence[Job]) -> float:
    """When to begin, at the latest, for none of them to be late."""
    spent, latest = 0.0, math.inf
    for job in by_deadline:
        spent += job.cost
        latest = min(latest, job.deadline - spent)
    return latest


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


def _check(node: _Node) -> None:
    if not node.height:
        assert node is _NONE
        return
    _check(node.left)
    _check(node.right)
    _check_own(node)
    assert abs(node.left.height - node.right.height) <= 1
    assert node.height == 1 + max(node.left.height, node.right.height)
    below = list(_jobs(node))
    costs = [job.cost for job in below]
    assert _same(node.cost, math.fsum(costs))
    assert node.most == max(costs)
    assert _same(node.latest, _latest(below))


def _check_own(node: _Node) -> None:
    assert node.jobs, "a deadline without rows is no node"
    assert {job.deadline for job in node.jobs} == {node.deadline}
    costs = [job.cost for job in node.jobs]
    assert costs == sorted(costs, reverse=True)
    assert _same(node.own, math.fsum(costs))

"""Largest backlog first: who goes next where many wait for one.

Two places have that choice. Which partitions the next batch takes its rows from, when it may not
take all that wait: there a budget of offsets is spent. And which lane may send in the next
interval, where lanes share a link: there one of them has the signal. The largest backlog going
first keeps the largest one small: with N queues it never grows beyond 3 + ceil(log2 N) times what
the best schedule, made with all of the future known, would have needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from taut.policy.admission import Spend, proportional


def largest_first(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """``most`` offsets of the largest backlogs, so that what is left of them is level.

    As if each offset were taken where most is left just then, the first name among equals. Whole,
    never more than waits, and all spent if that much waits. O(n log n).

    >>> largest_first({"a": 90, "b": 10, "c": 60, "d": 0}, 50)
    {'a': 40, 'b': 0, 'c': 10, 'd': 0}
    """
    _check_budget(most)
    if sum(waiting.values()) <= most:
        return dict(waiting)
    level = _level(sorted(waiting.values(), reverse=True), most)
    taken = {p: max(0, size - level) for p, size in waiting.items()}
    rest = most - sum(taken.values())
    for partition in sorted(p for p, size in waiting.items() if size >= level)[:rest]:
        taken[partition] += 1
    return taken


def _level(sizes: Sequence[int], most: int) -> int:
    """What is left at most of each when ``most`` are taken of the largest; sizes largest first."""
    together = 0
    for n, (size, following) in enumerate(zip(sizes, [*sizes[1:], 0], strict=True), start=1):
        together += size
        level = -((most - together) // n)  # rounded up
        if level >= following:
            break
    return level


class RoundRobinAdmission:
    """Offsets in equal turns, one each; a partition with nothing left passes on its turn.

    A last round that does not reach everyone goes on, in the next call, where it has ended.

    >>> admission = RoundRobinAdmission()
    >>> admission({"a": 9, "b": 1, "c": 9}, 6), admission({"a": 6, "b": 0, "c": 7}, 1)
    ({'a': 3, 'b': 1, 'c': 2}, {'a': 0, 'b': 0, 'c': 1})
    """

    def __init__(self) -> None:
        self._last: str | None = None

    def __call__(self, waiting: Mapping[str, int], most: int) -> dict[str, int]:
        """Whole offsets, never more than wait, all spent if that much waits. O(n log n)."""
        _check_budget(most)
        if sum(waiting.values()) <= most:
            return dict(waiting)
        rounds, rest = self._rounds(sorted(waiting.values()), most)
        taken = {p: min(size, rounds) for p, size in waiting.items()}
        last = self._last
        # those after the last one first, then from the beginning
        turns = sorted(waiting, key=lambda p: (last is not None and p <= last, p))
        for partition in [p for p in turns if waiting[p] > rounds][:rest]:
            taken[partition] += 1
            self._last = partition
        return taken

    @staticmethod
    def _rounds(sizes: Sequence[int], most: int) -> tuple[int, int]:
        """Whole rounds, and offsets for another that does not reach all; sizes smallest first."""
        left = most
        for n, size in enumerate(sizes):
            if size * (len(sizes) - n) > left:
                return divmod(left, len(sizes) - n)
            left -= size
        raise AssertionError("no more waits than may be taken")


def _check_budget(most: int) -> None:
    if most < 0:
        raise ValueError(f"most={most} offsets: must not be negative")


class Signals(Protocol):
    """Who may send in the next interval."""

    def pick(self, backlogs: Sequence[int]) -> int | None:
        """The place in ``backlogs`` of the one that may; None for nobody."""
        ...


class LargestBacklog:
    """The one with the largest backlog, the first among equals; nobody where nothing waits.

    >>> LargestBacklog().pick([3, 7, 7]), LargestBacklog().pick([0, 0])
    (1, None)
    """

    def pick(self, backlogs: Sequence[int]) -> int | None:
        """Choose by backlog. O(n)."""
        most = max(backlogs, default=0)
        return backlogs.index(most) if most > 0 else None


class RoundRobinSignal:
    """Each in turn from the first on, also one that has nothing to send, as published.

    >>> signals = RoundRobinSignal()
    >>> [signals.pick([0, 5, 5]) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._next = 0

    def pick(self, backlogs: Sequence[int]) -> int | None:
        """Choose whose turn it is."""
        if not backlogs:
            return None
        turn = self._next % len(backlogs)
        self._next = turn + 1
        return turn


ADMISSIONS: dict[str, Callable[[], Spend]] = {
    "proportional": lambda: proportional,
    "round-robin": RoundRobinAdmission,
    "largest-backlog": lambda: largest_first,
}
"""The ways of spending a batch's budget by name; each value builds a fresh one."""

TAU = 0.05
"""Seconds that whoever may send keeps that right, unless told otherwise."""
EGRESSES: dict[str, Callable[[], Signals] | None] = {
    "all": None,
    "buffered": None,
    "round-robin": RoundRobinSignal,
    "largest-backlog": LargestBacklog,
}
"""Who may send, by name; None where all may at once, so that there is nothing to pick."""

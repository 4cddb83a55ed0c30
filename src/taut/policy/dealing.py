"""Shares that follow how fast lanes are: rows are dealt out to queues of the lanes' own.

A lane's place is a slot of an executor, not its number alone: Spark puts the lanes of the next
batch wherever it likes, and what was learned of a slow machine holds for whichever lane comes to
run there. Rows that are there before any lane (a whole batch) are dealt out as lanes join, each
getting its part of what is left; rows that come later are dealt out as they come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from taut.policy.balance import BALANCES, PERIOD, Balance
from taut.policy.chunking import Chunking
from taut.policy.sharing import (
    FixedRanges,
    Queue,
    Range,
    SharedByExecutor,
    SharedQueue,
    Sharing,
)


class Dealt(FixedRanges):
    """Every lane has its own queue; how much goes to each, a :class:`.Balance` says.

    Parameters
    ----------
    lanes
        Lanes that there are to be.
    balance
        Outlives the batch, and knows the lanes by their places.
    """

    def __init__(self, lanes: int, chunking: Chunking, balance: Balance) -> None:
        super().__init__(lanes, chunking)
        self._balance = balance
        self._pool = Queue()
        self._places: dict[int, str] = {}
        self._dealt: set[int] = set()
        self._ended: set[int] = set()
        self._silent: set[int] = set()
        self._under_way: dict[tuple[str, int], tuple[str, float]] = {}

    def add(self, ranges: Sequence[Range], now: float = 0.0) -> None:
        """Deal rows out to the lanes that are there; keep them for the first if there is none."""
        if self._there:
            self._deal(ranges, now)
        else:
            self._pool.extend(ranges, now)

    def join(self, lane: int, executor: str) -> None:
        """A lane takes a place, and its part of what is there already."""
        self._ended.discard(lane)
        self._silent.discard(lane)
        place = self._places.get(lane)
        if place is None or place.rpartition("#")[0] != executor:
            self._places.pop(lane, None)
            self._places[lane] = self._place(lane, executor)
        self._balance.join(self._places[lane])
        if place != self._places[lane] and len(self._places) == self.lanes:
            for gone in set(self._balance.tasks) - set(self._places.values()):
                self._balance.leave(gone)
        if self._pool.size:
            since = self._pool.since
            # one that is tried again has had its part: the rest is for those yet to come
            part = self._stranded if lane in self._dealt else self._part(lane)
            self._queues[lane].extend(self._pool.cut_all(part), since)
        self._dealt.add(lane)

    def take(self, lane: int) -> Range | None:
        """The front of its own queue."""
        if self._stranded:
            since = self._pool.since
            self._queues[lane].extend(self._pool.cut_all(self._pool.size), since)
        return self._begun(lane, super().take)

    def relieve(self, of: int) -> Range | None:
        """The front of the other's queue."""
        return self._begun(of, super().relieve)

    def finished(self, cut: Range, now: float) -> None:
        """Learn how long rows take at the place that they were dealt out to."""
        begun = self._under_way.pop((cut.partition, cut.start), None)
        if begun is not None:
            place, since = begun
            self._balance.observe(place, now - since, cut.size)

    def ended(self, lane: int) -> None:
        """Deal it no more."""
        self._ended.add(lane)

    def look(self, now: float, silent: Collection[int]) -> None:
        """Adjust shares; what lies at lanes that have fallen silent goes to others."""
        self._balance.adjust(now)
        # a lane that has ended says nothing either
        gone = set(silent) - self._ended
        for lane in gone - self._silent:
            # nothing is learned of it now, and what was known must not make it look fast
            self._balance.leave(self._places[lane])
        for lane in self._silent - gone - self._ended:
            self._balance.join(self._places[lane])
        self._silent = gone
        for queue in (self._queues[lane] for lane in silent):
            if queue.size and self._there:
                self._deal(queue.cut_all(queue.size), now)

    def left_for(self, lane: int) -> int:
        """What is left in its queue, and what came while nobody was there."""
        return super().left_for(lane) + self._stranded

    def may_take_over(self, lane: int, of: int) -> bool:
        """Anyone may: what lies at a lane that fell silent goes to others as well."""
        return True

    def _place(self, lane: int, executor: str) -> str:
        """A place for a lane on an executor: one that is known there, the same if it can be.

        Where Spark keeps the lanes on their executor, as it does on a single one, a lane has the
        same place in every batch.
        """
        taken = set(self._places.values())
        there = [place for place in self._balance.tasks if place.rpartition("#")[0] == executor]
        known = sorted(there, key=lambda place: int(place.rpartition("#")[2]))
        own = known[lane % len(known)] if known else f"{executor}#{lane}"
        new = (f"{executor}#{n % self.lanes}" for n in range(lane, lane + self.lanes))
        return next(place for place in (own, *known, *new) if place not in taken)

    @property
    def left(self) -> int:
        """Offsets not handed out yet."""
        return super().left + self._pool.size

    @property
    def _stranded(self) -> int:
        """Rows in the pool that are not for lanes which are yet to join."""
        return self._pool.size if len(self._dealt) == self.lanes else 0

    @property
    def _there(self) -> list[int]:
        """The lanes that take rows."""
        return [n for n in self._places if n not in self._ended and n not in self._silent]

    def _deal(self, ranges: Sequence[Range], now: float) -> None:
        there = self._there
        rows = Queue()
        rows.extend(ranges)
        counts = self._balance.deal([self._places[n] for n in there], rows.size)
        for lane, count in zip(there, counts, strict=True):
            if count:
                self._queues[lane].extend(rows.cut_all(count), now)

    def _part(self, lane: int) -> int:
        """How much of what nobody has been dealt yet is for this lane."""
        to_come = self.lanes - len(self._dealt) - 1
        if not to_come:
            return self._pool.size
        tasks = list(self._balance.tasks)
        shares = dict(zip(tasks, self._balance.shares(tasks), strict=True))
        own = shares[self._places[lane]]
        free = [share for task, share in shares.items() if task not in self._places.values()]
        others = to_come * (sum(free) / len(free) if free else sum(shares.values()) / len(shares))
        # places may have no share at all, where a draw decides
        part = own / (own + others) if own + others > 0.0 else 1.0 / (to_come + 1)
        return round(self._pool.size * part)

    def _begun(self, lane: int, cut: Callable[[int], Range | None]) -> Range | None:
        """Take from a lane's queue, and note since when those rows have been waiting there."""
        queue = self._queues[lane]
        if not queue.size:
            return None
        since = queue.since
        taken = cut(lane)
        if taken is not None:
            self._under_way[taken.partition, taken.start] = (self._places[lane], since)
        return taken


_QUEUED: dict[str, Callable[[int, Chunking], Sharing]] = {
    "fixed": FixedRanges,
    "shared": SharedQueue,
    "executor": SharedByExecutor,
}
DISPATCHES = (*_QUEUED, *BALANCES)
"""The ways of sharing by name."""


class Dispatch:
    """A way of sharing by its name, and what it learns from one batch for the next."""

    def __init__(self, name: str, period: float = PERIOD) -> None:
        if name not in DISPATCHES:
            raise ValueError(f"dispatch={name!r} is not known; one of: {', '.join(DISPATCHES)}")
        self._name = name
        self.balance = BALANCES[name](period) if name in BALANCES else None

    def sharing(self, lanes: int, chunking: Chunking) -> Sharing:
        """For a batch."""
        if self.balance is not None:
            return Dealt(lanes, chunking, self.balance)
        return _QUEUED[self._name](lanes, chunking)

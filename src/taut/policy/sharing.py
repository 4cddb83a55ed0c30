"""Who takes which rows: the ways in which lanes share a batch.

A batch is a set of ranges of a log. A lane asks for its next chunk; the answer comes from its own
share (fixed ranges, what Spark does), from a queue that the lanes of an executor have in common,
or from one queue for all. Shares that follow how fast lanes are have a module of their own,
:mod:`taut.policy.dealing`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from taut.policy.chunking import Chunking


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [start, end) of one partition of a log."""

    partition: str
    start: int
    end: int

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise ValueError(f"range [{self.start}, {self.end}) of {self.partition!r} is empty")

    @property
    def size(self) -> int:
        """Offsets in it."""
        return self.end - self.start

    def cut(self, size: int) -> tuple[Range, Range | None]:
        """Its first ``size`` offsets, and what is left."""
        if size >= self.size:
            return self, None
        middle = self.start + size
        return (
            Range(self.partition, self.start, middle),
            Range(self.partition, middle, self.end),
        )


class Sharing(Protocol):
    """Which lane takes which part of what is there."""

    lanes: int
    """Lanes that there are to be."""
    lingers: bool
    """Whether a lane with nothing to take waits for the others, to take over what they lose.

    Only where every lane may take everything: else it could wait for a task that waits for it.
    """

    def add(self, ranges: Sequence[Range], now: float = 0.0) -> None:
        """More to take, from now on."""
        ...

    def join(self, lane: int, executor: str) -> None:
        """A lane runs, on an executor."""
        ...

    def take(self, lane: int) -> Range | None:
        """The lane's next chunk; None when there is none for it."""
        ...

    def relieve(self, of: int) -> Range | None:
        """A chunk out of the share of a lane that does not come to it, for another one."""
        ...

    def together(self, lane: int) -> int:
        """Chunks that the lane is given at a time."""
        ...

    def finished(self, cut: Range, now: float) -> None:
        """A chunk that was taken is done, by whomever."""
        ...

    def ended(self, lane: int) -> None:
        """A lane will take no more."""
        ...

    def look(self, now: float, silent: Collection[int]) -> None:
        """Time passes; these lanes have not been heard of for too long."""
        ...

    def may_take_over(self, lane: int, of: int) -> bool:
        """Whether a lane may do what another one left open."""
        ...

    @property
    def left(self) -> int:
        """Offsets not handed out yet."""
        ...

    def left_for(self, lane: int) -> int:
        """Those of them that a lane may take."""
        ...

    def waiting_at(self, lane: int) -> int:
        """Those of them that lie in a lane's own share."""
        ...


class _Indifferent:
    """A way of sharing that does not depend on how lanes fare."""

    def join(self, lane: int, executor: str) -> None:
        """Where a lane runs does not matter."""

    def finished(self, cut: Range, now: float) -> None:
        """Nor how long it takes."""

    def ended(self, lane: int) -> None:
        """Nor when it ends."""

    def look(self, now: float, silent: Collection[int]) -> None:
        """Nor whether it is heard of."""


class SharedQueue(_Indifferent):
    """One queue for all lanes: who is fast takes more."""

    lingers = True

    def __init__(self, lanes: int, chunking: Chunking) -> None:
        self.lanes = lanes
        self._chunking = chunking
        self._queue = Queue()

    def add(self, ranges: Sequence[Range], now: float = 0.0) -> None:
        """More to take."""
        self._queue.extend(ranges)

    def relieve(self, of: int) -> Range | None:
        """Nothing: whoever is free takes what there is."""
        return None

    def take(self, lane: int) -> Range | None:
        """The front of the queue."""
        return self._queue.cut(self._chunking.size(self.left, self.lanes, self.lanes))

    def together(self, lane: int) -> int:
        """By what is left for all."""
        return self._chunking.together(self.left, self.lanes, self.lanes)

    def may_take_over(self, lane: int, of: int) -> bool:
        """Anyone may."""
        return True

    @property
    def left(self) -> int:
        """Offsets not handed out yet."""
        return self._queue.size

    def left_for(self, lane: int) -> int:
        """All of them are for everyone."""
        return self._queue.size

    def waiting_at(self, lane: int) -> int:
        """No lane has a share of its own."""
        return 0


class FixedRanges(_Indifferent):
    """Every lane has its own share from the start, as Spark's tasks do."""

    lingers = False

    def __init__(self, lanes: int, chunking: Chunking) -> None:
        self.lanes = lanes
        self._chunking = chunking
        self._queues = [Queue() for _ in range(lanes)]
        self._first = 0

    def add(self, ranges: Sequence[Range], now: float = 0.0) -> None:
        """Shares of equal size, in the order of the ranges; what is left over goes round."""
        for turn, share in enumerate(split(ranges, self.lanes)):
            self._queues[(self._first + turn) % self.lanes].extend(share)
        self._first += sum(r.size for r in ranges)

    def take(self, lane: int) -> Range | None:
        """The front of its own share."""
        queue = self._queues[lane]
        return queue.cut(self._chunking.size(queue.size, 1, self.lanes))

    def relieve(self, of: int) -> Range | None:
        """The front of the other's share, by the size that is right when all take from it."""
        queue = self._queues[of]
        return queue.cut(self._chunking.size(queue.size, self.lanes, self.lanes))

    def together(self, lane: int) -> int:
        """By what is left of its share, which nobody else may take."""
        return self._chunking.together(self.left_for(lane), 1, self.lanes)

    def may_take_over(self, lane: int, of: int) -> bool:
        """Only a lane itself, when it is tried again."""
        return lane == of

    @property
    def left(self) -> int:
        """Offsets not handed out yet."""
        return sum(q.size for q in self._queues)

    def left_for(self, lane: int) -> int:
        """What is left of its own share."""
        return self._queues[lane].size

    def waiting_at(self, lane: int) -> int:
        """The same."""
        return self._queues[lane].size


class SharedByExecutor(FixedRanges):
    """The lanes of an executor put their shares together.

    A lane does not linger: the shares of another executor are not for it to take, and the tasks
    that are to take them may be waiting for its place.
    """

    def __init__(self, lanes: int, chunking: Chunking) -> None:
        super().__init__(lanes, chunking)
        self._executor: dict[int, str] = {}

    def join(self, lane: int, executor: str) -> None:
        """A lane that is tried again elsewhere takes its share along."""
        self._executor[lane] = executor

    def take(self, lane: int) -> Range | None:
        """From the largest share among the lanes on its executor."""
        mates = self._mates(lane)
        largest = max(mates, key=lambda n: (self._queues[n].size, -n))
        size = self._chunking.size(self.left_for(lane), len(mates), self.lanes)
        return self._queues[largest].cut(size)

    def together(self, lane: int) -> int:
        """By what is left for the lanes on its executor."""
        return self._chunking.together(self.left_for(lane), len(self._mates(lane)), self.lanes)

    def left_for(self, lane: int) -> int:
        """What is left of the shares of its executor."""
        return sum(self._queues[n].size for n in self._mates(lane))

    def _mates(self, lane: int) -> list[int]:
        here = self._executor.get(lane)
        return [n for n, at in self._executor.items() if at == here] or [lane]

    def may_take_over(self, lane: int, of: int) -> bool:
        """Anyone may: an executor that is lost has no mates left."""
        return True


def split(ranges: Sequence[Range], parts: int) -> list[list[Range]]:
    """The same offsets in ``parts`` shares, in order; the first ones may be larger by one.

    >>> split([Range("0", 0, 3), Range("1", 0, 2)], 2)  # doctest: +NORMALIZE_WHITESPACE
    [[Range(partition='0', start=0, end=3)], [Range(partition='1', start=0, end=2)]]
    """
    rest = Queue()
    rest.extend(ranges)
    total = rest.size
    return [rest.cut_all(total // parts + (i < total % parts)) for i in range(parts)]


class Queue:
    """Ranges in order, with their size at hand and since when each has been waiting."""

    def __init__(self) -> None:
        self._ranges: deque[tuple[Range, float]] = deque()
        self.size = 0

    @property
    def since(self) -> float:
        """Since when the first of them has been waiting."""
        return self._ranges[0][1]

    def extend(self, ranges: Sequence[Range], since: float = 0.0) -> None:
        """More at the end."""
        self._ranges.extend((r, since) for r in ranges)
        self.size += sum(r.size for r in ranges)

    def cut(self, size: int) -> Range | None:
        """The first offsets, out of one range."""
        if not self._ranges:
            return None
        whole, since = self._ranges.popleft()
        first, left = whole.cut(size)
        if left is not None:
            self._ranges.appendleft((left, since))
        self.size -= first.size
        return first

    def cut_all(self, size: int) -> list[Range]:
        """The first offsets, so many in all if there are, out of as many ranges as it takes."""
        cuts: list[Range] = []
        while size > 0 and (first := self.cut(size)) is not None:
            cuts.append(first)
            size -= first.size
        return cuts

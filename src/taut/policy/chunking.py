"""How large the chunks are that lanes take: all alike, or guided by what is left and by pace."""

from __future__ import annotations

import math
from typing import Protocol

_MOST_TOGETHER = 64
"""Chunks that a lane is given at a time, at most."""


class Chunking(Protocol):
    """How large the next chunk is."""

    def size(self, left: int, lanes: int, total: int) -> int:
        """Offsets of a chunk when ``left`` are not handed out and so many lanes take them.

        ``total`` lanes ask for chunks altogether.
        """
        ...

    def together(self, left: int, lanes: int, total: int) -> int:
        """Chunks that a lane is given at a time: one, unless they are too short to ask for each."""
        ...

    def observe(self, size: int, seconds: float) -> None:
        """A lane took so long for so many offsets."""
        ...


CLAIMS_PER_SECOND = 4_000.0
"""What a distributor can answer with room to spare, however many lanes ask."""
WORTH_ASKING = 0.002
"""Seconds of work that are worth a claim, which takes a lane some tenths of a millisecond."""
_KEPT = 0.9
"""What counts of earlier chunks when another is done."""


class FixedSize:
    """Every chunk has the same size.

    Chunks that turn out to be short are given out several at a time, so that all lanes together
    ask no more often than ``claims_per_second``; each remains one by itself.
    """

    def __init__(self, offsets: int = 1_000, claims_per_second: float = CLAIMS_PER_SECOND) -> None:
        if offsets < 1:
            raise ValueError(f"chunk size {offsets}: at least 1 is needed")
        self.offsets = offsets
        self.claims_per_second = claims_per_second
        self._pace = Pace()

    def size(self, left: int, lanes: int, total: int) -> int:
        """Always the same."""
        return self.offsets

    def together(self, left: int, lanes: int, total: int) -> int:
        """As many as are worth a claim, and no more than the lane's share of what is left."""
        worth = int(self._pace.claimed(total, self.claims_per_second, WORTH_ASKING) / self.offsets)
        share = left // (max(1, lanes) * self.offsets)
        return max(1, min(worth, share, _MOST_TOGETHER))

    def observe(self, size: int, seconds: float) -> None:
        """Learn how long chunks take."""
        self._pace.observe(size, seconds)


class Pace:
    """How many offsets a second a lane works through, learned from what lanes report.

    Offsets and seconds are added up, older ones fading, and only then divided: the mean of what
    single chunks came to a second would be that of the luckiest, where rows differ in how long
    they take.

    >>> pace = Pace()
    >>> for seconds in (0.1, 0.001, 0.1, 0.1):
    ...     pace.observe(1, seconds)
    >>> round(pace.per_second)
    13
    """

    def __init__(self) -> None:
        self.per_second: float | None = None
        self._offsets = 0.0
        self._seconds = 0.0

    def observe(self, size: int, seconds: float) -> None:
        """A lane took so long for so many offsets."""
        if seconds <= 0.0:
            return
        self._offsets = _KEPT * self._offsets + size
        self._seconds = _KEPT * self._seconds + seconds
        self.per_second = self._offsets / self._seconds

    def claimed(self, total: int, claims_per_second: float, shortest: float) -> float:
        """Offsets that a claim is worth at least; 0 until it is known.

        So many that all lanes together make no more claims a second than they may, and that a lane
        works so long at least.
        """
        if self.per_second is None:
            return 0.0
        return self.per_second * max(total / claims_per_second, shortest)


class Guided:
    """Large chunks first, smaller ones towards the end: a share of what is left for each lane.

    Never so small that all lanes together would ask more often than ``claims_per_second``, which
    goes before ``largest``: the bound comes from how fast lanes have worked so far. Until that is
    known chunks stay small, because a first chunk that is too large cannot be taken back. A lane
    works on a chunk for ``shortest`` seconds at least and, where rows are waited for, ``longest``.
    """

    def __init__(
        self,
        smallest: int = 4,
        largest: int = 10_000,
        share: float = 0.25,
        claims_per_second: float = CLAIMS_PER_SECOND,
        shortest: float = WORTH_ASKING,
        longest: float = math.inf,
    ) -> None:
        if not 1 <= smallest <= largest:
            raise ValueError(f"chunks of {smallest} to {largest}: 1 <= smallest <= largest")
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share={share}: above 0, at most 1")
        if not claims_per_second > 0.0:
            raise ValueError(f"claims_per_second={claims_per_second}: must be above 0")
        if not longest > 0.0:
            raise ValueError(f"longest={longest} s: must be above 0")
        self.smallest = smallest
        self.largest = largest
        self.share = share
        self.claims_per_second = claims_per_second
        self.shortest = shortest
        self.longest = longest
        self._pace = Pace()

    def size(self, left: int, lanes: int, total: int) -> int:
        """A share of what is left for each lane, within the bounds."""
        guided = int(left * self.share / max(1, lanes))
        return max(self._floor(total), min(self._most(), guided))

    def together(self, left: int, lanes: int, total: int) -> int:
        """One: a chunk is as large as it has to be."""
        return 1

    def observe(self, size: int, seconds: float) -> None:
        """Learn how many offsets a second a lane works through."""
        self._pace.observe(size, seconds)

    def _most(self) -> int:
        if self._pace.per_second is None:
            return 4 * self.smallest
        return int(min(self.largest, self._pace.per_second * self.longest))

    def _floor(self, total: int) -> int:
        claimed = self._pace.claimed(total, self.claims_per_second, self.shortest)
        return max(self.smallest, math.ceil(claimed))

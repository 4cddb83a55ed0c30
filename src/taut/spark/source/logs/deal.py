"""Which partition the rows of a numbered log go to: in turn, or more of them to the first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from taut.errors import LogError
from taut.spark.source.logs.rows import Numbers

Offset = TypeVar("Offset", int, Numbers)
_FINEST = 10
"""The skew is a fraction of whole numbers, the lower one at most this."""
_MOST = 1_000_000
"""Keeps what is computed here within the 64 bits of numpy."""


@dataclass(frozen=True, slots=True)
class Deal:
    """Partition 0 gets ``heavy`` rows for each ``light`` ones of every other partition.

    Its rows lie as evenly between the others as whole numbers can, the others take turns. Where a
    row goes and which row lies where are both formulas, so neither takes longer for a long log.

    Examples
    --------
    >>> deal = Deal.of(3, skew=2)
    >>> [[deal.row(partition, offset) for offset in range(4)] for partition in range(3)]
    [[0, 2, 4, 6], [1, 5, 9, 13], [3, 7, 11, 15]]
    >>> deal.counts(7)
    [4, 2, 1]
    """

    partitions: int
    heavy: int = 1
    light: int = 1

    @classmethod
    def of(cls, partitions: int, skew: float) -> Deal:
        """From how many rows partition 0 gets for one of any other."""
        if not (math.isfinite(skew) and 1 <= skew <= _MOST):
            raise LogError(
                f"skew={skew}: must be 1 (all partitions alike) to {_MOST:,}, such as 10"
            )
        if partitions == 1:
            return cls(1)
        return cls(partitions, *Fraction(str(skew)).limit_denominator(_FINEST).as_integer_ratio())

    @property
    def _others(self) -> int:
        """Rows of the partitions after the first, in as many as it takes until all repeats."""
        return (self.partitions - 1) * self.light

    def row(self, partition: int, offset: Offset) -> Offset:
        """The number of the row at an offset, or at each of many."""
        if self.heavy == self.light:
            return offset * self.partitions + partition
        others = self._others
        if partition == 0:
            rounds, rest = offset // self.heavy, offset % self.heavy
            return rounds * (self.heavy + others) + rest * (self.heavy + others) // self.heavy
        # the how-manieth of the rows that are not partition 0's
        place = offset * (self.partitions - 1) + (partition - 1)
        rounds, rest = place // others, place % others
        before = -(-(rest + 1) * self.heavy // others)
        return rounds * (self.heavy + others) + rest + before

    def counts(self, rows: int) -> list[int]:
        """How many of the first so many rows each partition has."""
        first = -(-rows * self.heavy // (self.heavy + self._others))
        turns = self.partitions - 1
        return [first, *((rows - first + turns - 1 - turn) // turns for turn in range(turns))]

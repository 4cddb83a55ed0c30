"""Windowing: which windows a query has and when each of them is due. Pure, in milliseconds."""

from __future__ import annotations

import math
from dataclasses import dataclass

from taut.errors import TautError


class WorkloadError(TautError, ValueError):
    """A workload that cannot be built as asked."""


@dataclass(frozen=True, slots=True)
class Windowing:
    """Windows ``[offset + k * slide, offset + k * slide + length)`` of event time.

    Examples
    --------
    >>> Windowing(length_ms=12_000, slide_ms=12_000, offset_ms=750).ends_ms(0, 30)
    range(750, 30000, 12000)
    """

    length_ms: int
    slide_ms: int
    offset_ms: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.slide_ms <= self.length_ms:
            raise WorkloadError(
                f"window of {self.length_ms} ms every {self.slide_ms} ms: needs 0 < slide <= length"
            )

    def ends_ms(self, after: float, before: float) -> range:
        """The window ends due in ``[after, before)``, both in epoch seconds. O(1)."""
        low, high = math.ceil(after * 1_000), math.ceil(before * 1_000)
        first = low + (self.offset_ms + self.length_ms - low) % self.slide_ms
        return range(first, high, self.slide_ms)

    @property
    def length(self) -> str:
        """The length as Spark's ``window`` takes it."""
        return f"{self.length_ms} milliseconds"

    @property
    def slide(self) -> str:
        """The slide as Spark's ``window`` takes it."""
        return f"{self.slide_ms} milliseconds"

    @property
    def offset(self) -> str:
        """The start offset as Spark's ``window`` takes it: less than the slide."""
        return f"{self.offset_ms % self.slide_ms} milliseconds"


def staggered(length_ms: int, slide_ms: int, index: int, of: int) -> Windowing:
    """Windows of query ``index`` out of ``of``, so that dues are spread evenly over one slide."""
    if not 0 <= index < of:
        raise WorkloadError(f"query {index} of {of}: the index must be from 0 to {of - 1}")
    return Windowing(length_ms, slide_ms, index * slide_ms // of)


def milliseconds(window_s: float, parts: int = 1) -> int:
    """A window in whole milliseconds that ``parts`` divides.

    Examples
    --------
    >>> milliseconds(12), milliseconds(1.0, parts=3)
    (12000, 999)
    """
    whole = round(window_s * 1_000) // parts * parts
    if whole <= 0:
        raise WorkloadError(f"window {window_s!r} s: must be at least {parts} ms")
    return whole

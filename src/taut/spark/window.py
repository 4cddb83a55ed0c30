"""Reads the window and the watermark out of a streaming DataFrame, without asking its author.

Spark resolves ``window()`` into arithmetic with literals while it analyses a plan, so that is
what is looked for; what cannot be read there is learned from the first windows that come out.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.duration import seconds
from taut.errors import StartError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

_MICRO = 1_000_000

# ((ts - START) % SLIDE) + SLIDE ... and the end: ... - OFFSET) + LENGTH), LongType, Timestamp...
_SLIDE = re.compile(r"- (-?\d+)\) % (\d+)\) < cast\(0 as bigint\)\)")
_LENGTH = re.compile(r"\) - \d+\) \+ (\d+)\), LongType, Timestamp(?:NTZ)?Type\)")
_SESSION = re.compile(r"\bsession_window#\d+")
_STATEFUL = re.compile(r"~?(Aggregate|Deduplicate|Join|\w*MapGroups|TransformWithState)\b")
_WATERMARK = re.compile(r"EventTimeWatermark [^,]+, [^,]+, (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Window:
    """A tumbling or sliding window, in seconds: ends at ``start + length + k * slide``."""

    length: float
    slide: float
    start: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.slide <= self.length:
            raise StartError(
                f"window length {self.length} s, slide {self.slide} s: "
                "the slide must be above 0 and at most the length"
            )

    @classmethod
    def of(cls, given: str | tuple[str, ...] | Window) -> Window:
        """From what a caller gives: ``"12 seconds"``, ``("5 s", "3 s")``, with a start third.

        >>> Window.of(("5 seconds", "3 seconds"))
        Window(length=5.0, slide=3.0, start=0.0)
        """
        if isinstance(given, Window):
            return given
        parts = (given,) if isinstance(given, str) else tuple(given)
        if not 1 <= len(parts) <= 3:
            raise StartError(
                f"window={given!r}: give a length, or (length, slide), or (length, slide, start)"
            )
        times = [seconds(p) for p in parts]
        return cls(times[0], times[1] if len(times) > 1 else times[0], *times[2:])

    def end_after(self, time: float) -> float:
        """The first window end after a time (micro-second arithmetic, as Spark's).

        >>> Window(12.0, 12.0, 0.75).end_after(24.0)
        24.75
        """
        slide = round(self.slide * _MICRO)
        phase = round((self.start + self.length) * _MICRO) % slide
        at = round(time * _MICRO)
        return (at + slide - (at - phase) % slide) / _MICRO

    def ends_between(self, after: float, upto: float) -> list[float]:
        """Window ends in (after, upto]."""
        ends = []
        end = self.end_after(after)
        while end <= upto:
            ends.append(end)
            end = self.end_after(end)
        return ends


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan says of when its output is due."""

    window: Window | None
    watermark: bool
    session: bool
    stateful: bool


def read_plan(plan: str) -> Shape:
    """The shape of an analysed plan, from its text; the window nearest to the output counts."""
    slide = _SLIDE.search(plan)
    length = _LENGTH.search(plan, slide.end()) if slide else None
    session = _SESSION.search(plan)
    window = None
    if slide and length and not (session and session.start() < slide.start()):
        window = Window(int(length[1]) / _MICRO, int(slide[2]) / _MICRO, int(slide[1]) / _MICRO)
    return Shape(
        window=window,
        watermark=_WATERMARK.search(plan) is not None,
        session=session is not None and window is None,
        stateful=_STATEFUL.search(plan) is not None,
    )


def inspect(df: DataFrame) -> Shape:
    """The shape of a streaming DataFrame."""
    shape = read_plan(df._jdf.queryExecution().analyzed().toString())
    # without a watermark no window is ever final: the query puts rows out as it goes
    return shape if shape.watermark else Shape(None, False, shape.session, shape.stateful)


def window_column(schema: StructType) -> str | None:
    """The output column that holds a window (a struct of start and end), if there is one."""
    for field in schema.fields:
        if _is_window(field.dataType):
            return field.name
    return None


def _is_window(kind: DataType) -> bool:
    fields = getattr(kind, "fields", None)
    if fields is None or [f.name for f in fields] != ["start", "end"]:
        return False
    return all(f.dataType.typeName() in ("timestamp", "timestamp_ntz") for f in fields)


class WindowLearner:
    """Learns a window from those that come out: two different ends are enough."""

    def __init__(self) -> None:
        self._lengths: set[int] = set()
        self._ends: set[int] = set()

    def observe(self, start: float, end: float) -> None:
        """Take one window of the output."""
        self._lengths.add(round((end - start) * _MICRO))
        self._ends.add(round(end * _MICRO))

    def window(self) -> Window | None:
        """The window, once it is known; None also when lengths differ (sessions)."""
        if len(self._lengths) != 1 or len(self._ends) < 2:
            return None
        first = min(self._ends)
        slide = 0
        for end in self._ends:
            slide = math.gcd(slide, end - first)
        (length,) = self._lengths
        slide = min(slide, length)
        return Window(length / _MICRO, slide / _MICRO, (first - length) % slide / _MICRO)

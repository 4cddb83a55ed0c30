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
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.types import DataType, StructType

_MICRO = 1_000_000
_BOUNDS = ["start", "end"]

# ((ts - START) % SLIDE) + SLIDE ... and the end: ... - OFFSET) + LENGTH), LongType, Timestamp...
_SLIDE = re.compile(r"- (-?\d+)\) % (\d+)\) < cast\(0 as bigint\)\)")
_LENGTH = re.compile(r"\) - \d+\) \+ (\d+)\), LongType, Timestamp(?:NTZ)?Type\)")
_SESSION = re.compile(r"\bsession_window#\d+")
_STATEFUL = re.compile(r"~?(Aggregate|Deduplicate|Join|\w*MapGroups|TransformWithState)\b")
_WATERMARK = re.compile(r"EventTimeWatermark [^,]+, [^,]+, (.+)$", re.MULTILINE)
_DELAY = re.compile(r"(\d+(?:\.\d+)?) (\w+)")
_DAYS_OF_A_MONTH = 31
"""As Spark counts the delay of a watermark."""


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
        """The first window end after a time (microsecond arithmetic, as Spark's).

        >>> Window(12.0, 12.0, 0.75).end_after(24.0)
        24.75
        """
        slide = round(self.slide * _MICRO)
        return ((self._passed(time) + 1) * slide + self._phase()) / _MICRO

    def ends_between(self, after: float, upto: float) -> int:
        """How many windows end in (after, upto].

        >>> Window(3.0, 1.0).ends_between(10.0, 13.0)
        3
        """
        return max(0, self._passed(upto) - self._passed(after))

    @property
    def phase(self) -> float:
        """Seconds from a multiple of the slide to the end of a window."""
        return self._phase() / _MICRO

    def _phase(self) -> int:
        return round((self.start + self.length) * _MICRO) % round(self.slide * _MICRO)

    def _passed(self, time: float) -> int:
        """The number of the last window that has ended by a time."""
        return (round(time * _MICRO) - self._phase()) // round(self.slide * _MICRO)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a plan says of when its output is due.

    ``delay`` are the seconds by which the watermark is behind the newest row.
    """

    window: Window | None
    watermark: bool
    session: bool
    stateful: bool
    delay: float = 0.0


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
        # of several the one that is furthest behind counts
        delay=max((_delay(told) for told in _WATERMARK.findall(plan)), default=0.0),
    )


def _delay(told: str) -> float:
    """Of a watermark, as a plan has it.

    >>> _delay("1 minutes 30 seconds"), _delay("1 months 0.5 seconds")
    (90.0, 2678400.5)
    >>> _delay("1 years 1 months") / 86_400
    403.0
    """
    long = {"year": 12 * _DAYS_OF_A_MONTH, "month": _DAYS_OF_A_MONTH, "week": 7}
    behind = 0.0
    for number, unit in _DELAY.findall(told):
        days = next((days for name, days in long.items() if unit.startswith(name)), None)
        behind += float(number) * days * 86_400.0 if days else seconds(f"{number} {unit}")
    return behind


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
    if fields is None or [f.name for f in fields] != _BOUNDS:
        return False
    return all(f.dataType.typeName() in ("timestamp", "timestamp_ntz") for f in fields)


@dataclass(frozen=True, slots=True)
class Look:
    """A batch whose windows are noted while a sink writes it, without a job of its own."""

    df: DataFrame
    seen: Observation

    def windows(self) -> list[tuple[float, float]]:
        """Start and end of the first and the last window of the batch, once it is written."""
        # get() would wait for ever when the sink has not run the batch
        if self.seen._jo is None or not self.seen._jo.future().isCompleted():
            return []
        first, last, shortest, longest = self.seen.get.values()
        if first is None:
            return []
        return [
            ((first - shortest) / _MICRO, first / _MICRO),
            ((last - longest) / _MICRO, last / _MICRO),
        ]


def look_at_windows(df: DataFrame) -> Look | None:
    """The batch with an observation of its windows; None when it has no window column."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    column = window_column(df.schema)
    if column is None:
        return None
    start, end = (F.unix_micros(F.col(f"`{column}`.{n}").cast("timestamp")) for n in _BOUNDS)
    seen = Observation()
    observed = df.observe(
        seen,
        F.min(end).alias("first"),
        F.max(end).alias("last"),
        F.min(end - start).alias("shortest"),
        F.max(end - start).alias("longest"),
    )
    return Look(observed, seen)


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
        if slide > length and slide % length:
            return None
        slide = min(slide, length)
        return Window(length / _MICRO, slide / _MICRO, (first - length) % slide / _MICRO)

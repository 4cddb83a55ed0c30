"""A log whose rows are computed from their number: a load that costs no I/O and never differs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from taut.errors import DataLost, LogError
from taut.spark.source.logs.base import Log, Offsets
from taut.spark.source.logs.deal import Deal
from taut.spark.source.logs.options import number
from taut.spark.source.logs.rows import (
    MICRO,
    Numbers,
    assemble,
    check_range,
    complete,
    micros,
    nothing,
)

_OWN = pa.schema(
    [pa.field("n", pa.int64(), nullable=False), pa.field("value", pa.string(), nullable=False)]
)
_SCHEMA = complete(_OWN)
_LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz012345", dtype=np.uint8)
_MOST_BYTES = 2**31 - 1  # of text in one Arrow array
_ARRIVALS = ("even", "random")
_BLOCK = 1_000
"""Rows that random arrivals are drawn for at once: each block takes the time it would even."""


@dataclass(frozen=True)
class ScheduleLog(Log):
    """Row ``n`` arrives at ``start + n / rate``, to the microsecond the same in every process.

    It lies in partition ``n % partitions`` at offset ``n // partitions``, unless there is skew, and
    has the columns ``n`` and ``value``. Its rows can be read before they have arrived: the clock
    decides only what :meth:`latest` says, so a range that was planned reads the same under any
    clock.

    Parameters
    ----------
    start
        When row 0 arrives, epoch seconds.
    rate
        Rows a second, taken as the decimal number that it prints as.
    partitions
        Partitions, named "0", "1" and so on.
    total
        Stop after so many rows.
    payload
        Characters of ``value``; they follow from ``n``.
    arrivals
        ``"even"``, or ``"random"``: each thousand rows at random times of the span that they would
        take even. Bursty as independent senders are, up to bursts of a thousand rows; the same at
        every run.
    skew
        Rows that partition "0" gets for each one of any other; ``rate`` stays that of all together.
        Taken as the nearest fraction of whole numbers whose lower one is at most 10.
    clock, sleep
        For tests. A log is pickled with them, so they are functions of a module.

    Examples
    --------
    >>> log = ScheduleLog(start=0, rate=2, partitions=2, total=5)
    >>> log.latest(), log.at(1.0)
    ({'0': 3, '1': 2}, {'0': 1, '1': 1})
    >>> log.read("0", 1, 3).column("n").to_pylist()
    [2, 4]
    """

    start: float
    rate: float
    partitions: int = 1
    total: int | None = None
    payload: int = 0
    arrivals: str = "even"
    skew: float = 1
    clock: Callable[[], float] = field(default=time.time, repr=False, compare=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False, compare=False)

    timed = True

    def __post_init__(self) -> None:
        micros(self.start)
        if not (math.isfinite(self.rate) and self.rate > 0):
            raise LogError(f"rate={self.rate}: must be more than 0 rows a second, such as 1000")
        if self.partitions < 1:
            raise LogError(f"partitions={self.partitions}: must be 1 or more")
        if self.total is not None and self.total < 0:
            raise LogError(f"total={self.total}: must be 0 rows or more")
        if self.payload < 0:
            raise LogError(f"payload={self.payload}: must be 0 characters or more")
        if self.arrivals not in _ARRIVALS:
            raise LogError(f"arrivals={self.arrivals!r}: must be one of {', '.join(_ARRIVALS)}")
        Deal.of(self.partitions, self.skew)  # refuses a skew that is none

    def schema(self) -> pa.Schema:
        return _SCHEMA

    def earliest(self) -> Offsets:
        return self._offsets(0)

    def latest(self) -> Offsets:
        return self._offsets(self._rows_by(micros(self.clock())))

    def at(self, when: float) -> Offsets:
        """As of any log; a time to come is answered as well, and holds when it has come."""
        return self._offsets(self._rows_by(micros(when) - 1))

    def read(self, partition: str, start: int, end: int) -> pa.RecordBatch:
        check_range(partition, start, end)
        lane = self._lane(partition)
        if start == end:
            return nothing(_SCHEMA)
        if self.total is not None and end > (most := self._offsets(self.total)[partition]):
            raise DataLost(
                f"partition {partition!r}, range [{start}, {end}): ends at {most} by "
                f"total={self.total}; was total larger before?"
            )
        offsets = np.arange(start, end, dtype=np.int64)
        numbers = self._deal.row(lane, offsets)
        own = [pa.array(numbers), self._values(numbers)]
        return assemble(_SCHEMA, own, self._arrivals(numbers), partition, offsets)

    def wait(self, known: Offsets, timeout: float) -> Offsets:
        """The latest offsets, once a row after ``known`` has arrived or ``timeout`` has passed."""
        seen = {name: known.get(name, 0) for name in self.earliest()}
        next_row = min(self._deal.row(int(name), at) for name, at in seen.items())
        over = self.total is not None and next_row >= self.total
        while timeout > 0:
            ahead = self._arrival(next_row) - micros(self.clock())
            if ahead <= 0 and not over:
                break
            pause = timeout if over else min(timeout, ahead / MICRO)
            self.sleep(pause)
            timeout -= pause
        return self.latest()

    def options(self) -> dict[str, str]:
        """What makes this log again, as options of a data source."""
        given = {"log": "schedule", "start": str(self.start), "rate": str(self.rate)}
        given |= {"partitions": str(self.partitions), "payload": str(self.payload)}
        given |= {"arrivals": self.arrivals, "skew": str(self.skew)}
        return given if self.total is None else given | {"total": str(self.total)}

    @cached_property
    def _deal(self) -> Deal:
        return Deal.of(self.partitions, self.skew)

    @cached_property
    def _ratio(self) -> tuple[int, int]:
        """Microseconds a row, exactly, as a fraction."""
        return (MICRO / Fraction(str(self.rate))).as_integer_ratio()

    def _arrival(self, n: int) -> int:
        if self.arrivals == "even":
            return self._even(n)
        return int(self._drawn(n // _BLOCK)[n % _BLOCK])

    def _even(self, n: int) -> int:
        up, down = self._ratio
        return micros(self.start) + n * up // down

    def _rows_by(self, now_us: int) -> int:
        elapsed = now_us - micros(self.start)
        if elapsed < 0:
            return 0
        up, down = self._ratio
        rows = -(-(elapsed + 1) * down // up)
        if self.arrivals == "random":
            block = (rows - 1) // _BLOCK
            rows = block * _BLOCK + int(np.searchsorted(self._drawn(block), now_us, "right"))
        return rows if self.total is None else min(rows, self.total)

    def _arrivals(self, numbers: Numbers) -> Numbers:
        """When rows arrive, of which there is at least one, in their order."""
        if self.arrivals == "even":
            return self._evens(numbers)
        blocks, which = np.unique(numbers // _BLOCK, return_inverse=True)
        drawn = np.stack([self._drawn(int(block)) for block in blocks])
        picked: Numbers = drawn[which, numbers % _BLOCK]
        return picked

    def _evens(self, numbers: Numbers) -> Numbers:
        """Whole microseconds and what is left over are kept apart, so that numpy's 64 bits do."""
        up, down = self._ratio
        whole, rest = divmod(int(numbers[0]) * up, down)
        step, left = divmod(up, down)
        after = numbers - numbers[0]
        if down + int(after[-1]) * left < 2**63:
            carried = (rest + after * left) // down
        else:
            carried = np.array([(rest + n * left) // down for n in after.tolist()], dtype=np.int64)
        arrivals: Numbers = micros(self.start) + whole + after * step + carried
        return arrivals

    def _drawn(self, block: int) -> Numbers:
        """When the rows of a block arrive, in order."""
        begin, end = self._even(block * _BLOCK), self._even((block + 1) * _BLOCK)
        return _draw(block, begin, end)

    def _values(self, numbers: Numbers) -> pa.Array:
        rows, size = len(numbers), self.payload
        if size == 0:
            return pa.repeat(pa.scalar(""), rows)
        if rows * size > _MOST_BYTES:
            raise LogError(
                f"{rows} rows of payload={size}: more than {_MOST_BYTES} bytes; read fewer at once"
            )
        words = np.arange(-(-size // 8), dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = numbers.astype(np.uint64)[:, None] * np.uint64(0x9E3779B97F4A7C15) + words
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(29)
        letters = _LETTERS[mixed.astype("<u8").view(np.uint8).reshape(rows, -1)[:, :size] & 31]
        ends = np.arange(rows + 1, dtype=np.int32) * np.int32(size)
        return pa.StringArray.from_buffers(
            rows, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(letters))
        )

    def _offsets(self, rows: int) -> dict[str, int]:
        """Where each partition ends when the log has so many rows."""
        return {str(lane): count for lane, count in enumerate(self._deal.counts(rows))}

    def _lane(self, partition: str) -> int:
        if partition not in self.earliest():
            last = self.partitions - 1
            raise LogError(f'partition {partition!r}: must be one of "0" to "{last}"')
        return int(partition)


@lru_cache(maxsize=16)
def _draw(block: int, begin: int, end: int) -> Numbers:
    """Random times of a span, in order; the same for the same block."""
    shares = np.sort(np.random.default_rng(block).random(_BLOCK))
    return begin + (shares * (end - begin)).astype(np.int64)


def from_options(options: Mapping[str, str]) -> ScheduleLog:
    """The log that these options, the names of its parameters, describe."""
    return ScheduleLog(
        number(options, "start", float, "1790000000.0"),
        number(options, "rate", float, "1000"),
        number({"partitions": "1", **options}, "partitions", int, "1"),
        number(options, "total", int, "1000") if "total" in options else None,
        number({"payload": "0", **options}, "payload", int, "100"),
        options.get("arrivals", "even"),
        number({"skew": "1", **options}, "skew", float, "10"),
    )

"""A log: partitions of rows, each row with an offset and a time of arrival.

A log is a value that is pickled to executors: connections are opened where they are used and are
no part of it. Partitions are named by text, offsets are whole numbers that grow; between two
offsets there may be gaps (bytes of a file, compacted messages).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping

import pyarrow as pa

from taut.errors import LogError

ARRIVAL, PARTITION, OFFSET = "arrival", "log_partition", "log_offset"

ADDED = pa.schema(
    [
        pa.field(ARRIVAL, pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field(PARTITION, pa.string(), nullable=False),
        pa.field(OFFSET, pa.int64(), nullable=False),
    ]
)
"""The columns that every row of a log has, after its own."""

Offsets = Mapping[str, int]


class Log(ABC):
    """Where rows wait until they are taken."""

    settle: float = 0.0
    """Seconds after a time until no row can come any more that arrived before it."""
    pace: float = 0.005
    """Seconds between two looks of :meth:`wait`."""
    stride: int = 1
    """Offsets that a row takes, roughly: chunks are so many times larger."""
    unit: str = "rows"
    """What an offset counts: rows, or bytes."""

    @property
    def timed(self) -> bool:
        """Whether arrivals never change and grow with the offset.

        Then :meth:`at` is exact and a range of time can be read again: what resident timing needs.
        """
        return False

    def untimed(self) -> str:
        """Why it is not timed."""
        return f"{type(self).__name__} does not"

    @abstractmethod
    def schema(self) -> pa.Schema:
        """All columns: those of the rows, then arrival, partition and offset."""

    @abstractmethod
    def earliest(self) -> Offsets:
        """The first offset that can be read, for each partition there is."""

    @abstractmethod
    def latest(self) -> Offsets:
        """The offset after the last row, for each partition there is; for any thread."""

    @abstractmethod
    def at(self, when: float) -> Offsets:
        """For each partition the first offset whose row arrived at ``when`` or later."""

    @abstractmethod
    def read(self, partition: str, start: int, end: int) -> pa.RecordBatch:
        """The rows whose offsets lie in [start, end), in their order.

        Raises
        ------
        DataLost
            When offsets of the range are gone for good.
        """

    def wait(self, known: Offsets, timeout: float) -> Offsets:
        """The latest offsets, once there are rows after ``known`` or ``timeout`` has passed."""
        limit = time.monotonic() + timeout
        while True:
            latest = self.latest()
            left = limit - time.monotonic()
            if left <= 0 or any(known.get(p, 0) < end for p, end in latest.items()):
                return latest
            time.sleep(min(self.pace, left))

    def close(self) -> None:  # noqa: B027 -- most logs have nothing open
        """Let go of what was opened here; reading opens it again."""


def refuse_untimed(log: Log) -> None:
    """Refuse a log that resident timing cannot read."""
    if not log.timed:
        raise LogError(
            f"timing='resident' needs a log that keeps the time of arrival, such as a MemoryLog; "
            f"{log.untimed()}"
        )

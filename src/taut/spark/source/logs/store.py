"""Rows kept in memory, in order: what a memory log holds. No threads, no sockets, no clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from taut.errors import DataLost, LogError, LogFull
from taut.spark.source.logs.base import ARRIVAL, OFFSET, PARTITION, Offsets
from taut.spark.source.logs.rows import Numbers, assemble, check_range, nothing

ROW_BYTES = 32 * 2**20
"""Bytes of the largest row: one row is never split over two answers."""
_SEGMENT_ROWS = 4_096
_SEGMENT_BYTES = 2**20


class _Partition:
    """Segments of rows, the offsets at which they begin, and their bytes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.segments: list[pa.RecordBatch] = []
        self.starts: list[int] = []
        self.sizes: list[int] = []
        self.held = 0
        self.earliest = 0
        self.latest = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Put rows at the end; amortised, each is copied a logarithm of a segment's rows times."""
        self.starts.append(self.latest)
        self.segments.append(rows)
        self.sizes.append(rows.nbytes)
        self.held += rows.nbytes
        self.latest += rows.num_rows
        while self._mergeable():
            merged = pa.concat_batches(self.segments[-2:])
            self.held += merged.nbytes - sum(self.sizes[-2:])
            self.segments[-2:], self.sizes[-2:] = [merged], [merged.nbytes]
            self.starts.pop()

    def trim(self, before: int) -> None:
        """Forget rows; their memory is free once all of their segment are forgotten."""
        self.earliest = max(self.earliest, before)
        past = self.earliest == self.latest
        gone = len(self.segments) if past else bisect_right(self.starts, self.earliest) - 1
        self.held -= sum(self.sizes[:gone])
        del self.segments[:gone], self.starts[:gone], self.sizes[:gone]

    def slices(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        for index in range(bisect_right(self.starts, start) - 1, len(self.segments)):
            begin, rows = self.starts[index], self.segments[index]
            if begin >= end:
                return
            low, high = max(start - begin, 0), min(end - begin, rows.num_rows)
            yield rows.slice(low, high - low)

    def at(self, when_us: int) -> int:
        index = bisect_right(self.segments, when_us - 1, key=lambda rows: _arrivals(rows)[-1])
        if index == len(self.segments):
            return self.latest
        inside = np.searchsorted(_arrivals(self.segments[index]), when_us)
        return max(self.earliest, self.starts[index] + int(inside))

    def _mergeable(self) -> bool:
        if len(self.segments) < 2:
            return False
        left, right = (rows.num_rows for rows in self.segments[-2:])
        small = left + right <= _SEGMENT_ROWS and sum(self.sizes[-2:]) <= _SEGMENT_BYTES
        return small and left <= right


class Store:
    """The rows of a memory log. Not for several threads: its owner locks.

    Parameters
    ----------
    schema
        All columns, those that a log adds last.
    partitions
        How many; named "0", "1" and so on.
    limit_bytes
        Bytes it may hold. Trimmed rows count until the last row of their segment is trimmed.
    """

    def __init__(self, schema: pa.Schema, partitions: int, limit_bytes: int) -> None:
        self.schema = schema
        self.limit_bytes = limit_bytes
        self._partitions = {str(each): _Partition(str(each)) for each in range(partitions)}
        self._next = 0
        self._last_us = -(2**63)

    @property
    def held_bytes(self) -> int:
        return sum(each.held for each in self._partitions.values())

    def earliest(self) -> dict[str, int]:
        return {name: each.earliest for name, each in self._partitions.items()}

    def latest(self) -> dict[str, int]:
        return {name: each.latest for name, each in self._partitions.items()}

    def newer(self, known: Offsets) -> bool:
        """Whether a partition has rows after those known."""
        return any(latest > known.get(name, 0) for name, latest in self.latest().items())

    def at(self, when_us: int, now_us: int) -> dict[str, int]:
        """The first offsets that arrived at ``when_us`` or later.

        For a time that has passed the answer stays true: rows that come after it, under a clock
        that was set back, arrive no earlier.
        """
        self._last_us = max(self._last_us, min(when_us, now_us))
        return {name: each.at(when_us) for name, each in self._partitions.items()}

    def append(self, rows: pa.RecordBatch, now_us: int, partition: str | None = None) -> None:
        """Put rows at the end of a partition, or of all in turn."""
        names = list(self._partitions) if partition is None else [self._named(partition).name]
        first = self._next if partition is None else 0
        arrival, ends = max(self._last_us, now_us), self.latest()
        ready: list[pa.RecordBatch] = []
        for turn in range(min(len(names), rows.num_rows)):
            name = names[(first + turn) % len(names)]
            for piece in _pieces(rows, turn, len(names)):
                offsets = np.arange(ends[name], ends[name] + piece.num_rows, dtype=np.int64)
                times = np.full(piece.num_rows, arrival, dtype=np.int64)
                ready.append(assemble(self.schema, piece.columns, times, name, offsets))
                ends[name] += piece.num_rows
        self._refuse_too_much(ready)
        for piece in ready:
            self._partitions[piece.column(PARTITION)[0].as_py()].add(piece)
        self._last_us = arrival
        if partition is None:
            self._next = (first + rows.num_rows) % len(names)

    def trim(self, before: Offsets) -> None:
        """Forget the rows before these offsets."""
        for name, offset in before.items():
            latest = self._named(name).latest
            if not 0 <= offset <= latest:
                raise LogError(f"trim of partition {name!r} before {offset}: must be 0 to {latest}")
        for name, offset in before.items():
            self._partitions[name].trim(offset)

    def read(
        self, partition: str, start: int, end: int, budget: int
    ) -> tuple[list[pa.RecordBatch], int]:
        """Rows from ``start`` on, about ``budget`` bytes and one row at least; and where they end.

        The rows never change, so they can be used after the lock is let go.
        """
        check_range(partition, start, end)
        found = self._named(partition)
        if start == end:
            return [nothing(self.schema)], end
        asked = f"memory log, partition {partition!r}, range [{start}, {end})"
        if start < found.earliest:
            raise DataLost(f"{asked}: rows before {found.earliest} were trimmed")
        if end > found.latest:
            raise DataLost(f"{asked}: it ends at {found.latest}; was the log made anew?")
        taken: list[pa.RecordBatch] = []
        for rows in found.slices(start, end):
            piece = rows
            while piece.num_rows > (not taken) and piece.nbytes > budget:
                piece = piece.slice(0, piece.num_rows // 2)
            if piece.num_rows:
                taken.append(piece)
            start, budget = start + piece.num_rows, budget - piece.nbytes
            if piece.num_rows < rows.num_rows:
                break
        return taken, start

    def check(self) -> None:
        """Assert that offsets have no gap, arrivals grow and the bytes are counted."""
        for each in self._partitions.values():
            assert 0 <= each.earliest <= each.latest
            expected, arrived = each.starts[0] if each.starts else each.latest, -(2**63)
            assert expected <= each.earliest
            for start, rows in zip(each.starts, each.segments, strict=True):
                assert start == expected
                expected += rows.num_rows
                offsets = rows.column(OFFSET).to_numpy()
                assert (offsets == np.arange(start, expected)).all()
                times = _arrivals(rows)
                assert times[0] >= arrived
                assert (np.diff(times) >= 0).all()
                arrived = times[-1]
            assert expected == each.latest
            assert arrived <= self._last_us
            assert each.sizes == [rows.nbytes for rows in each.segments]
            assert each.held == sum(each.sizes)

    def _named(self, partition: str) -> _Partition:
        if partition not in self._partitions:
            known = f'"0" to "{len(self._partitions) - 1}"'
            raise LogError(f"partition {partition!r} of a memory log: must be one of {known}")
        return self._partitions[partition]

    def _refuse_too_much(self, ready: list[pa.RecordBatch]) -> None:
        for piece in ready:
            one = 0 if piece.nbytes <= ROW_BYTES else max(_row_bytes(piece))
            if one > ROW_BYTES:
                raise LogError(f"append of a row of {one} bytes: at most {ROW_BYTES} are taken")
        size, rows = sum(piece.nbytes for piece in ready), sum(piece.num_rows for piece in ready)
        if self.held_bytes + size > self.limit_bytes:
            raise LogFull(
                f"append of {rows} rows, {size} bytes: the log holds {self.held_bytes} of "
                f"limit_bytes={self.limit_bytes}; trim() what was read, or give it a larger limit"
            )


def _row_bytes(rows: pa.RecordBatch) -> Iterator[int]:
    return (rows.slice(index, 1).nbytes for index in range(rows.num_rows))


def _arrivals(rows: pa.RecordBatch) -> Numbers:
    times: Numbers = rows.column(ARRIVAL).view(pa.int64()).to_numpy()
    return times


def _pieces(rows: pa.RecordBatch, first: int, step: int) -> Iterator[pa.RecordBatch]:
    """Every ``step``-th row from ``first`` on, copied: a slice would hold on to all of them."""
    size = max(1, min(_SEGMENT_ROWS, rows.num_rows * _SEGMENT_BYTES // max(1, rows.nbytes)))
    chosen = np.arange(first, rows.num_rows, step, dtype=np.int64)
    for low in range(0, len(chosen), size):
        yield rows.take(pa.array(chosen[low : low + size]))

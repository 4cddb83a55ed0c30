"""A log in the driver's memory, served to those who read it: for tests, examples and small streams.

What the driver appends is gone when the driver ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import pyarrow as pa

from taut.errors import DataLost, LogError, LogFull
from taut.spark.ddl import Columns, columns
from taut.spark.source.listener import Listener
from taut.spark.source.logs.base import Offsets
from taut.spark.source.logs.options import required, schema_from, schema_text
from taut.spark.source.logs.remote import (
    LONGEST_WAIT_S,
    Answer,
    At,
    Earliest,
    Fault,
    Found,
    Latest,
    Read,
    RemoteMemoryLog,
    Request,
    Rows,
    Wait,
)
from taut.spark.source.logs.rows import VALUE, complete, micros, missing, nullable
from taut.spark.source.logs.store import Store

__all__ = ["LogFull", "MemoryLog", "RemoteMemoryLog", "from_options"]

LIMIT_BYTES = 256 * 2**20
_ANSWER_BYTES = 8 * 2**20


class MemoryLog:
    """Rows that this process appends and that Spark's processes read.

    It serves on a port of its own from a daemon thread. :meth:`remote` is the log to read from,
    :meth:`options` the same as options of a data source.

    Parameters
    ----------
    schema
        The columns of a row, as ``"word string, n bigint"`` or an Arrow schema; without, rows are
        text in a column ``value``.
    partitions
        How many; named "0", "1" and so on.
    host
        The address of this machine that the executors can reach.
    limit_bytes
        Bytes it may hold before :meth:`append` refuses.
    clock
        Epoch seconds, for the arrivals. They never fall, even if the clock does.

    Examples
    --------
    >>> with MemoryLog() as log:
    ...     log.append(["one", "two"])
    ...     reader = log.remote()
    ...     reader.read("0", 0, 2).column("value").to_pylist()
    ...     reader.close()
    ['one', 'two']
    """

    def __init__(
        self,
        schema: Columns | None = None,
        partitions: int = 1,
        host: str = "127.0.0.1",
        limit_bytes: int = LIMIT_BYTES,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if partitions < 1:
            raise LogError(f"partitions={partitions}: must be 1 or more")
        if limit_bytes < 1:
            raise LogError(f"limit_bytes={limit_bytes}: must be 1 byte or more")
        if host in ("", "0.0.0.0", "::"):
            raise LogError(f"host={host!r}: must be one address that executors can connect to")
        try:
            self._columns = None if schema is None else columns(schema)
        except ValueError as error:
            raise LogError(str(error)) from error
        self._own = VALUE if self._columns is None else self._columns
        self._store = Store(complete(self._own), partitions, limit_bytes)
        self._clock = clock
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._listener = Listener("taut-memory-log", host, Request, self._answer)
        except OSError as error:
            raise LogError(f"host={host!r}: cannot serve there: {error}") from error
        self._address = self._listener.address

    def append(
        self,
        rows: Sequence[Mapping[str, Any]] | Sequence[str] | pa.RecordBatch,
        partition: str | int | None = None,
    ) -> None:
        """Put rows at the end of a partition, or of all partitions in turn.

        Rows appended together arrive together. They are all taken, or none.

        Raises
        ------
        LogFull
            When the log would hold more than its limit.
        """
        batch = self._batch(rows)
        with self._lock:
            self._refuse_closed()
            to = None if partition is None else str(partition)
            self._store.append(batch, micros(self._clock()), to)
        self._listener.ring()

    def trim(self, before: Offsets) -> None:
        """Forget the rows before these offsets; to read them is :class:`DataLost` from now on."""
        with self._lock:
            self._store.trim(before)

    def earliest(self) -> Offsets:
        """The first offset of each partition that can be read."""
        with self._lock:
            return self._store.earliest()

    def latest(self) -> Offsets:
        """The offset after the last row of each partition."""
        with self._lock:
            return self._store.latest()

    def remote(self) -> RemoteMemoryLog:
        """The log to read from, in this or another process."""
        return RemoteMemoryLog(self._address, self._listener.token, self._columns)

    def options(self) -> dict[str, str]:
        """The same as options of a data source."""
        host, port = self._address
        given = {"log": "memory", "address": f"{host}:{port}", "token": self._listener.token}
        return given | ({} if self._columns is None else {"arrowschema": schema_text(self._own)})

    def close(self) -> None:
        """Serve no longer; the rows are gone."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._listener.close()

    def check(self) -> None:
        """Assert what must hold of the rows kept."""
        with self._lock:
            self._store.check()

    def __enter__(self) -> MemoryLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        host, port = self._address
        return f"MemoryLog({self._own.names}, {host}:{port}{', closed' * self._closed})"

    def __reduce__(self) -> str:
        raise TypeError("a MemoryLog stays where it was made: pickle its remote() instead")

    def _refuse_closed(self) -> None:
        if self._closed:
            raise LogError(f"append to {self!r}: make a new one")

    def _batch(self, rows: Any) -> pa.RecordBatch:
        try:
            batch = rows if isinstance(rows, pa.RecordBatch) else self._from_list(rows)
            columns = batch.cast(nullable(self._own)).columns
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise LogError(
                f"append: rows do not fit the columns {self._fields()}: {error}"
            ) from None
        batch = pa.RecordBatch.from_arrays(columns, schema=self._own)
        null = missing(batch)
        if null is not None:
            raise LogError(f"append: row {null[1]} has no {null[0]!r}: columns {self._fields()}")
        return batch

    def _from_list(self, rows: Any) -> pa.RecordBatch:
        if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Sequence):
            raise LogError(f"append({str(rows)[:200]!r}): must be a list of rows, or a RecordBatch")
        names = set(self._own.names)
        for index, row in enumerate(rows):
            if self._columns is None and isinstance(row, str):
                continue
            if not isinstance(row, Mapping) or not names.issuperset(row):
                raise LogError(
                    f"append: row {index} is {str(row)[:200]!r}: must be a dict of columns "
                    f"{self._fields()}{' or a str' * (self._columns is None)}"
                )
        dicts = [{"value": row} if isinstance(row, str) else row for row in rows]
        return pa.RecordBatch.from_pylist(dicts, schema=nullable(self._own))

    def _fields(self) -> str:
        return ", ".join(f"{field.name} {field.type}" for field in self._own)

    def _answer(self, request: Request) -> Answer | Coroutine[None, None, Answer]:
        return self._news(request) if isinstance(request, Wait) else self._now(request)

    def _now(self, request: Request) -> Answer:
        try:
            if isinstance(request, Read):
                return self._rows(request)
            with self._lock:
                match request:
                    case Earliest():
                        return Found(self._store.earliest())
                    case At(when_us):
                        return Found(self._store.at(when_us, micros(self._clock())))
                    case Latest() | Wait():
                        return Found(self._store.latest())
        except LogError as error:
            return Fault(str(error), isinstance(error, DataLost))

    def _rows(self, request: Read) -> Rows:
        with self._lock:
            batches, end = self._store.read(
                request.partition, request.start, request.end, _ANSWER_BYTES
            )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._store.schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        return Rows(sink.getvalue().to_pybytes(), end)

    async def _news(self, request: Wait) -> Answer:
        with self._lock:
            there = self._store.newer(request.known)
        if not there:
            await self._listener.news(min(request.timeout, LONGEST_WAIT_S))
        return self._now(request)


def from_options(options: Mapping[str, str]) -> RemoteMemoryLog:
    """The log of ``address``, ``token`` and ``arrowschema``, as its ``options()`` gave them."""
    address = required(options, "address", "127.0.0.1:5000")
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise LogError(f'option address={address!r}: must be "host:port", as "127.0.0.1:5000"')
    token = required(options, "token", "the one that MemoryLog.options() gives")
    return RemoteMemoryLog((host, int(port)), token, schema_from(options))

"""A log in the driver's memory, served to those who read it: for tests, examples and small streams.

What the driver appends is gone when the driver ends.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import msgspec
import pyarrow as pa

from taut.spark.source.frames import HELLO_FRAME, FrameError, Hello, encode, knows, read_frame
from taut.spark.source.logs.base import DataLost, LogError, Offsets
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
from taut.spark.source.logs.store import LogFull, Store

__all__ = ["LogFull", "MemoryLog", "RemoteMemoryLog", "from_options"]

log = logging.getLogger("taut")

LIMIT_BYTES = 256 * 2**20
_ANSWER_BYTES = 8 * 2**20
_HELLO_S = 30.0

_hello = msgspec.msgpack.Decoder(Hello).decode
_request = msgspec.msgpack.Decoder(Request).decode


class MemoryLog:
    """Rows that this process appends and that Spark's processes read.

    It serves on a port of its own from a daemon thread. :meth:`remote` is the log to read from,
    :meth:`options` the same as options of a data source.

    Parameters
    ----------
    schema
        The columns of a row; without, rows are text in a column ``value``.
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
        schema: pa.Schema | None = None,
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
        self._columns = schema
        self._own = VALUE if schema is None else schema
        self._store = Store(complete(self._own), partitions, limit_bytes)
        self._clock = clock
        self._token = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._waiting: set[asyncio.Future[None]] = set()
        self._told: set[str] = set()
        self._closed = False
        self._stop = asyncio.Event()
        started: Future[tuple[asyncio.AbstractEventLoop, int]] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._main(host, started)), name="taut-memory-log"
        )
        self._thread.daemon = True
        self._thread.start()
        try:
            self._loop, port = started.result()
        except OSError as error:
            raise LogError(f"host={host!r}: cannot serve there: {error}") from error
        self._address = (host, port)

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
            if self._waiting:
                self._loop.call_soon_threadsafe(_wake, list(self._waiting))
                self._waiting.clear()

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
        return RemoteMemoryLog(self._address, self._token, self._columns)

    def options(self) -> dict[str, str]:
        """The same as options of a data source."""
        host, port = self._address
        given = {"log": "memory", "address": f"{host}:{port}", "token": self._token}
        return given | ({} if self._columns is None else {"arrowschema": schema_text(self._own)})

    def close(self) -> None:
        """Serve no longer; the rows are gone."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

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

    async def _main(self, host: str, started: Future[Any]) -> None:
        try:
            server = await asyncio.start_server(self._serve, host, 0)
        except OSError as error:
            started.set_exception(error)
            return
        started.set_result((asyncio.get_running_loop(), server.sockets[0].getsockname()[1]))
        await self._stop.wait()
        server.close()
        peers = asyncio.all_tasks() - {asyncio.current_task()}
        for peer in peers:
            peer.cancel()
        await asyncio.gather(*peers, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._talk(reader, writer)
        except asyncio.CancelledError:
            writer.transport.abort()  # the log is being closed
        except FrameError as error:
            self._tell("frame", error)
        except msgspec.MsgspecError as error:
            self._tell("message", error)
        except TimeoutError:
            self._tell("silence", f"said nothing for {_HELLO_S} s")
        except OSError:
            pass  # it went away
        except Exception as error:  # one connection must not take the others with it
            self._tell("request", error)
        finally:
            writer.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HELLO_S):
            body = await read_frame(reader, HELLO_FRAME)
        if body is None:
            return
        hello = _hello(body)
        # a token that is not ASCII cannot be compared, nor be the right one
        if not (hello.token.isascii() and knows(hello, self._token)):
            self._tell("token", "wrong token or version")
            return
        while (body := await read_frame(reader)) is not None:
            writer.write(encode(await self._answer(_request(body))))
            await writer.drain()

    async def _answer(self, request: Request) -> Answer:
        try:
            if isinstance(request, Read):
                return self._rows(request)
            if isinstance(request, Wait):
                await self._news(request)
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

    async def _news(self, request: Wait) -> None:
        change = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._store.newer(request.known):
                return
            self._waiting.add(change)
        try:
            await asyncio.wait([change], timeout=min(max(0.0, request.timeout), LONGEST_WAIT_S))
        finally:
            with self._lock:
                self._waiting.discard(change)

    def _tell(self, kind: str, what: object) -> None:
        """Warn of a fault, once for each kind: a peer that errs can err a thousand times."""
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%r cut a connection off (%s): %s", self, kind, what)


def _wake(waiting: Sequence[asyncio.Future[None]]) -> None:
    for each in waiting:
        if not each.done():
            each.set_result(None)


def from_options(options: Mapping[str, str]) -> RemoteMemoryLog:
    """The log of ``address``, ``token`` and ``arrowschema``, as its ``options()`` gave them."""
    address = required(options, "address", "127.0.0.1:5000")
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise LogError(f'option address={address!r}: must be "host:port", as "127.0.0.1:5000"')
    token = required(options, "token", "the one that MemoryLog.options() gives")
    return RemoteMemoryLog((host, int(port)), token, schema_from(options))

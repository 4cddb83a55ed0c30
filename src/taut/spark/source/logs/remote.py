"""A memory log as others see it: a value that knows where the log is served, and asks there."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
import pyarrow as pa

from taut.errors import DataLost, LogError
from taut.spark.source.frames import Client, FrameError
from taut.spark.source.logs.base import Log, Offsets
from taut.spark.source.logs.rows import VALUE, check_range, complete, micros

LONGEST_WAIT_S = 10.0
"""Seconds one request waits at most, well within a client's patience; then it asks again."""


class Earliest(msgspec.Struct, frozen=True, array_like=True, tag="earliest"):
    """Asks for the first offsets."""


class Latest(msgspec.Struct, frozen=True, array_like=True, tag="latest"):
    """Asks for the offsets after the last rows."""


class At(msgspec.Struct, frozen=True, array_like=True, tag="at"):
    """Asks for the first offsets that arrived at a time or later."""

    when_us: int


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """Asks for rows."""

    partition: str
    start: int
    end: int


class Wait(msgspec.Struct, frozen=True, array_like=True, tag="wait"):
    """Asks for the latest offsets when they are past those known, or when time is up."""

    known: dict[str, int]
    timeout: float


class Found(msgspec.Struct, frozen=True, array_like=True, tag="found"):
    """Offsets."""

    offsets: dict[str, int]


class Rows(msgspec.Struct, frozen=True, array_like=True, tag="rows"):
    """Rows up to ``end``, which may be less than was asked for, as an Arrow IPC stream."""

    data: bytes
    end: int


class Fault(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A request that is refused, and why."""

    text: str
    lost: bool


Request = Earliest | Latest | At | Read | Wait
Answer = Found | Rows | Fault

_decode = msgspec.msgpack.Decoder(Answer).decode
_Kind = TypeVar("_Kind", Found, Rows)
_open = threading.local()


@dataclass(frozen=True)
class RemoteMemoryLog(Log):
    """A memory log, read over a socket; made by :meth:`MemoryLog.remote`.

    Each thread has a connection of its own, opened when first used and once more when it broke.

    Parameters
    ----------
    address
        Host and port of the log.
    token
        What the log expects from those who read it.
    columns
        The log's own columns; without, one of text, ``value``.
    """

    address: tuple[str, int]
    token: str = field(repr=False)
    columns: pa.Schema | None = None

    timed = True

    def schema(self) -> pa.Schema:
        return complete(VALUE if self.columns is None else self.columns)

    def earliest(self) -> Offsets:
        return self._ask(Earliest(), Found).offsets

    def latest(self) -> Offsets:
        return self._ask(Latest(), Found).offsets

    def at(self, when: float) -> Offsets:
        return self._ask(At(micros(when)), Found).offsets

    def wait(self, known: Offsets, timeout: float) -> Offsets:
        """The latest offsets, once there are rows after ``known`` or ``timeout`` has passed."""
        limit = time.monotonic() + timeout
        while True:
            left = min(limit - time.monotonic(), LONGEST_WAIT_S)
            found = self._ask(Wait(dict(known), max(left, 0.0)), Found).offsets
            if left < LONGEST_WAIT_S or any(known.get(p, 0) < end for p, end in found.items()):
                return found

    def read(self, partition: str, start: int, end: int) -> pa.RecordBatch:
        check_range(partition, start, end)
        schema, batches = self.schema(), []
        while True:
            rows = self._ask(Read(partition, start, end), Rows)
            with pa.ipc.open_stream(rows.data) as stream:
                if not stream.schema.equals(schema):
                    raise LogError(
                        f"{self}: has columns {stream.schema.names} of types {stream.schema.types},"
                        f" not {schema.names} of types {schema.types}; use the log's options()"
                    )
                batches += list(stream)
            if rows.end == end:
                return pa.concat_batches(batches)
            if not start < rows.end < end:
                raise LogError(f"{self}: answered [{start}, {end}) with rows up to {rows.end}")
            start = rows.end

    def close(self) -> None:
        """Close this thread's connection."""
        client = self._clients().pop((self.address, self.token), None)
        if client is not None:
            client.close()

    def _ask(self, request: Request, kind: type[_Kind]) -> _Kind:
        try:
            answer = self._once(request)
        except (OSError, FrameError, msgspec.MsgspecError):
            try:  # the connection may have been an old one: every request can be made again
                answer = self._once(request)
            except (OSError, FrameError, msgspec.MsgspecError) as error:
                raise LogError(
                    f"{self}: {error}; is the log still open in the driver, can its host be "
                    "reached from here, and is the token the one of its options()?"
                ) from error
        if isinstance(answer, Fault):
            raise (DataLost if answer.lost else LogError)(answer.text)
        if not isinstance(answer, kind):
            raise LogError(f"{self}: answered {type(answer).__name__}, not {kind.__name__}")
        return answer

    def _once(self, request: Request) -> Answer:
        clients, key = self._clients(), (self.address, self.token)
        if key not in clients:
            clients[key] = Client(self.address, self.token)
        try:
            answer: Answer = clients[key].ask(request, _decode)
        except BaseException:
            # an answer that is still under way would be taken for that of the next request
            self.close()
            raise
        return answer

    @staticmethod
    def _clients() -> dict[tuple[tuple[str, int], str], Client]:
        """This thread's connections. A forked process has its parent's in memory: not its own."""
        if getattr(_open, "process", None) != os.getpid():
            _open.process, _open.clients = os.getpid(), {}
        clients: dict[tuple[tuple[str, int], str], Client] = _open.clients
        return clients

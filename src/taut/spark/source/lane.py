"""A lane: a Spark task that takes chunks from the distributor until its batch has none left."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from taut.spark.source.frames import Client
from taut.spark.source.protocol import (
    Answer,
    Ask,
    Beat,
    Chunk,
    Emit,
    LaneRefused,
    Pause,
    Reply,
    Request,
    Work,
    lane,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.spark.source.logs.base import Log
    from taut.spark.source.logs.lenient import Lenient
    from taut.spark.source.operators import Chain

_TRIES = 6
_ROWS_AT_ONCE = 10_000
"""Rows that are handed to Spark together."""
_BATCHES_AT_ONCE = 1_000
"""Chunks whose rows are: many kept objects make the garbage collector slow."""
_BYTES_AT_ONCE = 32 * 2**20
"""Bytes that they may have: rows can be large, and Arrow's arrays hold 2 GiB of text at most."""
_REPLY = msgspec.msgpack.Decoder(Reply)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch is dealt out, and how often a lane must be heard there."""

    address: tuple[str, int]
    token: str
    batch: str
    beat: float = 1.0


class Connection:
    """Asks the distributor; opens a new connection and asks again when one breaks."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Client | None = None

    def ask(self, message: Request) -> Reply:
        """The reply to a message; a message may reach the distributor more than once."""
        tries = _TRIES
        for tried in range(tries):
            try:
                if self._client is None:
                    self._client = Client(self._place.address, self._place.token)
                reply: Reply = self._client.ask(message, _REPLY.decode)
            except OSError as error:
                self.close()
                if tried == tries - 1:
                    host, port = self._place.address
                    raise ConnectionError(
                        f"the distributor at {host}:{port} does not answer: {error}; its query has "
                        "ended, or executors cannot reach the driver's machine (option host)"
                    ) from error
                time.sleep(0.05 * 2**tried)
            else:
                return reply
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Close it; again is harmless."""
        if self._client is not None:
            self._client.close()
            self._client = None


def executor_name() -> str:
    """The same for all tasks of one executor: their Python workers have one parent."""
    return f"{socket.gethostname()}:{os.getppid()}"


def run_lane(
    place: Place,
    number: int,
    attempt: int,
    log: Log | Lenient,
    chain: Chain,
    rows_at_once: int = _ROWS_AT_ONCE,
) -> Iterator[pa.RecordBatch]:
    """Take chunks, run the operators over them and hand on the rows that count."""
    script = lane(place.batch, number, attempt, executor_name())
    connection = Connection(place)
    held: dict[int, pa.RecordBatch] = {}  # rows of chunks that may count
    heap = _Heap(rows_at_once)
    given: Reply | float | None = None
    with _beating(place, number, attempt):
        try:
            while True:
                try:
                    action = next(script) if given is None else script.send(given)
                except StopIteration:
                    break
                given = 0.0
                match action:
                    case Ask(message):
                        given = connection.ask(message)
                        _drop_lost(held, given)
                    case Work(chunk):
                        begun = time.perf_counter()
                        held[chunk.id] = work(chunk, log, chain)
                        given = time.perf_counter() - begun
                    case Emit(chunk):
                        rows = held.pop(chunk.id)
                        if chain.sink is not None and rows.num_rows:
                            chain.sink(rows)
                        heap.add(rows)
                        if heap.full:
                            yield heap.take()
                    case Pause(seconds):
                        time.sleep(seconds)
            if heap.rows:
                yield heap.take()
        except LaneRefused as error:
            raise RuntimeError(f"lane {number} of batch {place.batch}: {error}") from None
        finally:
            connection.close()
            log.close()


def _drop_lost(held: dict[int, pa.RecordBatch], reply: Reply) -> None:
    """Of what was reported only the rows that count are kept."""
    if isinstance(reply, Answer):
        for id_ in held.keys() - set(reply.emit):
            del held[id_]


class _Heap:
    """Rows that are handed to Spark together: many small batches cost it more than their rows."""

    def __init__(self, rows_at_once: int) -> None:
        self._most = rows_at_once
        self._kept: list[pa.RecordBatch] = []
        self._bytes = 0
        self.rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._kept.append(rows)
            self.rows += rows.num_rows
            self._bytes += rows.nbytes

    @property
    def full(self) -> bool:
        return (
            self.rows >= self._most
            or self._bytes >= _BYTES_AT_ONCE
            or len(self._kept) >= _BATCHES_AT_ONCE
        )

    def take(self) -> pa.RecordBatch:
        """All of them as one batch."""
        import pyarrow as pa

        kept, self._kept, self._bytes, self.rows = self._kept, [], 0, 0
        return kept[0] if len(kept) == 1 else pa.concat_batches(kept)


def work(chunk: Chunk, log: Log | Lenient, chain: Chain) -> pa.RecordBatch:
    """The rows of a chunk after all operators."""
    return chain.run(log.read(chunk.partition, chunk.start, chunk.end))


@contextlib.contextmanager
def _beating(place: Place, number: int, attempt: int) -> Iterator[None]:
    """Tell the distributor all the while that the lane lives, however long a chunk takes."""
    over = threading.Event()

    def beat() -> None:
        connection = Connection(place)
        while not over.wait(place.beat):
            # refused (it may come before the lane has joined) or not heard: the lane itself will
            # learn of it when it asks, and until then says that it lives
            with contextlib.suppress(OSError):
                connection.ask(Beat(place.batch, number, attempt))
        connection.close()

    thread = threading.Thread(target=beat, name=f"taut-beat-{number}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()

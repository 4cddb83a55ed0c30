"""A lane: a Spark task that takes chunks from the distributor until its batch has none left."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from taut.policy.backlog import TAU
from taut.spark.source.connection import Connection, Place
from taut.spark.source.egress import Outbox, gate
from taut.spark.source.protocol import (
    Answer,
    Ask,
    Chunk,
    Emit,
    LaneRefused,
    Pause,
    Reply,
    Work,
    lane,
)
from taut.spark.source.pulse import Pulse

if TYPE_CHECKING:
    import pyarrow as pa

    from taut.spark.source.logs.base import Log
    from taut.spark.source.logs.lenient import Lenient
    from taut.spark.source.operators import Chain, Effect

_ROWS_AT_ONCE = 10_000
"""Rows that are handed to Spark together."""
_BATCHES_AT_ONCE = 1_000
"""Chunks whose rows are: many kept objects make the garbage collector slow."""
_BYTES_AT_ONCE = 32 * 2**20
"""Bytes that they may have: rows can be large, and Arrow's arrays hold 2 GiB of text at most."""


@dataclass(frozen=True, slots=True)
class Egress:
    """Which lane's sink may write, and how often that is decided; see :mod:`.egress`."""

    name: str = "all"
    every: float = TAU


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
    egress: Egress = Egress(),  # noqa: B008 -- a value
) -> Iterator[pa.RecordBatch]:
    """Take chunks, run the operators over them and hand on the rows that count."""
    script = lane(place.batch, number, attempt, executor_name())
    connection = Connection(place)
    held: dict[int, pa.RecordBatch] = {}  # rows of chunks that may count
    heap = _Heap(rows_at_once)
    given: Reply | float | None = None
    with Pulse(place, number, attempt) as pulse, _writing(place, chain, egress) as writer:
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
                        pulse.begin()
                        _drop_lost(held, given)
                    case Work(chunk):
                        begun = time.perf_counter()
                        worked = _worked(chunk, log, chain, pulse)
                        if worked is not None:
                            held[chunk.id] = worked
                        given = time.perf_counter() - begun
                    case Emit(chunk):
                        rows = held.pop(chunk.id)
                        if rows.num_rows:
                            writer.put(rows)
                        heap.add(rows)
                        if heap.full:
                            yield heap.take()
                    case Pause(seconds):
                        time.sleep(seconds)
            writer.flush()
            if heap.rows:
                yield heap.take()
        except LaneRefused as error:
            raise RuntimeError(f"lane {number} of batch {place.batch}: {error}") from None
        finally:
            connection.close()
            log.close()


class _Writer(Protocol):
    """What a lane gives rows to that its sink is to write."""

    def put(self, rows: pa.RecordBatch) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _AtOnce:
    """Writes rows where they come."""

    def __init__(self, sink: Effect) -> None:
        self.put = sink

    def flush(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextlib.contextmanager
def _writing(place: Place, chain: Chain, egress: Egress) -> Iterator[_Writer]:
    """How a lane's sink writes, if it has one; closed at the end, whatever the end is."""
    if chain.sink is None or egress.name == "all":
        yield _AtOnce(chain.sink or (lambda rows: None))
        return
    # the token is the query's own, and no lane of another knows it
    outbox = Outbox(chain.sink, gate(place.token, executor_name(), egress.name, egress.every))
    try:
        yield outbox
    finally:
        outbox.close()


def _drop_lost(held: dict[int, pa.RecordBatch], reply: Reply) -> None:
    """Of what was reported only the rows that count are kept."""
    if isinstance(reply, Answer):
        for id_ in held.keys() - set(reply.emit):
            del held[id_]


def _worked(chunk: Chunk, log: Log | Lenient, chain: Chain, pulse: Pulse) -> pa.RecordBatch | None:
    """The rows of a chunk after all operators; None when another lane has finished it."""
    if pulse.lost(chunk.id):
        return None
    read = log.read(chunk.partition, chunk.start, chunk.end)
    # only functions are interrupted: a log may have half an answer by then
    return pulse.work(chunk.id, partial(chain.run, read))


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

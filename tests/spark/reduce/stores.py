"""A store in a dict, and a world in which reducers run batch after batch on a clock of its own."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from taut.spark.reduce import keyed
from taut.spark.reduce.blobs import (
    RESULT,
    ROWS,
    SHED,
    STATS,
    Packed,
    from_columns,
    result_schema,
    row_schema,
    shed_schema,
    unpack,
)
from taut.spark.reduce.codec import Codec
from taut.spark.reduce.job import MICRO, Job
from taut.spark.reduce.keyed import Head, Keyed, Memory
from taut.spark.reduce.mapper import Mapper
from taut.spark.reduce.reducer import Reducer
from taut.spark.reduce.terms import Moment, Stats, Terms

EPOCH = 1_700_000_000.0
"""Where the clock of a world begins."""
Row = tuple[float, Any, Any, float]
"""Time, key, value and arrival; seconds after :data:`EPOCH`."""
TIME = pa.timestamp("us", tz="UTC")


class Clock:
    """Time that goes by only when told."""

    def __init__(self, now: float = EPOCH) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class Lost(Exception):
    """A task has ended before its end."""


class DictStore:
    """What Spark keeps for a reducer: written by an attempt, it counts once it is committed."""

    def __init__(
        self, clock: Clock | None = None, cold_takes: float = 0.0, head_takes: float = 0.0
    ) -> None:
        self._clock = clock
        self.cold_takes = cold_takes
        self.head_takes = head_takes
        self._head: bytes | None = None
        self.log: dict[int, bytes] = {}
        self.colds: dict[bytes, bytes] = {}
        self.calls: Counter[str] = Counter()
        self.calls_left: int | None = None
        """After which the task is lost; None for a task that is not."""
        self._committed = self._now()

    def head(self) -> bytes | None:
        self._called("head", self.head_takes)
        return self._head

    def set_head(self, data: bytes) -> None:
        self._called("set_head")
        self._head = data

    def read(self, place: int) -> bytes:
        self._called("read")
        return self.log[place]

    def write(self, place: int, data: bytes) -> None:
        self._called("write")
        assert place not in self.log, "a place is never used twice"
        self.log[place] = data

    def drop(self, place: int) -> None:
        self._called("drop")
        del self.log[place]

    def cold(self, key: bytes) -> bytes | None:
        self._called("cold", self.cold_takes)
        return self.colds.get(key)

    def set_cold(self, key: bytes, data: bytes) -> None:
        self._called("set_cold", self.cold_takes)
        self.colds[key] = data

    def drop_cold(self, key: bytes) -> None:
        self._called("drop_cold", self.cold_takes)
        del self.colds[key]

    def all_cold(self) -> Iterator[tuple[bytes, bytes]]:
        self._called("all_cold")
        yield from self.colds.items()

    def _called(self, what: str, takes: float = 0.0) -> None:
        if self.calls_left is not None:
            if not self.calls_left:
                raise Lost(what)
            self.calls_left -= 1
        self.calls[what] += 1
        if self._clock is not None:
            self._clock.pass_(takes)

    def _now(self) -> tuple[bytes | None, dict[int, bytes], dict[bytes, bytes]]:
        return self._head, dict(self.log), dict(self.colds)

    def commit(self) -> None:
        """The batch is out."""
        self._committed = self._now()

    def rollback(self) -> None:
        """The task has failed: nothing of it was written."""
        head, log, colds = self._committed
        self._head, self.log, self.colds = head, dict(log), dict(colds)

    def read_head(self) -> Head:
        """What the reducer knows; an empty head before its first batch."""
        return Head("") if self._head is None else keyed._read_head(self._head)


@contextmanager
def short_log(**limits: float) -> Iterator[None]:
    """With a log that is short and made of small parts, and eras that are short."""
    given = {"_LONGEST_LOG": 4, "_LEAST_BASE": 150, "_PART_BYTES": 1, "_ERA": 3, **limits}
    with pytest.MonkeyPatch.context() as patch:
        for what, value in given.items():
            patch.setattr(keyed, what, value)
        yield


class Workers:
    """Python workers, each with copies of its own."""

    def __init__(self) -> None:
        self._copies: dict[str, OrderedDict[tuple[str, str], Memory]] = {}

    def run(self, worker: str, what: Callable[[], Any]) -> Any:
        """Call a function in a worker."""
        elsewhere = OrderedDict(keyed._copies)
        keyed._copies.clear()
        keyed._copies.update(self._copies.get(worker, {}))
        try:
            return what()
        finally:
            self._copies[worker] = OrderedDict(keyed._copies)
            keyed._copies.clear()
            keyed._copies.update(elsewhere)


def states(store: DictStore, job: Job) -> dict[Any, Any]:
    """All states of a reducer, as a worker reads them that has no copy."""
    return {**hot(store, job).states, **cold(store, job)}


def hot(store: DictStore, job: Job) -> Memory:
    """What is in memory, from the log; looking takes no time."""
    clock, store._clock = store._clock, None
    memory: Memory = Workers().run("new", lambda: Keyed(store, Codec(job), job.name).memory)
    store._clock = clock
    return memory


def cold(store: DictStore, job: Job) -> dict[Any, Any]:
    """The states outside memory."""
    codec = Codec(job)
    return {
        codec.read_key(key): codec.read_state(codec.read_cold(data).state)
        for key, data in store.colds.items()
    }


def check(store: DictStore, job: Job, budget: float = math.inf) -> None:
    """Assert what holds of a store between batches, and of the worker's copy of it."""
    head = store.read_head()
    places = [at.place for at in (*head.base, *head.deltas, *head.waiting)]
    assert sorted(places) == sorted(store.log), "nothing is left behind, nothing is missing"
    assert head.cold == len(store.colds)
    memory = hot(store, job)
    memory.check()
    assert memory.used <= budget
    assert not memory.states.keys() & cold(store, job).keys(), "a key has one place"
    copy = keyed._copies.get((head.id, job.name))
    if copy is not None and copy.mark == head.mark:
        copy.check()
        assert copy.states == memory.states
        assert list(copy.counts.items()) == list(memory.counts.items())
        assert copy.sizes == memory.sizes


@dataclass
class Told:
    """What came of a batch."""

    results: list[tuple[Any, ...]] = field(default_factory=list)
    shed: list[dict[str, Any]] = field(default_factory=list)
    stats: list[Stats] = field(default_factory=list)
    timers: list[int] = field(default_factory=list)

    def add(self, packed: Iterable[Packed], job: Job) -> None:
        """Unpack what a reducer put out."""
        for one in packed:
            if one.kind == RESULT:
                columns = unpack(one.blob, result_schema(job)).columns[:-2]
                self.results += zip(*(column.to_pylist() for column in columns), strict=True)
            elif one.kind == SHED:
                self.shed += unpack(one.blob, shed_schema(job)).to_pylist()
            elif one.kind == STATS:
                self.stats.append(msgspec.msgpack.decode(one.blob, type=Stats))

    def __iadd__(self, other: Told) -> Told:
        self.results += other.results
        self.shed += other.shed
        self.stats += other.stats
        self.timers += other.timers
        return self


def arrow(rows: Sequence[Row], stamp: float, job: Job) -> pa.RecordBatch:
    """Rows as Spark gives them to the map; times may be None."""

    def at(times: Iterable[float | None]) -> pa.Array:
        micros = [None if t is None else round((EPOCH + t) * MICRO) for t in times]
        return pa.array(micros, TIME)

    time, key, value, arrival = zip(*rows, strict=True) if rows else [()] * 4
    typed = job.map is None
    return pa.RecordBatch.from_arrays(
        [
            at(time),
            pa.array(key, job.key_type if typed else None),
            pa.array(value, job.value_type if typed else None),
            at(arrival),
            pa.array([round(stamp * MICRO)] * len(rows), TIME),
        ],
        ["time", "key", "value", "arrival", "stamp"],
    )


def packed_by(mapper: Mapper, rows: Sequence[Row], stamp: float, pieces: int = 1) -> list[Packed]:
    """What the map packs of rows, in so many Arrow batches."""
    size = max(1, -(-len(rows) // pieces))
    parts = [rows[at : at + size] for at in range(0, len(rows), size)]
    made = mapper.first(arrow(part, stamp, mapper.jobs[0]) for part in parts)
    return [one for batch in made for one in from_columns(c.to_pylist() for c in batch.columns)]


class World:
    """Reducers of one job, the map before them, and the batches of a query.

    Parameters
    ----------
    lead, after
        Seconds from the plan of a batch to its reducers, and from their end until it is out.
    pieces
        Arrow batches that the rows of a batch come in.
    cold_takes, head_takes
        Seconds that each state outside memory takes, read or written, and that a batch takes.
    """

    def __init__(
        self,
        job: Job,
        terms: Terms | None = None,
        *,
        reducers: int = 1,
        clock: Clock | None = None,
        lead: float = 0.01,
        after: float = 0.01,
        pieces: int = 1,
        cold_takes: float = 0.0,
        head_takes: float = 0.0,
    ) -> None:
        self.job = job
        self.terms = Terms() if terms is None else terms
        self.clock = Clock() if clock is None else clock
        self.lead, self.after, self.pieces = lead, after, pieces
        ids = tuple(range(10, 10 + reducers))
        self.mapper = Mapper((job,), ids, keep_bad=self.terms.keep_bad)
        self.stores = {n: DictStore(self.clock, cold_takes, head_takes) for n in ids}
        self.batches = 0
        self.told = Told()
        """Of all batches that are out."""
        self._written: tuple[int, float] | None = None

    @property
    def now(self) -> float:
        """Seconds since it began."""
        return self.clock.now - EPOCH

    @property
    def store(self) -> DictStore:
        """Of the only reducer."""
        (store,) = self.stores.values()
        return store

    def pack(self, rows: Sequence[Row]) -> list[Packed]:
        """What the map makes of rows, planned now."""
        return packed_by(self.mapper, rows, self.clock.now, self.pieces)

    def moment(self, watermark: float | None = None) -> Moment:
        """Where the next batch stands."""
        stamp = round(self.clock.now * MICRO)
        if watermark is None:
            return Moment(self.batches, stamp, written=self._written)
        return Moment(self.batches, stamp, round((EPOCH + watermark) * MICRO), self._written)

    def attempt(self, rows: Sequence[Row] = (), watermark: float | None = None) -> Told:
        """Reduce rows, and close windows; nothing is committed."""
        told, moment, packed = Told(), self.moment(watermark), self.pack(rows)
        told.add((one for one in packed if one.kind != ROWS), self.job)
        self.clock.pass_(self.lead)
        for n, store in self.stores.items():
            reducer = Reducer(self.job, self.terms, n, self.clock)
            mine = [one for one in packed if one.kind == ROWS and one.reducer == n]
            done = [reducer.batch(store, mine, moment)]
            if watermark is not None:
                done.append(reducer.close(store, moment))
            for each in done:
                told.add(each.packed, self.job)
                told.timers += each.timers
        return told

    def batch(self, rows: Sequence[Row] = (), watermark: float | None = None) -> Told:
        """Reduce rows, and close windows; then it is out."""
        told = self.attempt(rows, watermark)
        self.commit(told)
        return told

    def commit(self, told: Told) -> None:
        """What an attempt did is out."""
        self.check()
        for store in self.stores.values():
            store.commit()
        self.clock.pass_(self.after)
        self._written = (self.batches, self.clock.now)
        self.batches += 1
        self.told += told

    def rollback(self) -> None:
        """What an attempt did never was."""
        for store in self.stores.values():
            store.rollback()

    def check(self) -> None:
        """Assert what holds between batches."""
        for store in self.stores.values():
            check(store, self.job, self.terms.budget)

    def states(self) -> dict[Any, Any]:
        """Of all reducers."""
        found: dict[Any, Any] = {}
        for store in self.stores.values():
            mine = states(store, self.job)
            assert not found.keys() & mine.keys(), "a key has one reducer"
            found |= mine
        return found

    def waiting(self) -> list[Any]:
        """The values of the rows that wait."""
        schema = row_schema(self.job)
        return [
            value
            for store in self.stores.values()
            for waiting in store.read_head().waiting
            for value in unpack(store.log[waiting.place], schema).column("value").to_pylist()
        ]

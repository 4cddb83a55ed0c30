"""The states of a reducer's keys: in the worker's memory what comes often, the rest with Spark.

What is in memory is also in the store, as a log: a base, and behind it what each batch changed.
A worker that has an older copy of it reads only what was changed since; one that has none reads
all. Every write has a mark of its own that lies in the store with it, so that a copy which another
attempt made, or another worker, or which belongs to an older batch, is never taken for the state.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from taut.errors import JobError
from taut.policy.deadline import Recent
from taut.spark.reduce.codec import Codec, Cold, Part
from taut.spark.values import cut

_ERA = 32
"""Batches after which what was counted before counts half."""
_ROOM = 0.95
"""Share of the budget that is left in use when keys have to go."""
_OBJECT = 160
"""Bytes that a key and its state take in a worker beside what they hold."""
_PART_BYTES = 2_000_000
_LONGEST_LOG = 64
_LEAST_BASE = 1_000_000
_COPIES = 64
"""Reducers that a worker keeps copies of."""


class Store(Protocol):
    """What Spark keeps for a reducer, committed with the batch."""

    def head(self) -> bytes | None: ...
    def set_head(self, data: bytes) -> None: ...
    def read(self, place: int) -> bytes: ...
    def write(self, place: int, data: bytes) -> None: ...
    def drop(self, place: int) -> None: ...
    def cold(self, key: bytes) -> bytes | None: ...
    def set_cold(self, key: bytes, data: bytes) -> None: ...
    def drop_cold(self, key: bytes) -> None: ...
    def all_cold(self) -> Iterator[tuple[bytes, bytes]]: ...


class Logged(msgspec.Struct, array_like=True, frozen=True):
    """A place in the log: the mark of the state once it is read, and its bytes."""

    place: int
    mark: bytes
    size: int


class Waiting(msgspec.Struct, array_like=True, frozen=True):
    """Rows that are to be worked on later, at a place in the log."""

    place: int
    rows: int
    oldest_us: int
    types: str = ""
    """Of their keys and values, as text."""


class Head(msgspec.Struct):
    """What a reducer knows at the start of a batch; all decisions follow from it and the rows."""

    id: str
    mark: bytes = b""
    places: int = 0
    """Of the log that have ever been used."""
    base: list[Logged] = []
    deltas: list[Logged] = []
    cold: int = 0
    """Keys outside memory."""
    floor: float = 0.0
    """Where memory is full, a key that came no more often than this is not worth it."""
    batches: int = 0
    row_cost: Recent = Recent(5e-6)
    cold_cost: Recent = Recent(150e-6)
    fixed_cost: Recent = Recent(0.02)
    """Seconds of a row, of a state outside memory, and of a batch whatever its rows."""
    close_cost: Recent = Recent(20e-6)
    """Seconds of a state whose window is closed."""
    lead: Recent = Recent(0.2)
    after: Recent = Recent(0.2)
    """Seconds from the plan to the reducer, and from the reducer's end until the batch is out."""
    ended: float = 0.0
    ended_batch: int = -1
    timers: list[int] = []
    closed_us: int = -(2**62)
    waiting: list[Waiting] = []
    reducers: list[int] = []
    """Ids of all that share the keys."""
    keys: str = ""
    """What states are found by."""

    @property
    def era(self) -> int:
        """Grows by one whenever counts are halved."""
        return self.batches // _ERA


_read_head = msgspec.msgpack.Decoder(Head).decode
_encode = msgspec.msgpack.Encoder().encode


class Memory:
    """A worker's copy of what is in memory, as of one mark."""

    __slots__ = ("counts", "era", "mark", "sizes", "states", "used")

    def __init__(self) -> None:
        self.mark = b""
        self.era = 0
        self.states: dict[Any, Any] = {}
        self.counts: dict[Any, float] = {}
        self.sizes: dict[Any, int] = {}
        self.used = 0

    def put(self, key: Any, state: Any, count: float, size: int) -> None:
        """Keep or replace a key."""
        self.used += size - self.sizes.get(key, 0)
        self.states[key] = state
        self.counts[key] = count
        self.sizes[key] = size

    def remove(self, key: Any) -> None:
        """Forget a key, if it is there."""
        if key in self.sizes:
            self.used -= self.sizes.pop(key)
            del self.counts[key]
        self.states.pop(key, None)

    def age(self, era: int) -> None:
        """Let what was counted before count half, once for each era that has passed."""
        if era > self.era:
            share = 0.5 ** (era - self.era)
            self.counts = {key: count * share for key, count in self.counts.items()}
            self.era = era

    def check(self) -> None:
        """Assert the invariants."""
        assert self.states.keys() == self.counts.keys() == self.sizes.keys()
        assert self.used == sum(self.sizes.values())


_copies: OrderedDict[tuple[str, str], Memory] = OrderedDict()
"""Of this worker, by reducer and what kinds of keys and states were read: who takes them for others
reads them from the store, where that is seen. Batches of a worker come one after the other."""


class Keyed:
    """The states of one job at one reducer, during one batch.

    The budget bounds what stays in memory from batch to batch. During a batch come, on top of it,
    the states of the keys outside memory that the batch works on, and what it adds to others.
    """

    def __init__(
        self,
        store: Store,
        codec: Codec,
        job: str,
        budget: float = math.inf,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.cold_seconds = 0.0
        """Spent on states outside memory, in this batch."""
        self._clock = clock
        self._store = store
        self._codec = codec
        self._job = job
        self._budget = budget
        found = store.head()
        self.head = Head(os.urandom(8).hex()) if found is None else _read_head(found)
        self._same_keys()
        self.memory = self._current()
        self._fetched: dict[Any, float] = {}
        """Keys that came out of the store in this batch, and how often they had come."""

    @property
    def states(self) -> dict[Any, Any]:
        """In memory, those fetched included."""
        return self.memory.states

    def is_cold(self, key: Any) -> bool:
        """Whether the state of a key has to be looked for in the store."""
        return self.head.cold > 0 and key not in self.memory.states

    def fetch(self, keys: Iterable[Any]) -> int:
        """Bring states of keys that are not in memory into it, and return how many were sought.

        They are there until :meth:`commit`, whatever the budget.
        """
        sought, begun = 0, self._clock()
        for key in keys:
            if not self.is_cold(key):
                continue
            sought += 1
            data = self._store.cold(self._codec.key(key))
            if data is not None:
                cold = self._codec.read_cold(data)
                self.memory.states[key] = self._codec.read_state(cold.state)
                self._fetched[key] = cold.count * 0.5 ** (self.head.era - cold.era)
        self.cold_seconds += self._clock() - begun
        return sought

    def closing(self, upto_us: int) -> list[tuple[Any, Any]]:
        """Of a job with windows: keys, in and outside memory, whose window has ended by then."""
        due = [(key, state) for key, state in self.memory.states.items() if key[1] <= upto_us]
        if self.head.cold:
            for raw, data in self._store.all_cold():
                key = self._codec.read_key(raw)
                if key[1] <= upto_us and key not in self.memory.states:
                    cold = self._codec.read_cold(data)
                    due.append((key, self._codec.read_state(cold.state)))
                    self._fetched[key] = 0.0
        return due

    def commit(self, changed: Mapping[Any, int], gone: Iterable[Any] = ()) -> None:
        """Write what a batch has changed (keys, and how often each came) or ended.

        None of it counts before :meth:`save`.
        """
        head, memory = self.head, self.memory
        era = head.era
        head.batches += 1
        if head.era > era:
            head.floor *= 0.5
            memory.age(head.era)
        removed = self._remove(gone)
        written = self._change(changed)
        removed += self._make_room(written)
        if written or removed:
            head.mark = memory.mark = os.urandom(8)
            self._log(written, removed)

    def save(self) -> None:
        """Write the head, the last of all."""
        self._store.set_head(_encode(self.head))
        _keep((self.head.id, self._codec.kinds), self.memory)

    def hold(self, data: bytes, rows: int, oldest_us: int, types: str = "") -> None:
        """Put rows by, to be worked on later."""
        self.head.waiting.append(Waiting(self._write(data), rows, oldest_us, types))

    def held(self, waiting: Waiting) -> bytes:
        """Take rows that were put by."""
        data = self._store.read(waiting.place)
        self._store.drop(waiting.place)
        self.head.waiting.remove(waiting)
        return data

    def check(self) -> None:
        """Assert what holds between batches."""
        self.memory.check()
        assert self.memory.used <= self._budget
        assert self.memory.mark == self.head.mark
        head = self.head
        places = [at.place for at in (*head.base, *head.deltas)]
        places += [waiting.place for waiting in head.waiting]
        assert len(set(places)) == len(places)
        assert all(0 <= place < head.places for place in places)

    # -- reading -----------------------------------------------------------------------------

    def _same_keys(self) -> None:
        """Whether states are found by what they were stored by."""
        before, now = self.head.keys, self._codec.keys
        if before not in ("", now):
            raise JobError(
                f"job {self._job!r}: its checkpoint has {before}, and now it is {now}: states "
                "would not be found. Start it with key= and window= as they were, or with a new "
                "checkpoint"
            )
        self.head.keys = now

    def _current(self) -> Memory:
        """What is in memory as of the head, from a copy as far as it goes."""
        head = self.head
        # taken out: if this batch fails halfway, what it did to the copy is gone with it
        copy = _copies.pop((head.id, self._codec.kinds), None)
        if copy is not None and copy.era > head.era:
            copy = None  # an attempt that changed nothing but its age, and was lost
        logged = [*head.base, *head.deltas]
        start = 0
        if copy is not None and copy.mark == head.mark:
            start = len(logged)
        elif copy is not None:
            marks = [at.mark for at in logged[max(0, len(head.base) - 1) :]]
            if copy.mark in marks:
                start = max(0, len(head.base) - 1) + marks.index(copy.mark) + 1
            else:
                copy = None
        memory = Memory() if copy is None else copy
        for at in logged[start:]:
            self._apply(memory, self._codec.read_part(self._store.read(at.place)))
        memory.mark = head.mark
        memory.age(head.era)
        return memory

    def _apply(self, memory: Memory, part: Part) -> None:
        memory.age(part.era)
        for key in part.gone:
            memory.remove(key)
        read = self._codec.read_state
        for key, data, count in zip(part.keys, part.states, part.counts, strict=True):
            memory.put(key, read(data), count, size_of(key, data))

    # -- writing -----------------------------------------------------------------------------

    def _remove(self, gone: Iterable[Any]) -> list[Any]:
        removed = []
        for key in gone:
            if key in self.memory.sizes:
                removed.append(key)
            if key in self._fetched:
                self._drop_cold(key)
            self.memory.remove(key)
        return removed

    def _change(self, changed: Mapping[Any, int]) -> dict[Any, bytes]:
        """Take in what has changed; what is not worth memory goes straight to the store."""
        head, memory, fetched, keep = self.head, self.memory, self._fetched, self._codec.keep
        written: dict[Any, bytes] = {}
        for key, times in changed.items():
            data = keep(key, memory.states)
            size = size_of(key, data)
            if size > self._budget:
                raise JobError(
                    f"job {self._job!r}: the state of key {cut(key)} takes {size} bytes, and "
                    f"memory= gives a reducer {self._budget:.0f}: give it more, or keep less"
                )
            before = memory.sizes.get(key)
            if before is not None:
                written[key] = data
                memory.used += size - before
                memory.sizes[key] = size
                memory.counts[key] += times
                continue
            count = fetched.get(key, 0.0) + times
            full = memory.used + size > _ROOM * self._budget
            if full and head.cold and count <= head.floor:
                self._set_cold(key, data, count)
                memory.remove(key)
                continue
            if key in fetched:
                self._drop_cold(key)
            memory.put(key, memory.states[key], count, size)
            written[key] = data
        # fetched and then not changed: still in the store as they were
        for key in self._fetched.keys() - changed.keys():
            memory.states.pop(key, None)
        self._fetched.clear()
        return written

    def _make_room(self, written: dict[Any, bytes]) -> list[Any]:
        """Move the keys that come least often out of memory; those that were in the log."""
        memory = self.memory
        if memory.used <= self._budget:
            return []
        moved = []
        for key in sorted(memory.counts, key=memory.counts.__getitem__):
            if memory.used <= _ROOM * self._budget:
                break
            data = written.pop(key, None)
            if data is None:
                data = self._codec.stored(memory.states[key])
            moved.append(key)
            self.head.floor = memory.counts[key]
            self._set_cold(key, data, memory.counts[key])
            memory.remove(key)
        return moved

    def _set_cold(self, key: Any, data: bytes, count: float) -> None:
        begun = self._clock()
        if key not in self._fetched:
            self.head.cold += 1
        cold = Cold(data, count, self.head.era)
        self._store.set_cold(self._codec.key(key), self._codec.cold(cold))
        self.cold_seconds += self._clock() - begun

    def _drop_cold(self, key: Any) -> None:
        begun = self._clock()
        self._store.drop_cold(self._codec.key(key))
        self.cold_seconds += self._clock() - begun
        self.head.cold -= 1
        del self._fetched[key]

    def _log(self, written: Mapping[Any, bytes], removed: list[Any]) -> None:
        head = self.head
        counts = [self.memory.counts[key] for key in written]
        part = Part([*written], [*written.values()], counts, removed, head.era)
        data = self._codec.part(part)
        grown = sum(at.size for at in head.deltas) + len(data)
        most = max(_LEAST_BASE, sum(at.size for at in head.base))
        if grown > most or len(head.deltas) >= _LONGEST_LOG:
            self._rewrite()
        else:
            head.deltas.append(Logged(self._write(data), head.mark, len(data)))

    def _rewrite(self) -> None:
        """A base of all that is in memory, in the place of base and changes."""
        head = self.head
        for at in (*head.base, *head.deltas):
            self._store.drop(at.place)
        head.base, head.deltas = [], []
        for part in self._parts():
            data = self._codec.part(part)
            head.base.append(Logged(self._write(data), head.mark, len(data)))

    def _parts(self) -> Iterator[Part]:
        part, size = Part([], [], [], [], self.head.era), 0
        # in the order of counts: of keys that came as often, the same go first in every worker
        for key, count in self.memory.counts.items():
            data = self._codec.stored(self.memory.states[key])
            part.keys.append(key)
            part.states.append(data)
            part.counts.append(count)
            size += len(data)
            if size > _PART_BYTES:
                yield part
                part, size = Part([], [], [], [], self.head.era), 0
        yield part

    def _write(self, data: bytes) -> int:
        place = self.head.places
        self._store.write(place, data)
        self.head.places += 1
        return place


def size_of(key: Any, data: bytes) -> int:
    """Bytes that a key and its state count for against the budget."""
    size = sys.getsizeof(key) + len(data) + _OBJECT
    if type(key) is tuple:  # of a job with windows
        size += sum(map(sys.getsizeof, key))
    return size


def _keep(name: tuple[str, str], memory: Memory) -> None:
    _copies[name] = memory
    while len(_copies) > _COPIES:
        _copies.popitem(last=False)


def forget() -> None:
    """Drop all copies of this worker, as one that has just begun."""
    _copies.clear()

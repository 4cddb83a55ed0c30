"""The distributor: the one place per query that hands chunks to lanes.

Plain state and no I/O: requests and the time come in, replies come out. A server runs it for
Spark's lanes, a simulated network in the tests. What holds for every batch:

- a chunk belongs to the lane whose report of it came first; any other that finished it is told
  to discard (D1, D3);
- a newer attempt of a lane emits again exactly what belongs to the lane (D2); older ones are
  refused;
- what a lane that fell silent had open is handed out again (D4);
- everything is kept until the batch is committed, then forgotten.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from taut.policy.chunking import Chunking
from taut.policy.sharing import Range, Sharing
from taut.spark.source.protocol import (
    Answer,
    Beat,
    Chunk,
    Join,
    Joined,
    Refused,
    Reply,
    Report,
    Request,
)

_NOBODY: frozenset[tuple[int, int]] = frozenset()
_ANSWERS_KEPT = 2
"""Last answers of a lane, for a report that comes again; a lane has one open at a time."""


@dataclass(slots=True)
class _Lane:
    attempt: int
    executor: str
    seen: float
    finished: list[int] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    answers: dict[int, Answer] = field(default_factory=dict)
    asked: int = 0


@dataclass(slots=True)
class _Work:
    chunk: Chunk
    owner: int | None = None
    holders: frozenset[tuple[int, int]] = _NOBODY


class Batch:
    """One batch: what is to take, who has what, and who has finished what."""

    def __init__(
        self, sharing: Sharing, chunking: Chunking, *, silence: float, wait: float
    ) -> None:
        self._sharing = sharing
        self._chunking = chunking
        self._silence = silence
        self._wait = wait
        self._lanes: dict[int, _Lane] = {}
        self._chunks: dict[int, _Work] = {}
        self._again: deque[tuple[int, int]] = deque()
        self._unfinished = 0
        self._closed = False
        self._failed: str | None = None
        self.joined: float | None = None
        """When the first lane joined."""

    def add(self, ranges: Sequence[Range]) -> None:
        """More rows to take."""
        assert not self._closed, "a batch takes no rows after it was closed"
        self._sharing.add(ranges)

    def close(self) -> None:
        """All rows of the batch are there."""
        self._closed = True

    def fail(self, why: str) -> None:
        """It cannot be finished: every lane is told so, and Spark ends the query."""
        self._failed = why

    @property
    def for_everyone(self) -> bool:
        """Whether every lane may take every row."""
        return self._sharing.lingers

    @property
    def over(self) -> bool:
        """Whether every row belongs to a finished chunk."""
        return self._closed and self._unfinished == 0 and self._sharing.left == 0

    def join(self, message: Join, now: float) -> Reply:
        """An attempt begins: the newest counts."""
        if self._failed is not None:
            return Refused(self._failed)
        self.joined = now if self.joined is None else self.joined
        lane = self._lanes.get(message.lane)
        if lane is not None and message.attempt < lane.attempt:
            return Refused(f"attempt {lane.attempt} of lane {message.lane} runs")
        self._sharing.join(message.lane, message.executor)
        if lane is None:
            self._lanes[message.lane] = _Lane(message.attempt, message.executor, now)
            return Joined([])
        lane.seen = now
        if message.attempt > lane.attempt:
            self._give_back(message.lane, lane)
            lane.attempt, lane.executor = message.attempt, message.executor
            lane.answers.clear()
            lane.asked = 0
        return Joined([self._chunks[i].chunk for i in lane.finished])

    def report(self, message: Report, now: float) -> Reply:
        """A chunk is finished, the next one is wanted."""
        lane = self._current(message, now)
        if isinstance(lane, Refused):
            return lane
        kept = lane.answers.get(message.asked)
        if kept is not None:
            return kept
        if message.asked < lane.asked:
            return Refused(f"report {message.asked} of lane {message.lane} was answered long ago")
        emit = self._finish(message, lane)
        chunks = self._take(message.lane, lane)
        wait = None if chunks or self._may_end(message.lane) else self._wait
        answer = Answer(emit, chunks, wait)
        lane.answers[message.asked] = answer
        lane.answers.pop(message.asked - _ANSWERS_KEPT, None)
        lane.asked = message.asked + 1
        return answer

    def beat(self, message: Beat, now: float) -> Reply:
        """A lane lives."""
        lane = self._current(message, now)
        return lane if isinstance(lane, Refused) else Joined([])

    def look(self, now: float) -> None:
        """Hand out again what lanes hold that have been silent for too long."""
        for number, lane in self._lanes.items():
            if lane.open and now - lane.seen > self._silence:
                self._give_back(number, lane)

    def waits(self, number: int) -> bool:
        """Whether a lane that asks now would only be told to ask again."""
        if self._failed is not None or self._sharing.left_for(number) or self._may_end(number):
            return False
        return not any(self._sharing.may_take_over(number, of) for _, of in self._again)

    def belongs(self) -> dict[int, list[Chunk]]:
        """The finished chunks by lane."""
        return {
            n: [self._chunks[i].chunk for i in lane.finished] for n, lane in self._lanes.items()
        }

    def check(self) -> None:
        """Assert the invariants."""
        owners = {i: w.owner for i, w in self._chunks.items() if w.owner is not None}
        listed = [(i, n) for n, lane in self._lanes.items() for i in lane.finished]
        assert len(listed) == len(set(listed)) and dict(listed) == owners, "one owner a chunk"
        assert self._unfinished == len(self._chunks) - len(owners)
        held = {i for i, _ in self._again}.union(*(lane.open for lane in self._lanes.values()))
        lost = self._chunks.keys() - owners.keys() - held
        assert not lost, f"chunks {lost} are lost"
        assert all(len(lane.answers) <= _ANSWERS_KEPT for lane in self._lanes.values())

    def _current(self, message: Report | Beat, now: float) -> _Lane | Refused:
        """The lane that a message is from, which lives; only its newest attempt is heard."""
        if self._failed is not None:
            return Refused(self._failed)
        lane = self._lanes.get(message.lane)
        if lane is None or message.attempt != lane.attempt:
            return Refused(
                f"attempt {message.attempt} of lane {message.lane} is not the current one"
            )
        lane.seen = now
        return lane

    def _finish(self, message: Report, lane: _Lane) -> tuple[int, ...]:
        """The finished chunks that count: the first lane to finish one owns it."""
        owned: list[int] = []
        size = 0
        for id_ in message.done:
            lane.open.discard(id_)
            work = self._chunks.get(id_)
            if work is None:
                continue
            size += work.chunk.end - work.chunk.start
            if (message.lane, message.attempt) in work.holders:
                work.owner = message.lane
                work.holders = _NOBODY  # who finishes it too is told to discard
                owned.append(id_)
        lane.finished += owned
        self._unfinished -= len(owned)
        if owned:
            self._chunking.observe(size, message.seconds)
        return tuple(owned)

    def _take(self, number: int, lane: _Lane) -> tuple[Chunk, ...]:
        """The lane's next chunks: one, or as many as are too short to ask for one by one."""
        first = self._next(number, lane)
        if first is None:
            return ()
        chunks = [first]
        for _ in range(self._sharing.together(number) - 1):
            more = self._next(number, lane)
            if more is None:
                break
            chunks.append(more)
        return tuple(chunks)

    def _next(self, number: int, lane: _Lane) -> Chunk | None:
        found = self._left_over(number)
        if found is None:
            cut = self._sharing.take(number)
            if cut is None:
                return None
            found = _Work(Chunk(len(self._chunks), cut.partition, cut.start, cut.end))
            self._chunks[found.chunk.id] = found
            self._unfinished += 1
        found.holders |= {(number, lane.attempt)}
        lane.open.add(found.chunk.id)
        return found.chunk

    def _left_over(self, number: int) -> _Work | None:
        """A chunk that another attempt or lane has left open, if this lane may take it."""
        for _ in range(len(self._again)):
            id_, of = self._again.popleft()
            work = self._chunks[id_]
            if work.owner is not None:
                continue
            if self._sharing.may_take_over(number, of):
                return work
            self._again.append((id_, of))
        return None

    def _may_end(self, number: int) -> bool:
        if not self._closed:
            return False
        if not self._sharing.lingers:
            return all(of != number for _, of in self._again)
        return self.over

    def _give_back(self, number: int, lane: _Lane) -> None:
        for id_ in sorted(lane.open):
            if self._chunks[id_].owner is None and not self._held_elsewhere(id_, number):
                self._again.append((id_, number))
        lane.open.clear()

    def _held_elsewhere(self, id_: int, number: int) -> bool:
        return any(id_ in lane.open for n, lane in self._lanes.items() if n != number)


class Distributor:
    """All batches of a query that are planned and not committed."""

    def __init__(self) -> None:
        self._batches: dict[str, Batch] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)

    def open(self, key: str, batch: Batch) -> Batch:
        """Begin a batch; one that is planned again with the same key goes on where it was."""
        return self._batches.setdefault(key, batch)

    def get(self, key: str) -> Batch | None:
        """A batch that is not committed."""
        return self._batches.get(key)

    def forget(self, *keys: str) -> None:
        """These batches are committed: nobody will ask for them again."""
        for key in keys:
            self._batches.pop(key, None)

    def answer(self, message: Request, now: float) -> Reply:
        """The reply to a lane."""
        batch = self._batches.get(message.batch)
        if batch is None:
            return Refused(f"batch {message.batch!r} is over")
        if isinstance(message, Report):
            return batch.report(message, now)
        if isinstance(message, Join):
            return batch.join(message, now)
        return batch.beat(message, now)

    def look(self, now: float) -> None:
        """Look after lanes that have fallen silent."""
        for batch in self._batches.values():
            batch.look(now)

"""One batch that is dealt out: which lane has which chunk, and whose rows count.

Plain state and no I/O: requests and the time come in, replies come out. A server runs it for
Spark's lanes, a simulated network in the tests. What holds for every batch:

- a chunk belongs to the lane whose report of it came first; any other that finished it is told
  to discard (D1, D3);
- a newer attempt of a lane emits again exactly what belongs to the lane (D2); older ones are
  refused;
- what a lane that fell silent had open is handed out again (D4);
- a chunk that is past its timeout is issued once more, to a lane that has nothing else to do, on
  another executor if one is idle there; rows that still wait for its lane go to others outright;
- everything is kept until the batch is committed, then forgotten.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from taut.policy.chunking import Chunking
from taut.policy.sharing import Range, Sharing
from taut.policy.timeout import NoReplay, Replay
from taut.spark.source.protocol import (
    Answer,
    Beat,
    Chunk,
    Heard,
    Join,
    Joined,
    Refused,
    Reply,
    Report,
)
from taut.spark.source.tally import LaneTally, Tally

_NOBODY: frozenset[tuple[int, int]] = frozenset()
_PATIENCE = 1.0
"""Seconds overdue after which a lane near the holder takes a chunk though a far one is idle."""
_LONGEST_PULSE = 1.0
"""Seconds that a pulse waits for news at most: its thread outlives the lane by as much."""
_ANSWERS_KEPT = 2
"""Last answers of a lane, for a report that comes again; a lane has one open at a time."""


@dataclass(slots=True)
class _Lane:
    attempt: int
    executor: str
    seen: float
    tally: LaneTally
    since: float = 0.0  # when it was given what it has open
    idle: bool = False
    finished: list[int] = field(default_factory=list)
    open: set[int] = field(default_factory=set)
    given_back: set[int] = field(default_factory=set)
    answers: dict[int, Answer] = field(default_factory=dict)
    asked: int = 0


@dataclass(slots=True)
class _Work:
    chunk: Chunk
    owner: int | None = None
    holders: frozenset[tuple[int, int]] = _NOBODY
    issued: float = 0.0
    overdue: float = 0.0
    twice: bool = False
    taken_over: bool = False

    @property
    def size(self) -> int:
        return self.chunk.end - self.chunk.start


class Batch:
    """One batch: what is to take, who has what, and who has finished what."""

    def __init__(
        self,
        sharing: Sharing,
        chunking: Chunking,
        *,
        silence: float,
        wait: float,
        replay: Replay | None = None,
        tally: Tally | None = None,
    ) -> None:
        self._sharing = sharing
        self._chunking = chunking
        self._replay = NoReplay() if replay is None else replay
        self._replays = not isinstance(self._replay, NoReplay)
        self._due: list[tuple[float, int]] = []
        self._undated: list[int] = []  # issued before there was a timeout
        self._overdue: deque[int] = deque()
        self._rang = False
        self._late: set[int] = set()  # lanes whose chunk is overdue
        self._silent: set[int] = set()
        self._losers: list[int] = []
        self._silence = silence
        self._wait = wait
        self._tally = Tally() if tally is None else tally
        self._lanes: dict[int, _Lane] = {}
        self._chunks: dict[int, _Work] = {}
        self._again: deque[tuple[int, int]] = deque()
        self._unfinished = 0
        self._closed = False
        self._failed: str | None = None
        self.joined: float | None = None
        """When the first lane joined."""
        self.issued = self.replayed = 0
        """Offsets handed out, and those of them that were handed out once more: what it costs."""
        self.waiting: dict[str, int] = {}
        """Offsets by partition that nobody has had."""

    def add(self, ranges: Sequence[Range], now: float = 0.0) -> None:
        """More rows to take."""
        assert not self._closed, "a batch takes no rows after it was closed"
        self._sharing.add(ranges, now)
        for each in ranges:
            self.waiting[each.partition] = self.waiting.get(each.partition, 0) + each.size

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
        if lane is None or message.attempt > lane.attempt:
            # not when it comes twice: the lane may have ended meanwhile
            self._sharing.join(message.lane, message.executor)
        if lane is None:
            tally = self._tally.lane(message.lane, message.executor)
            self._lanes[message.lane] = _Lane(message.attempt, message.executor, now, tally)
            return Joined([])
        lane.seen = now
        if message.attempt > lane.attempt:
            self._give_back(message.lane, lane)
            lane.attempt, lane.executor = message.attempt, message.executor
            self._tally.lane(message.lane, message.executor)
            lane.answers.clear()
            lane.given_back.clear()
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
        emit = self._finish(message, lane, now)
        chunks = self._take(message.lane, lane, now)
        wait = None if chunks or self._may_end(message.lane) else self._wait
        if not chunks and wait is None:
            self._sharing.ended(message.lane)
        answer = Answer(emit, chunks, wait)
        lane.answers[message.asked] = answer
        lane.answers.pop(message.asked - _ANSWERS_KEPT, None)
        lane.asked = message.asked + 1
        return answer

    def beat(self, message: Beat, now: float) -> Reply:
        """A lane lives; it hears which of the chunks it works on are not worth it any more."""
        lane = self._current(message, now)
        return lane if isinstance(lane, Refused) else Heard(tuple(self._lost(lane)))

    def news(self, message: Beat) -> bool:
        """Whether a lane would hear something new, or must hear that it is refused."""
        lane = self._lanes.get(message.lane)
        if not self._replays or lane is None or lane.attempt != message.attempt:
            return True
        return bool({*self._lost(lane)} - {*message.known})

    @property
    def open_since(self) -> dict[int, float]:
        """Since when lanes have had what they have open, of those that have."""
        held = ((n, lane) for n, lane in self._lanes.items() if lane.open or lane.given_back)
        return {n: lane.since for n, lane in held}

    @property
    def losers(self) -> list[int]:
        """Lanes that work on what another has finished, each told once."""
        told, self._losers = self._losers, []
        return told

    @property
    def patience(self) -> float:
        """Seconds that a lane's pulse may be kept waiting for news."""
        return min(self._silence / 4.0, _LONGEST_PULSE)

    def look(self, now: float) -> None:
        """Hand out again what lanes hold that have been silent for too long."""
        silent = [n for n, lane in self._lanes.items() if now - lane.seen > self._silence]
        for number in silent:
            lane = self._lanes[number]
            lane.idle = False
            lane.given_back |= lane.open
            self._give_back(number, lane)
        self._silent = set(silent)
        self._sharing.look(now, silent)
        self._replay.adjust(now)
        self._date()

    def _date(self) -> None:
        """Once there is a timeout, it is for those chunks as well that were issued before."""
        timeout = self._replay.timeout
        open_ = [id_ for id_ in self._undated if self._chunks[id_].owner is None]
        self._undated = open_ if timeout is None else []
        for work in (self._chunks[id_] for id_ in open_ if timeout is not None):
            assert timeout is not None
            heapq.heappush(self._due, (work.issued + timeout * work.size, work.chunk.id))

    @property
    def alarm(self) -> float | None:
        """When the next chunk is overdue, unless it is finished by then."""
        return self._due[0][0] if self._due else None

    def ring(self, now: float) -> int:
        """How many chunks are overdue since the last time."""
        overdue = len(self._overdue)
        while self._due and self._due[0][0] <= now:
            due, id_ = heapq.heappop(self._due)
            work = self._chunks[id_]
            if work.owner is None and not work.twice:
                work.twice = True
                work.overdue = due
                self._overdue.append(id_)
                if not self._replay.eager:
                    self._late |= {number for number, _ in work.holders}
        fresh = len(self._overdue) - overdue
        self._rang = self._rang or fresh > 0
        return fresh

    @property
    def rang(self) -> bool:
        """Whether chunks are overdue of which those that wait have not been told; told once."""
        told, self._rang = self._rang, False
        return told

    def waits(self, number: int, now: float) -> bool:
        """Whether a lane that asks now would only be told to ask again."""
        lane = self._lanes.get(number)
        if self._failed is not None or lane is None:
            return False
        self.ring(now)
        lane.idle = not (
            self._sharing.left_for(number)
            or self._may_end(number)
            or any(self._may_take_over(number, of) for _, of in self._again)
            or self._second(number, lane, now) is not None
            or self._relieved(number) is not None
        )
        return lane.idle

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
        assert sum(self.waiting.values()) == self._sharing.left
        self._tally.check()

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
        self._silent.discard(message.lane)
        return lane

    def _lost(self, lane: _Lane) -> Iterator[int]:
        """The chunks that a lane works on and another one has finished."""
        held = lane.open | lane.given_back
        return (id_ for id_ in held if self._chunks[id_].owner is not None)

    def _finish(self, message: Report, lane: _Lane, now: float) -> tuple[int, ...]:
        """The finished chunks that count: the first lane to finish one owns it."""
        self._late.discard(message.lane)
        owned: list[int] = []
        size = 0
        for id_ in message.done:
            lane.open.discard(id_)
            lane.given_back.discard(id_)
            work = self._chunks.get(id_)
            if work is None:
                continue
            if (message.lane, message.attempt) in work.holders:
                work.owner = message.lane
                size += work.size
                if len(work.holders) > 1:
                    self._losers += [n for n, _ in work.holders if n != message.lane]
                work.holders = _NOBODY  # who finishes it too is told to discard
                owned.append(id_)
                if not work.taken_over:
                    self._replay.observe(work.size, now - work.issued, now)
                chunk = work.chunk
                self._sharing.finished(Range(chunk.partition, chunk.start, chunk.end), now)
        lane.finished += owned
        self._unfinished -= len(owned)
        if owned:
            self._chunking.observe(size, message.seconds)
        tally = lane.tally
        tally.rows += size
        tally.chunks += len(owned)
        tally.busy += message.seconds
        if self._tally.wanted:
            self._note(message, lane.since, owned, now)
        return tuple(owned)

    def _note(self, message: Report, since: float, owned: list[int], now: float) -> None:
        """Note the chunks of a report one by one, for those who watch."""
        for id_ in message.done:
            work = self._chunks.get(id_)
            if work is not None and self._tally.picks():
                self._tally.note(
                    message.lane, id_, work.size, since, now, work.issued < since, id_ in owned
                )

    def _take(self, number: int, lane: _Lane, now: float) -> tuple[Chunk, ...]:
        """The lane's next chunks: one, or as many as are too short to ask for one by one."""
        lane.idle = False
        self.ring(now)
        first = self._next(number, lane, now)
        if first is None:
            return ()
        lane.since = now
        chunks = [first]
        for _ in range(self._sharing.together(number) - 1):
            more = self._next(number, lane, now)
            if more is None:
                break
            chunks.append(more)
        return tuple(chunks)

    def _next(self, number: int, lane: _Lane, now: float) -> Chunk | None:
        """What others have lost, the lane's own, then what others are too long about."""
        found = self._left_over(number)
        if found is None and self._replay.eager:
            found = self._again_by(number, lane, now)
        if found is None:
            found = self._fresh(self._sharing.take(number))
        if found is None:
            found = self._again_by(number, lane, now)
        if found is None and (late := self._relieved(number)) is not None:
            found = self._fresh(self._sharing.relieve(late))
        if found is None:
            return None
        if not found.holders:
            found.issued = now
            self._set_due(found, now)
        found.holders |= {(number, lane.attempt)}
        lane.open.add(found.chunk.id)
        if not found.taken_over:
            self.issued += found.size
        return found.chunk

    def _set_due(self, work: _Work, now: float) -> None:
        due = None if work.twice else self._replay.due(work.size, now)
        if due is not None:
            heapq.heappush(self._due, (due, work.chunk.id))
        elif self._replays and not self._replay.eager and not work.twice:
            self._undated.append(work.chunk.id)

    def _fresh(self, cut: Range | None) -> _Work | None:
        """A chunk of rows that nobody has had."""
        if cut is None:
            return None
        work = _Work(Chunk(len(self._chunks), cut.partition, cut.start, cut.end))
        self._chunks[work.chunk.id] = work
        self.waiting[cut.partition] -= cut.end - cut.start
        self._unfinished += 1
        return work

    def _left_over(self, number: int) -> _Work | None:
        """A chunk that another attempt or lane has left open, if this lane may take it."""
        for _ in range(len(self._again)):
            id_, of = self._again.popleft()
            work = self._chunks[id_]
            if work.owner is not None or self._held_elsewhere(id_, of):
                continue
            if self._may_take_over(number, of):
                work.twice = work.taken_over = True
                if id_ in self._overdue:
                    self._overdue.remove(id_)
                return work
            self._again.append((id_, of))
        return None

    def _again_by(self, number: int, lane: _Lane, now: float) -> _Work | None:
        """An overdue chunk, issued once more to this lane."""
        id_ = self._second(number, lane, now)
        if id_ is None:
            return None
        self._overdue.remove(id_)
        work = self._chunks[id_]
        self.replayed += work.size
        lane.tally.replays += 1
        return work

    def _second(self, number: int, lane: _Lane, now: float) -> int | None:
        """The overdue chunk that this lane should take, if there is one."""
        while self._overdue and self._chunks[self._overdue[0]].owner is not None:
            self._overdue.popleft()
        for id_ in self._overdue:
            work = self._chunks[id_]
            holders = {n for n, _ in work.holders}
            free = work.owner is None and holders and number not in holders
            if free and self._better(holders, lane, now - work.overdue):
                return id_
        return None

    def _better(self, holders: set[int], lane: _Lane, late: float) -> bool:
        """Whether no idle lane is further from who holds a chunk than this one is."""
        held_at = {self._lanes[n].executor for n in holders}
        if lane.executor not in held_at or late > _PATIENCE:
            return True
        return not any(o.idle and o.executor not in held_at for o in self._lanes.values())

    def _relieved(self, number: int) -> int | None:
        """A lane that is late and has rows waiting, if this one is to help."""
        if not self._replays:
            return None
        late = [n for n in self._late | self._silent if n != number and self._sharing.waiting_at(n)]
        return max(late, key=self._sharing.waiting_at, default=None)

    def _may_take_over(self, number: int, of: int) -> bool:
        return self._helps or self._sharing.may_take_over(number, of)

    @property
    def _helps(self) -> bool:
        """Whether lanes stay until all is done: not before all have their places."""
        return self._replays and len(self._lanes) == self._sharing.lanes

    def _may_end(self, number: int) -> bool:
        if not self._closed:
            return False
        if self._helps or self._sharing.lingers:
            return self.over
        return all(of != number for _, of in self._again)

    def _give_back(self, number: int, lane: _Lane) -> None:
        for id_ in sorted(lane.open):
            if self._chunks[id_].owner is None and not self._held_elsewhere(id_, number):
                self._again.append((id_, number))
        lane.open.clear()

    def _held_elsewhere(self, id_: int, number: int) -> bool:
        return any(id_ in lane.open for n, lane in self._lanes.items() if n != number)

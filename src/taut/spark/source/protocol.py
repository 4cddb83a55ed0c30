"""What lanes and the distributor say to each other, and the script that a lane follows.

A lane asks, the distributor answers; nothing is ever sent unasked. Every message names its batch,
lane and attempt, and may come twice: a connection that breaks before an answer came is opened anew
and the same message sent again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

import msgspec


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A small range of the log, the unit of dispatch."""

    id: int
    partition: str
    start: int
    end: int


class Join(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """An attempt of a lane begins."""

    batch: str
    lane: int
    attempt: int
    executor: str


class Report(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A lane has finished chunks (or none yet), in so many seconds, and asks for more.

    ``asked`` counts the reports of this attempt: one that comes twice gets the same answer.
    """

    batch: str
    lane: int
    attempt: int
    asked: int
    done: tuple[int, ...] = ()
    seconds: float = 0.0


class Beat(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A lane lives, though it has nothing to say; it may be answered when there is news for it.

    ``known`` are the chunks of which it has heard that another lane has finished them.
    """

    batch: str
    lane: int
    attempt: int
    known: tuple[int, ...] = ()


class Joined(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Go on; first emit again what an earlier attempt of this lane had finished."""

    redo: list[Chunk]


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Which of the finished chunks count, and what to do next.

    Without ``chunks`` the lane asks again after ``wait`` seconds, or ends if that is None.
    """

    emit: tuple[int, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    wait: float | None = None


class Heard(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """It is known that the lane lives; these chunks of its own another lane has finished."""

    lost: tuple[int, ...] = ()


class Refused(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """No: the batch is over, or a newer attempt of the lane runs. The lane must end."""

    reason: str


Request = Join | Report | Beat
Reply = Joined | Answer | Heard | Refused


@dataclass(frozen=True, slots=True)
class Ask:
    """Send this and give back the reply."""

    message: Join | Report


@dataclass(frozen=True, slots=True)
class Work:
    """Read the chunk and run the operators over it; keep the rows. Give back the seconds taken."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Emit:
    """Hand the rows of a chunk on that were kept."""

    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


class LaneRefused(Exception):
    """The distributor has no use for this attempt: its task must fail, emitting no more."""


Action = Ask | Work | Emit | Pause
Script = Generator[Action, "Reply | float | None", None]


def lane(batch: str, number: int, attempt: int, executor: str) -> Script:
    """What one attempt of a lane does, as actions for whoever runs it.

    A socket and a log run it on Spark, a simulated network in the tests: the same script.
    """
    reply = yield Ask(Join(batch, number, attempt, executor))
    if isinstance(reply, Refused):
        raise LaneRefused(reply.reason)
    assert isinstance(reply, Joined)
    for chunk in reply.redo:
        yield Work(chunk)
        yield Emit(chunk)
    done: tuple[Chunk, ...] = ()
    seconds = 0.0
    asked = 0
    while True:
        ids = tuple(chunk.id for chunk in done)
        answer = yield Ask(Report(batch, number, attempt, asked, ids, seconds))
        asked += 1
        if isinstance(answer, Refused):
            raise LaneRefused(answer.reason)
        assert isinstance(answer, Answer)
        for chunk in done:
            if chunk.id in answer.emit:
                yield Emit(chunk)
        done, seconds = answer.chunks, 0.0
        for chunk in done:
            took = yield Work(chunk)
            seconds += took if isinstance(took, float) else 0.0
        if not done:
            if answer.wait is None:
                return
            yield Pause(answer.wait)

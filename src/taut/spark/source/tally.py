"""What a source tells of its lanes: counted while chunks are dealt out, told about once a second.

Counting is all that the path of a request pays for. Single chunks are noted only while the driver
wants to hear of them, and what is told is bounded, however many lanes, chunks and partitions there
are. Times inside are those of ``time.monotonic``; what is told has seconds since the epoch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from taut.watch.records import Chunk, Lane, Source

MOST_CHUNKS = 256
MOST_LANES = 128
MOST_PARTITIONS = 64
_LONGEST_NAME = 200
"""Characters of a name of a place or partition: files are named by their paths."""
MOST_BYTES = 32_768
"""Of what is told at a time; a source's request may have twice as many, with its shares."""
OTHERS = "others"
"""Stands for the partitions that are not told one by one."""


@dataclass(slots=True)
class LaneTally:
    """What a lane has done in all batches so far, and where it ran last."""

    place: str
    rows: int = 0
    chunks: int = 0
    busy: float = 0.0
    replays: int = 0


class Tally:
    """What all lanes of a query have done, whatever the batch.

    Attributes
    ----------
    wanted
        Whether single chunks are noted; whoever deals out asks before it notes one.
    """

    def __init__(self) -> None:
        self.lanes: dict[int, LaneTally] = {}
        self.wanted = False
        self._chunks: list[Chunk] = []
        self._done = 0
        self._stride = 1

    def lane(self, number: int, place: str) -> LaneTally:
        """The counts of a lane that joins a batch at a place."""
        lane = self.lanes.setdefault(number, LaneTally(place))
        lane.place = place
        return lane

    def picks(self) -> bool:
        """Whether a chunk that is done is noted: of many every second, fourth, eighth... is."""
        self._done += 1
        return self._done % self._stride == 0

    def note(
        self,
        lane: int,
        chunk: int,
        rows: int,
        claimed: float,
        now: float,
        again: bool,
        kept: bool,
    ) -> None:
        """Note a chunk that was picked."""
        self._chunks.append(Chunk(lane, chunk, rows, claimed, now, again, kept))
        if len(self._chunks) > MOST_CHUNKS:
            # those that stay are again evenly spread over the time
            self._chunks = self._chunks[1::2]
            self._stride *= 2

    def take(self) -> tuple[list[Chunk], int]:
        """The chunks noted since the last time, and how many more were done."""
        chunks, left_out = self._chunks, self._done - len(self._chunks)
        self._chunks, self._done, self._stride = [], 0, 1
        return chunks, left_out

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._chunks) == self._done // self._stride <= MOST_CHUNKS
        assert all(chunk.claimed <= chunk.done for chunk in self._chunks[-1:])
        assert all(lane.rows >= lane.chunks >= 0 <= lane.busy for lane in self.lanes.values())


@dataclass(frozen=True, slots=True)
class Standing:
    """How dealing out stands at a moment: copied while no lane is answered, and told later.

    Attributes
    ----------
    lanes, since
        Counts by lane, and since when those have been at a chunk that are.
    waiting
        Rows by partition that are planned and not handed out.
    chunks, left_out
        As :meth:`Tally.take` gives them.
    """

    lanes: Mapping[int, Lane]
    since: Mapping[int, float]
    waiting: Mapping[str, int]
    chunks: Iterable[Chunk] = ()
    left_out: int = 0

    @classmethod
    def of(cls, tally: Tally, since: Mapping[int, float], waiting: Mapping[str, int]) -> Standing:
        """Take what was noted."""
        lanes = {
            n: Lane(n, t.place[-_LONGEST_NAME:], t.rows, t.chunks, t.busy, None, t.replays)
            for n, t in tally.lanes.items()
        }
        return cls(lanes, since, waiting, *tally.take())

    def told(
        self, beyond: Mapping[str, int], now: float, monotonic: float, unit: str = "rows"
    ) -> Source:
        """As a record without a query, small enough to send.

        Parameters
        ----------
        beyond
            Rows by partition that have arrived and are in no batch.
        now, monotonic
            The same moment by both clocks.
        unit
            What an offset counts.
        """
        ahead = now - monotonic
        replace = msgspec.structs.replace
        lanes = [
            replace(lane, open_since=self.since[n] + ahead) if n in self.since else lane
            for n, lane in sorted(self.lanes.items())
        ]
        chunks = [
            replace(chunk, claimed=chunk.claimed + ahead, done=chunk.done + ahead)
            for chunk in self.chunks
        ]
        return fit(
            Source(
                at=now,
                query="",
                backlog=largest(Counter(self.waiting) + Counter(beyond)),
                lanes=tuple(lanes[:MOST_LANES]),
                chunks=tuple(chunks),
                left_out=self.left_out,
                lanes_left_out=max(0, len(lanes) - MOST_LANES),
                unit=unit,
            )
        )


def largest(backlog: Counter[str], most: int = MOST_PARTITIONS) -> dict[str, int]:
    """The partitions in which most rows wait, and how many wait in all others.

    >>> largest(Counter({"a": 1, "b": 7, "c": 2, "d": 0}), most=1)
    {'b': 7, 'others': 3}
    """
    told = {p: rows for p, rows in backlog.most_common(most) if rows and len(p) <= _LONGEST_NAME}
    others = backlog.total() - sum(told.values())
    return told | ({OTHERS: others} if others else {})


def fit(source: Source, most: int = MOST_BYTES) -> Source:
    """Leave out of a record what makes it too large to send: chunks first, then lanes."""
    while len(msgspec.msgpack.encode(source)) > most and (source.chunks or source.lanes):
        chunks, lanes = source.chunks, source.lanes
        if chunks:
            chunks = chunks[1::2]
        else:
            lanes = lanes[: len(lanes) // 2]
        source = msgspec.structs.replace(
            source,
            chunks=chunks,
            left_out=source.left_out + len(source.chunks) - len(chunks),
            lanes=lanes,
            lanes_left_out=source.lanes_left_out + len(source.lanes) - len(lanes),
        )
    return source


def tell(standing: Standing, beyond: Mapping[str, int], unit: str = "rows") -> Source:
    """A record of how it stands now."""
    return standing.told(beyond, time.time(), time.monotonic(), unit)

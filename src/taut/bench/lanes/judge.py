"""From the notes of a run to what became of its tuples. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from taut.bench.lanes.notes import Note


class Written(NamedTuple):
    """An output that a lane wrote: seconds after the load began, and its tuple's latency."""

    lane: int
    machine: int
    at: float
    latency: float


class Judged(NamedTuple):
    """What became of the tuples of the measured time; as in :class:`Run`."""

    latencies: tuple[float, ...]
    duplicates: int
    lost: int
    arrived: int
    extra: int
    queued_s: float | None


def judge(
    written: Iterable[Note],
    worked: Iterable[Note],
    arrivals: Mapping[int, float],
    parts: Callable[[int], Collection[int]] = lambda _: (0,),
) -> Judged:
    """When each tuple was all out, and how often it was worked on and written.

    Parameters
    ----------
    written
        Each output as it was written, in any order.
    worked
        Each time that a lane began with a tuple.
    arrivals
        The tuples that count, by number.
    parts
        The outputs that a tuple should have.

    Examples
    --------
    >>> written = [Note(1, 0, 3, -1, 5.0), Note(1, 0, 4, -1, 4.5)]
    >>> worked = [Note(1, 0, 3, -1, 4.1), Note(1, 0, 4, -1, 4.3)]
    >>> judge(written, worked, {1: 4.0, 2: 4.2})
    Judged(latencies=(0.5,), duplicates=1, lost=1, arrived=2, extra=1, queued_s=0.1)
    """
    due = {n: frozenset(found) for n in arrivals if (found := parts(n))}
    first: dict[tuple[int, int], float] = {}
    count = 0
    for n, part, _, _, at in written:
        if n in arrivals:
            count += 1
            if part in due.get(n, ()):
                first[n, part] = min(at, first.get((n, part), at))
    out = {
        n: max(first[n, part] for part in wanted) - arrivals[n]
        for n, wanted in due.items()
        if all((n, part) in first for part in wanted)
    }
    begun: dict[int, float] = {}
    times = 0
    for n, _, _, _, at in worked:
        if n in arrivals:
            times += 1
            begun[n] = min(at, begun.get(n, at))
    waits = [at - arrivals[n] for n, at in begun.items()]
    return Judged(
        latencies=tuple(sorted(out.values())),
        duplicates=count - len(first),
        lost=len(due) - len(out),
        arrived=len(arrivals),
        extra=times - len(begun),
        queued_s=round(fmean(waits), 9) if waits else None,
    )


def by_lane(
    written: Iterable[Note], arrivals: Mapping[int, float], start: float
) -> tuple[Written, ...]:
    """What each lane wrote, and how late.

    >>> by_lane([Note(1, 0, 3, 0, 5.0)], {1: 4.5}, start=3.0)
    (Written(lane=3, machine=0, at=2.0, latency=0.5),)
    """
    return tuple(
        Written(note.lane, note.machine, note.at - start, note.at - arrivals[note.n])
        for note in written
        if note.n in arrivals
    )


def pauses(
    ends: Sequence[float], written: Iterable[Note], arrivals: Mapping[int, float]
) -> tuple[float, ...]:
    """How long after each end of a batch the first tuple that arrived since was written.

    >>> written = [Note(1, 0, 0, -1, 10.2), Note(2, 0, 0, -1, 10.5), Note(3, 0, 1, -1, 10.4)]
    >>> pauses([10.0], written, {1: 9.9, 2: 10.1, 3: 10.2})
    (0.4,)
    """
    seen = [(arrivals[note.n], note.at) for note in written if note.n in arrivals]
    firsts = [min((at for came, at in seen if came >= end), default=None) for end in ends]
    return tuple(
        round(first - end, 6) for end, first in zip(ends, firsts, strict=True) if first is not None
    )

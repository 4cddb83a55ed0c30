"""Where the time of a late result went, in figures and in words."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from taut.watch.records import Batch
from taut.watch.results import held_from

PHASES = {
    "held": "held",
    "early": "busy with a batch that had read too early for it",
    "planning": "planning",
    "running": "running",
    "data": "waiting for rows to arrive or a batch to begin",
}
"""What a result can wait for, and how it is called."""


class Cause(msgspec.Struct, frozen=True):
    """Why a result was late.

    Attributes
    ----------
    end, due, out
        Of the window; when it could first be complete; when it was out. For a row of a query
        without windows its arrival is both of the first.
    late_by
        Seconds past the objective.
    seconds
        From due to out, by phase.
    words
        The largest part, for a person to read.
    """

    query: str
    batch: int
    end: float
    due: float
    out: float
    late_by: float
    seconds: dict[str, float]
    words: str

    @property
    def phase(self) -> str:
        """The phase that took longest."""
        return max(self.seconds, key=lambda name: self.seconds[name])


class Span(NamedTuple):
    """A batch: since when it was held, let go, offsets fetched, plan made, rows out."""

    held: float
    begun: float
    planned: float
    run: float
    out: float


class Spans:
    """When a query was worked on, by time.

    ``held_since`` has, by the moment at which a turn was granted, since when it had been waited
    for; before that a query had no rows to read. One that takes no turns is never held.
    """

    def __init__(self, batches: Sequence[Batch], held_since: Mapping[float, float]) -> None:
        self.of: list[Span] = []
        self.takes_turns = bool(held_since)
        last: Batch | None = None
        for batch in batches:
            before = -math.inf if last is None else last.written
            begun = min(max(before, batch.begun), batch.written)
            # a clock that was set back makes no phase negative
            run = min(max(begun, batch.run), batch.written)
            held = held_from(batch, last, held_since.get(batch.granted))
            held = min(max(before, held), begun)
            self.of.append(Span(held, begun, batch.planned, run, batch.written))
            last = batch
        self._out = [span.out for span in self.of]

    def between(self, since: float, until: float) -> list[Span]:
        """Those that were held or at work in a stretch of time. O(log n) and those found."""
        found = []
        for n in range(bisect_right(self._out, since), len(self.of)):
            if self.of[n].held >= until:
                break
            found.append(self.of[n])
        return found

    def overlap(self, since: float, until: float) -> float:
        """Seconds of work in a stretch of time."""
        return sum(
            max(0.0, min(until, span.out) - max(since, span.begun))
            for span in self.between(since, until)
        )


class Inquiry:
    """Finds causes; looks at all queries, since a query is held while others run."""

    def __init__(self, spans: Mapping[str, Spans]) -> None:
        self._spans = spans
        self._usual = {
            name: {
                "planning": median([span.run - span.begun for span in them.of]),
                "running": median([span.out - span.run for span in them.of]),
            }
            for name, them in spans.items()
            if them.of
        }

    def why(self, query: str, batch: Batch, end: float, due: float, limit: float) -> Cause:
        """Why what was due then, and on time until the limit, was late with this batch."""
        out = batch.written
        seconds = dict.fromkeys(PHASES, 0.0)
        held: list[tuple[float, float]] = []
        at = due
        for each in self._spans[query].between(due, out):
            if each.held > at:
                seconds["data"] += each.held - at
                at = each.held
            if each.begun > at:
                held.append((at, each.begun))
                seconds["held"] += each.begun - at
                at = each.begun
            if each.planned < due and each.out < out:
                seconds["early"] += max(0.0, each.out - at)
            else:
                seconds["planning"] += max(0.0, each.run - at)
                seconds["running"] += max(0.0, each.out - max(each.run, at))
            at = max(at, each.out)
        words = self._words(query, out, out - limit, seconds, held, due)
        return Cause(query, batch.batch, end, due, out, out - limit, seconds, words)

    def _words(
        self,
        query: str,
        out: float,
        late_by: float,
        seconds: Mapping[str, float],
        held: Sequence[tuple[float, float]],
        due: float,
    ) -> str:
        phase = max(seconds, key=lambda name: seconds[name])
        took = seconds[phase]
        said = f"late by {span(late_by)}: "
        if phase == "held":
            others = self._others(query, held)
            if not others:
                return said + f"held {span(took)} although nothing else ran"
            return said + f"held {span(took)} while {_names(others)} ran"
        if phase == "data" and self._spans[query].takes_turns:
            return said + f"no rows came for {span(took)}"
        if phase == "data":
            # its batches begin when they like: with a trigger, long after rows have come
            return said + f"no batch of it began for {span(took)}"
        if phase == "early":
            return (
                said + f"still busy for {span(took)} with a batch that had read before it was due"
            )
        beside = self._others(query, [(due, out)])
        with_whom = f", beside {_names(beside)}" if beside else ""
        usual = self._usual[query][phase]
        what = "planning took" if phase == "planning" else "its batches ran"
        return said + f"{what} {span(took)} (one usually {span(usual)}){with_whom}"

    def _others(self, query: str, stretches: Sequence[tuple[float, float]]) -> list[str]:
        """Who ran meanwhile for a part worth telling, those that ran longest first."""
        whole = sum(until - since for since, until in stretches)
        ran = {
            name: sum(spans.overlap(*stretch) for stretch in stretches)
            for name, spans in self._spans.items()
            if name != query
        }
        told = [name for name, took in ran.items() if took >= 0.1 * whole and took > 0.0]
        return sorted(told, key=lambda name: -ran[name])


def span(seconds: float) -> str:
    """A duration for a sentence.

    >>> span(0.0421), span(1.26), span(75.0)
    ('42 ms', '1.3 s', '75 s')
    """
    if abs(seconds) < 0.0995:
        return f"{1000.0 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if abs(seconds) < 59.5 else f"{seconds:.0f} s"


def _names(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{names[0]}, {names[1]} and {len(names) - 2} others"
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]}"

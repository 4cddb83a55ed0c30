"""Where the time of a late result went, in figures and in words."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

import msgspec

from taut.watch.records import Batch

PHASES = {
    "held": "held",
    "early": "busy with a batch that had read too early for it",
    "planning": "planning",
    "running": "running",
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


class Spans:
    """When a query was worked on: (since, planned, run, written) of its batches, by time."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.of = [
            (
                max(before, batch.begun),
                batch.planned,
                max(before, batch.begun, batch.run),
                batch.written,
            )
            for before, batch in zip(
                [float("-inf"), *(b.written for b in batches)], batches, strict=False
            )
        ]
        self._written = [span[3] for span in self.of]

    def between(self, since: float, until: float) -> list[tuple[float, float, float, float]]:
        """The batches that were at work in a stretch of time. O(log n) and those found."""
        first = bisect_right(self._written, since)
        found = []
        for span in self.of[first:]:
            if span[0] >= until:
                break
            found.append(span)
        return found

    def overlap(self, since: float, until: float) -> float:
        """Seconds of work in a stretch of time."""
        return sum(
            max(0.0, min(until, out) - max(since, begun))
            for begun, _, _, out in self.between(since, until)
        )


class Inquiry:
    """Finds causes; looks at all queries, since a query is held while others run."""

    def __init__(self, batches: Mapping[str, Sequence[Batch]]) -> None:
        self._spans = {name: Spans(them) for name, them in batches.items()}
        self._usual = {
            name: {
                "planning": median([run - begun for begun, _, run, _ in spans.of]),
                "running": median([out - run for _, _, run, out in spans.of]),
            }
            for name, spans in self._spans.items()
            if spans.of
        }

    def why(self, batch: Batch, end: float, due: float, limit: float) -> Cause:
        """Why what was due then, and on time until the limit, was late with this batch."""
        out = batch.written
        spans = self._spans[batch.query].between(due, out)
        seconds = dict.fromkeys(PHASES, 0.0)
        held: list[tuple[float, float]] = []
        at = due
        for begun, planned, run, written in spans:
            if begun > at:
                held.append((at, begun))
                seconds["held"] += begun - at
            since = max(at, begun)
            if planned < due and written < out:
                seconds["early"] += max(0.0, written - since)
            else:
                seconds["planning"] += max(0.0, run - since)
                seconds["running"] += max(0.0, written - max(run, since))
            at = max(at, written)
        words = self._words(batch, out - limit, seconds, held, due)
        return Cause(batch.query, batch.batch, end, due, out, out - limit, seconds, words)

    def _words(
        self,
        batch: Batch,
        late_by: float,
        seconds: Mapping[str, float],
        held: Sequence[tuple[float, float]],
        due: float,
    ) -> str:
        phase = max(seconds, key=lambda name: seconds[name])
        took = seconds[phase]
        said = f"late by {span(late_by)}: "
        if phase == "held":
            others = self._others(batch.query, held)
            if not others:
                return said + f"held {span(took)} although nothing else ran"
            return said + f"held {span(took)} while {_names(others)} ran"
        if phase == "early":
            return (
                said + f"still busy for {span(took)} with a batch that had read before it was due"
            )
        beside = self._others(batch.query, [(due, batch.written)])
        with_whom = f", beside {_names(beside)}" if beside else ""
        usual = self._usual[batch.query][phase]
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


def gaps(batches: Sequence[Batch]) -> list[tuple[float, float]]:
    """Stretches between batches, in which a query was held or had nothing to do."""
    spans = Spans(batches).of
    return [(a[3], b[0]) for a, b in pairwise(spans) if b[0] > a[3]]

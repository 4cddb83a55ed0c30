"""Queries that take turns, followed batch by batch: who waits for whom, and for how long.

The order is that of :class:`taut.policy.intervals.Intervals`: a batch is due at its query's
rhythm, and of those that are due the first has the first turn that is free.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.planning.latency import InTurns, Work, shuffled
from taut.policy.intervals import Rhythm

_WARM_UP = 0.05
_BATCHES, _WINDOWS = 256, 96
"""Of the query with the longest of both, unless all together would be more than is bearable."""
_LEAST, _MOST = 24, 16_000
_DRAWS = 512
_DIGITS = 1e-9


@dataclass(slots=True)
class Follower:
    """One of the queries, and what was seen of its batches.

    ``draws``: what they take, as multiples of what they should, again and again.
    """

    work: Work
    rate: float
    rhythm: Rhythm
    draws: list[float]
    before: list[float] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    read: float = 0.0

    @classmethod
    def of(cls, work: Work, rate: float, rhythm: Rhythm, nth: int) -> Follower:
        """``nth``: those of different queries come in different orders."""
        work = work.at(rate).bearing(rate * rhythm.interval)
        draws = np.quantile(work.costs.factors, (np.arange(_DRAWS) + 0.5) / _DRAWS)
        return cls(work, rate, rhythm, shuffled(draws, 1, seed=nth)[0].tolist())

    def batch(self, due: float, start: float) -> float:
        """One that was due then, and has its turn; tells when it ends."""
        gathered = start - self.read
        draw = self.draws[len(self.before) % _DRAWS]
        self.before.append(gathered)
        self.waited.append(start - due)
        self.read = start
        line, rows = self.work.whole, self.rate * gathered
        seconds = line.fixed + line.each * rows + self.work.drain * gathered
        if rows > line.knee:
            seconds += line.beyond * (rows - line.knee)
        return start + seconds * draw

    def seen(self) -> InTurns:
        """Without the first batches."""
        many = len(self.before)
        before, waited = np.array(self.before), np.array(self.waited)
        interval, offset = self.rhythm
        start = np.cumsum(before)
        # on time, and not nearly an interval late
        late = np.mod(start - offset + _DIGITS, interval)
        factors = np.resize(np.array(self.draws), many)
        cut = 2 + round(_WARM_UP * many)
        return InTurns(
            self.work,
            self.rate,
            interval,
            offset,
            before[cut:, None],
            late[cut:, None],
            waited[cut:, None],
            factors[cut:, None],
            start[cut:],
        )


def follow(queries: Sequence[Follower], turns: int) -> list[InTurns]:
    """So many turns, until all have had batches enough."""
    intervals = [query.rhythm.interval for query in queries]
    windows = [found.every for query in queries if (found := query.work.costs.windows)]
    wanted = max(_BATCHES * max(intervals), *(_WINDOWS * every for every in windows), 0.0)
    bearable = _MOST / sum(1.0 / interval for interval in intervals)
    until = max(_LEAST * max(intervals), min(wanted, bearable))
    due = [(query.rhythm.offset, nth) for nth, query in enumerate(queries)]
    free = [0.0] * turns
    heapq.heapify(due)
    while due[0][0] < until:
        at, nth = due[0]
        start = max(at, free[0])
        query = queries[nth]
        end = query.batch(at, start)
        heapq.heapreplace(free, end)
        heapq.heapreplace(due, (max(end, query.rhythm.after(start)), nth))
    return [query.seen() for query in queries]

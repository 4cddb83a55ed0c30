"""What load 1.0 is: the rate that a reducer sustains in arrival order with all state in memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from taut.bench.place import Place
from taut.bench.record import BenchError
from taut.bench.reduce.run import Progress, Spec, Watcher, load, reducing
from taut.spark.reduce.outcome import BatchStats

FILLED = 0.4
"""Of the objective, that a batch takes at load 1.0: its rows wait for one batch and are in the
next, so that the oldest is out after 0.8 of it."""
_SIZES = (20_000, 200_000)
_BATCHES = 10
_CUT = 3
_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Sustained:
    """A batch takes ``fixed + each * rows`` seconds."""

    fixed: float
    each: float

    def rate(self, objective: float) -> int:
        """Rows a second at which batches take :data:`FILLED` of the objective.

        A batch then has the rows that arrived during the last: t = fixed + each * rate * t.

        >>> Sustained(0.5, 10e-6).rate(objective=5.0)
        75000
        """
        batch = FILLED * objective
        if self.fixed >= batch:
            raise BenchError(
                f"a batch takes {self.fixed:.2f} s without any row: an objective of "
                f"{objective:g} s leaves no time for rows; give a longer one with --slo"
            )
        return max(1, round((1.0 - self.fixed / batch) / self.each))


def line(points: Sequence[tuple[int, float]]) -> Sustained:
    """The line through two sizes of batches.

    >>> line([(1_000, 0.4), (11_000, 0.5)])
    Sustained(fixed=0.39, each=1e-05)
    """
    (few, short), (many, long) = points
    each = max(1e-8, (long - short) / (many - few))
    return Sustained(round(max(0.0, short - each * few), 6), round(each, 10))


def sustained(place: Place, spec: Spec, watch: Watcher) -> Sustained:
    """Measure batches of two sizes, each from a backlog that never ends."""
    # what the JVM and the workers do for the first time falls on neither
    _seconds(place, spec, _SIZES[0], watch)
    return line([(size, _seconds(place, spec, size, watch)) for size in _SIZES])


def _seconds(place: Place, spec: Spec, size: int, watch: Watcher) -> float:
    rate = 1_000_000
    rows = load(place, spec, rate, time.time() - 3_600.0, most=size)
    running = reducing(place, spec, rows, "fifo", None, None)
    name = f"batches of {size:,}"
    try:
        limit = time.time() + _WITHIN_S
        batches: list[BatchStats] = []
        while len(batches) < _BATCHES:
            if time.time() > limit:
                raise BenchError(f"{name}: {len(batches)} of {_BATCHES} within {_WITHIN_S:g} s")
            batches = [batch for batch in running.batches() if batch.rows]
            watch(Progress(name, 0, "how long do they take", rows=sum(b.rows for b in batches)))
            time.sleep(0.1)
    finally:
        running.stop()
    written = [batch.written for batch in batches[_CUT:]]
    return median(b - a for a, b in pairwise(written))

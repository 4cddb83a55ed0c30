"""One of several queries on a cluster: its tasks, and the longest interval under its objective."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from taut.planning.latency import InTurns, Work, shuffled
from taut.planning.phases import Costs, Line
from taut.planning.quantile import Floats
from taut.planning.queueing import Moments
from taut.planning.search import HIGHEST, LADDER
from taut.planning.settings import Cluster, Settings
from taut.planning.turns import Load, Wait
from taut.policy.intervals import Rhythm
from taut.slo import Slo

_SERIES = (*range(10, 17), 18, 20, 22, 25, 28, *range(30, 80, 5), 80, 90)
INTERVALS = tuple(
    round(each * power, 4)
    for power in (1e-3, 1e-2, 1e-1, 1.0)
    for each in _SERIES
    if 0.05 <= each * power <= 30.0
)
"""Seconds from one batch to the next that are tried."""
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_STEPS, _CHAINS, _WAITS = 10, 48, 128
"""Batches that are drawn in the search, and different waits for a turn."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of the queries: what its batches cost, its objective, and its rows a second."""

    name: str
    costs: Costs
    slo: Slo
    rate: float


class Tasks:
    """The lanes and the reducers with which batches of so many rows take least, on a cluster."""

    def __init__(self, costs: Costs, cluster: Cluster) -> None:
        tasks = [many for many in LADDER if many < cluster.slots] + [cluster.slots]
        more = [2 * cluster.slots] if costs.skew else []
        self._costs = costs
        self._lanes = {many: costs.lines(Settings(many, 1), cluster)["map"] for many in tasks}
        self._reducers: dict[int, Line] = {}
        for many in tasks + more:
            lines = costs.lines(Settings(1, many), cluster)
            self._reducers[many] = sum(lines.values(), Line()) - lines["map"]

    def best(self, rows: float) -> Settings:
        """For batches of so many rows."""
        ratio = self._costs.ratio(rows)

        def least(lines: dict[int, Line]) -> int:
            return min(lines, key=lambda many: float(lines[many].bearing(ratio).at(rows)))

        return Settings(least(self._lanes), least(self._reducers))


class Runner:
    """One of the queries with its tasks on its part of the cluster."""

    def __init__(
        self, nth: int, member: Member, settings: Settings, part: Cluster, scale: float
    ) -> None:
        self.nth = nth
        self.member = member
        self.settings = settings
        self.work = Work.of(member.costs, settings, part, scale)
        factors = member.costs.factors
        self._of_factors = Moments(float(factors.mean()), float(factors.var()))
        many = _STEPS * _CHAINS
        levels = (np.arange(many) + 0.5) / many
        self._drawn = shuffled(np.quantile(factors, levels), _STEPS)

    def load(self, interval: float, growth: float = 1.0) -> Load:
        """What it has a turn for."""
        rate = growth * self.member.rate
        work = self.work.at(rate).bearing(rate * interval)
        seconds = float(work.whole.at(rate * interval)) + work.drain * interval
        factor = self._of_factors
        variance = seconds**2 * factor.variance
        if windows := self.member.costs.windows:
            # the results of a window are in one batch, and not in a part of each
            closes = interval / windows.every % 1.0
            variance += (work.closing * factor.mean) ** 2 * closes * (1.0 - closes)
        return Load(interval, Moments(seconds * factor.mean, variance))

    def in_turns(self, interval: float, waits: Floats, growth: float) -> InTurns:
        """With batches at this interval that have these waits for a turn."""
        rate = growth * self.member.rate
        work = self.work.at(rate).bearing(rate * interval)
        offset = staggered(self.nth, interval)
        return InTurns.drawn(work, rate, interval, offset, waits, self._drawn)

    def longest(self, wait: Wait, growth: float, upto: int) -> int | None:
        """The longest of the intervals up to one, at which it is on time; None if it never is."""
        waits = _waits(wait)
        for nth in range(upto, -1, -1):
            interval = INTERVALS[nth]
            if self._at_least(interval, growth) > self.member.slo.seconds:
                continue
            if self.load(interval, growth).takes.mean + wait.mean > HIGHEST * interval:
                continue
            if self.in_turns(interval, waits, growth).meets(self.member.slo):
                return nth
        return None

    def _at_least(self, interval: float, growth: float) -> float:
        """What the objective bounds is not less than that, however short the waits."""
        share, factors = self.member.slo.quantile, self.member.costs.factors
        rate = growth * self.member.rate
        rows = rate * interval
        work = self.work.at(rate).bearing(rows)
        written = float((work.whole - work.after).at(rows)) * float(factors[0])
        if self.member.costs.windows:
            return interval + written
        return interval * (0.5 if share is None else share) + written


def staggered(nth: int, interval: float) -> float:
    """When batches of the nth query are due after each multiple of its interval.

    Those with the same interval, or with one that divides another, would all be due at once.
    """
    return round(interval * (nth * _GOLDEN % 1.0), 3) % interval


def rhythms(names: Sequence[str], settings: Sequence[Settings]) -> dict[str, Rhythm]:
    """When batches of each are due."""
    return {
        name: Rhythm(each.trigger, staggered(nth, each.trigger))
        for nth, (name, each) in enumerate(zip(names, settings, strict=True))
    }


def _waits(wait: Wait) -> Floats:
    """For the batches that are drawn; each chain has one more, the one before its first."""
    if not wait.mean:
        return np.zeros((_STEPS + 1, _CHAINS))
    return wait.quantiles((np.arange(_WAITS) + 0.5) / _WAITS)[_ORDER]


_ORDER = shuffled(
    np.arange((_STEPS + 1) * _CHAINS, dtype=float) % _WAITS, _STEPS + 1, seed=7
).astype(np.intp)

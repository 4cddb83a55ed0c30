"""The search: the settings with the highest rate under an objective, and the smallest cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from taut.errors import PlanError
from taut.planning.latency import Latency, predict
from taut.planning.phases import Costs, Line
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo

TRIGGERS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 30.0)
_EXACT = 24
"""Settings, at most, whose batches are followed one by one; which ones, a formula says."""
_RATES = 16_384
_HIGHEST = 0.985
"""Of the rate at which batches would grow without end: beyond it they take minutes to settle."""
_LADDER = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings on a cluster, the highest rate at which they meet the objective, and how late."""

    cluster: Cluster
    settings: Settings
    rate: float
    latency: Latency


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked: an objective for rows, or for the results of windows.

    Attributes
    ----------
    margin
        Batches are taken to cost so much more than fitted, as multiples of the fit's error.
    """

    costs: Costs
    slo: Slo
    windowed: bool = False
    margin: float = 1.0

    def latency(self, settings: Settings, cluster: Cluster, rate: float) -> Latency:
        """What is expected, with the margin."""
        scale = 1.0 + self.margin * self.costs.error
        return predict(self.costs, settings, cluster, rate, windowed=self.windowed, scale=scale)

    def meets(self, settings: Settings, cluster: Cluster, rate: float) -> bool:
        """Whether the objective is met there."""
        return self.latency(settings, cluster, rate).of(self.slo) <= self.slo.seconds

    def highest(self, settings: Settings, cluster: Cluster) -> float:
        """The highest rate at which these settings meet the objective; 0 if they never do."""
        most = self.ceiling(settings, cluster)

        def rate(step: int) -> float:
            return _HIGHEST * most * step / _RATES

        low, high = 0, _RATES + 1
        while high - low > 1:
            middle = (low + high) // 2
            if self.meets(settings, cluster, rate(middle)):
                low = middle
            else:
                high = middle
        return rate(low)

    def ceiling(self, settings: Settings, cluster: Cluster) -> float:
        """The rate from which batches would grow without end."""
        costs = self.costs
        ratio = 0.0 if self.windowed else costs.ratio
        whole = sum(costs.lines(settings, cluster).values(), Line())
        each = (whole.each + ratio * whole.out) * float(costs.factors.mean())
        scale = 1.0 + self.margin * costs.error
        if each <= 0.0:
            raise PlanError("the profile shows no cost of a row: it needs batches of two sizes")
        return 1.0 / (each * scale)

    def best(self, cluster: Cluster) -> Choice | None:
        """The settings with the highest rate there; None if none meets the objective."""
        found: Choice | None = None
        for settings in self.candidates(cluster):
            # most are no better than what was found: one look instead of a search
            if found is not None and not self.meets(settings, cluster, found.rate):
                continue
            rate = self.highest(settings, cluster)
            if rate > (found.rate if found else 0.0):
                latency = self.latency(settings, cluster, rate)
                found = Choice(cluster, settings, rate, latency)
        return found

    def smallest(self, clusters: Sequence[Cluster], rate: float) -> Choice | None:
        """The best settings on the first of these clusters that sustains the rate."""
        for cluster in clusters:
            found = self.best(cluster)
            if found is not None and found.rate >= rate:
                return found
        return None

    def candidates(self, cluster: Cluster) -> list[Settings]:
        """Settings worth a closer look: those that a formula without variation finds best."""
        tasks = [many for many in _LADDER if many < cluster.slots] + [cluster.slots]
        every = [
            Settings(lanes, reducers, trigger)
            for lanes, reducers, trigger in product(tasks, tasks, self._triggers())
        ]
        ranked = sorted(every, key=lambda one: (-self._roughly(one, cluster), one.trigger))
        return ranked[:_EXACT]

    def _triggers(self) -> Iterator[float]:
        for trigger in TRIGGERS:
            if trigger < self.slo.seconds:
                yield trigger

    def _roughly(self, settings: Settings, cluster: Cluster) -> float:
        """The highest rate if all batches took what is expected, without a search.

        With batches one after another, all of length c: the rate is (1 - fixed / c) / each, and
        the latency is linear in c. With an interval, c is given.
        """
        costs = self.costs
        lines = costs.lines(settings, cluster)
        scale = (1.0 + self.margin * costs.error) * float(costs.factors.mean())
        ratio = 0.0 if self.windowed else costs.ratio
        total, after = sum(lines.values(), Line()), lines["after"]
        fixed, each = scale * total.fixed, scale * (total.each + ratio * total.out)
        until = fixed - scale * after.fixed
        row = each - scale * (after.each + ratio * after.out)
        waits = 0.5 if self.slo.quantile is None else self.slo.quantile
        if self.windowed:
            waits += 1.0
            until += scale * total.out * costs.most_out
        if each <= 0.0:
            return 0.0
        bound = self.slo.seconds
        if not settings.trigger:
            cycle = (bound - until + row * fixed / each) / (waits + row / each)
            return max(0.0, (1.0 - fixed / cycle) / each) if cycle > 0.0 else 0.0
        every = settings.trigger
        keeps_up = (1.0 - fixed / every) / each
        on_time = (bound - waits * every - until) / (row * every) if row > 0.0 else math.inf
        return max(0.0, min(keeps_up, on_time if on_time > 0.0 else 0.0))

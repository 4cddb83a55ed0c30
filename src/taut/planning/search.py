"""The search: the settings with the highest rate under an objective, and the smallest cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from taut.errors import PlanError
from taut.planning.latency import Latency, Waits, predict
from taut.planning.phases import Costs, Line
from taut.planning.settings import SPARE, Cluster, Settings
from taut.slo import Slo

TRIGGERS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.5, 10.0, 15.0, 30.0)
_EXACT = 24
"""Settings, at most, whose batches are followed one by one; which ones, a formula says."""
_RATES = 16_384
HIGHEST = 0.985
"""Of the rate at which batches would grow without end: beyond it they take minutes to settle."""
_HALVINGS = 40
LADDER = (*range(1, 9), 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
"""Numbers of tasks that are tried."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Settings on a cluster, the highest rate at which they meet the objective, and how late."""

    cluster: Cluster
    settings: Settings
    rate: float
    latency: Latency


@dataclass(frozen=True, slots=True)
class Search:
    """What is asked: an objective for the results of windows, or for rows where there are none.

    Attributes
    ----------
    margin
        Batches are taken to cost so much more than fitted, as multiples of the fit's error, or of
        ``spare`` where that is more.
    spare
        What batches may cost more than fitted, at least, as a share.
    shape
        How quantiles are had, where that is not to follow from how many batches there are.
    """

    costs: Costs
    slo: Slo
    margin: float = 1.0
    shape: str | None = None
    spare: float = SPARE

    def latency(self, settings: Settings, cluster: Cluster, rate: float) -> Latency:
        """What is expected, with the margin."""
        return predict(
            self.costs, settings, cluster, rate, scale=self._scale(settings), shape=self.shape
        )

    def meets(self, settings: Settings, cluster: Cluster, rate: float) -> bool:
        """Whether the objective is met there."""
        if rate > HIGHEST * self.ceiling(settings, cluster) * (1.0 + 1e-9):
            return False
        return self.latency(settings, cluster, rate).of(self.slo) <= self.slo.seconds

    def holds(self, settings: Settings, cluster: Cluster, rate: float) -> bool:
        """Whether it is met if batches cost what the fit says, too.

        Windows and intervals both go by the clock: at a low rate, or with batches that take less,
        it may be those that just do not see the end of a window.
        """
        if not self.meets(settings, cluster, rate):
            return False
        plain = predict(self.costs, settings, cluster, rate, shape=self.shape)
        return plain.of(self.slo) <= self.slo.seconds

    def highest(self, settings: Settings, cluster: Cluster) -> float:
        """The highest rate at which these settings meet the objective; 0 if they never do."""
        most = self.ceiling(settings, cluster)

        def rate(step: int) -> float:
            return HIGHEST * most * step / _RATES

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
        ratio = 0.0 if costs.windows else costs.ratio()
        whole = sum(costs.lines(settings, cluster).values(), Line())
        each = whole.steepest + ratio * whole.out
        if each <= 0.0:
            raise PlanError("the profile shows no cost of a row: it needs batches of two sizes")
        free = 1.0 / (float(costs.factors.mean()) * self._scale(settings))
        if costs.filling is None:
            return max(0.0, free - _drain(costs, whole)) / each
        # the more rows, the more results, and the less time for rows
        result = whole.out * costs.out_per_s / costs.filling.results
        low, high = 0.0, free / each
        for _ in range(_HALVINGS):
            rate = (low + high) / 2.0
            left = free - result * costs.filling.at(rate).results - rate * each
            low, high = (rate, high) if left > 0.0 else (low, rate)
        return low

    def best(self, cluster: Cluster, rate: float | None = None) -> Choice | None:
        """The settings with the highest rate there; None if none meets the objective.

        Of those that also meet it at ``rate``, if one is given.
        """
        found: Choice | None = None
        for settings in self.candidates(cluster):
            if rate is not None and not self.holds(settings, cluster, rate):
                continue
            # most are no better than what was found: one look instead of a search
            if found is not None and not self.meets(settings, cluster, found.rate):
                continue
            most = self.highest(settings, cluster)
            if most > (found.rate if found else 0.0):
                latency = self.latency(settings, cluster, most)
                found = Choice(cluster, settings, most, latency)
        return found

    def smallest(self, clusters: Sequence[Cluster], rate: float) -> Choice | None:
        """The best settings on the first of these clusters that sustains the rate."""
        for cluster in clusters:
            found = self.best(cluster, rate)
            if found is not None and found.rate >= rate:
                return found
        return None

    def candidates(self, cluster: Cluster) -> list[Settings]:
        """Settings worth a closer look: those that a formula without variation finds best."""
        tasks = [many for many in LADDER if many < cluster.slots] + [cluster.slots]
        # more are only worth it where one reducer has many more rows than others
        more = [2 * cluster.slots] if self.costs.skew else []
        every = [
            Settings(lanes, reducers, trigger)
            for lanes, reducers, trigger in product(tasks, tasks + more, self._triggers())
        ]
        ranked = sorted(every, key=lambda one: (-self._roughly(one, cluster), one.trigger))
        return ranked[:_EXACT]

    def _triggers(self) -> Iterator[float]:
        for trigger in TRIGGERS:
            if trigger < self.slo.seconds:
                yield trigger

    def left(self, settings: Settings) -> float:
        """What is left for errors, as a share of what batches cost."""
        return self.margin * max(self.spare, self.costs.error_at(settings))

    def _scale(self, settings: Settings) -> float:
        """Times what batches cost by the fit."""
        return 1.0 + self.left(settings)

    def _roughly(self, settings: Settings, cluster: Cluster) -> float:
        """The highest rate if all batches took what is expected, without a search.

        With batches one after another, all of length c: the rate is (1 - fixed / c) / each, and
        the latency is linear in c. With an interval, c is given. Where rows of large batches cost
        more, the lower of what both lines say counts.
        """
        costs = self.costs.at(self.ceiling(settings, cluster))
        scale = self._scale(settings) * float(costs.factors.mean())
        lines = {name: each.times(scale) for name, each in costs.lines(settings, cluster).items()}
        whole = sum(lines.values(), Line())
        idle = 1.0 - _drain(costs, whole)
        closing = whole.out * costs.most_out if costs.windows else 0.0
        ratio = 0.0 if costs.windows else costs.ratio()
        written = (whole - lines["after"]).bearing(ratio)
        whole = whole.bearing(ratio)
        bends = whole.beyond or written.beyond
        lines_of = ([each.tangents()[0], each.tangents()[-1]] for each in (whole, written))
        rates = [
            self._rate(settings.trigger, idle, line, (until + closing, row))
            for line, (until, row) in zip(*lines_of, strict=True)
        ]
        return max(0.0, max(rates) if bends < 0.0 else min(rates))

    def _rate(
        self,
        trigger: float,
        idle: float,
        whole: tuple[float, float],
        written: tuple[float, float],
    ) -> float:
        """If batches cost (fixed, each) until the next one, and until their rows are out."""
        (fixed, each), (until, row) = whole, written
        windows = self.costs.windows
        share = 0.5 if self.slo.quantile is None else self.slo.quantile
        left = self.slo.seconds - until
        if each <= 0.0:
            return 0.0
        if not trigger:
            left -= windows.delay if windows else 0.0
            waits = share + (windows is not None)
            cycle = (left + row * fixed / each) / (waits + row * idle / each)
            return (idle - fixed / cycle) / each if cycle > 0.0 else 0.0
        waited = share * trigger
        if windows:
            # and the batch that sees the end is not the one that has the results
            waited = Waits.of(windows, trigger).on_time(trigger, share) + trigger
        keeps_up = (idle - fixed / trigger) / each
        on_time = (left - waited) / (row * trigger) if row > 0.0 else math.inf
        return min(keeps_up, on_time)


def _drain(costs: Costs, whole: Line) -> float:
    """Of every second, what the results of windows take."""
    return whole.out * costs.out_per_s if costs.windows else 0.0

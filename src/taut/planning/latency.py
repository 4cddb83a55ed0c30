"""Latency of rows and of windows at given settings: batches follow each other, as on Spark.

A batch takes the rows that arrived since the last one started, so a slow batch makes the next one
larger. Batches with measured factors are let follow each other, in many chains at once, until that
settles: the same draws for every setting and rate, so that a plan depends on what was given alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from taut.planning.phases import Costs, Line
from taut.planning.profile import PHASES
from taut.planning.quantile import Floats, Spans, cantelli, normal
from taut.planning.queueing import Moments
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo

_CHAINS = 128
_STEPS = 48
_SETTLE = 16
_TURNS = 3
_SHAPE_FROM = 20
"""Batches from which their times are taken for the shape of the distribution."""
SHAPES = ("measured", "normal", "cantelli")


@dataclass(frozen=True, slots=True)
class Latency:
    """The latency that is expected, in seconds.

    Attributes
    ----------
    utilisation
        Of its time, what the query would spend on rows alone; batches grow without end at 1.
    cycle, rows
        From one batch to the next, and the rows of one; means.
    phases
        Where the time of a row goes, on average: the wait for its batch, then phase by phase.
    shape
        What quantiles were taken from: the measured shape, normal, or Cantelli's bound.
    """

    moments: Moments
    shape: str
    utilisation: float
    cycle: float
    rows: float
    phases: dict[str, float]
    spans: Spans | None = field(default=None, repr=False)

    @property
    def mean(self) -> float:
        """The mean."""
        return self.moments.mean

    def quantile(self, share: float) -> float:
        """The latency that this share of results does not exceed."""
        if self.spans is not None and (self.shape == "measured" or share >= 1.0):
            return self.spans.quantile(share)
        if not math.isfinite(self.mean):
            return math.inf
        if self.moments.variance == 0.0:
            return self.mean
        return (cantelli if self.shape == "cantelli" else normal)(self.moments, share)

    def of(self, slo: Slo) -> float:
        """What the objective bounds: a quantile or the mean."""
        return self.mean if slo.quantile is None else self.quantile(slo.quantile)


def predict(
    costs: Costs,
    settings: Settings,
    cluster: Cluster,
    rate: float,
    *,
    windowed: bool = False,
    shape: str | None = None,
    scale: float = 1.0,
) -> Latency:
    """What to expect at so many rows a second.

    Parameters
    ----------
    windowed
        Of the results of windows rather than of rows: a window's rows come out one batch after the
        one that first sees a row beyond its end, and all its results come at once.
    shape
        Of the distribution; by default as measured if there are enough batches, and by Cantelli's
        bound otherwise.
    scale
        Times what batches are expected to cost.
    """
    shape = shape or ("measured" if len(costs.factors) >= _SHAPE_FROM else "cantelli")
    if shape not in SHAPES:
        raise ValueError(f"shape={shape!r}: one of {', '.join(SHAPES)}")
    lines = {phase: line.times(scale) for phase, line in costs.lines(settings, cluster).items()}
    mean = float(costs.factors.mean())
    whole = sum(lines.values(), Line())
    closing = whole.out * costs.most_out if windowed else 0.0
    drain = whole.out * costs.out_per_s if windowed else 0.0
    ratio = 0.0 if windowed else costs.ratio()
    for _ in range(0 if windowed else _TURNS):
        # how many results a row has depends on the rows of a batch, and they on what results cost
        cycle = _settled(whole.bearing(ratio), drain, rate, settings.trigger, mean)
        ratio = costs.ratio(rate * cycle)
    whole, after = whole.bearing(ratio), lines["after"].bearing(ratio)
    growth = (rate * whole.steepest + drain) * mean
    sustained = growth < 1.0
    if settings.cap is not None:
        busy = whole.at(settings.cap) * mean
        sustained = sustained and settings.cap >= rate * max(settings.trigger, busy)
    if not sustained:
        never = Moments(math.inf, math.inf)
        return Latency(never, shape, growth, math.inf, math.inf, {})
    batches = _follow(whole, drain, rate, settings.trigger, costs.factors, growth)
    spans = _of_windows(batches, after, closing) if windowed else _of_rows(batches, after)
    cycle = float(batches.cycle.mean())
    rows = rate * cycle
    wait = float((batches.before**2).mean() / (2.0 * batches.before.mean()))
    phases = {"wait": wait}
    if windowed:
        phases["batch of its last rows"] = cycle
    for phase in PHASES[:-1]:
        seconds = lines[phase].bearing(ratio).at(rows) * mean
        phases[phase] = seconds + (lines[phase].out * costs.most_out * mean if windowed else 0.0)
    return Latency(spans.moments(), shape, growth, cycle, rows, phases, spans)


@dataclass(frozen=True, slots=True)
class _Batches:
    """Batches of all chains, one row for each step: how long rows gathered before, and so on."""

    whole: Line
    before: Floats
    rows: Floats
    factor: Floats
    cycle: Floats


def _settled(whole: Line, drain: float, rate: float, trigger: float, mean: float) -> float:
    """From one batch to the next, if none took more or less; without end if they would grow."""
    cycle = trigger
    for fixed, each in whole.tangents():
        free = 1.0 - mean * (rate * each + drain)
        cycle = max(cycle, mean * fixed / free if free > 0.0 else math.inf)
    return cycle


def _follow(
    whole: Line, drain: float, rate: float, trigger: float, factors: Floats, growth: float
) -> _Batches:
    """``drain``: seconds that results of windows take, of every second."""
    draws = _draws(factors)
    before = np.full(_CHAINS, _settled(whole, drain, rate, trigger, float(factors.mean())))
    late = np.zeros(_CHAINS)
    kept: list[tuple[Floats, Floats, Floats, Floats]] = []
    # the more a batch depends on the last, the longer it takes until the start is forgotten
    settle = min(400, _SETTLE + math.ceil(3.0 / (1.0 - growth)))
    for step in range(settle + _STEPS):
        factor = draws[step % len(draws)]
        rows = rate * before
        took = (whole.at(rows) + drain * before) * factor
        if trigger:
            # the next starts at the next multiple of the interval, or at once if that has passed
            left = trigger - late
            cycle = np.maximum(took, left)
            late = np.where(took <= left, 0.0, np.mod(late + took, trigger))
        else:
            cycle = took
        if step >= settle:
            kept.append((before, rows, factor, cycle))
        before = cycle
    gathered, rows, factor, cycle = (np.array(column) for column in zip(*kept, strict=True))
    return _Batches(whole, gathered, rows, factor, cycle)


def _of_rows(batches: _Batches, after: Line) -> Spans:
    """Rows wait for up to the cycle before their batch, and are out once it is written."""
    written = (batches.whole - after).at(batches.rows) * batches.factor
    return Spans(written.ravel(), batches.before.ravel(), batches.before.ravel())


def _of_windows(batches: _Batches, after: Line, closing: float) -> Spans:
    """A window ends at any moment of a cycle, is seen by the batch after it, out with the next."""
    out = (closing + (batches.whole - after).at(batches.rows[1:])) * batches.factor[1:]
    low = batches.cycle[:-1] + out
    width = batches.before[:-1]
    return Spans(low.ravel(), width.ravel(), width.ravel())


def _draws(factors: Floats) -> Floats:
    """Every factor as often as any other, in an order that is the same each time."""
    random = np.random.default_rng(20_261)
    many = 64 * _CHAINS
    spread = np.quantile(factors, (np.arange(many) + 0.5) / many)
    return random.permutation(spread).reshape(64, _CHAINS)

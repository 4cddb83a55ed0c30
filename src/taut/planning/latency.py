"""Latency of rows and of windows at given settings: batches follow each other, as on Spark.

A batch takes the rows that arrived since the last one started, so a slow batch makes the next one
larger. Batches with measured factors are let follow each other, in many chains at once, until that
settles: the same draws for every setting and rate, so that a plan depends on what was given alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from taut.planning.phases import Costs, Line
from taut.planning.profile import PHASES, Windows
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
_LOOKS_AFTER_S = 5e-3
"""From the start of a batch until it has asked its source for what has come."""
_PHASES = 32
"""Ends of windows in one trigger interval, from which on they may be at any moment of it."""
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
    shape: str | None = None,
    scale: float = 1.0,
) -> Latency:
    """What to expect at so many rows a second.

    Of the results of windows, where there are some, rather than of rows: those of a window come out
    one batch after the one that first sees a row beyond its end, all at once.

    Parameters
    ----------
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
    windows = costs.windows
    closing = whole.out * costs.most_out if windows else 0.0
    drain = whole.out * costs.out_per_s if windows else 0.0
    ratio = 0.0 if windows else costs.ratio()
    for _ in range(0 if windows else _TURNS):
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
    cycle = float(batches.cycle.mean())
    rows = rate * cycle
    phases = {"wait": float((batches.before**2).mean() / (2.0 * batches.before.mean()))}
    if windows:
        waits = Waits.of(windows, settings.trigger, 0.5 / rate if rate else 0.0)
        spans = _of_windows(batches, after, closing, waits)
        phases["wait"] = waits.mean(batches)
        phases["batch of its last rows"] = cycle
    else:
        spans = _of_rows(batches, after)
    for phase in PHASES[:-1]:
        seconds = lines[phase].bearing(ratio).at(rows) * mean
        phases[phase] = seconds + (lines[phase].out * costs.most_out * mean if windows else 0.0)
    return Latency(spans.moments(), shape, growth, cycle, rows, phases, spans)


@dataclass(frozen=True, slots=True)
class _Batches:
    """Batches of all chains, one row for each step: how long rows gathered before, and so on.

    ``late`` is when they start, from the last multiple of the trigger interval on.
    """

    whole: Line
    before: Floats
    late: Floats
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
    kept: list[tuple[Floats, ...]] = []
    # the more a batch depends on the last, the longer it takes until the start is forgotten
    settle = min(400, _SETTLE + math.ceil(3.0 / (1.0 - growth)))
    for step in range(settle + _STEPS):
        factor = draws[step % len(draws)]
        rows = rate * before
        took = (whole.at(rows) + drain * before) * factor
        began = late
        if trigger:
            # the next starts at the next multiple of the interval, or at once if that has passed
            left = trigger - late
            cycle = np.maximum(took, left)
            late = np.where(took <= left, 0.0, np.mod(late + took, trigger))
        else:
            cycle = took
        if step >= settle:
            kept.append((before, began, rows, factor, cycle))
        before = cycle
    return _Batches(whole, *(np.array(column) for column in zip(*kept, strict=True)))


def _of_rows(batches: _Batches, after: Line) -> Spans:
    """Rows wait for up to the cycle before their batch, and are out once it is written."""
    written = (batches.whole - after).at(batches.rows) * batches.factor
    return Spans(written.ravel(), batches.before.ravel(), batches.before.ravel())


@dataclass(frozen=True, slots=True)
class Waits:
    """How long windows wait from their end until the batch starts that sees it.

    Windows end at any moment of a cycle. But both may go by the clock: with an interval of 1 s and
    windows of 2 s, either all of them end as a batch is about to look, or all just after.

    Attributes
    ----------
    delay
        From the end until a row shows that it has passed.
    step, phase
        Ends are seen from the first batch on that looks at ``phase`` after a multiple of ``step``,
        all of them alike; step 0 for at any moment.
    """

    delay: float
    step: float = 0.0
    phase: float = 0.0

    @classmethod
    def of(cls, windows: Windows, trigger: float, next_row: float = 0.0) -> Waits:
        """``next_row``: seconds until the next row comes, which has to lie beyond the end."""
        delay = windows.delay + next_row
        every, interval = round(1e3 * windows.every), round(1e3 * trigger)
        step = math.gcd(every, interval) / 1e3 if interval else 0.0
        if not step or trigger > _PHASES * step:
            return cls(delay)
        return cls(delay, step, (windows.phase + delay - _LOOKS_AFTER_S) % step)

    def spans(self, late: Floats, before: Floats) -> Iterator[tuple[Floats, Floats, Floats]]:
        """Of batches: the shortest wait, how much longer it may be, and how many windows wait."""
        if not self.step:
            yield np.full_like(before, self.delay), before, before
            return
        # the last that could be seen, then those before it, as far as the batch before
        since = np.mod(late - self.phase, self.step)
        nothing = np.zeros_like(before)
        for nth in range(math.ceil(float(before.max()) / self.step) + 1):
            wait = since + nth * self.step
            yield wait + self.delay - _LOOKS_AFTER_S, nothing, (wait < before).astype(float)

    def on_time(self, trigger: float, share: float) -> float:
        """What this share of windows wait at most, if each batch starts as its interval does.

        >>> two = Windows(2.0)
        >>> [round(Waits.of(two, each).on_time(each, 1.0), 3) for each in (1.0, 1.5, 0.7)]
        [0.0, 1.0, 0.6]
        """
        if not self.step:
            return self.delay + share * trigger
        first = -self.phase % self.step + self.delay - _LOOKS_AFTER_S
        return first + share * (trigger - self.step)

    def mean(self, batches: _Batches) -> float:
        """On average."""
        spans = list(self.spans(batches.late, batches.before))
        low, width, many = (np.concatenate(column) for column in zip(*spans, strict=True))
        return Spans(low.ravel(), width.ravel(), many.ravel()).moments().mean


def _of_windows(batches: _Batches, after: Line, closing: float, waits: Waits) -> Spans:
    """A window is seen by a batch after its end, and is out with the next."""
    out = (closing + (batches.whole - after).at(batches.rows[1:])) * batches.factor[1:]
    rest = batches.cycle[:-1] + out
    spans = [
        (wait + rest, width, many)
        for wait, width, many in waits.spans(batches.late[:-1], batches.before[:-1])
    ]
    low, width, many = (np.concatenate(column) for column in zip(*spans, strict=True))
    return Spans(low.ravel(), width.ravel(), many.ravel())


def _draws(factors: Floats) -> Floats:
    """Every factor as often as any other, in an order that is the same each time."""
    random = np.random.default_rng(20_261)
    many = 64 * _CHAINS
    spread = np.quantile(factors, (np.arange(many) + 0.5) / many)
    return random.permutation(spread).reshape(64, _CHAINS)

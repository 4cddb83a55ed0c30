"""Latency of rows and of windows at given settings: batches follow each other, as on Spark.

A batch takes the rows that arrived since the last one started, so a slow batch makes the next one
larger. Batches with measured factors are let follow each other, in many chains at once, until that
settles: the same draws for every setting and rate, so that a plan depends on what was given alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
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
_LOOKS_AFTER_S = 1e-3
"""From the start of a batch until it has asked its source for what has come."""
_PHASES = 32
"""Ends of windows in one trigger interval, from which on they may be at any moment of it."""
_MANY = 256
"""Ends of windows in one batch, from which on it does not matter when each of them was."""
_ENDS = 32
"""Windows from which on their latencies say enough."""
_LEAST_CYCLE = 0.05
"""Of the interval: a batch that waited for most of it is not followed any sooner."""
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
    largest
        Rows of the largest batch.
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
    largest: float = math.inf

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
    shape, costs = shape_of(costs, shape), costs.at(rate)
    work = Work.of(costs, settings, cluster, scale)
    for _ in range(0 if costs.windows else _TURNS):
        # how many results a row has depends on the rows of a batch, and they on what results cost
        cycle = _settled(work.whole, work.drain, rate, settings.trigger, work.mean)
        work = work.bearing(rate * cycle)
    growth = work.growth(rate)
    sustained = growth < 1.0
    if settings.cap is not None:
        busy = work.whole.at(settings.cap) * work.mean
        sustained = sustained and settings.cap >= rate * max(settings.trigger, busy)
    if not sustained:
        never = Moments(math.inf, math.inf)
        return Latency(never, shape, growth, math.inf, math.inf, {})
    batches = _follow(work.whole, work.drain, rate, settings.trigger, costs.factors, growth)
    seen = _seen(work, batches, rate, settings.trigger)
    return _told(work, batches, rate, shape, seen)


@dataclass(frozen=True, slots=True)
class InTurns:
    """A query that starts a batch every so often, and has to wait for its turn.

    A batch takes what has arrived when its turn comes, so that one that waited has more rows and
    the next one fewer.

    Attributes
    ----------
    interval, offset
        Seconds from one batch to the next, and after each multiple of that when they are due.
    before, late, waited, factors
        Batch by batch, of one chain or of many beside each other: how long rows gathered for it,
        when it started after a batch was last due, how much of that it waited for its turn, and
        what it took as multiples of the costs.
    start
        When it started, of one chain: then windows are seen by the batches that they are seen by,
        and not by any, if there are enough of them.
    """

    work: Work
    rate: float
    interval: float
    offset: float
    before: Floats
    late: Floats
    waited: Floats
    factors: Floats
    start: Floats | None = None

    @classmethod
    def drawn(
        cls,
        work: Work,
        rate: float,
        interval: float,
        offset: float,
        waits: Floats,
        factors: Floats,
    ) -> InTurns:
        """With these waits, which have one batch more: the one before the first."""
        before = np.maximum(interval + np.diff(waits, axis=0), _LEAST_CYCLE * interval)
        took = (work.whole.at(rate * before) + work.drain * before) * factors
        # the next one of the same query waits for it, in its turn or not
        before[1:] = np.maximum(before[1:], took[:-1])
        late = np.mod(waits[1:], interval)
        return cls(work, rate, interval, offset, before, late, waits[1:], factors)

    def meets(self, slo: Slo) -> bool:
        """Whether the objective is met; quicker than by :meth:`predict`."""
        spans = self._seen(self._batches()).spans
        shape = shape_of(self.work.costs)
        if shape == "measured" and slo.quantile is not None and slo.quantile < 1.0:
            return spans.below(slo.seconds) >= slo.quantile
        return Latency(spans.moments(), shape, 0.0, 0.0, 0.0, {}, spans).of(slo) <= slo.seconds

    def predict(self, shape: str | None = None) -> Latency:
        """As :func:`predict` does; the phase ``turn`` is the wait for one."""
        batches = self._batches()
        seen = self._seen(batches)
        shape = shape_of(self.work.costs, shape)
        latency = _told(self.work, batches, self.rate, shape, seen)
        waited = np.minimum(self.waited[:-1], batches.before)
        # rows that came while it waited have waited for less
        turns = waited * (batches.before - waited) + waited**2 / 2.0
        turn = min(seen.wait, float(turns.mean() / batches.before.mean()))
        phases = {"wait": seen.wait - turn, "turn": turn}
        return replace(latency, phases=phases | latency.phases | phases)

    def _batches(self) -> _Batches:
        before, late, factors = (each[:-1] for each in (self.before, self.late, self.factors))
        rows = self.rate * before
        return _Batches(self.work.whole, before, late, rows, factors, self.before[1:])

    def _seen(self, batches: _Batches) -> _Seen:
        windows = self.work.costs.windows
        if windows is not None and self.start is not None:
            known = windows.delay + 0.5 / self.rate - _LOOKS_AFTER_S
            bounds = ((at - known - windows.phase) / windows.every for at in self.start[[0, -3]])
            nths = np.arange(*(math.ceil(bound) for bound in bounds))
            if len(nths) >= _ENDS:
                return self._of_ends(nths * windows.every + windows.phase, known, self.start)
        return _seen(self.work, batches, self.rate, self.interval, self.offset)

    def _of_ends(self, ends: Floats, known: float, start: Floats) -> _Seen:
        """Of windows that end then, and are known to after so many seconds."""
        work, seen = self.work, np.searchsorted(start, ends + known)
        rows, factor = self.rate * self.before[seen + 1, 0], self.factors[seen + 1, 0]
        out = (work.closing + (work.whole - work.after).at(rows)) * factor
        latency = start[seen + 1] + out - ends
        spans = Spans(latency, np.zeros_like(latency), np.ones_like(latency))
        wait, next_one = start[seen] - ends, start[seen + 1] - start[seen]
        return _Seen(spans, float(wait.mean()), float(next_one.mean()))


def shape_of(costs: Costs, shape: str | None = None) -> str:
    """The shape that was asked for; else as measured, if there are batches enough."""
    shape = shape or ("measured" if len(costs.factors) >= _SHAPE_FROM else "cantelli")
    if shape not in SHAPES:
        raise ValueError(f"shape={shape!r}: one of {', '.join(SHAPES)}")
    return shape


@dataclass(frozen=True, slots=True)
class Work:
    """What the batches of a query take, at given settings on a cluster.

    Attributes
    ----------
    lines
        Phase by phase, what comes out apart.
    every
        Their sum.
    ratio
        Rows out for each row in; 0 where there are windows.
    whole, after
        With the cost of what comes out put on rows: until the next batch can start, and the part
        of that from when rows are written.
    mean
        Of what batches take, as multiples of the lines.
    """

    costs: Costs
    lines: dict[str, Line]
    every: Line
    ratio: float
    whole: Line
    after: Line
    mean: float

    @classmethod
    def of(cls, costs: Costs, settings: Settings, cluster: Cluster, scale: float = 1.0) -> Work:
        """``scale``: times what batches are expected to cost."""
        lines = {phase: line.times(scale) for phase, line in costs.lines(settings, cluster).items()}
        every = sum(lines.values(), Line())
        ratio = 0.0 if costs.windows else costs.ratio()
        whole, after = every.bearing(ratio), lines["after"].bearing(ratio)
        return cls(costs, lines, every, ratio, whole, after, float(costs.factors.mean()))

    def at(self, rate: float) -> Work:
        """With windows as full as they are at so many rows a second."""
        costs = self.costs.at(rate)
        return self if costs is self.costs else replace(self, costs=costs)

    def bearing(self, rows: float) -> Work:
        """With as many results as batches of so many rows have."""
        ratio = 0.0 if self.costs.windows else self.costs.ratio(rows)
        if ratio == self.ratio:
            return self
        whole, after = self.every.bearing(ratio), self.lines["after"].bearing(ratio)
        return replace(self, ratio=ratio, whole=whole, after=after)

    @property
    def drain(self) -> float:
        """Of every second, what the results of windows take."""
        return self.every.out * self.costs.out_per_s if self.costs.windows else 0.0

    @property
    def closing(self) -> float:
        """What the results of one window take."""
        return self.every.out * self.costs.most_out if self.costs.windows else 0.0

    def growth(self, rate: float) -> float:
        """Of its time, what the query would spend on rows alone."""
        return (rate * self.whole.steepest + self.drain) * self.mean


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


class _Seen(NamedTuple):
    """Latencies; and on average the wait for a batch, and from that to the one with results."""

    spans: Spans
    wait: float
    between: float


def _seen(work: Work, batches: _Batches, rate: float, trigger: float, offset: float = 0.0) -> _Seen:
    """``offset``: seconds by which triggers are behind multiples of their interval."""
    windows = work.costs.windows
    if windows is None:
        wait = (batches.before**2).mean() / (2.0 * batches.before.mean())
        return _Seen(_of_rows(batches, work.after), float(wait), 0.0)
    windows = msgspec.structs.replace(windows, phase=windows.phase - offset)
    waits = Waits.of(windows, trigger, 0.5 / rate if rate else 0.0)
    spans = _of_windows(batches, work.after, work.closing, waits)
    return _Seen(spans, waits.mean(batches), float(batches.cycle.mean()))


def _told(work: Work, batches: _Batches, rate: float, shape: str, seen: _Seen) -> Latency:
    cycle = float(batches.cycle.mean())
    rows = rate * cycle
    phases = {"wait": seen.wait}
    windows = work.costs.windows is not None
    if windows:
        phases["batch of its last rows"] = seen.between
    for phase in PHASES[:-1]:
        line = work.lines[phase]
        seconds = float(line.bearing(work.ratio).at(rows)) * work.mean
        closing = line.out * work.costs.most_out * work.mean if windows else 0.0
        phases[phase] = seconds + closing
    spans = seen.spans
    largest = rate * float(batches.before.max())
    return Latency(spans.moments(), shape, work.growth(rate), cycle, rows, phases, spans, largest)


def _settled(whole: Line, drain: float, rate: float, trigger: float, mean: float) -> float:
    """From one batch to the next, if none took more or less; without end if they would grow."""
    cycles = []
    for fixed, each in whole.tangents():
        free = 1.0 - mean * (rate * each + drain)
        cycles.append(mean * fixed / free if free > 0.0 else math.inf)
    return max(trigger, whole.highest(cycles))


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
        if not self.step or float(before.max()) > _MANY * self.step:
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
    many = 64 * _CHAINS
    return shuffled(np.quantile(factors, (np.arange(many) + 0.5) / many), 64)


def shuffled(values: Floats, steps: int, seed: int = 20_261) -> Floats:
    """In so many steps, in an order that is the same each time."""
    return np.random.default_rng(seed).permutation(values).reshape(steps, -1)

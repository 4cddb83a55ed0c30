"""What a batch costs, phase by phase: fitted to measured batches, by the rows that it has."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import numpy as np
from scipy import optimize

from taut.planning.filling import Filling, of_a_window
from taut.planning.profile import PHASES, Profile, Sample, Windows, groups, typical
from taut.planning.quantile import Floats
from taut.planning.settings import Cluster, Settings

_SAME_SHARE = 0.1
"""By how much the share of rows that come out may differ, to be the same in all batches."""
_FEW_OUT = 0.01
"""The share of rows that come out, below which they are no cost of their own."""
_SKEWS = (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4)
_SPREAD = 4
"""Times as many rows as the smallest batch, that the largest needs for a knee between them."""
_ENOUGH = 3
"""Batches that are alike from which on their median counts in full."""
_AGAIN, _LEAST_OFF = 4, 0.03
"""How often is fitted, with less weight on what is further off than others; and from what on."""
_DOUBT = 4
"""Batches at some settings from which on what they took counts for more than the fit of all."""


def stage(tasks: int, cluster: Cluster, skew: float = 0.0) -> tuple[float, float]:
    """The share of its rows that a stage works on one after another, and how crowded cores are.

    So many tasks run in waves of as many as there are slots; every wave takes as long as one task.
    Tasks beside each other on an executor slow each other down. One task has the share ``skew`` of
    all rows beside its part of the others, and begins in any of the waves.

    >>> stage(1, Cluster(1, 2)), stage(2, Cluster(1, 2)), stage(3, Cluster(1, 2))
    ((1.0, 0), (0.5, 1), (0.6666666666666666, 1))
    >>> stage(2, Cluster(1, 2), 0.1), stage(4, Cluster(1, 2), 0.1)
    ((0.55, 1), (0.5, 1))
    >>> stage(2, Cluster(1, 4).part(2)), stage(2, Cluster(1, 4))
    ((0.5, 3), (0.5, 1))
    """
    waves = math.ceil(tasks / cluster.slots)
    mine = min(math.ceil(tasks / cluster.executors), cluster.cores - cluster.taken)
    beside = mine - 1 + cluster.taken
    other = (1.0 - skew) / tasks
    return max(waves / tasks, skew + other * (1.0 + (waves - 1) / 2.0)), beside


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a phase: a line in its rows that becomes steeper or flatter once, or not at all.

    Attributes
    ----------
    fixed, each, out
        Of a batch, for every row, and for every row that comes out.
    beyond, knee
        For every row past the knee, in addition: while a batch is small, rows are read as
        workers get ready, and cost little. Or below 0: the more rows, the fewer have a new key.

    >>> Line(0.1, 1e-3) + Line(0.2, 2e-3, 1.0)
    Line(fixed=0.30000000000000004, each=0.003, out=1.0, beyond=0.0, knee=inf)
    >>> float(Line(1.0, 0.1, 0.0, 0.2, 10).at(20))
    5.0
    """

    fixed: float = 0.0
    each: float = 0.0
    out: float = 0.0
    beyond: float = 0.0
    knee: float = math.inf

    def __add__(self, other: Line) -> Line:
        return self._with(other, 1.0)

    def __sub__(self, other: Line) -> Line:
        return self._with(other, -1.0)

    def _with(self, other: Line, sign: float) -> Line:
        return Line(
            self.fixed + sign * other.fixed,
            self.each + sign * other.each,
            self.out + sign * other.out,
            self.beyond + sign * other.beyond,
            # of one fit all lines bend at the same place, if they do
            min(self.knee, other.knee),
        )

    def times(self, factor: float) -> Line:
        """All of it so many times."""
        return replace(
            self,
            fixed=factor * self.fixed,
            each=factor * self.each,
            out=factor * self.out,
            beyond=factor * self.beyond,
        )

    def bearing(self, ratio: float) -> Line:
        """With so many rows out for each row in, and their cost put on that."""
        return replace(self, each=self.each + ratio * self.out, out=0.0)

    @property
    def steepest(self) -> float:
        """Seconds for one more row of a large batch."""
        return self.each + self.beyond

    def tangents(self) -> list[tuple[float, float]]:
        """Lines as (fixed, each), of which it is the highest at every number of rows.

        Or the lowest, if it becomes flatter.
        """
        first = (self.fixed, self.each)
        if not self.beyond:
            return [first]
        return [first, (self.fixed - self.beyond * self.knee, self.steepest)]

    def highest(self, of_tangents: Sequence[float]) -> float:
        """What counts of something that grows with its tangents: the most, or the least."""
        return min(of_tangents) if self.beyond < 0.0 else max(of_tangents)

    def at(self, rows: Any, out: float = 0.0) -> Any:
        """For so many rows, one number or an array."""
        seconds = self.fixed + self.each * rows + self.out * out
        if not self.beyond:
            return seconds
        return seconds + self.beyond * np.maximum(0.0, rows - self.knee)


@dataclass(frozen=True, slots=True)
class Costs:
    """The fit. Its ``factors`` are what batches took as multiples of it: the measured shape.

    Attributes
    ----------
    error
        The standard deviation of the fit's error from one kind of batch to the next, as a share.
    ratios
        Rows out for each row in, by the rows of a batch, from small batches to large: where results
        are one for each key that came, it falls.
    most_out
        Rows that came out of one batch, at most; of a job with windows, those of one window.
    knee
        Rows of a batch from which on a row may cost more; infinite if that was not looked for.
    skew
        The share of all rows that one reducer has beside its part of the others.
    windows, out_per_s
        When they end, and how many rows they put out, by the second.
    filling
        How windows fill, where there are some and it could be told.
    apart, seen
        By lanes and reducers, what batches at just these took, as a multiple of what the fit of all
        settings says, and how many there were. The same tasks on a larger cluster take no longer,
        so that it is not asked which one.
    faster
        By what share batches became faster while they were measured, from the first half of those
        alike to the second; below 0 if slower.
    """

    weights: dict[str, tuple[float, ...]]
    factors: Floats
    error: float
    ratios: tuple[tuple[float, float], ...]
    most_out: int
    largest: int
    knee: float = math.inf
    skew: float = 0.0
    windows: Windows | None = None
    out_per_s: float = 0.0
    filling: Filling | None = None
    faster: float = 0.0
    apart: Mapping[tuple[int, int], float] = field(default_factory=dict)
    seen: Mapping[tuple[int, int], int] = field(default_factory=dict)

    def at(self, rate: float) -> Costs:
        """With windows as full as they are at so many rows a second."""
        if self.filling is None:
            return self
        filling = self.filling.at(rate)
        times = filling.results / self.filling.results
        most_out, out_per_s = round(times * self.most_out), times * self.out_per_s
        return replace(self, most_out=most_out, out_per_s=out_per_s, filling=filling)

    def ratio(self, rows: float = math.inf) -> float:
        """Rows out for each row in, of a batch with so many."""
        if not self.ratios:
            return 0.0
        sizes, shares = zip(*self.ratios, strict=True)
        rows = min(max(rows, sizes[0]), sizes[-1])
        return float(np.interp(math.log(rows), np.log(sizes), shares))

    def error_at(self, settings: Settings) -> float:
        """What of the fit's error is left at these settings, by what was seen at just these."""
        seen = self.seen.get((settings.lanes, settings.reducers), 0)
        return self.error * _DOUBT / (seen + _DOUBT)

    def lines(self, settings: Settings, cluster: Cluster) -> dict[str, Line]:
        """Each phase, at these settings on this cluster."""
        told = {}
        apart = self.apart.get((settings.lanes, settings.reducers), 1.0)
        for phase in PHASES:
            zero, rows, out, beyond = (
                float(np.dot(self.weights[phase], _features(phase, settings, cluster, *point)))
                for point in (
                    (self.skew, 0.0, 0.0),
                    (self.skew, 1.0, 0.0),
                    (self.skew, 0.0, 1.0),
                    (self.skew, 0.0, 0.0, 1.0),
                )
            )
            bent = beyond - zero if math.isfinite(self.knee) else 0.0
            line = Line(zero, rows - zero, out - zero, bent, self.knee)
            # a faster core is faster at all that it does
            told[phase] = line.times(apart / cluster.speed)
        return told


def fit(profile: Profile) -> Costs:
    """Fit each phase by least squares, with no cost below zero, to the medians of like batches.

    Errors count as shares of the whole batch, so that long ones do not outweigh short ones; kinds
    of batches of which there are few count less, and so do those that are far off while others are
    not, for something else was at work then. What single batches took beside the fit stays as its
    factors: their mean is what is above the median.
    """
    profile.check()
    alike = groups(profile.samples)
    points = [typical(group) for group in alike]
    # rows of which always the same share comes out bear the cost of what does: a model of windows
    # takes results for something that comes once in a while, and rows for all that limits a rate
    apart_from_rows = _told_apart(points)
    windows = profile.windows
    most_out = of_a_window(profile.samples, windows)
    filling = Filling.of(profile.samples, windows, most_out)
    knee = _knee(points)
    few = np.sqrt([min(_ENOUGH, len(group)) / _ENOUGH for group in alike])
    counts = few

    def fit_of(phase: str, skew: float) -> tuple[tuple[float, ...], float]:
        form = knee, skew
        rows = [
            many * np.array(_of(phase, point, profile.cluster, form, apart_from_rows)) / point.total
            for point, many in zip(points, counts, strict=True)
        ]
        seconds = [
            many * point.seconds[phase] / point.total
            for point, many in zip(points, counts, strict=True)
        ]
        found, off = optimize.nnls(np.array(rows), np.array(seconds))
        return tuple(float(weight) for weight in found), float(off)

    def of_all(sample: Sample) -> float:
        form = knee, skew
        return sum(float(np.dot(weights[p], _of(p, sample, profile.cluster, form))) for p in PHASES)

    skew = 0.0
    for _ in range(_AGAIN):
        if any(point.reducers > profile.cluster.slots for point in points):
            # else it cannot be told from tasks that slow each other down
            skew = min(_SKEWS, key=lambda each: (fit_of("reduce", each)[1], each))
        weights = {phase: fit_of(phase, skew)[0] for phase in PHASES}
        off = np.abs([1.0 - of_all(point) / point.total for point in points])
        usual = max(_LEAST_OFF, 1.5 * float(np.median(off)))
        counts = few * np.minimum(1.0, usual / np.maximum(off, _LEAST_OFF))

    apart = _apart(profile.samples, of_all)

    def fitted(sample: Sample) -> float:
        return of_all(sample) * apart.get((sample.lanes, sample.reducers), 1.0)

    factors = [sample.total / fitted(sample) for sample in profile.samples if fitted(sample) > 0.0]
    # what settings are off by that were not tried is what the fit of all is off by
    errors = [point.total / of_all(point) - 1.0 for point in points if of_all(point) > 0.0]
    return Costs(
        weights=weights,
        factors=np.sort(np.array(factors)),
        error=float(np.sqrt(np.mean(np.square(errors)))),
        ratios=_ratios(points),
        most_out=most_out,
        largest=max(sample.rows for sample in profile.samples),
        knee=knee,
        skew=skew,
        windows=windows,
        out_per_s=most_out / windows.every if windows else 0.0,
        filling=filling,
        faster=_faster(alike),
        apart=apart,
        seen=Counter((sample.lanes, sample.reducers) for sample in profile.samples),
    )


def _apart(
    samples: Sequence[Sample], of_all: Callable[[Sample], float]
) -> dict[tuple[int, int], float]:
    """What is seen at some settings again and again is believed more than the fit of all."""
    found: dict[tuple[int, int], list[float]] = {}
    for sample in samples:
        if (seconds := of_all(sample)) > 0.0:
            found.setdefault((sample.lanes, sample.reducers), []).append(sample.total / seconds)
    return {
        settings: 1.0 + (median(times) - 1.0) * len(times) / (len(times) + _DOUBT)
        for settings, times in found.items()
    }


def _faster(alike: Sequence[Sequence[Sample]]) -> float:
    """Medians of halves are compared where there are four batches at least."""
    shares = []
    for group in alike:
        half = len(group) // 2
        if half >= 2:
            first, second = (
                median(sample.total for sample in part) for part in (group[:half], group[half:])
            )
            shares.append(1.0 - second / first)
    return median(shares) if shares else 0.0


def _ratios(points: Sequence[Sample]) -> tuple[tuple[float, float], ...]:
    sizes: dict[int, list[Sample]] = {}
    for point in points:
        if point.rows:
            sizes.setdefault(point.rows.bit_length(), []).append(point)
    told = []
    for _, found in sorted(sizes.items()):
        rows = sum(point.rows for point in found)
        told.append((rows / len(found), sum(point.out for point in found) / rows))
    return tuple(told)


def _told_apart(points: Sequence[Sample]) -> bool:
    """Whether rows out are more than a share of rows in, the same in all batches."""
    share = sum(point.out for point in points) / max(1, sum(point.rows for point in points))
    if share < _FEW_OUT:
        # so few cannot be what a batch takes its time for
        return False
    return any(abs(point.out - share * point.rows) > _SAME_SHARE * point.out for point in points)


def _knee(points: Sequence[Sample]) -> float:
    """Between small batches and large, where some settings were tried with one in the middle too.

    Two sizes make a line, and no more.
    """
    sizes: dict[tuple[int, int], set[int]] = {}
    for point in points:
        sizes.setdefault((point.lanes, point.reducers), set()).add(point.rows)
    for found in sizes.values():
        least, most = min(found), max(found)
        if len(found) > 2 and 0 < _SPREAD * least <= most:
            return math.sqrt(least * most)
    return math.inf


def _of(
    phase: str,
    sample: Sample,
    cluster: Cluster,
    form: tuple[float, float],
    with_out: bool = True,
) -> Sequence[float]:
    (knee, skew), settings = form, Settings(sample.lanes, sample.reducers)
    out = sample.out if with_out else 0.0
    return _features(phase, settings, cluster, skew, sample.rows, out, max(0.0, sample.rows - knee))


def _features(
    phase: str,
    settings: Settings,
    cluster: Cluster,
    skew: float,
    rows: float,
    out: float,
    beyond: float = 0.0,
) -> Sequence[float]:
    """What the seconds of a phase are linear in; ``beyond`` are rows past the knee."""
    if phase in ("map", "reduce"):
        tasks = settings.lanes if phase == "map" else settings.reducers
        share, beside = stage(tasks, cluster, skew if phase == "reduce" else 0.0)
        # with the rows past the knee and before it a line may become steeper there, or flatter
        of = (
            1.0,
            tasks / cluster.slots,
            rows * share,
            rows * share * beside,
            beyond * share,
            (rows - beyond) * share,
        )
        return of if phase == "map" else (*of, out * share)
    if phase in ("write", "after"):
        return (1.0, settings.reducers / cluster.slots, rows, out)
    return (1.0,)

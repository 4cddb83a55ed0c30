"""What a batch costs, phase by phase: fitted to measured batches, linear in its rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy import optimize

from taut.planning.profile import PHASES, Profile, Sample, groups, typical
from taut.planning.quantile import Floats
from taut.planning.settings import Cluster, Settings

_SAME_SHARE = 0.1
"""By how much the share of rows that come out may differ, to be the same in all batches."""


def stage(tasks: int, cluster: Cluster) -> tuple[float, float]:
    """The share of its rows that a stage works on one after another, and how crowded cores are.

    So many tasks run in waves of as many as there are slots; every wave takes as long as one task.
    Tasks beside each other on an executor slow each other down.

    >>> stage(1, Cluster(1, 2)), stage(2, Cluster(1, 2)), stage(3, Cluster(1, 2))
    ((1.0, 0), (0.5, 1), (0.6666666666666666, 1))
    """
    waves = math.ceil(tasks / cluster.slots)
    beside = min(math.ceil(tasks / cluster.executors), cluster.cores) - 1
    return waves / tasks, beside


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds of a phase: ``fixed``, ``each`` for every row, ``out`` for every row that comes out.

    >>> Line(0.1, 1e-3) + Line(0.2, 2e-3, 1.0)
    Line(fixed=0.30000000000000004, each=0.003, out=1.0)
    """

    fixed: float = 0.0
    each: float = 0.0
    out: float = 0.0

    def __add__(self, other: object) -> Line:
        if not isinstance(other, Line):
            return NotImplemented
        return Line(self.fixed + other.fixed, self.each + other.each, self.out + other.out)

    def at(self, rows: float, out: float = 0.0) -> float:
        """For so many rows."""
        return self.fixed + self.each * rows + self.out * out


@dataclass(frozen=True, slots=True)
class Costs:
    """The fit. Its ``factors`` are what batches took as multiples of it: the measured shape.

    Attributes
    ----------
    error
        The standard deviation of the fit's error from one kind of batch to the next, as a share.
    ratio
        Rows out for each row in.
    most_out
        Rows that came out of one batch, at most: of a job with windows, when one closed.
    faster
        By what share batches became faster while they were measured, from the first half of those
        alike to the second; below 0 if slower.
    """

    weights: dict[str, tuple[float, ...]]
    factors: Floats
    error: float
    ratio: float
    most_out: int
    largest: int
    faster: float = 0.0

    def lines(self, settings: Settings, cluster: Cluster) -> dict[str, Line]:
        """Each phase, at these settings on this cluster."""
        told = {}
        for phase in PHASES:
            zero, rows, out = (
                float(np.dot(self.weights[phase], _features(phase, settings, cluster, *point)))
                for point in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))
            )
            # a faster core is faster at all that it does
            told[phase] = Line(*(v / cluster.speed for v in (zero, rows - zero, out - zero)))
        return told


def fit(profile: Profile) -> Costs:
    """Fit each phase by least squares, with no cost below zero, to the medians of like batches.

    Errors count as shares of the whole batch, so that long ones do not outweigh short ones. What
    single batches took beside the fit stays as its factors: their mean is what is above the median.
    """
    profile.check()
    alike = groups(profile.samples)
    points = [typical(group) for group in alike]
    weights = {}
    # rows of which always the same share comes out bear the cost of what does: a model of windows
    # takes results for something that comes once in a while, and rows for all that limits a rate
    apart_from_rows = _told_apart(points)
    for phase in PHASES:
        rows = [
            np.array(_of(phase, point, profile.cluster, apart_from_rows)) / point.total
            for point in points
        ]
        seconds = [point.seconds[phase] / point.total for point in points]
        found, _ = optimize.nnls(np.array(rows), np.array(seconds))
        weights[phase] = tuple(float(weight) for weight in found)

    def fitted(sample: Sample) -> float:
        return sum(float(np.dot(weights[p], _of(p, sample, profile.cluster))) for p in PHASES)

    factors = [sample.total / fitted(sample) for sample in profile.samples if fitted(sample) > 0.0]
    apart = [point.total / fitted(point) - 1.0 for point in points if fitted(point) > 0.0]
    rows_in = sum(sample.rows for sample in profile.samples)
    return Costs(
        weights=weights,
        factors=np.sort(np.array(factors)),
        error=float(np.sqrt(np.mean(np.square(apart)))),
        ratio=sum(sample.out for sample in profile.samples) / max(1, rows_in),
        most_out=max(sample.out for sample in profile.samples),
        largest=max(sample.rows for sample in profile.samples),
        faster=_faster(alike),
    )


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


def _told_apart(points: Sequence[Sample]) -> bool:
    """Whether rows out are more than a share of rows in, the same in all batches."""
    share = sum(point.out for point in points) / max(1, sum(point.rows for point in points))
    return any(abs(point.out - share * point.rows) > _SAME_SHARE * point.out for point in points)


def _of(phase: str, sample: Sample, cluster: Cluster, with_out: bool = True) -> Sequence[float]:
    settings = Settings(sample.lanes, sample.reducers)
    return _features(phase, settings, cluster, sample.rows, sample.out if with_out else 0.0)


def _features(
    phase: str, settings: Settings, cluster: Cluster, rows: float, out: float
) -> Sequence[float]:
    """What the seconds of a phase are linear in."""
    if phase in ("map", "reduce"):
        tasks = settings.lanes if phase == "map" else settings.reducers
        share, beside = stage(tasks, cluster)
        of = (1.0, tasks / cluster.slots, rows * share, rows * share * beside)
        return of if phase == "map" else (*of, out * share)
    if phase in ("write", "after"):
        return (1.0, settings.reducers / cluster.slots, rows, out)
    return (1.0,)

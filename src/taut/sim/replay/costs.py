"""What recorded batches would have cost alone: the effect of those that ran beside them removed.

With n batches at a time each goes on at a pace of 1 / (1 + g (n - 1)), and g is found from the
record: which one makes batches of the same query and the same input the most alike, whoever ran
beside them. What is then left of a batch is its noise, and is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from taut.sim.draws import Array
from taut.sim.kernel import Kernel
from taut.sim.queries.cores import Cores
from taut.watch.records import Batch

Counts = NDArray[np.int64]
_STEPS = np.linspace(0.0, 4.0, 81)
STARTING = 2
"""Batches with which a query starts, which are no example of the others."""
_ENOUGH = 0.02
"""Share of the batches' time with another one beside them, below which g cannot be told."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a batch goes on when others run beside it.

    Attributes
    ----------
    slowed
        By how much each one more slows all down: with n at a time a batch takes
        1 + slowed * (n - 1) times as long. None when the record cannot tell; then cores are
        shared evenly.
    cores
        Of the machine; more batches at a time than were recorded share them evenly at best.
    most
        Batches at a time that were recorded; beyond, the pace is extrapolated.
    """

    slowed: float | None
    cores: float
    most: int

    def of(self, running: int) -> float:
        """The pace of each of so many batches; 1 is that of one alone."""
        evenly = max(1.0, running / self.cores)
        if self.slowed is None:
            return 1.0 / evenly
        told = 1.0 + self.slowed * (running - 1)
        return 1.0 / (told if running <= self.most else max(told, evenly))


class Contended(Cores):
    """Cores on which batches slow each other down as they were seen to."""

    def __init__(self, kernel: Kernel, pace: Pace) -> None:
        super().__init__(kernel, pace.cores)
        self._contended = pace

    def _pace(self) -> float:
        return self._contended.of(len(self._left)) if self._left else 0.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What one query's batches cost alone.

    Attributes
    ----------
    fixed, per_second
        Seconds of a batch after it has read, and those that a second of its input adds.
    leads
        Seconds before it reads, batch by batch.
    noise
        By which factor each batch cost more than that.
    """

    fixed: float
    per_second: float
    leads: tuple[float, ...]
    noise: tuple[float, ...]

    def predict(self, input_seconds: float) -> float:
        """Seconds of a batch with so much input, without noise."""
        return self.fixed + self.per_second * input_seconds


@dataclass(frozen=True, slots=True)
class _Timed:
    """Batches of one query as arrays: since when, when they had read, when they were out."""

    since: Array
    read: Array
    out: Array
    input: Array


def fit(batches: Mapping[str, Sequence[Batch]], cores: float) -> tuple[Pace, dict[str, Cost]]:
    """The pace of batches that run side by side, and what each query's cost alone."""
    timed = {name: _timed(them) for name, them in batches.items() if them}
    times, running = _running(list(timed.values()))
    most = int(running.max(initial=1))
    pace = Pace(None, cores, most)
    spans = np.diff(times)
    busy, beside = (float((spans * running)[running >= low].sum()) for low in (1, 2))
    if busy > 0.0 and beside > _ENOUGH * busy:
        tried = [Pace(float(step), cores, most) for step in _STEPS]
        pace = min(tried, key=lambda each: _spread(timed, times, running, each))
    done = _done(times, running, pace)
    return pace, {name: _cost(each, times, done)[0] for name, each in timed.items()}


def since(batches: Sequence[Batch]) -> list[float]:
    """When each batch began to be worked on: when its turn was granted, or the last was out."""
    found = []
    before = -np.inf
    for batch in batches:
        granted = min(batch.granted, batch.begun) if batch.granted > 0.0 else batch.begun
        found.append(float(min(max(before, granted), batch.written)))
        before = batch.written
    return found


def _timed(batches: Sequence[Batch]) -> _Timed:
    begun = np.array(since(batches))
    out = np.array([batch.written for batch in batches])
    read = np.clip([batch.planned for batch in batches], begun, out)
    return _Timed(begun, read, out, np.array([batch.input for batch in batches]))


def _running(timed: Sequence[_Timed]) -> tuple[Array, Counts]:
    """Times at which a batch begins or ends, and how many run from each to the next."""
    if not timed:
        return np.zeros(1), np.zeros(0, dtype=np.int64)
    begins = np.concatenate([each.since for each in timed])
    ends = np.concatenate([each.out for each in timed])
    times = np.unique(np.concatenate([begins, ends]))
    begins.sort()
    ends.sort()
    running = np.searchsorted(begins, times, "right") - np.searchsorted(ends, times, "right")
    return times, running[:-1].astype(np.int64)


def _done(times: Array, running: Counts, pace: Pace) -> Array:
    """Seconds of work that a batch gets done from the first time to each."""
    paces = np.array([pace.of(max(1, n)) for n in range(int(running.max(initial=1)) + 1)])
    return np.concatenate([[0.0], np.cumsum(np.diff(times) * paces[running])])


def _cost(each: _Timed, times: Array, done: Array) -> tuple[Cost, Array]:
    since, read, out = (np.interp(at, times, done) for at in (each.since, each.read, each.out))
    work = np.maximum(out - read, 1e-4)
    # a query's first batches compile and load: their own cost, but no example of the others'
    example = slice(STARTING, None) if len(work) > 2 * STARTING else slice(None)
    x, y = each.input[example], work[example]
    fixed, slope = _line(x, y)
    usual = y <= 3.0 * np.maximum(fixed + slope * x, 1e-4)
    fixed, slope = _line(x[usual], y[usual]) if usual.any() else (fixed, slope)
    noise = work / np.maximum(fixed + slope * each.input, 1e-4)
    cost = Cost(fixed, slope, tuple((read - since).tolist()), tuple(noise.tolist()))
    return cost, np.log(noise[example])


def _line(x: Array, y: Array) -> tuple[float, float]:
    """Least squares through batches, both parts at least 0."""
    spread = float(((x - x.mean()) ** 2).sum())
    if spread <= 1e-9 or len(x) < 3:
        return float(y.mean()), 0.0
    slope = max(0.0, float(((x - x.mean()) * (y - y.mean())).sum()) / spread)
    fixed = float(y.mean() - slope * x.mean())
    if fixed < 0.0:
        return 0.0, float((x * y).sum() / (x * x).sum())
    return fixed, slope


def _spread(timed: Mapping[str, _Timed], times: Array, running: Counts, pace: Pace) -> float:
    """How far batches are from what their query's usually cost, at this pace of several."""
    done = _done(times, running, pace)
    return float(
        np.mean(np.abs(np.concatenate([_cost(t, times, done)[1] for t in timed.values()])))
    )

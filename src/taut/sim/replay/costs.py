"""What recorded batches would have cost alone: the effect of those that ran beside them removed.

With n batches at a time each goes on at a pace of 1 / (1 + g (n - 1)), and g is found from the
record: with the right one, batches that began beside others cost no more than those that did not.
Where the record cannot tell, since there were always as many at a time, what is usual is assumed.
What is then left of a batch is its noise, and is kept.
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
_ENOUGH = 20
"""Batches with few beside them, and as many with more, without which g cannot be told."""
_APART = 1.5
"""How many times as many at a time the latter must have had."""
_USUAL = 0.7
_AROUND = 4.0
"""Seconds around a batch in which others tell how slow the machine was."""
_ROUNDS = 6
"""In which what input costs and how slow the machine was are told apart; then they stand."""
_LEAST = 0.01
"""Seconds that a batch takes at least; what says less had its clock set back."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast a batch goes on when others run beside it.

    Attributes
    ----------
    slowed
        By how much each one more slows all down: with n at a time a batch takes
        1 + slowed * (n - 1) times as long.
    cores
        Of the machine. More batches at a time than were recorded share them evenly at best.
    most
        Batches at a time that were recorded; beyond, the pace is extrapolated.
    assumed
        Whether ``slowed`` is what is usual, since the record cannot tell.
    """

    slowed: float
    cores: float
    most: int
    assumed: bool = False

    @classmethod
    def usual(cls, cores: float, most: int) -> Pace:
        """As it was measured here: 2 at a time on 2 cores took 1.36 times as long, 8 took 4.2."""
        return cls(_USUAL / cores, cores, most, assumed=True)

    def of(self, running: int) -> float:
        """The pace of each of so many batches; 1 is that of one alone."""
        slowed = 1.0 + self.slowed * (running - 1)
        known = running <= self.most and not self.assumed
        return 1.0 / (slowed if known else max(slowed, running / self.cores))


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
    pace = Pace.usual(cores, most)
    found = _running_at_start(timed, times, running)
    if _told(found):
        tried = [Pace(float(step), cores, most) for step in _STEPS]

        def tied(each: Pace) -> float:
            """How far a batch's noise still goes with how many ran when it began, at this pace."""
            works = _works(timed, times, _done(times, running, each))
            slopes = {n: _slope(t.input[STARTING:], works[n][STARTING:]) for n, t in timed.items()}
            noises = [np.log(_noise(timed[n], works[n], slope)[1]) for n, slope in slopes.items()]
            centred = np.concatenate([noise - np.median(noise) for noise in noises])
            return abs(float((centred * (found - found.mean())).sum()))

        pace = min(tried, key=tied)
    done = _done(times, running, pace)
    works = _works(timed, times, done)
    slopes = _slopes(timed, works)
    costs = {}
    for name, each in timed.items():
        slope = slopes[name]
        fixed, _ = _noise(each, works[name], slope)
        leads = np.interp(each.read, times, done) - np.interp(each.since, times, done)
        noise = _ratio(each, works[name], slope)
        costs[name] = Cost(fixed, slope, tuple(leads.tolist()), tuple(noise.tolist()))
    return pace, costs


def begun_at(batches: Sequence[Batch]) -> list[float]:
    """When each batch began to be worked on: when its turn was granted, or the last was out."""
    found = []
    before = -np.inf
    for batch in batches:
        granted = min(batch.granted, batch.begun) if batch.granted > 0.0 else batch.begun
        found.append(float(min(max(before, granted), batch.written)))
        before = batch.written
    return found


def _timed(batches: Sequence[Batch]) -> _Timed:
    begun = np.array(begun_at(batches))
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


def _works(timed: Mapping[str, _Timed], times: Array, done: Array) -> dict[str, Array]:
    """Seconds that batches would have taken alone, from when they had read."""
    return {
        name: np.maximum(np.interp(t.out, times, done) - np.interp(t.read, times, done), _LEAST)
        for name, t in timed.items()
    }


def _examples(batches: int) -> slice:
    """A query's first batches compile and load: their own cost, but no example of the others'."""
    return slice(STARTING, None) if batches > 2 * STARTING else slice(None)


def _noise(each: _Timed, work: Array, slope: float) -> tuple[float, Array]:
    """What a batch without input costs, and how far the examples are from that and their input."""
    of = _examples(len(work))
    rest = np.maximum(work[of] - slope * each.input[of], 0.0)
    # a few that took very long are noise, not what is usual
    usual = rest <= 3.0 * max(float(np.median(rest)), _LEAST)
    fixed = max(float(rest[usual].mean()), _LEAST)
    return fixed, work[of] / (fixed + slope * each.input[of])


def _slopes(timed: Mapping[str, _Timed], works: Mapping[str, Array]) -> dict[str, float]:
    """What a second of input adds to each query's batches, as far as it stands out of the noise.

    While a machine is slow, batches take longer and so the next ones find more input: that would
    pass for a cost of input. So batches are seen against those of the other queries around them.
    """
    slopes = dict.fromkeys(timed, 0.0)
    for _ in range(_ROUNDS):
        level = _levels(timed, {n: _ratio(timed[n], works[n], slopes[n]) for n in timed})
        slopes = {
            name: _slope(t.input[of], (works[name] / level[name])[of])
            for name, t in timed.items()
            for of in (_examples(len(t.input)),)
        }
    return slopes


def _ratio(each: _Timed, work: Array, slope: float) -> Array:
    """By which factor each batch took longer than its input says."""
    return work / np.maximum(_noise(each, work, slope)[0] + slope * each.input, _LEAST)


def _slope(x: Array, y: Array) -> float:
    if len(x) < 4:
        return 0.0
    usual = y <= 3.0 * max(float(np.median(y)), _LEAST)
    x, y = x[usual], y[usual]
    x, y = x - x.mean(), y - y.mean()
    spread = float((x * x).sum())
    if len(x) < 4 or spread <= 1e-9:
        return 0.0
    slope = float((x * y).sum()) / spread
    error = float(np.sqrt(((y - slope * x) ** 2).sum() / (len(x) - 2) / spread))
    if slope <= 2.0 * error:
        return 0.0
    return slope * (1.0 - (2.0 * error / slope) ** 2)


def _levels(timed: Mapping[str, _Timed], works: Mapping[str, Array]) -> dict[str, Array]:
    """How slow the machine was at each batch: what others' then took, 1 is usual."""
    if len(timed) < 2:
        return {name: np.ones(len(work)) for name, work in works.items()}
    at = np.concatenate([t.since for t in timed.values()])
    whose = np.concatenate([np.full(len(w), n) for n, w in enumerate(works.values())])
    took = np.concatenate([w / np.median(w) for w in works.values()])
    order = np.argsort(at, kind="stable")
    at, whose, took = at[order], whose[order], took[order]
    first, last = np.searchsorted(at, at - _AROUND), np.searchsorted(at, at + _AROUND, "right")
    found = np.ones(len(at))
    for n in range(len(at)):
        others = took[first[n] : last[n]][whose[first[n] : last[n]] != whose[n]]
        if len(others):
            found[n] = np.median(others)
    back = np.empty(len(at))
    back[order] = found
    return dict(
        zip(works, np.split(back, np.cumsum([len(w) for w in works.values()])[:-1]), strict=True)
    )


def _running_at_start(timed: Mapping[str, _Timed], times: Array, running: Counts) -> Array:
    """How many ran when each example began, itself among them.

    Not how many ran beside it in all: a batch that takes long meets more of them.
    """
    if not timed or not len(running):
        return np.zeros(0)
    begins = [t.since[_examples(len(t.since))] for t in timed.values()]
    at = np.searchsorted(times, np.concatenate(begins)).clip(0, len(running) - 1)
    return np.asarray(running[at], dtype=np.float64)


def _told(found: Array) -> bool:
    """Whether enough batches began with few and with more at a time."""
    sizes = np.sort(found)
    return len(sizes) >= 2 * _ENOUGH and bool(sizes[-_ENOUGH] >= _APART * sizes[_ENOUGH - 1])

"""How windows fill: the states that a batch changes, and the results, by how dense rows are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from taut.planning.profile import Sample, Windows

_LONG = 0.5
"""Of a window, what batches sweep of which some have results."""
_NOT_FULL = 0.75
"""Of a window: what it holds until then says how its states grow."""
_LEAST_RATE = 1e-9
_LEAST_POWER = 0.05
_DIGITS = 1e-6


@dataclass(frozen=True, slots=True)
class Filling:
    """Windows with so many rows have so many keys, and with more rows more, but less and less.

    Attributes
    ----------
    dense
        Rows in a second of windows.
    every
        Seconds from one end to the next.
    results
        Keys of a window that is full: what comes out of it.
    power, fades
        With which power of its rows they grow: 0 if all keys are in every window, 1 if each row has
        a key of its own. And how much smaller that is with e times as many rows.
    batch
        Seconds of batches that begin and end where windows do; 0 if they do anywhere.

    >>> twice = Filling(1_000.0, 2.0, 100.0, 0.5, 0.1).at(2_000.0)
    >>> round(twice.results, 1), round(twice.power, 3)
    (138.1, 0.431)
    """

    dense: float
    every: float
    results: float
    power: float
    fades: float = 0.0
    batch: float = 0.0

    @classmethod
    def of(
        cls, samples: Sequence[Sample], windows: Windows | None, results: float
    ) -> Filling | None:
        """As it was measured; None if there are no windows, or if that cannot be told.

        The states of a window that is still filling are the results that it would have with as few
        rows as it has by then.
        """
        if windows is None or not results:
            return None
        # of what was swept by the same batches as were results
        known = long(samples, windows) or [sample for sample in samples if sample.swept]
        swept = sum(sample.swept for sample in known)
        rows = sum(sample.rows for sample in known)
        by_then = [
            (math.log(windows.every / sample.filled), sample.state_rows)
            for sample in samples
            if sample.state_rows and 0.0 < sample.filled < _NOT_FULL * windows.every
        ]
        if not rows or not by_then:
            return None
        before, states = (np.array(each, dtype=float) for each in zip(*by_then, strict=True))
        # the longer before it is full, the larger the power: more than one moment tells how much
        fading = before**2 / 2.0 if np.ptp(before) > 1.0 else np.zeros_like(before)
        (power, fades), _ = optimize.nnls(
            np.column_stack([before, fading]), np.maximum(0.0, np.log(results / states))
        )
        power, fades = min(1.0, float(power)), float(fades)
        return cls(rows / swept, windows.every, results, power, fades)

    def at(self, rate: float) -> Filling:
        """With so many rows in a second of windows."""
        more = math.log(max(rate, _LEAST_RATE) / self.dense)
        power = min(1.0, max(0.0, self.power - self.fades * more))
        return replace(
            self,
            dense=max(rate, _LEAST_RATE),
            results=self.results * self._times(more),
            power=power,
        )

    def paced(self, trigger: float, phase: float) -> Filling:
        """With batches at this interval: by the clock, as windows are that end ``phase`` after it.

        >>> windows = Filling(1.0, 2.0, 1.0, 0.5)
        >>> [windows.paced(trigger, 0.0).batch for trigger in (0.0, 1.0, 3.0, 4.0)]
        [0.0, 1.0, 0.0, 4.0]
        >>> windows.paced(4.0, 1.0).batch
        0.0
        """
        short, long = sorted((trigger, self.every))
        if not short or not _whole(long / short) or not _whole(phase / short):
            return self
        return replace(self, batch=trigger)

    def _times(self, more: float) -> float:
        """Results with e to the power of ``more`` times as many rows, as multiples of those now."""
        if not self.fades:
            return math.exp(self.power * more)
        within = min(max(more, (self.power - 1.0) / self.fades), self.power / self.fades)
        below = min(0.0, more - within)
        return math.exp(self.power * within - self.fades * within**2 / 2.0 + below)

    @property
    def slopes(self) -> tuple[float, float, float]:
        """States that a row changes of a large batch, how many more of a small one, and up to when.

        A batch of n windows changes as many states as n of them have, and a share of one window's
        more: for it begins within one and ends within another. On average over where it begins,
        that share is (1 - power) / (1 + power). With less than a window, a power of the rows, which
        is a line here too.

        >>> steady, more, upto = Filling(1_000.0, 1.0, 100.0, 0.5).slopes
        >>> round(4_000 * steady + upto * more, 1)
        433.3
        """
        power = max(self.power, _LEAST_POWER)
        if self.batch:
            windows = self.batch / self.every
            # all of some windows, or a part of one
            states = self.results * (windows if windows >= 1.0 else windows**power)
            return states / (self.dense * self.batch), 0.0, math.inf
        rows = self.dense * self.every
        share = (1.0 - power) / (1.0 + power)
        return self.results / rows, self.results / (power * rows), share * power * rows

    def changed(self, rows: float) -> float:
        """States that a batch of so many rows changes."""
        steady, more, upto = self.slopes
        return steady * rows + (more * min(rows, upto) if more else 0.0)


def of_a_window(samples: Sequence[Sample], windows: Windows | None) -> int:
    """Rows that came out for one window; or at most, of a batch, where that cannot be told.

    A batch that reads a backlog may close several, or none: as many as ended in what was swept, on
    average. Batches that are much shorter than windows have too few of them for an average.
    """
    known = long(samples, windows)
    if windows is None or not known:
        return max(one.out for one in samples)
    swept = sum(one.swept for one in known)
    return round(windows.every * sum(one.out for one in known) / swept)


def long(samples: Sequence[Sample], windows: Windows | None) -> list[Sample]:
    """Batches that swept half a window at least, if results came out with any of them."""
    found = [one for one in samples if windows and one.swept >= _LONG * windows.every]
    return found if any(one.out for one in found) else []


def _whole(number: float) -> bool:
    return abs(number - round(number)) < _DIGITS

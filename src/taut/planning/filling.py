"""How windows fill: how many keys they have, and so results, by how dense rows are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize

from taut.planning.profile import Sample, Windows

_LONG = 0.5
"""Of a window: batches that sweep as much have results often enough for an average."""
_NOT_FULL = 0.75
"""Of the rows of a window: what it holds until then says how its states grow."""
_MOMENTS = 1.0
"""How far apart windows were seen, in logarithms of their rows, to tell how their power fades."""
_LEAST_RATE = 1e-9


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

    >>> twice = Filling(1_000.0, 2.0, 100.0, 0.5, 0.1).at(2_000.0)
    >>> round(twice.results, 1), round(twice.power, 3)
    (138.1, 0.431)
    """

    dense: float
    every: float
    results: float
    power: float
    fades: float = 0.0

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
        if not rows:
            return None
        dense = rows / swept
        by_then = []
        for sample in samples:
            if sample.state_rows and sample.filled > 0.0:
                # profiles that were merged need not have been as dense
                of_it = sample.rows / sample.swept if sample.swept else dense
                share = of_it * sample.filled / (dense * windows.every)
                if 0.0 < share < _NOT_FULL:
                    by_then.append((-math.log(share), sample.state_rows))
        if not by_then:
            return None
        before, states = (np.array(each, dtype=float) for each in zip(*by_then, strict=True))
        # the longer before it is full, the larger the power
        fading = before**2 / 2.0 if np.ptp(before) > _MOMENTS else np.zeros_like(before)
        (power, fades), _ = optimize.nnls(
            np.column_stack([before, fading]), np.maximum(0.0, np.log(results / states))
        )
        power, fades = min(1.0, float(power)), float(fades)
        return cls(dense, windows.every, results, power, fades)

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

    def _times(self, more: float) -> float:
        """Results with e to the power of ``more`` times as many rows, as multiples of those now."""
        if not self.fades:
            return math.exp(self.power * more)
        within = min(max(more, (self.power - 1.0) / self.fades), self.power / self.fades)
        below = min(0.0, more - within)
        return math.exp(self.power * within - self.fades * within**2 / 2.0 + below)


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

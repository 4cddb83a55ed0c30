"""Quantiles of latency, by what is known of its shape: measured, near normal, or nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from taut.planning.queueing import Moments

Floats = npt.NDArray[np.float64]
_HALVINGS = 44
_POINT = 1e-9
"""Seconds up to which a span is a point."""


def normal(of: Moments, share: float) -> float:
    """The quantile of a normal distribution: too low for a heavy tail.

    >>> round(normal(Moments(1.0, 1.0), 0.99), 3)
    3.326
    """
    return of.mean + of.sd * float(special.ndtri(_share(share)))


def cantelli(of: Moments, share: float) -> float:
    """Never below the quantile, whatever the distribution: for when nothing else is known.

    >>> round(cantelli(Moments(1.0, 1.0), 0.99), 3)
    10.95
    """
    share = _share(share)
    return of.mean + of.sd * math.sqrt(share / (1.0 - share))


@dataclass(frozen=True, slots=True)
class Spans:
    """A measured shape: latencies spread evenly over spans, each with so many rows.

    The rows of a micro-batch arrived evenly while the last one ran and are written together, so
    their latencies are a span: from that of the last to arrive to that of the first.
    """

    low: Floats
    width: Floats
    rows: Floats

    @property
    def mean(self) -> float:
        """The mean."""
        return self.moments().mean

    def moments(self) -> Moments:
        """Exactly."""
        weight = self.rows / self.rows.sum()
        middle = self.low + self.width / 2.0
        mean = float((weight * middle).sum())
        square = float((weight * (middle**2 + self.width**2 / 12.0)).sum())
        return Moments(mean, max(0.0, square - mean * mean))

    def below(self, latency: float) -> float:
        """The share of rows with at most this latency."""
        wide = self.width > _POINT
        inside = (latency - self.low) / np.where(wide, self.width, 1.0)
        share = np.where(wide, inside, self.low <= latency).clip(0.0, 1.0)
        return float((share * self.rows).sum() / self.rows.sum())

    def quantile(self, share: float) -> float:
        """The least latency that this share of rows does not exceed.

        >>> one = Spans(np.array([1.0]), np.array([2.0]), np.array([5.0]))
        >>> round(one.quantile(0.5), 6), one.quantile(1.0)
        (2.0, 3.0)
        """
        high = float((self.low + self.width).max())
        if share >= 1.0:
            return high
        low = float(self.low.min())
        if self.below(low) >= share:
            return low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            if self.below(middle) >= share:
                high = middle
            else:
                low = middle
        return high


def _share(share: float) -> float:
    if not 0.0 < share < 1.0:
        raise ValueError(f"share={share}: must be above 0 and below 1")
    return share

"""What has been measured lately."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

KEPT = 9


@dataclass(frozen=True, slots=True)
class Recent:
    """The last nine values of something, and what to expect of the next.

    The median, so that a batch that met a pause, or the first one that had everything to load,
    says nothing about those that follow.

    Examples
    --------
    >>> taken = Recent(prior=0.5)
    >>> taken.value
    0.5
    >>> for seconds in (9.0, 1.0, 1.2):
    ...     taken = taken.observe(seconds)
    >>> taken.value, round(taken.careful, 2)
    (1.2, 1.5)
    """

    prior: float
    seen: tuple[float, ...] = ()

    def observe(self, value: float) -> Recent:
        """With one more value."""
        return Recent(self.prior, (*self.seen, value)[-KEPT:])

    @property
    def value(self) -> float:
        """What it is most of the time; the prior before anything was seen."""
        return median(self.seen) if self.seen else self.prior

    @property
    def careful(self) -> float:
        """More than it is most of the time: by as much as it differs from that, and half more."""
        middle = self.value
        off = [abs(value - middle) for value in self.seen]
        # 1.5 of the median deviation is one standard deviation where values are normal
        return middle + 1.5 * median(off) if off else middle

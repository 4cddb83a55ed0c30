"""What rows cost, learned while running: a fixed part, a part for each row, and a class of rows."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean in which what is older counts less, and how far values lie from it."""

    value: float
    spread: float = 0.0
    """Standard deviation."""
    seen: int = 0

    def observe(self, value: float, weight: float = 0.2) -> Mean:
        """With one more value; the first few count evenly."""
        share = max(weight, 1.0 / (self.seen + 1))
        off = value - self.value
        variance = (1.0 - share) * (self.spread * self.spread + share * off * off)
        if not self.seen:
            return Mean(value, 0.0, 1)
        return Mean(self.value + share * off, variance**0.5, self.seen + 1)

    @property
    def careful(self) -> float:
        """The mean and a standard deviation."""
        return self.value + self.spread


@dataclass(frozen=True, slots=True)
class RowCost:
    """Seconds as ``fixed + each * rows`` by decayed least squares. O(1).

    Where batches have all been of one size the two parts cannot be told apart: then all of it is
    the rows'.

    Examples
    --------
    >>> cost = RowCost()
    >>> for rows in (100, 1_000, 400):
    ...     cost = cost.observe(rows, 0.02 + rows * 5e-6)
    >>> round(cost.fixed, 6), round(cost.each * 1e6, 3)
    (0.02, 5.0)
    """

    prior: float = 5e-6
    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def observe(self, rows: int, seconds: float, decay: float = 0.9) -> RowCost:
        """With one more batch."""
        return replace(
            self,
            n=decay * self.n + 1.0,
            x=decay * self.x + rows,
            y=decay * self.y + seconds,
            xx=decay * self.xx + rows * rows,
            xy=decay * self.xy + rows * seconds,
        )

    @property
    def each(self) -> float:
        """Seconds for a row."""
        if self.x <= 0.0:
            return self.prior
        spread = self.n * self.xx - self.x * self.x
        whole = self.y / self.x
        if spread <= 0.01 * self.n * self.xx:
            return whole
        slope = (self.n * self.xy - self.x * self.y) / spread
        # neither part can be negative, and rows are never quite free
        return min(max(slope, 0.05 * whole), whole)

    @property
    def fixed(self) -> float:
        """Seconds without any row."""
        return max(0.0, (self.y - self.each * self.x) / self.n) if self.n else 0.0

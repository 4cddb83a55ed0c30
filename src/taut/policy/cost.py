"""What a batch costs, learned while running: a fixed part and a part for its input.

Input is measured in seconds of stream, not in rows: that is known before a batch is planned,
for any source, and at a steady rate it is the same up to a factor.
"""

from __future__ import annotations

import math


class BatchCost:
    """Batch seconds as ``fixed + per_second * input seconds``, older batches fading.

    Decayed least squares on six sums, O(1). The slope counts as far as it stands out of the
    noise (less two standard errors): a few slow batches while a query starts would else pass
    for a cost of its input, and batches without input for free.
    """

    def __init__(self, prior: float = 0.3, decay: float = 0.9) -> None:
        if not 0.0 < decay < 1.0:
            raise ValueError(f"decay={decay}: must lie between 0 and 1, such as 0.9")
        self._prior = prior
        self._decay = decay
        self._n = self._x = self._y = self._xx = self._xy = self._yy = 0.0
        self._slope = 0.0

    def observe(self, input_seconds: float, seconds: float) -> None:
        """Take one finished batch."""
        d = self._decay
        self._n = d * self._n + 1.0
        self._x = d * self._x + input_seconds
        self._y = d * self._y + seconds
        self._xx = d * self._xx + input_seconds * input_seconds
        self._xy = d * self._xy + input_seconds * seconds
        self._yy = d * self._yy + seconds * seconds
        self._slope = self._fit()

    @property
    def per_second(self) -> float:
        """Cost of a second of input."""
        return self._slope

    def _fit(self) -> float:
        if self._n < 2.0:
            return 0.0
        spread = self._n * self._xx - self._x * self._x
        if spread <= 1e-9 * max(1.0, self._n * self._xx):
            return 0.0
        slope = (self._n * self._xy - self._x * self._y) / spread
        rest = self._yy - self._y * self._y / self._n - slope * slope * spread / self._n
        variance = max(0.0, rest) / max(self._n - 2.0, 0.5)
        slope -= 2.0 * math.sqrt(variance * self._n / spread)
        # a fixed part cannot be negative: then the whole cost is the input's
        return min(max(0.0, slope), self._y / self._x if self._x > 0 else 0.0)

    @property
    def fixed(self) -> float:
        """Cost of a batch without input."""
        if self._n == 0.0:
            return self._prior
        return max(0.0, (self._y - self.per_second * self._x) / self._n)

    def predict(self, input_seconds: float) -> float:
        """Expected seconds of a batch with so much input."""
        return self.fixed + self.per_second * input_seconds

    def check(self) -> None:
        """Assert the invariants."""
        assert self.fixed >= 0.0 and self.per_second >= 0.0

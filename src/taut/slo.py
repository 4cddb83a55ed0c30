"""Slo: a latency objective such as ``p99 <= 500 ms``, as a value."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from statistics import fmean

from taut.duration import duration, seconds
from taut.errors import DurationError, SloError

_SLO = re.compile(r"\s*(mean|max|p\s*[0-9]+(?:\.[0-9]+)?)\s*<=?(.*)", re.IGNORECASE | re.DOTALL)
_LOWEST, _HIGHEST = Fraction(50), Fraction("99.99")


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Slo:
    """A bound on the latency of results: on a quantile, on the mean or on the maximum.

    ``<`` is read as ``<=``: latencies are measured on a continuous scale.

    Parameters
    ----------
    text : str or Slo
        ``"p99 <= 500 ms"``, ``"mean <= 1 s"``, ``"max <= 2 minutes"``: p50 to p99.99, any unit
        from ``us`` to ``h``, in any case and with any spacing.

    Attributes
    ----------
    quantile : float or None
        0.99 for p99, 1.0 for max, None for the mean.
    seconds : float
        The bound.

    Examples
    --------
    >>> slo = Slo("P99 < 0.5s")
    >>> slo
    Slo('p99 <= 500 ms')
    >>> slo.quantile, slo.seconds
    (0.99, 0.5)
    """

    quantile: float | None
    seconds: float

    def __init__(self, text: str | Slo) -> None:
        quantile, bound = (text.quantile, text.seconds) if isinstance(text, Slo) else _read(text)
        object.__setattr__(self, "quantile", quantile)
        object.__setattr__(self, "seconds", bound)

    @property
    def measure(self) -> str:
        """What is bounded: ``"p99"``, ``"mean"`` or ``"max"``."""
        return _measure(self.quantile)

    @classmethod
    def parse(cls, text: str) -> Slo:
        """Read an objective from text; the same as ``Slo(text)``."""
        return cls(text)

    def met_by(self, latencies: Sequence[float]) -> bool:
        """Whether these latencies, in seconds, meet the objective.

        Quantiles are exact (nearest rank). No latencies at all meet every objective; a NaN meets
        none. O(n), without sorting.
        """
        if len(latencies) == 0:
            return True
        if self.quantile is None:
            return fmean(latencies) <= self.seconds
        on_time = sum(1 for latency in latencies if latency <= self.seconds)
        return self.allows(len(latencies) - on_time, len(latencies))

    def allows(self, late: int, total: int) -> bool:
        """Whether ``late`` results out of ``total`` may exceed the bound.

        The nearest-rank quantile is within the bound exactly when at least
        ``ceil(quantile * total)`` results are.

        Examples
        --------
        >>> slo = Slo("p99 <= 1 s")
        >>> slo.allows(1, 100), slo.allows(1, 99)
        (True, False)
        """
        if self.quantile is None:
            raise SloError(
                f"{self!r}.allows: a count of late results says nothing about a mean; "
                "use met_by(latencies), or an objective such as 'p99 <= 1 s'"
            )
        if not 0 <= late <= total:
            raise SloError(f"late={late!r}, total={total!r}: needs 0 <= late <= total")
        # In floats 0.07 * 100 is above 7; the decimal that was written is exact.
        rank = math.ceil(Fraction(repr(self.quantile)) * total)
        return total - late >= rank

    def __str__(self) -> str:
        return f"{self.measure} <= {duration(self.seconds)}"

    def __repr__(self) -> str:
        return f"Slo({str(self)!r})"


def _read(text: str) -> tuple[float | None, float]:
    match = _SLO.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise SloError(
            f"slo {text!r} is not an objective: write it as 'p99 <= 500 ms', 'mean <= 1 s' "
            "or 'max <= 2 s'"
        )
    try:
        bound = seconds(match[2])
    except DurationError as error:
        raise SloError(f"slo {text!r}: {error}") from None
    if bound <= 0:
        raise SloError(f"slo {text!r}: the bound must be above zero, as in 'p99 <= 500 ms'")
    return _quantile(match[1].lower(), text), bound


def _quantile(measure: str, text: str) -> float | None:
    if measure == "mean":
        return None
    if measure == "max":
        return 1.0
    percent = Fraction(measure[1:].strip())
    if not _LOWEST <= percent <= _HIGHEST:
        raise SloError(
            f"slo {text!r}: the quantile must be from p50 to p99.99; for p100 write 'max'"
        )
    return float(percent / 100)


def _measure(quantile: float | None) -> str:
    if quantile is None:
        return "mean"
    if quantile == 1.0:
        return "max"
    percent = format(Decimal(repr(quantile)).scaleb(2), "f")
    return "p" + (percent.rstrip("0").rstrip(".") if "." in percent else percent)

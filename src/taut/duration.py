"""Durations as text, the way Spark's options write them: ``"500 ms"``, ``"12s"``, ``"1 hour"``.

Spark's own SQL intervals (``window``, ``withWatermark``, ``trigger``) know only whole words such
as ``"500 milliseconds"``; what :func:`duration` writes is for people and for Taut's options.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

from taut.errors import DurationError

_UNITS = {
    Fraction(1, 1_000_000): ("us", "microsecond", "microseconds"),
    Fraction(1, 1_000): ("ms", "millisecond", "milliseconds"),
    Fraction(1): ("s", "sec", "secs", "second", "seconds"),
    Fraction(60): ("m", "min", "mins", "minute", "minutes"),
    Fraction(3_600): ("h", "hr", "hrs", "hour", "hours"),
    Fraction(86_400): ("d", "day", "days"),
}
_SECONDS_PER = {name: unit for unit, names in _UNITS.items() for name in names}
_DURATION = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([a-z]+)\s*", re.IGNORECASE)


def seconds(text: str | float) -> float:
    """Read a duration; a number is already in seconds.

    Examples
    --------
    >>> seconds("500 ms"), seconds("12s"), seconds("1.5 minutes"), seconds(3)
    (0.5, 12.0, 90.0, 3.0)
    """
    if isinstance(text, (int, float)):
        if math.isfinite(text) and text >= 0:
            return float(text)
        raise DurationError(f"duration {text!r} s is not a finite number of seconds >= 0")
    match = _DURATION.fullmatch(text)
    unit = _SECONDS_PER.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise DurationError(
            f"duration {text!r} is not a number and a unit: write it as '500 ms', '12 s', "
            "'1.5 minutes' (units: us, ms, s, min, h, d)"
        )
    try:
        return float(Fraction(match[1]) * unit)
    except (OverflowError, ValueError):  # ValueError: thousands of digits
        raise DurationError(f"duration {text[:40]!r} is longer than a float can hold") from None


def duration(value: float) -> str:
    """Write a duration in the unit that suits it; :func:`seconds` reads back the same float.

    Examples
    --------
    >>> duration(0.5), duration(12), duration(90), duration(120)
    ('500 ms', '12 s', '90 s', '2 min')
    """
    if not (math.isfinite(value) and value >= 0):
        raise DurationError(f"duration {value!r} s is not a finite number of seconds >= 0")
    # repr() is the shortest decimal that reads back as this float, and scaling it by powers of
    # ten in decimal is exact; so is division by 60, but only for whole minutes.
    exact = Decimal(repr(abs(float(value))))
    if exact and exact == int(exact):
        whole = int(exact)
        if whole % 3_600 == 0:
            return f"{whole // 3_600} h"
        if whole % 60 == 0:
            return f"{whole // 60} min"
    if exact >= 1 or not exact:
        return f"{_plain(exact)} s"
    milliseconds = exact.scaleb(3)
    if milliseconds >= 1:
        return f"{_plain(milliseconds)} ms"
    return f"{_plain(exact.scaleb(6))} us"


def _plain(number: Decimal) -> str:
    """``1E+1`` as ``10`` and ``500.0`` as ``500``."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text

"""Options that several of these workloads take, read and checked alike."""

from __future__ import annotations

from taut.duration import seconds
from taut.errors import DurationError
from taut.workloads.windows import WorkloadError


def whole(option: str, given: object, least: int) -> int:
    """A whole number of at least ``least``.

    >>> whole("keys", 20_000, least=1)
    20000
    """
    if isinstance(given, int) and not isinstance(given, bool) and given >= least:
        return given
    raise WorkloadError(f"{option}={given!r}: must be a whole number, {least} or more")


def micros(option: str, given: str | float, least: int) -> int:
    """A duration in whole microseconds, of at least ``least``.

    >>> micros("gap", "30 s", least=1)
    30000000
    """
    try:
        value = round(seconds(given) * 1e6)
    except (DurationError, TypeError, OverflowError):
        value = -1
    if value < least:
        bound = "above 0" if least else "0 or more"
        raise WorkloadError(f"{option}={given!r}: must be a duration {bound}, such as '30 s'")
    return value

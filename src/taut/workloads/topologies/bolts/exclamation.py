"""Exclamation: three operators in a line, each of which adds a mark to a name."""

from __future__ import annotations

from taut.workloads.topologies.topology import Bolt

_NAMES = ("nathan", "mike", "jackson", "golda", "bertels")


def emit(n: int) -> str:
    """A name."""
    return f"{n} 0 {_NAMES[n % len(_NAMES)]}"


def mark(value: str) -> str:
    """The name with a mark more."""
    return value + "!"


BOLTS = (Bolt("map", mark),) * 3

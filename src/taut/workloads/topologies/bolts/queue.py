"""Queue: one operator, which does no more than take its time."""

from __future__ import annotations

from taut.workloads.topologies.topology import Bolt


def emit(n: int) -> str:
    """A tuple that says nothing."""
    return f"{n} 0 "


def done(value: str) -> str:
    """The tuple, marked as done."""
    return value + "done"


BOLTS = (Bolt("map", done),)

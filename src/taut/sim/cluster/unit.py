"""What flows: a unit that a spout has emitted, and its instances under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from taut.sim.kernel import Action

if TYPE_CHECKING:
    from taut.sim.cluster.spout import Emitting


class Unit:
    """What a spout waits for: done when the first of its instances is."""

    __slots__ = ("done", "issued", "key", "spout", "to")

    def __init__(self, spout: Emitting, issued: float, key: int) -> None:
        self.spout = spout
        self.issued = issued
        self.key = key
        self.done = False
        self.to: Action | None = None
        """The task that its first instance went to, where that is known; by what it does there."""


class Flight:
    """An instance of a unit: done when all pieces that it has become are."""

    __slots__ = ("key", "pieces", "unit")

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.key = unit.key
        self.pieces = 1

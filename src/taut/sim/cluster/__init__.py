"""Machines, operators with tasks and queues, and tuples that flow between them."""

from __future__ import annotations

from taut.sim.cluster.grouping import (
    All,
    Balanced,
    Fields,
    Grouping,
    PartialKey,
    Random,
    Shuffle,
)
from taut.sim.cluster.machine import Machine, Pauses
from taut.sim.cluster.network import Network
from taut.sim.cluster.spout import Spout
from taut.sim.cluster.topology import Operator, Outcome, Overloaded, Topology

__all__ = [
    "All",
    "Balanced",
    "Fields",
    "Grouping",
    "Machine",
    "Network",
    "Operator",
    "Outcome",
    "Overloaded",
    "PartialKey",
    "Pauses",
    "Random",
    "Shuffle",
    "Spout",
    "Topology",
]

"""Chains of operators on single tuples, to measure lanes with.

A tuple is text: its number, which of its outputs it is on the way to (``0`` unless a topology
branches), and what it says. Operators are plain functions of that text, so what comes out of a
topology is known beforehand: :meth:`Topology.results`.

How long an operator takes is a matter of its own. Those of ``exclamation``, ``page-load``,
``processing`` and ``queue`` wait: a tuple occupies its lane for its service time and no processor,
so that eight lanes can be compared on two cores. Those of the balance topologies compute. What Taut
and Spark themselves do is real in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from taut.workloads.topologies.bolts import balance, exclamation, page_load, processing, queue
from taut.workloads.topologies.topology import Bolt, Topology, number, part

__all__ = ["TOPOLOGIES", "Bolt", "Topology", "number", "part"]

_BALANCE = Topology(balance.BOLTS, balance.emit, service_s=0.0, rate=400)

TOPOLOGIES: Mapping[str, Topology] = {
    "exclamation": Topology(exclamation.BOLTS, exclamation.emit, service_s=0.001, rate=400),
    "page-load": Topology(page_load.BOLTS, page_load.emit, service_s=0.002, rate=400),
    "processing": Topology(processing.BOLTS, processing.emit, service_s=0.002, rate=400),
    "queue": Topology(queue.BOLTS, queue.emit, service_s=0.001, rate=1_000, heavy=0.01, slow=0.25),
    "sink": Topology(exclamation.BOLTS, exclamation.emit, service_s=0.001, rate=400),
    "balance-a": _BALANCE,
    "balance-b": replace(_BALANCE, rate=300),
    "balance-c": _BALANCE,
}
"""By name. The balance topologies differ in the machines that they run on; ``sink`` is exclamation
with a sink that is slow and shared."""

"""The machines that topologies run on when they need more than this one."""

from __future__ import annotations

from collections.abc import Sequence

from taut.bench.cluster import Machine
from taut.bench.record import BenchError

_CORES = 0.25
"""Of each machine in the balance topologies: five of them leave room on two cores for the driver,
the source and the benchmark."""
_UNEVEN = (4, 3, 3, 2, 2)
"""14 tasks on 5 machines, as published. A lane is a whole line of operators, so what differs there
by which tasks a machine has differs here by how many lanes."""
_MACHINES = 5
_FOR_COPIES = 4


def machines(topology: str, lanes: int, several: bool) -> Sequence[Machine] | None:
    """The machines for so many lanes; None when this one will do.

    ``several`` asks for more than one in any case: Spark starts a copy of a task only on another
    host.

    >>> [machine.slots for machine in machines("balance-a", 14, several=False)]
    [4, 3, 3, 2, 2]
    >>> [machine.cores for machine in machines("balance-c", 5, several=False)]
    [0.125, 0.25, 0.25, 0.25, 0.25]
    >>> [machine.rivals for machine in machines("balance-b", 5, several=False)]
    [1, 1, 0, 0, 0]
    >>> [machine.slots for machine in machines("queue", 8, several=True)]
    [2, 2, 2, 2]
    """
    if topology == "balance-a":
        times = _times(topology, lanes, sum(_UNEVEN))
        return [Machine(times * slots, _CORES) for slots in _UNEVEN]
    if topology in ("balance-b", "balance-c"):
        slots = _times(topology, lanes, _MACHINES)
        if topology == "balance-b":
            return [Machine(slots, _CORES, rivals=int(n < 2)) for n in range(_MACHINES)]
        return [Machine(slots, _CORES / (2 if n == 0 else 1)) for n in range(_MACHINES)]
    if several:
        count = max(2, min(lanes, _FOR_COPIES))
        return [Machine(-(-lanes // count)) for _ in range(count)]
    return None


def names(used: Sequence[Machine]) -> list[str]:
    """What a picture calls them, by what sets them apart.

    >>> names([Machine(2, 0.25, rivals=1), Machine(2, 0.5)])
    ['machine 1: 0.25 cores, busy', 'machine 2: 0.5 cores']
    >>> names([Machine(4, 0.25), Machine(2, 0.25)])
    ['machine 1: 4 lanes', 'machine 2: 2 lanes']
    """
    told = []
    for number, machine in enumerate(used, 1):
        words = []
        if len({each.slots for each in used}) > 1:
            words.append(f"{machine.slots} lanes")
        if len({each.cores for each in used}) > 1:
            words.append(f"{machine.cores or 'all'} cores")
        if machine.rivals:
            words.append("busy")
        told.append(f"machine {number}" + (f": {', '.join(words)}" if words else ""))
    return told


def _times(topology: str, lanes: int, least: int) -> int:
    if lanes % least:
        raise BenchError(f"lanes={lanes}: {topology} needs {least} or a multiple of it")
    return lanes // least

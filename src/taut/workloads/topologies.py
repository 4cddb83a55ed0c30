"""Chains of operators on single tuples, to measure lanes with.

An operator works by waiting: a tuple occupies its lane for its service time and no processor, so
that eight lanes can be compared on two cores. What Taut and Spark themselves do is real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from taut.workloads.windows import WorkloadError

_HASH = 2_654_435_761
_MOST_OVERSLEPT = 0.01


@dataclass(frozen=True, slots=True)
class Topology:
    """What happens to a tuple.

    Attributes
    ----------
    bolts
        Operators, one after the other.
    service_s
        Seconds that a tuple takes, in all operators together.
    rate
        Tuples a second, unless told otherwise.
    heavy, weight
        The share of the tuples that take ``weight`` times as long.
    slow, factor
        The share of the lanes in which everything takes ``factor`` times as long.
    """

    bolts: int
    service_s: float
    rate: int
    heavy: float = 0.0
    weight: float = 50.0
    slow: float = 0.0
    factor: float = 3.0

    def __post_init__(self) -> None:
        for name in ("heavy", "slow"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise WorkloadError(f"{name}={getattr(self, name)}: a share from 0 to 1 is needed")

    def seconds(self, n: int, lane: int, lanes: int) -> float:
        """Service time of tuple ``n`` in a lane: the same in every run.

        >>> queue = TOPOLOGIES["queue"]
        >>> queue.seconds(1, 0, 8), queue.seconds(1, 7, 8)
        (0.003, 0.001)
        """
        heavy = n * _HASH % 2**32 < self.heavy * 2**32
        slow = lane < round(self.slow * lanes)
        return self.service_s * (self.weight if heavy else 1.0) * (self.factor if slow else 1.0)

    def operators(self, lanes: int) -> list[Callable[[str], str]]:
        """The operators, for ``map`` on a column that holds a tuple's number; each adds a mark."""

        def bolt(value: str) -> str:
            _work(self.seconds(int(value.rstrip("!")), _lane(), lanes) / self.bolts)
            return value + "!"

        return [bolt] * self.bolts


_overslept = [0.0]


def _work(seconds: float) -> None:
    """Wait so long; what a process waits too long is taken off its next waits.

    A sleep ends late by 0.1 to 0.3 ms on a virtual machine: as much as an operator takes.
    """
    begun = time.perf_counter()
    wanted = seconds - _overslept[0]
    if wanted > 0.0:
        time.sleep(wanted)
    _overslept[0] = min(_MOST_OVERSLEPT, time.perf_counter() - begun - wanted)


def _lane() -> int:
    """The number of the Spark task that this runs in."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


TOPOLOGIES: Mapping[str, Topology] = {
    "exclamation": Topology(bolts=3, service_s=0.001, rate=1_200),
    "queue": Topology(bolts=1, service_s=0.001, rate=1_000, heavy=0.01, slow=0.25),
}
"""By name: three operators in a line; one operator with slow lanes and expensive tuples."""

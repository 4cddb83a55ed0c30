"""Chains of operators on single tuples, to measure lanes with.

An operator works by waiting: a tuple occupies its lane for its service time and no processor, so
that eight lanes can be compared on two cores. What Taut and Spark themselves do is real.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from taut.workloads.windows import WorkloadError

Row = dict[str, Any]

_HASH = 2_654_435_761


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

    def operators(self, lanes: int) -> list[Callable[[Row], Row]]:
        """The operators, for ``map``; each adds a mark to the value, as in the first of them."""

        def bolt(row: Row) -> Row:
            time.sleep(self.seconds(row["n"], _lane(), lanes) / self.bolts)
            return row | {"value": row["value"] + "!"}

        return [bolt] * self.bolts


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

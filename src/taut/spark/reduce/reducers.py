"""Which reducers there are: ids that Spark spreads evenly over the partitions of its state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

_PARTITIONS = (
    "spark.sql.streaming.internal.stateStore.partitions",
    "spark.sql.shuffle.partitions",
)
"""Where Spark tells its tasks of the partitions that a checkpoint was begun with."""


@dataclass(frozen=True, slots=True)
class Reducers:
    """How many there are; pickled to the workers.

    The number of partitions belongs to the checkpoint: a session with more cores or fewer goes on
    with it, and with the reducers that have the states.

    Attributes
    ----------
    many
        As the user says; None for one in each partition.
    partitions
        Of the session, for a task that is told nothing.
    """

    many: int | None
    partitions: int

    def ids(self) -> tuple[int, ...]:
        """Theirs, in a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        told = [] if context is None else [context.getLocalProperty(name) for name in _PARTITIONS]
        partitions = next((int(each) for each in told if each), self.partitions)
        return reducer_ids(partitions if self.many is None else self.many, partitions)


@lru_cache(maxsize=8)
def reducer_ids(many: int, partitions: int) -> tuple[int, ...]:
    """So many ids that Spark spreads evenly over its partitions.

    >>> reducer_ids(3, 2)
    (0, 2, 3)
    """
    found: list[int] = []
    used = [0] * partitions
    candidate = 0
    while len(found) < many:
        partition = spark_hash(candidate) % partitions
        if used[partition] <= len(found) // partitions:
            used[partition] += 1
            found.append(candidate)
        candidate += 1
    return tuple(found)


def spark_hash(number: int) -> int:
    """What Spark's ``hash`` gives for an int: Murmur3 in 32 bits, with seed 42.

    >>> spark_hash(0), spark_hash(1)
    (933211791, -559580957)
    """
    low = 0xFFFFFFFF
    mixed = _turned(number * 0xCC9E2D51 & low, 15) * 0x1B873593 & low
    value = (_turned(42 ^ mixed, 13) * 5 + 0xE6546B64) & low
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & low
    value = (value ^ value >> 13) * 0xC2B2AE35 & low
    value ^= value >> 16
    return value - (1 << 32) if value >> 31 else value


def _turned(value: int, by: int) -> int:
    return (value << by | value >> 32 - by) & 0xFFFFFFFF

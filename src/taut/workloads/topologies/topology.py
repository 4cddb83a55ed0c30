"""A topology: its operators, and how long each takes for a tuple."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from taut.workloads.topologies.waiting import wait
from taut.workloads.windows import WorkloadError

MACHINE = "TAUT_BENCH_MACHINE"
"""Environment of a lane on a cluster of the benchmark: its machine, of how many, as ``2/5``."""
SERVICES = ("fixed", "exponential")
_HASH = 2_654_435_761


@dataclass(frozen=True, slots=True)
class Bolt:
    """One operator.

    Attributes
    ----------
    kind
        What a stream calls it: ``map``, ``filter`` or ``flat_map``.
    does
        The function of a tuple; the same for the same tuple.
    only
        The branch that it is on; None for all.
    visits
        How often a tuple comes by that is dropped nowhere: two operators that do the same on two
        branches are one bolt here.
    """

    kind: str
    does: Callable[[str], Any]
    only: int | None = None
    visits: int = 1


@dataclass(frozen=True, slots=True)
class Topology:
    """What happens to a tuple.

    Attributes
    ----------
    bolts
        Operators, one after the other.
    emit
        The tuple of a number, as the spout gives it.
    service_s
        Seconds that a tuple waits, in all operators together; one that is dropped early, less.
    rate
        Tuples a second, unless told otherwise.
    heavy, weight
        The share of the tuples that take ``weight`` times as long.
    slow, factor
        The share of the lanes in which everything takes ``factor`` times as long; on a cluster,
        of its machines, so that the same work is faster elsewhere.
    service
        ``fixed``, or ``exponential``: times of that distribution with the mean ``service_s``.
    """

    bolts: tuple[Bolt, ...]
    emit: Callable[[int], str]
    service_s: float
    rate: int
    heavy: float = 0.0
    weight: float = 50.0
    slow: float = 0.0
    factor: float = 3.0
    service: str = "fixed"

    def __post_init__(self) -> None:
        for name in ("heavy", "slow"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise WorkloadError(f"{name}={getattr(self, name)}: a share from 0 to 1 is needed")
        if self.service not in SERVICES:
            raise WorkloadError(f"service={self.service!r}: one of {', '.join(SERVICES)}")

    def seconds(self, n: int, place: int, places: int) -> float:
        """Service time of tuple ``n`` in a lane, or on a machine: the same in every run.

        >>> from taut.workloads.topologies import TOPOLOGIES
        >>> queue = TOPOLOGIES["queue"]
        >>> queue.seconds(1, 0, 8), queue.seconds(1, 7, 8)
        (0.003, 0.001)
        """
        heavy = n * _HASH % 2**32 < self.heavy * 2**32
        slow = place < round(self.slow * places)
        drawn = 1.0 if self.service == "fixed" else -math.log(uniform(n))
        factor = (self.weight if heavy else 1.0) * (self.factor if slow else 1.0)
        return self.service_s * drawn * factor

    def results(self, n: int) -> list[str]:
        """What comes out of it for a tuple: nothing if it is dropped.

        >>> from taut.workloads.topologies import TOPOLOGIES
        >>> TOPOLOGIES["exclamation"].results(7)
        ['7 0 jackson!!!']
        """
        found = [self.emit(n)]
        for bolt in self.bolts:
            if bolt.kind == "filter":
                found = [value for value in found if not _for(bolt, value) or bolt.does(value)]
            elif bolt.kind == "flat_map":
                found = [made for value in found for made in bolt.does(value)]
            else:
                found = [bolt.does(value) if _for(bolt, value) else value for value in found]
        return found

    @property
    def outputs_vary(self) -> bool:
        """Whether some tuples have other outputs than one."""
        return any(bolt.kind != "map" for bolt in self.bolts)

    def parts(self, n: int) -> tuple[int, ...]:
        """The outputs that a tuple has, by :func:`part`; none if it is dropped."""
        return tuple(map(part, self.results(n))) if self.outputs_vary else (0,)

    def operators(self, lanes: int) -> list[tuple[str, Callable[[str], Any]]]:
        """Each operator with its kind, on tuples as text; they take their time."""
        return [(bolt.kind, self._taking_time(bolt, lanes)) for bolt in self.bolts]

    def _taking_time(self, bolt: Bolt, lanes: int) -> Callable[[str], Any]:
        part_of = 1.0 / sum(bolt.visits for bolt in self.bolts)

        def operator(value: str) -> Any:
            if not _for(bolt, value):
                return True if bolt.kind == "filter" else value
            if self.service_s:
                wait(self.seconds(number(value), *_place(lanes)) * part_of)
            return bolt.does(value)

        return operator


def number(value: str) -> int:
    """The number of a tuple.

    >>> number("17 1 user3 12")
    17
    """
    return int(value.partition(" ")[0])


def part(value: str) -> int:
    """Which output of its tuple it is, or will be.

    >>> part("17 1 user3 12")
    1
    """
    return int(value.split(" ", 2)[1])


def uniform(n: int, salt: int = 0) -> float:
    """A number above 0, at most 1, that follows from ``n`` and looks random (splitmix64).

    >>> 0.49 < sum(uniform(n) for n in range(10_000)) / 10_000 < 0.51
    True
    """
    mixed = (n + 1 + salt * 0xD1342543DE82EF95) * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
    mixed ^= mixed >> 31
    return ((mixed >> 11) + 1) / 2**53


def _for(bolt: Bolt, value: str) -> bool:
    return bolt.only is None or part(value) == bolt.only


def _place(lanes: int) -> tuple[int, int]:
    """Where this runs, and of how many places: a machine of the cluster, else a lane."""
    return machine() or (lane(), lanes)


def machine() -> tuple[int, int] | None:
    """The machine of a cluster of the benchmark that this runs on, and how many there are."""
    told = os.environ.get(MACHINE)
    if told is None:
        return None
    number, _, count = told.partition("/")
    return int(number), int(count)


def lane() -> int:
    """The number of the Spark task that this runs in."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else context.partitionId()

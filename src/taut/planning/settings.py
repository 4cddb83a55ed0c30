"""Settings: the knobs that a plan turns; and clusters to turn them on."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from taut.errors import PlanError

SPARE = 0.05
"""What batches may cost more than fitted, at least: from one profile to the next they do."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """So many executors with so many cores each, ``speed`` times as fast as the profiled ones.

    Attributes
    ----------
    taken
        Cores of each executor on which others are at work.
    """

    executors: int = 1
    cores: int = 1
    speed: float = 1.0
    taken: int = 0

    def __post_init__(self) -> None:
        for what in ("executors", "cores"):
            whole(what, getattr(self, what))
        if isinstance(self.taken, bool) or self.taken not in range(self.cores):
            raise PlanError(
                f"taken={self.taken!r}: a whole number, from 0 to {self.cores - 1} of the "
                f"{_many(self.cores, 'core')}"
            )
        if not 0.0 < self.speed < math.inf:
            raise PlanError(f"speed={self.speed!r}: must be above zero")

    @property
    def slots(self) -> int:
        """Tasks that run at once."""
        return self.executors * (self.cores - self.taken)

    def part(self, many: int) -> Cluster:
        """What each of so many batches has that run at once, with the others beside it.

        Cores that are left over are not used.

        >>> Cluster(2, 4).part(2), Cluster(4, 2).part(4).slots
        (Cluster(executors=2, cores=4, speed=1.0, taken=2), 2)
        """
        slots = self.slots // whole("many", many)
        if not slots:
            raise PlanError(f"many={many}: {self} run at most {self.slots} tasks at once")
        each = (self.cores - self.taken) // many
        if each:
            cores = self.taken + many * each
            return replace(self, cores=cores, taken=cores - each)
        return replace(self, executors=slots, taken=self.cores - 1)

    def __str__(self) -> str:
        return f"{_many(self.executors, 'executor')} with {_many(self.cores, 'core')}"


@dataclass(frozen=True, slots=True)
class Settings:
    """How a query runs.

    Attributes
    ----------
    lanes
        Tasks that read and map.
    reducers
        Tasks that reduce: Spark's shuffle partitions.
    trigger
        Seconds from one batch to the next; 0 starts one as soon as the last has ended.
    cap
        The most rows that a batch takes; None takes all that have arrived.
    chunk, horizon
        Of a Taut source: rows that a lane takes at a time, and how many seconds a resident batch
        lasts; None where the source finds that by itself.
    """

    lanes: int = 1
    reducers: int = 1
    trigger: float = 0.0
    cap: int | None = None
    chunk: int | None = None
    horizon: float | None = None

    def __post_init__(self) -> None:
        for what in ("lanes", "reducers"):
            whole(what, getattr(self, what))
        for what in ("cap", "chunk"):
            if getattr(self, what) is not None:
                whole(what, getattr(self, what))
        if self.horizon is not None and not 1.0 <= self.horizon < math.inf:
            raise PlanError(f"horizon={self.horizon!r}: seconds, 1 or more")
        if not 0.0 <= self.trigger < math.inf:
            raise PlanError(f"trigger={self.trigger!r}: seconds, 0 or more")

    def conf(self) -> dict[str, str]:
        """What Spark is to be told."""
        return {"spark.sql.shuffle.partitions": str(self.reducers)}

    def trigger_options(self) -> dict[str, str]:
        """For ``DataStreamWriter.trigger``.

        >>> Settings(trigger=0.25).trigger_options()
        {'processingTime': '250 milliseconds'}
        """
        return {"processingTime": f"{round(1000 * self.trigger)} milliseconds"}

    def source(self) -> dict[str, str]:
        """Options of ``taut.read``.

        >>> Settings(4, chunk=1, horizon=60.0).source()
        {'lanes': '4', 'chunk': '1', 'horizon': '60 s'}
        """
        given = {
            "lanes": str(self.lanes),
            "maxOffsetsPerTrigger": None if self.cap is None else str(self.cap),
            "chunk": None if self.chunk is None else str(self.chunk),
            "horizon": None if self.horizon is None else f"{self.horizon:g} s",
        }
        return {name: value for name, value in given.items() if value is not None}

    def but(self, **changes: Any) -> Settings:
        """The same with changes."""
        return replace(self, **changes)

    def __str__(self) -> str:
        trigger = f"every {self.trigger:g} s" if self.trigger else "one after another"
        cap = f", at most {self.cap:,} rows each" if self.cap else ""
        lanes, reducers = _many(self.lanes, "lane"), _many(self.reducers, "reducer")
        return f"{lanes}, {reducers}, batches {trigger}{cap}"


def rules_of_thumb(cluster: Cluster) -> dict[str, Settings]:
    """What people set without a model: tasks as cores, a round interval; or nothing at all."""
    slots = cluster.slots
    rules = {
        f"trigger {trigger:g} s": Settings(slots, slots, trigger)
        for trigger in (0.0, 0.1, 1.0, 5.0)
    }
    return rules | {"Spark's defaults": Settings(slots, 200, 0.0)}


def whole(what: str, given: object) -> int:
    """A number of things, at least one."""
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise PlanError(f"{what}={given!r}: a whole number, at least 1")
    return given


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"

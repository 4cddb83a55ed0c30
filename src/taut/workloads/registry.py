"""The workloads by name: what to build, how fast to feed it, which windows must come out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.workloads import ads, linear_road, taxi
from taut.workloads.columns import Delay
from taut.workloads.windows import Windowing, WorkloadError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from taut.workloads.generator import Load

Build = Callable[["SparkSession", int, int, float, "Load", Delay], "DataFrame"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A family of alike queries.

    Parameters
    ----------
    name : str
        As the command line calls it.
    rate : int
        Rows a second and query, unless told otherwise.
    build : callable
        ``build(spark, index, of, window_s, load, delay)`` gives the streaming DataFrame of one
        query; its column ``end`` is the end of the window a row belongs to.
    windows : callable
        ``windows(index, of, window_s)`` gives the windows of that query. Pure.
    """

    name: str
    rate: int
    build: Build
    windows: Callable[[int, int, float], Windowing]

    def due_ms(self, index: int, of: int, window_s: float, after: float, before: float) -> range:
        """The window ends (epoch milliseconds) that a query owes in ``[after, before)``."""
        return self.windows(index, of, window_s).ends_ms(after, before)


_ADS = Workload("ads", ads.RATE, ads.build, ads.windows)
_LINEAR_ROAD = Workload("linear-road", linear_road.RATE, linear_road.build, linear_road.windows)
_TAXI = Workload("taxi", taxi.RATE, taxi.build, taxi.windows)
# A third of the queries each, with windows of different lengths: no two thirds keep step.
_THIRDS = ((_ADS, 1.0), (_TAXI, 0.5), (_LINEAR_ROAD, 1.5))


def _mixed_build(
    spark: SparkSession, index: int, of: int, window_s: float, load: Load, delay: Delay
) -> DataFrame:
    part, scale = _THIRDS[index % len(_THIRDS)]
    return part.build(spark, index, of, window_s * scale, load, delay)


def _mixed_windows(index: int, of: int, window_s: float) -> Windowing:
    part, scale = _THIRDS[index % len(_THIRDS)]
    return part.windows(index, of, window_s * scale)


_MIXED = Workload("mixed", ads.RATE, _mixed_build, _mixed_windows)
WORKLOADS = {each.name: each for each in (_ADS, _LINEAR_ROAD, _TAXI, _MIXED)}


def workload(name: str) -> Workload:
    """The workload of that name."""
    try:
        return WORKLOADS[name]
    except KeyError:
        raise WorkloadError(f"workload {name!r}: must be one of {', '.join(WORKLOADS)}") from None

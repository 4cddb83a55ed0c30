"""Columns derived from the number of a row, by expressions that run in the JVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from pyspark.sql import functions as F

from taut.workloads.windows import Windowing, WorkloadError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


Shape = Literal["none", "uniform", "zipf", "bursty"]
_BUCKETS = 1_000_000
_RANKS = 1_000.0
_BURST_ROWS = 500


@dataclass(frozen=True, slots=True)
class Delay:
    """How long rows are under way: their event time lies before their arrival by so much.

    Parameters
    ----------
    shape : {"none", "uniform", "zipf", "bursty"}
        ``zipf``: most rows are nearly at once, few take long. ``bursty``: whole runs of rows are
        held up together.
    bound_ms : int
        No row takes longer; also the watermark's delay, so that no row is dropped as late.
    """

    shape: Shape = "none"
    bound_ms: int = 0

    def __post_init__(self) -> None:
        if self.shape not in get_args(Shape):
            raise WorkloadError(
                f"delay shape {self.shape!r}: must be one of {', '.join(get_args(Shape))}"
            )
        if self.shape != "none" and self.bound_ms <= 0:
            raise WorkloadError(f"delay bound_ms={self.bound_ms}: must be above 0")

    def micros(self, n: Column) -> Column | None:
        """The delay of row ``n`` in microseconds, or None when there is none."""
        if self.shape == "none":
            return None
        share = uniform(n, 7)
        if self.shape == "zipf":
            # The inverse distribution function of a Zipf law with exponent 1 over _RANKS ranks.
            share = (F.pow(F.lit(_RANKS), share) - 1) / (_RANKS - 1)
        elif self.shape == "bursty":
            run = F.floor(n / _BURST_ROWS)
            held = uniform(run, 8)
            share = F.when(uniform(run, 9) < 0.2, held).otherwise(share * 0.05)
        return (share * (self.bound_ms * 1_000)).cast("bigint")


def pick(n: Column, salt: int, among: int) -> Column:
    """A number from 0 to ``among - 1``: the same for the same row and salt, always."""
    return F.pmod(F.xxhash64(n, F.lit(salt)), F.lit(among)).cast("bigint")


def uniform(n: Column, salt: int) -> Column:
    """A number in [0, 1)."""
    return pick(n, salt, _BUCKETS) / _BUCKETS


def event_time(n: Column, delay: Delay) -> Column:
    """When the thing that row ``n`` of a load tells of happened."""
    late, arrival = delay.micros(n), F.col("arrival_us")
    return F.timestamp_micros(arrival if late is None else arrival - late)


def with_watermark(rows: DataFrame, delay: Delay) -> DataFrame:
    """Rows whose watermark is on column ``event_time``; a batch DataFrame stays as it is."""
    if not rows.isStreaming:
        return rows
    bound = 0 if delay.shape == "none" else delay.bound_ms
    return rows.withWatermark("event_time", f"{bound} milliseconds")


def windowed(time: Column | str, windows: Windowing) -> Column:
    """Spark's window column for these windows."""
    return F.window(time, windows.length, windows.slide, windows.offset)

"""One run: more arrives than batches may take, then what is left is worked off."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.bench.backlog.figures import Admission, Level, Run, Written, delays, levels, missed
from taut.bench.place import Place
from taut.bench.record import BenchError

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyspark.sql import DataFrame

    from taut.spark.source.logs.schedule import ScheduleLog

VARIANTS = ("proportional", "round-robin", "largest-backlog")
"""What the source's option ``admission`` calls them."""

_LEAD_S = 5.0
"""Seconds for a query to start, before the load does."""
_LOOK_EVERY_S = 0.25
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run; one for every variant and round.

    ``rate`` rows a second arrive for ``seconds``, of which partition "0" gets ``skew`` for each one
    of any other. A batch is planned every ``trigger_s`` and may take ``capacity`` of what arrives
    in that time.
    """

    partitions: int = 10
    skew: float = 10.0
    seconds: float = 30.0
    rate: int = 4_000
    capacity: float = 0.8
    trigger_s: float = 1.0
    lanes: int = 2
    grace_s: float = 120.0

    @property
    def total(self) -> int:
        """Rows that arrive."""
        return round(self.rate * self.seconds)

    @property
    def budget(self) -> int:
        """Rows that a batch may take."""
        return max(1, round(self.capacity * self.rate * self.trigger_s))

    @property
    def drain_s(self) -> float:
        """Seconds it takes to work off what is left when arrivals are over."""
        return max(0.0, self.total / self.budget * self.trigger_s - self.seconds)


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands, for whoever watches."""

    variant: str
    round: int
    phase: str
    left_s: float
    written: int = 0
    total: int = 0


Watcher = Callable[[Progress], None]


def run(place: Place, spec: Spec, variant: str, round_: int, watch: Watcher) -> Run:
    """Start the query, let rows arrive, wait until all are written, stop."""
    from taut.spark.source.logs.schedule import ScheduleLog

    folder = Path(tempfile.mkdtemp(dir=place.folder))
    # Spark's triggers are at whole multiples of their interval: arrivals begin with one, so that
    # every run is cut at the same rows
    start = math.ceil((time.time() + _LEAD_S) / spec.trigger_s) * spec.trigger_s
    log = ScheduleLog(
        start, spec.rate, spec.partitions, spec.total, arrivals="random", skew=spec.skew
    )
    written: list[Written] = []
    query = _start(place, spec, variant, log, written, folder)
    try:
        for phase, left in _phases(spec, start):
            if not query.isActive:
                raise BenchError(f"the query ended under {variant}: {query.exception()}")
            rows = sum(len(batch.numbers) for batch in written)
            watch(Progress(variant, round_, phase, left, rows, spec.total))
            # Spark tells of a batch a moment after it has written it
            if rows >= spec.total and len(_admissions(query.recentProgress)) >= len(written):
                break
        progress = query.recentProgress
    finally:
        watch(Progress(variant, round_, "stopping", 0.0))
        query.stop()
    shutil.rmtree(folder, ignore_errors=True)
    admissions = _admissions(progress)
    took = delays(written, _arrivals(log))
    return Run(
        variant,
        round_,
        [
            Level(round(at - start, 3), rows)
            for at, rows in levels(log.at, admissions, start + spec.seconds)
        ],
        took,
        lost=spec.total - len(took),
        seconds=max((batch.at for batch in written), default=start) - start,
        missed=missed(admissions, start, spec.trigger_s),
    )


def _start(
    place: Place,
    spec: Spec,
    variant: str,
    log: ScheduleLog,
    written: list[Written],
    folder: Path,
) -> Any:
    import taut

    rows = taut.read(
        place.spark, log, lanes=spec.lanes, admission=variant, startingOffsets="earliest",
        maxOffsetsPerTrigger=spec.budget,
    ).load()  # fmt: skip

    def sink(df: DataFrame, batch_id: int) -> None:
        numbers = df.select("n").toArrow().column("n").to_numpy()
        if len(numbers):  # a query begins with a batch without rows
            written.append(Written(time.time(), numbers))

    writer = rows.writeStream.foreachBatch(sink)
    writer = writer.trigger(processingTime=f"{round(1e3 * spec.trigger_s)} milliseconds")
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _phases(spec: Spec, start: float) -> Iterator[tuple[str, float]]:
    """Time and time again: what goes on, and the seconds that are left of it at most."""
    end = start + spec.seconds
    most = end + spec.drain_s + spec.grace_s
    while (now := time.time()) < most:
        for phase, until in (("starting", start), ("arriving", end), ("working off", most)):
            if now < until:
                yield phase, until - now
                break
        time.sleep(_LOOK_EVERY_S)


def _arrivals(log: ScheduleLog) -> npt.NDArray[np.float64]:
    """When each row arrives, by its number."""
    single = replace(log, partitions=1, skew=1)
    column = single.read("0", 0, single.total or 0).column("arrival")
    arrivals: npt.NDArray[np.float64] = column.cast("int64").to_numpy() / _MICRO
    return arrivals


def _admissions(progress: list[Any]) -> list[Admission]:
    """The batches that took rows: when their trigger was, and up to where they took them."""
    return [
        Admission(datetime.fromisoformat(p["timestamp"]).timestamp(), _offsets(p))
        for p in progress
        if p["numInputRows"]
    ]


def _offsets(progress: Any) -> dict[str, int]:
    told = progress["sources"][0]["endOffset"]
    found: dict[str, int] = json.loads(told) if isinstance(told, str) else told
    return found

"""One run: rows arrive by a schedule, a reducer keeps as many on time as it can."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.bench.place import Place
from taut.bench.record import BenchError
from taut.bench.reduce.figures import Point, Run, judged
from taut.spark.reduce.outcome import BatchStats, ReduceStats

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from taut.spark.reduce.job import Job

WORKLOADS = ("words", "windowed-words", "sessions")
VARIANTS = ("fifo", "edf", "cost-aware", "dover")
_LEAD_S = 2.0
_LOOK_EVERY_S = 0.1
_STARTS_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run; one for every variant, point and round.

    Attributes
    ----------
    objective
        Seconds that a row has from its arrival until its results are out.
    seconds, warm_up_s
        Of arrivals that are measured, and of those before that are not.
    keys, zipf
        How many keys there are, and how unevenly rows fall on them.
    reducers
        How many, on as many cores.
    work_us
        Microseconds that each update computes for, beside what the workload does: what is put aside
        in a reducer saves only what is done there.
    """

    workload: str = "words"
    objective: float = 8.0
    seconds: float = 20.0
    warm_up_s: float = 20.0
    keys: int = 20_000
    zipf: float = 1.0
    reducers: int = 2
    work_us: float = 20.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands, for whoever watches."""

    variant: str
    round: int
    phase: str
    left_s: float = 0.0
    rows: int = 0
    on_time: float | None = None


Watcher = Callable[[Progress], None]


def job(workload: str, work_us: float = 0.0) -> Job:
    """What reduces, and computes for a while at every row."""
    from taut.workloads.reduce import sessions, windowed_words, words

    plain = {"words": words(), "windowed-words": windowed_words(), "sessions": sessions()}[workload]
    update = plain.update
    assert update is not None

    def working(at: float, key: Any, value: Any, state: Any) -> Any:
        until = time.perf_counter() + work_us * 1e-6
        while time.perf_counter() < until:
            pass
        return update(at, key, value, state)

    return replace(plain, update=working) if work_us else plain


def load(place: Place, spec: Spec, rate: int, start: float, most: int | None = None) -> DataFrame:
    """What comes to it."""
    from taut.workloads.reduce import clicks_load, words_load

    if spec.workload == "sessions":
        return clicks_load(
            place.spark, rate, start, users=spec.keys, zipf=spec.zipf, max_rows_per_batch=most
        )
    rows = words_load(
        place.spark, rate, start, keys=spec.keys, zipf=spec.zipf, max_rows_per_batch=most
    )
    return rows.withWatermark("time", "0 seconds") if spec.workload == "windowed-words" else rows


@dataclass(slots=True)
class Reducing:
    """A query that reduces."""

    query: Any
    stats: Callable[[], ReduceStats]
    folder: Path

    def batches(self) -> list[BatchStats]:
        """Those that have been written."""
        if not self.query.isActive:
            raise BenchError(f"the query ended: {self.query.exception()}")
        return self.stats().batches

    def stop(self) -> None:
        """End it, whatever it does."""
        self.query.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def reducing(
    place: Place,
    spec: Spec,
    rows: DataFrame,
    policy: str,
    memory: int | None,
    objective: float | None,
) -> Reducing:
    """Start it: results are collected, and rows that were put aside are written to nowhere."""
    import taut

    folder = Path(tempfile.mkdtemp(dir=place.folder))
    reduced = taut.map_reduce(
        rows,
        job(spec.workload, spec.work_us),
        slo=None if objective is None else f"p99 <= {objective:g} s",
        time="time",
        policy=policy,
        memory=memory,
        reducers=spec.reducers,
    )

    def results(df: DataFrame, batch_id: int) -> None:
        df.toArrow()

    def nowhere(df: DataFrame, batch_id: int) -> None:
        df.write.format("noop").mode("overwrite").save()

    sink = reduced.sink(results, shed=nowhere)
    writer = reduced.frame.writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    return Reducing(query, sink.stats, folder)


def run(
    place: Place,
    spec: Spec,
    variant: str,
    point: Point,
    round_: int,
    rate: int,
    memory: int | None,
    watch: Watcher,
) -> tuple[Run, int]:
    """Let rows arrive for the warm-up and the measured time, and judge what became of them.

    Also gives the most bytes that states have taken in memory.
    """
    name = f"{variant} {point.name}"
    start = time.time() + _LEAD_S
    rows = load(place, spec, rate, start)
    reducing_ = reducing(place, spec, rows, variant, memory, spec.objective)
    # the warm-up begins with the first rows that are out, however long a query takes to start
    begin = end = start + _STARTS_WITHIN_S + spec.warm_up_s
    started = False
    try:
        while (now := time.time()) < end + spec.objective:
            batches = reducing_.batches()
            seen = sum(batch.rows for batch in batches)
            if seen and not started:
                started, begin = True, now + spec.warm_up_s
                end = begin + spec.seconds
            share = sum(b.on_time for b in batches[-5:]) / max(1, sum(b.rows for b in batches[-5:]))
            phase = "warming up" if now < begin else "measuring"
            left = end + spec.objective - now
            watch(Progress(name, round_, phase, left, seen, share if seen else None))
            if not seen and now > start + _STARTS_WITHIN_S:
                raise BenchError(f"{name}: no row was read within {_STARTS_WITHIN_S:g} s")
            time.sleep(_LOOK_EVERY_S)
        batches = reducing_.batches()
    finally:
        watch(Progress(name, round_, "stopping"))
        reducing_.stop()
    arrived = round(rate * spec.seconds)
    most = max((batch.hot_bytes for batch in batches), default=0)
    return judged(variant, point, round_, batches, spec.objective, begin, end, arrived), most

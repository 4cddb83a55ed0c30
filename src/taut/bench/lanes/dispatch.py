"""What dealing out itself costs: microseconds a chunk, and rows a second through one lane."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from taut.bench.place import Place, spark_session
from taut.bench.record import Record
from taut.bench.rounds import order

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from taut import Read

Watcher = Callable[[str, int], None]
"""Told which case is measured, and in which round."""


@dataclass(frozen=True, slots=True)
class Case:
    """Rows a lane, rows a chunk (None for guided), and the operator."""

    rows: int
    chunk: int | None = None
    operator: Callable[[Read], Read] = lambda stream: stream


def _python(stream: Read) -> Read:
    return stream.map(lambda value: value + "!", column="value")


def _arrow(stream: Read) -> Read:
    def passing(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    return stream.map(passing, on="batch")


CASES = {
    "start": Case(1),
    "small": Case(20_000, chunk=1),
    "large": Case(20_000, chunk=20_000),
    "python": Case(500_000, operator=_python),
    "arrow": Case(3_000_000, operator=_arrow),
}
"""One row; rows in chunks of one, and as many in one chunk; an operator of each kind."""


def bench(lanes: int, rounds: int, watch: Watcher) -> Record:
    """Measure every case in every round, in one JVM."""
    record = Record("lanes", {"topology": "dispatch", "lanes": lanes, "rounds": rounds})
    times: dict[str, list[float]] = {name: [] for name in CASES}
    with spark_session(f"local[{lanes}]") as place:
        # what the JVM and the worker do for the first time
        watch("small", 0)
        _seconds(place, CASES["small"], lanes)
        for round_, name in order(list(CASES), rounds):
            watch(name, round_)
            times[name].append(_seconds(place, CASES[name], lanes))
    record.add(figures({name: median(each) for name, each in times.items()}))
    return record


def figures(seconds: dict[str, float]) -> dict[str, float]:
    """From the seconds of each case: what a chunk costs, and the rows a second of a lane.

    >>> told = figures({"start": 1, "small": 3, "large": 2, "python": 6, "arrow": 4})
    >>> told["dispatch.chunk_us"], told["dispatch.python.rows_per_s"]
    (50.0, 100000)
    """
    chunks = CASES["small"].rows
    told = {"dispatch.chunk_us": round(1e6 * (seconds["small"] - seconds["large"]) / chunks, 1)}
    for name in ("python", "arrow"):
        taken = seconds[name] - seconds["start"]
        if taken > 0:
            told[f"dispatch.{name}.rows_per_s"] = round(CASES[name].rows / taken)
    return told


def _seconds(place: Place, case: Case, lanes: int) -> float:
    """How long one batch takes, all its rows there from the start."""
    import taut

    folder = Path(tempfile.mkdtemp(dir=place.folder))
    taken: list[float] = []

    def sink(df: DataFrame, batch_id: int) -> None:
        begun = time.perf_counter()
        df.write.format("noop").mode("append").save()
        taken.append(time.perf_counter() - begun)

    stream = case.operator(
        taut.read(
            place.spark, "schedule", start=time.time() - 86_400, rate=1_000_000,
            total=case.rows * lanes, partitions=lanes, payload=8, lanes=lanes,
            startingOffsets="earliest", chunk="guided" if case.chunk is None else case.chunk,
        )
    )  # fmt: skip
    writer: Any = stream.load().writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder)).start().awaitTermination()
    shutil.rmtree(folder, ignore_errors=True)
    return sum(taken)

"""How fast word count is on one core, and what deciding costs a row."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from taut.bench.place import Place, spark_session
from taut.bench.record import BenchError, Record
from taut.bench.reduce.run import Progress, Watcher
from taut.bench.reduce.scheduling import scheduling_us
from taut.bench.rounds import order

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMS = ("plain", "vectorised")
_WORDS = 10
"""In a line."""
_LINES = 40_000
"""In a batch."""
_CUT = 8
_WITHIN_S = 300.0


def bench(seconds: float, rounds: int, watch: Watcher) -> Record:
    """Words a second in both forms, alternating; microseconds a row for deciding.

    Spark and its Python workers share one core, where the system can hold processes to it; the
    record says how many they had.
    """
    record = Record(
        "reduce",
        {
            "workload": "speed",
            "seconds": seconds,
            "rounds": rounds,
            "words_per_line": _WORDS,
            "lines_per_batch": _LINES,
            "warm_up": f"the first {_CUT} batches of each run",
        },
    )
    told: dict[str, list[float]] = {form: [] for form in FORMS}
    with _one_core(), spark_session("local[1]") as place:
        record.options["cores"] = _cores(place.spark)
        for round_, form in order(FORMS, rounds):
            told[form].append(_words_per_s(place, form, round_, seconds, watch))
    watch(Progress("deciding", 0, "measuring"))
    record.add({f"speed.{form}.rows_per_s": round(median(rates)) for form, rates in told.items()})
    record.add({name: round(value, 4) for name, value in scheduling_us().items()})
    return record


@contextmanager
def _one_core() -> Iterator[None]:
    """Hold this thread to one core, and with it all that it starts meanwhile."""
    if not hasattr(os, "sched_setaffinity"):  # pragma: no cover  # of systems other than Linux
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _cores(spark: SparkSession) -> int | None:
    """How many the JVM may use, and with it its workers; one that ran before was not held to one.

    None where the system does not tell.
    """
    if not hasattr(os, "sched_getaffinity"):  # pragma: no cover  # of systems other than Linux
        return None
    jvm = spark._jvm
    assert jvm is not None
    return len(os.sched_getaffinity(jvm.java.lang.ProcessHandle.current().pid()))


def _words_per_s(place: Place, form: str, round_: int, seconds: float, watch: Watcher) -> float:
    import taut
    from taut.workloads.reduce import words, words_load

    folder = Path(tempfile.mkdtemp(dir=place.folder))
    lines = words_load(
        place.spark,
        1_000_000,
        time.time() - 3_600.0,
        words_per_line=_WORDS,
        max_rows_per_batch=_LINES,
    )
    reduced = taut.map_reduce(lines, words(lines=True, vectorised=form == "vectorised"), reducers=1)

    def results(df: DataFrame, batch_id: int) -> None:
        df.toArrow()

    sink = reduced.sink(results)
    writer = reduced.frame.writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    begun = time.time()
    try:
        while True:
            batches = [batch for batch in sink.stats().batches if batch.rows]
            watch(Progress(form, round_, "counting words", rows=sum(b.rows for b in batches)))
            warm = batches[_CUT:]
            if len(warm) > 3 and warm[-1].written - warm[0].written >= seconds:
                break
            if not query.isActive:
                raise BenchError(f"the query ended: {query.exception()}")
            if time.time() - begun > _WITHIN_S + seconds:
                raise BenchError(f"{form}: {len(batches)} batches within {_WITHIN_S:g} s")
            time.sleep(0.1)
    finally:
        query.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return sum(b.processed for b in warm[1:]) / (warm[-1].written - warm[0].written)

"""Reduce on a real Spark: the rows of a plain fold, whatever the form and the memory."""

from __future__ import annotations

import math
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

import taut
from taut.spark.reduce.outcome import ReduceSink
from taut.spark.reduce.reducers import reducer_ids
from taut.watch.records import Record, Reduced, Source
from taut.workloads.generator import Load
from taut.workloads.reduce import ClickLoad, WordLoad, sessions, windowed_words, words
from taut.workloads.reduce.fold import fold

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

START, RATE, ROWS, BATCH = 1_790_000_000.0, 1_000, 6_000, 2_000
LOAD = Load(START, RATE, total=ROWS, max_rows_per_batch=BATCH, partitions=2)
SMALL = WordLoad(LOAD, keys=300, out_of_order="1 s")


def run(
    spark: SparkSession,
    folder: Path,
    frame: DataFrame,
    job: taut.Job | list[taut.Job],
    after: Callable[[int], None] | None = None,
    **options: Any,
) -> tuple[Any, Any, ReduceSink]:
    """Reduce all rows, batch by batch; results, rows put aside, and the sink."""
    reduced = taut.map_reduce(frame, job, **options)
    jobs = [job] if isinstance(job, taut.Job) else job
    results = {each.name: taut.sink("memory") for each in jobs}
    shed = taut.sink("memory")
    sink = reduced.sink(results, shed=shed)

    def write(df: DataFrame, batch_id: int) -> None:
        sink(df, batch_id)
        if after is not None:
            after(batch_id)

    writer = reduced.frame.writeStream.foreachBatch(write)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    return (results if len(jobs) > 1 else results[jobs[0].name]), shed, sink


def rows_of(sink: Any) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row) for row in sink.rows())


def folded(job: taut.Job, rows: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    outputs, _ = fold(job, [(row.time, row.key, row.value) for row in rows])
    return Counter(map(tuple, outputs))


@pytest.mark.parametrize("memory", [None, "8 KB"])
@pytest.mark.parametrize("vectorised", [False, True])
def test_words_are_counted_as_in_a_plain_fold(
    spark: SparkSession, tmp_path: Path, vectorised: bool, memory: str | None
) -> None:
    job = words(threshold=5, vectorised=vectorised)
    out, _, sink = run(spark, tmp_path, SMALL.stream(spark), job, memory=memory)
    assert rows_of(out) == folded(words(threshold=5), SMALL.rows(0, ROWS))
    stats = sink.stats()
    assert (stats.rows, stats.processed) == (ROWS, ROWS)
    last = stats.batches[-1]
    keys = len({row.key for row in SMALL.rows(0, ROWS)})
    assert last.hot + last.cold == keys
    assert (last.cold > 0) == (memory is not None)


@pytest.mark.parametrize("slide", [None, "1 s"])
def test_windows_are_closed_by_the_watermark(
    spark: SparkSession, tmp_path: Path, slide: str | None
) -> None:
    job = windowed_words("2 s", slide=slide)
    frame = SMALL.stream(spark).withWatermark("time", "1 second")
    out, shed, _ = run(spark, tmp_path, frame, job, time="time", memory="8 KB")
    rows = list(SMALL.rows(0, ROWS))
    closed = math.floor(1e3 * (max(row.time for row in rows) - 1.0)) / 1e3
    expected = {row: n for row, n in folded(job, rows).items() if row[1] <= closed}
    assert rows_of(out) == Counter(expected)
    assert not shed.rows()


def test_windows_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Also of rows at their edges: there is one every millisecond, so at every end too."""
    load = WordLoad(LOAD, keys=300)
    frame = load.stream(spark).withWatermark("time", "0 seconds")
    out, shed, _ = run(spark, tmp_path, frame, windowed_words("2 s"), time="time")
    window = F.window("time", "2 seconds")
    counted = load.batch(spark).groupBy("key", window.end.cast("double").alias("end")).count()
    # no row has come from beyond the end of the last window
    over = START + ROWS / RATE - 2.0
    assert START % 2.0 == 0.0
    expected = Counter(tuple(row) for row in counted.where(F.col("end") <= over).collect())
    assert expected
    assert rows_of(out) == expected
    assert not shed.rows()


def test_sessions_are_those_of_a_plain_fold(spark: SparkSession, tmp_path: Path) -> None:
    load = ClickLoad(LOAD, users=400)
    job = sessions(gap="500 ms")
    out, _, _ = run(spark, tmp_path, load.stream(spark), job, time="time", memory="16 KB")
    assert rows_of(out) == folded(job, load.rows(0, ROWS))


def test_workers_that_are_new_in_every_batch(spark: SparkSession, tmp_path: Path) -> None:
    """All reducers' workers are killed after each batch; states come out of the store."""
    killed = []

    def kill(batch_id: int) -> None:
        for pid in _reducers_workers():
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    job = words(threshold=5)
    out, _, _ = run(spark, tmp_path, SMALL.stream(spark), job, kill, memory="8 KB")
    assert len(killed) >= 3
    assert rows_of(out) == folded(job, SMALL.rows(0, ROWS))


def _reducers_workers() -> list[int]:
    """Workers that reducers have to themselves, not the daemon that starts them."""
    listed = subprocess.run(
        ["pgrep", "-f", "pyspark.daemon"], capture_output=True, text=True, check=False
    )
    found = []
    for pid in map(int, listed.stdout.split()):
        try:
            own = b"TAUT_REDUCE=1" in Path(f"/proc/{pid}/environ").read_bytes()
            parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
            daemon = b"TAUT_REDUCE=1" in Path(f"/proc/{parent}/environ").read_bytes()
        except OSError:
            continue
        if own and daemon:
            found.append(pid)
    return found


def test_every_row_is_worked_on_or_put_aside(spark: SparkSession, tmp_path: Path) -> None:
    """All arrived long ago: a few are worked on to learn what they cost, the others are told."""
    job = words(threshold=1)
    out, shed, sink = run(
        spark, tmp_path, SMALL.stream(spark), job, slo="p99 <= 1 s", memory="8 KB"
    )
    worked = Counter(row.word for row in out.rows())
    aside = Counter(row.key for row in shed.rows())
    assert worked
    assert aside
    assert worked + aside == Counter(row.key for row in SMALL.rows(0, ROWS))
    stats = sink.stats()
    assert stats.processed + sum(stats.shed.values()) == stats.rows == ROWS
    assert (stats.on_time, stats.late) == (0, stats.processed)
    row = shed.rows()[0]
    assert (row.job, row.reason) == ("words", "too late to be on time")
    assert row.deadline.timestamp() == row.arrival.timestamp() + 1.0
    assert row.predicted > row.deadline


def test_late_rows_are_worked_on_when_there_is_time(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    job = words(threshold=1)
    reduced = taut.map_reduce(SMALL.stream(spark), job, slo="p99 <= 1 s", late="process")
    out = taut.sink("memory")
    sink = reduced.sink(out)
    writer = reduced.frame.writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        # no rows come any more, and batches go on until nothing waits
        eventually(lambda: query.exception() or sink.stats().processed == ROWS, within=120)
        assert query.exception() is None
    finally:
        query.stop()
    assert Counter(row.word for row in out.rows()) == Counter(
        row.key for row in SMALL.rows(0, ROWS)
    )
    assert sink.stats().waiting == 0
    assert sink.stats().readmitted > 0


def test_jobs_take_what_other_jobs_put_out(spark: SparkSession, tmp_path: Path) -> None:
    """Words are counted; one job counts how often a hundred was full, another keeps the most."""
    first = words(threshold=10)
    tens = taut.Job(
        name="tens", after=first.name, key="int", value="bigint", output="words int, tens bigint",
        map=lambda time, key, row: [(len(row[0]), 1)],
        init=lambda key: 0,
        update=lambda time, key, one, total: (total + one, [(key, total + one)]),
    )  # fmt: skip
    most = taut.Job(
        name="most", after="tens", key="string", value="bigint", output="most bigint",
        map=lambda time, key, row: [("all", row[1])],
        init=lambda key: 0,
        update=lambda time, key, n, top: (max(top, n), [max(top, n)]),
    )  # fmt: skip
    out, _, _ = run(spark, tmp_path, SMALL.stream(spark), [first, tens, most])
    counted = folded(first, SMALL.rows(0, ROWS))
    assert rows_of(out["words"]) == counted
    lengths = Counter(len(word) for word, _ in counted.elements())
    assert max(rows_of(out["tens"])) == max(lengths.items())
    assert {row for row in rows_of(out["tens"]) if row[1] == 1} == {(n, 1) for n in lengths}
    assert max(rows_of(out["most"])) == (max(lengths.values()),)


@pytest.fixture
def log() -> Iterator[taut.MemoryLog]:
    with taut.MemoryLog("word string") as made:
        yield made


def test_a_taut_source_under_a_runtime(
    spark: SparkSession,
    tmp_path: Path,
    log: taut.MemoryLog,
    heard: list[Record],
    eventually: Callable[..., None],
) -> None:
    log.append([{"word": word} for word in ("a", "b", "a", "c", "a")])
    rows = taut.read(spark, log, startingOffsets="earliest").load().withColumn("n", F.lit(1))
    job = words(threshold=1)
    reduced = taut.map_reduce(rows, job, key="word", value="n", slo="p99 <= 30 s")
    path = str(tmp_path / "out")
    with taut.Runtime(spark) as runtime:
        query = runtime.start(
            reduced.frame,
            name="reduced",
            slo="p99 <= 30 s",
            sink=reduced.sink(taut.sink("json", path=path), shed=taut.sink("memory")),
            checkpoint=tmp_path / "checkpoint",
            available_now=True,
        )
        assert runtime.await_termination(timeout=120)
        assert query.error() is None
    counted = Counter(tuple(row) for row in spark.read.json(path).select("word", "total").collect())
    assert counted == Counter([("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)])
    told = [record for record in heard if isinstance(record, Reduced)]
    assert {(record.query, record.objective) for record in told} == {("reduced", 30.0)}
    assert sum(record.rows for record in told) == sum(record.on_time for record in told) == 5

    def rows_told() -> list[int]:
        sources = [each for each in heard if isinstance(each, Source) and each.query == "reduced"]
        return [sum(lane.rows for lane in source.lanes) for source in sources]

    # told every second, and once more as the query ends
    eventually(lambda: rows_told()[-1:] == [5], within=30)
    again = reduced.sink(taut.sink("json", path=path), shed=taut.sink("memory"))
    with taut.Runtime(spark) as runtime, pytest.raises(taut.StartError, match="holds results"):
        runtime.start(reduced.frame, name="new", sink=again, checkpoint=tmp_path / "other")


def _picky(time: float, key: str, n: int, total: int) -> tuple[int, list[tuple[str, int]]]:
    if key == "w7":
        raise ValueError("seven is not counted")
    return total + n, [(key, total + n)]


PICKY = taut.Job(
    init=lambda key: 0, update=_picky, output="word string, total bigint", name="picky"
)


def test_a_row_that_fails_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match=r"seven is not counted; on row .*'w7'"):
        run(spark, tmp_path, SMALL.stream(spark), PICKY)


def test_rows_that_fail_are_put_aside(spark: SparkSession, tmp_path: Path) -> None:
    nulls = F.when(F.col("value") + F.hash("key") % 9 == 0, None).otherwise(F.col("key"))
    frame = SMALL.stream(spark).withColumn("key", nulls)
    out, shed, sink = run(spark, tmp_path, frame, PICKY, on_error="side-output")
    reasons = Counter(row.reason for row in shed.rows())
    assert set(reasons) == {
        "the row has no key",
        "update failed with ValueError: seven is not counted",
    }
    assert len(out.rows()) + sum(reasons.values()) == ROWS
    assert sink.stats().bad == sum(reasons.values())
    assert all("'key': None" in row.row for row in shed.rows() if "no key" in row.reason)


def test_reducers_are_spread_over_all_partitions(spark: SparkSession, tmp_path: Path) -> None:
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 0)
    for many in (1, partitions, 3 * partitions, 3 * partitions + 1):
        ids = reducer_ids(many, partitions)
        frame = spark.createDataFrame([(n,) for n in ids], "reducer int")
        where = F.expr(f"pmod(hash(reducer), {partitions})")
        used = Counter(row[0] for row in frame.select(where).collect())
        assert max(used.values()) - min(used.values(), default=0) <= 1
        assert len(used) == min(many, partitions)


REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "late": ({"late": "drop"}, "late='drop': one of 'side-output', 'process', 'fail'"),
    "on_error": ({"on_error": "ignore"}, "on_error='ignore': one of"),
    "policy": ({"policy": "lifo"}, "policy='lifo': one of 'fifo'"),
    "memory": ({"memory": "much"}, "memory='much': bytes, or text such as '64 MB'"),
    "no memory": ({"memory": 0}, "memory=0: at least a byte"),
    "reducers": ({"reducers": 0}, "reducers=0: at least 1"),
    "column": ({"key": "user"}, "key='user': df has no such column; it has time, key"),
    "time": ({"time": "value"}, "time='value' is bigint: a timestamp is needed"),
    "fail": ({"late": "fail"}, "late='fail': needs slo="),
    "readmit": ({"readmit": True}, "readmit=True: needs slo="),
    "readmit, process": (
        {"readmit": True, "late": "process", "slo": "p99 <= 1 s"},
        "readmit=True: needs slo= and late='side-output'",
    ),
    "arrival": ({"arrival": "came"}, "arrival='came': df has no such column"),
    "slo": ({"slo": "soon"}, "slo 'soon' is not an objective"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(spark: SparkSession, what: str) -> None:
    options, told = REFUSED[what]
    with pytest.raises(taut.TautError) as caught:
        taut.map_reduce(SMALL.stream(spark), words(), **options)
    assert told in str(caught.value)


def test_what_else_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = SMALL.stream(spark)
    with pytest.raises(taut.StartError, match="a streaming DataFrame is needed"):
        taut.map_reduce(SMALL.batch(spark), words())
    with pytest.raises(taut.StartError, match=r"no watermark, to close them by: df.withWatermark"):
        taut.map_reduce(stream, windowed_words(), time="time")
    with pytest.raises(taut.JobError, match="key=None needs map="):
        taut.map_reduce(stream, words(), key=None)
    reduced = taut.map_reduce(stream, words(), slo="p99 <= 1 s")
    with pytest.raises(taut.StartError, match="shed= is missing"):
        reduced.sink(taut.sink("memory"))
    with pytest.raises(taut.StartError, match="results and shed need one each"):
        reduced.sink(taut.sink("json", path="x"), shed=taut.sink("json", path="x"))
    with pytest.raises(
        taut.StartError, match=r"results={'other': ...}: needs a sink.* for one of 'words'"
    ):
        reduced.sink({"other": taut.sink("memory")}, shed=taut.sink("memory"))
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)
    spark.conf.set(provider, "some.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(taut.StartError, match="RocksDB only"):
            taut.map_reduce(stream, words())
    finally:
        spark.conf.set(provider, str(before))

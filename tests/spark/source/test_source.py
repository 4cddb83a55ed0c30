"""The source on a real Spark: every row once, whatever way it is dealt out."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkConf
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

import taut
from taut.errors import DataLost
from taut.spark.source.logs.files import FilesLog
from taut.spark.source.logs.memory import MemoryLog
from taut.spark.source.logs.schedule import ScheduleLog
from taut.spark.source.operators import Chain
from taut.spark.source.options import SourceOptions
from taut.spark.source.reader import TautReader
from taut.watch.records import Record, Source

pytestmark = pytest.mark.spark

Key = tuple[str, int]
Sink = Callable[[DataFrame, int], None]


class Out:
    """A sink that keeps the rows of each batch, replacing those that come again."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = df.collect()

    def rows(self) -> list[Any]:
        return [row for rows in dict(self.batches).values() for row in rows]

    def keys(self) -> Counter[Key]:
        return Counter((row["log_partition"], row["log_offset"]) for row in self.rows())


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    made = MemoryLog(partitions=3)
    yield made
    made.close()


def start(
    df: DataFrame, out: Callable[[DataFrame, int], None], checkpoint: Path, **trigger: Any
) -> Any:
    writer = df.writeStream.foreachBatch(out).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def drain(df: DataFrame, out: Sink, checkpoint: Path) -> None:
    query = start(df, out, checkpoint, availableNow=True)
    query.awaitTermination()


def lines(count: int, first: int = 0) -> list[str]:
    return [f"line {n}" for n in range(first, first + count)]


@pytest.mark.parametrize(
    ("dispatch", "chunk"),
    [("shared", "guided"), ("shared", 7), ("executor", "guided"), ("fixed", "guided")],
)
def test_every_row_once(
    spark: SparkSession, log: MemoryLog, tmp_path: Path, dispatch: str, chunk: Any
) -> None:
    log.append(lines(1_000))
    out = Out()
    df = taut.read(
        spark, log, lanes=4, dispatch=dispatch, chunk=chunk, startingOffsets="earliest"
    ).load()
    drain(df, out, tmp_path)
    assert sorted(row["value"] for row in out.rows()) == sorted(lines(1_000))
    assert set(out.keys().values()) == {1}
    assert {row["log_partition"] for row in out.rows()} == {"0", "1", "2"}
    assert all(row["arrival"] is not None for row in out.rows())


def test_operators_run_in_the_lanes(spark: SparkSession, log: MemoryLog, tmp_path: Path) -> None:
    log.append(["a bb ccc", "dd", ""])
    out = Out()
    words = (
        taut.read(spark, log, startingOffsets="earliest")
        .flat_map(str.split, "word string", column="value")
        .map(lambda row: {"word": row["word"], "size": len(row["word"])}, "word string, size int")
        .filter(lambda row: row["size"] > 1)
        .load()
    )
    drain(words, out, tmp_path)
    assert sorted((row["word"], row["size"]) for row in out.rows()) == [
        ("bb", 2),
        ("ccc", 3),
        ("dd", 2),
    ]


def test_a_stateful_query_behind_it(spark: SparkSession, log: MemoryLog, tmp_path: Path) -> None:
    """Two stages: the lanes' output is shuffled, and each action of a batch gives the same."""
    log.append([f"k{n % 7}" for n in range(700)])
    sums: dict[str, int] = {}
    twice: list[int] = []

    def sink(df: DataFrame, batch_id: int) -> None:
        twice.extend([df.count(), df.count()])
        sums.update({row["value"]: row["count"] for row in df.collect()})

    counts = taut.read(spark, log, lanes=3, startingOffsets="earliest").load()
    query = (
        counts.groupBy("value")
        .count()
        .writeStream.outputMode("update")
        .foreachBatch(sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sums == {f"k{n}": 100 for n in range(7)}
    assert twice[0] == twice[1] == 7


def test_a_restart_goes_on_where_it_was(
    spark: SparkSession, log: MemoryLog, tmp_path: Path
) -> None:
    out = Out()
    df = taut.read(spark, log, startingOffsets="earliest", maxOffsetsPerTrigger=100).load()
    log.append(lines(250))
    drain(df, out, tmp_path)
    assert [len(rows) for rows in out.batches.values()] == [100, 100, 50]
    log.append(lines(250, first=250))
    drain(df, out, tmp_path)
    assert sorted(row["value"] for row in out.rows()) == sorted(lines(500))
    assert set(out.keys().values()) == {1}


def test_rows_that_come_while_it_runs(
    spark: SparkSession, log: MemoryLog, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    out = Out()
    query = start(taut.read(spark, log, startingOffsets="earliest").load(), out, tmp_path)
    try:
        for n in range(3):
            log.append(lines(50, first=50 * n))
            eventually(lambda n=n: len(out.rows()) == 50 * (n + 1))
    finally:
        query.stop()
    assert set(out.keys().values()) == {1}


def test_a_partition_that_appears_later_is_read(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    out = Out()
    df = taut.read(spark, "files", path=folder, format="text", startingOffsets="earliest").load()
    drain(df, out, tmp_path / "c")
    (folder / "b.txt").write_text("three\n")
    with (folder / "a.txt").open("a") as file:
        file.write("four\nunfinished")
    drain(df, out, tmp_path / "c")
    assert sorted(row["value"] for row in out.rows()) == ["four", "one", "three", "two"]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("earliest", ["line 0", "line 1", "line 2"]),
        (json.dumps({"0": 1, "1": -2, "2": -1}), ["line 1"]),
    ],
)
def test_starting_offsets(
    spark: SparkSession, log: MemoryLog, tmp_path: Path, given: str, values: list[str]
) -> None:
    for n in range(3):
        log.append(lines(1, first=n), partition=str(n))
    out = Out()
    drain(taut.read(spark, log, startingOffsets=given).load(), out, tmp_path)
    assert sorted(row["value"] for row in out.rows()) == values


def test_rows_that_are_gone_are_told_of(
    spark: SparkSession, log: MemoryLog, tmp_path: Path
) -> None:
    out = Out()
    log.append(lines(30))
    strict = taut.read(spark, log, startingOffsets="earliest")
    drain(strict.load(), out, tmp_path)
    log.append(lines(30, first=30))
    log.trim({"0": 15, "1": 15, "2": 15})
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false goes on"):
        drain(strict.load(), out, tmp_path)
    lenient = taut.read(spark, log, startingOffsets="earliest", failOnDataLoss=False)
    drain(lenient.load(), out, tmp_path)
    assert len(out.rows()) == 30 + 3 * 5


def test_a_log_that_is_shorter_than_what_was_read_is_told_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ScheduleLog(0.0, 1_000, total=5)
    strict = TautReader(log, Chain(), SourceOptions())
    assert strict.latestOffset({"0": 9}, ReadAllAvailable()) == {"0": 9}, "it may only lag"
    monkeypatch.setattr("taut.spark.source.reader._LAG", 0.0)
    with pytest.raises(DataLost, match=r"ends at \{'0': 5\} and was read up to \{'0': 9\}"):
        strict.latestOffset({"0": 9}, ReadAllAvailable())
    assert strict.latestOffset({"0": 2}, ReadAllAvailable()) == {"0": 5}
    lenient = TautReader(log, Chain(), SourceOptions(fail_on_data_loss=False))
    assert lenient.latestOffset({"0": 9}, ReadAllAvailable()) == {"0": 9}
    bounded = TautReader(log, Chain(), SourceOptions())
    bounded.prepareForTriggerAvailableNow()
    with pytest.raises(DataLost, match="made anew"):
        bounded.latestOffset({"0": 9}, ReadAllAvailable())


def test_a_file_that_goes_or_comes_back_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("1\n2\n")
    strict = TautReader(FilesLog(tmp_path), Chain(), SourceOptions())
    lenient = TautReader(FilesLog(tmp_path), Chain(), SourceOptions(fail_on_data_loss=False))
    (tmp_path / "a").unlink()
    with pytest.raises(DataLost, match=r"offsets \{'a': 4\} are no longer in the log"):
        strict.latestOffset({"a": 4, "b": 0}, ReadAllAvailable())
    for n in range(3):
        (tmp_path / f"c{n}").touch()
        assert lenient.latestOffset({"a": 4, "b": 4}, ReadAllAvailable())["a"] == 4
    assert caplog.text.count("no longer in the log, which has no such partitions any more") == 1
    (tmp_path / "a").write_text("3\n4\n5\n")
    lenient.latestOffset({"a": 4, "b": 4}, ReadAllAvailable())
    assert (
        "{'a': 4} had gone and are there again, and are read from these offsets on" in caplog.text
    )


def test_rows_that_are_gone_are_left_out_of_a_batch_that_is_replayed(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("1\n2\n")
    out = Out()

    def failing(df: DataFrame, batch_id: int) -> None:
        raise RuntimeError("stopped in the middle of a batch")

    files = taut.read(spark, "files", path=folder, startingOffsets="earliest")
    with pytest.raises(StreamingQueryException, match="stopped in the middle"):
        drain(files.load(), failing, tmp_path)
    (folder / "a").unlink()
    with pytest.raises(StreamingQueryException, match="is gone; files of a log must stay"):
        drain(files.load(), out, tmp_path)
    lenient = taut.read(
        spark, "files", path=folder, startingOffsets="earliest", failOnDataLoss=False
    )
    drain(lenient.load(), out, tmp_path)
    assert sorted((row["log_partition"], row["value"]) for row in out.rows()) == [
        ("b", "1"),
        ("b", "2"),
    ]


def test_all_that_is_there_is_processed_however_little(
    spark: SparkSession, log: MemoryLog, tmp_path: Path
) -> None:
    log.append(lines(12))
    few = taut.read(
        spark, log, startingOffsets="earliest", minOffsetsPerTrigger=5, maxOffsetsPerTrigger=10
    )
    out = Out()
    drain(few.load(), out, tmp_path)
    assert len(out.rows()) == 12


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"maxOffsetPerTrigger": 9}, "maxOffsetPerTrigger='9' is not known: maxOffsetsPerTrigger?"),
        ({"subscribe": "x"}, "subscribe='x' is not known: a memory log takes lanes, "),
        ({"horizon": "9 s"}, "horizon='9 s' needs timing='resident'"),
        (
            {"timing": "resident", "maxOffsetsPerTrigger": 9},
            "maxOffsetsPerTrigger='9' needs timing='batch'",
        ),
    ],
)
def test_an_option_that_nothing_reads_is_refused(
    spark: SparkSession, log: MemoryLog, wrong: dict[str, object], told: str
) -> None:
    with pytest.raises(taut.StartError, match=re.escape(told)):
        taut.read(spark, log, **wrong)
    taut.register(spark)
    given = log.options() | {name: str(value) for name, value in wrong.items()}
    with pytest.raises(AnalysisException, match="(?i)" + re.escape(told)):  # Spark forgets the case
        spark.readStream.format("taut").options(**given).load()


def test_columns_of_files_by_options_alone(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a").write_text('{"n": 1}\n{"n": 2}\n')
    taut.register(spark)

    def stream(**more: str) -> Any:
        options = {"path": str(folder), "format": "json", "startingOffsets": "earliest"}
        return spark.readStream.format("taut").options(log="files", **options, **more)

    out = Out()
    drain(stream(schema="n bigint").load(), out, tmp_path / "c")
    assert sorted(row["n"] for row in out.rows()) == [1, 2]
    with pytest.raises(AnalysisException, match="option schema 'n bigin'"):
        stream(schema="n bigin").load()
    with pytest.raises(StreamingQueryException, match=r"leave out \.schema\(\.\.\.\)"):
        drain(stream().schema("n bigint").load(), out, tmp_path / "d")


def test_what_is_wrong_is_told_at_once(spark: SparkSession, log: MemoryLog, tmp_path: Path) -> None:
    with pytest.raises(taut.LogError, match="option path=None: must be given"):
        taut.read(spark, "files")
    with pytest.raises(taut.LogError, match="timing='resident' needs a log that keeps the time"):
        taut.read(spark, "files", path=tmp_path, timing="resident")
    with pytest.raises(taut.StartError, match=r"log=\['a'\] is not known; one of: files, schedule"):
        taut.read(spark, ["a"])
    read = taut.read(spark, log)
    with pytest.raises(taut.StartError, match="'no_such'"):
        read.map(str.upper, column="no_such").load()
    with pytest.raises(ValueError, match="limit\\('abc'\\): a whole number"):
        read.limit("abc")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"no 'writeStream'; \.load\(\) makes it a DataFrame"):
        read.writeStream  # noqa: B018
    assert repr(read.map(str.upper, column="value")) == "taut.read('memory', operators=1)"


@pytest.mark.parametrize("spelt", ["true", "True", "TRUE "])
def test_speculation_is_refused(
    spark: SparkSession, spelt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = SparkConf(loadDefaults=False).set("spark.speculation", spelt)
    monkeypatch.setattr(spark.sparkContext, "getConf", lambda: conf)
    with pytest.raises(taut.StartError, match=f"spark.speculation={spelt}: .* set .*=false"):
        taut.register(spark)


def test_an_operator_that_raises_fails_the_batch_and_names_the_row(
    spark: SparkSession, log: MemoryLog, tmp_path: Path
) -> None:
    log.append(["1", "2", "x"], partition="0")
    out = Out()
    parsed = taut.read(spark, log, startingOffsets="earliest").map(
        lambda row: {"n": int(row["value"])}, "n bigint"
    )
    with pytest.raises(StreamingQueryException) as caught:
        drain(parsed.load(), out, tmp_path)
    told = str(caught.value)
    assert "map 1 of 1" in told
    assert "invalid literal for int()" in told
    assert out.rows() == []


def test_refused_before_anything_starts(spark: SparkSession, log: MemoryLog) -> None:
    with pytest.raises(taut.StartError, match=r"log='pulsar' is not known.*MemoryLog"):
        taut.read(spark, "pulsar")
    with pytest.raises(taut.StartError, match=r"dispatch='stolen'.*fixed"):
        taut.read(spark, log, dispatch="stolen")
    with pytest.raises(taut.StartError, match=r"lanes='many'.*whole number"):
        taut.read(spark, log, lanes="many")
    with pytest.raises(taut.StartError, match=r"startingOffsets='first'.*earliest"):
        taut.read(spark, log, startingOffsets="first")
    lock = threading.Lock()
    with pytest.raises(taut.StartError, match="lock"):
        taut.read(spark, log).map(lambda row: (lock, row)[1]).load()


def test_works_under_a_runtime(
    spark: SparkSession,
    log: MemoryLog,
    tmp_path: Path,
    eventually: Callable[..., None],
    heard: list[Record],
) -> None:
    sink = taut.sink("memory")
    begun = time.time()
    with taut.Runtime(spark) as runtime:
        df = taut.read(spark, log, lanes=2, chunk=5, startingOffsets="earliest").load()
        runtime.start(df, name="lines", sink=sink, checkpoint=tmp_path, slo="p99 <= 1 s")
        for n in range(3):
            log.append(lines(20, first=20 * n))
            eventually(lambda n=n: len(sink.rows()) == 20 * (n + 1))
        eventually(lambda: rows_told(heard) == 60)
    assert sorted(row["value"] for row in sink.rows()) == sorted(lines(60))
    told = [record for record in heard if isinstance(record, Source)]
    assert {record.query for record in told} == {"lines"}
    assert told[-1].issued == 60
    assert sum(lane.chunks for lane in told[-1].lanes) >= 12
    assert all(lane.busy > 0.0 for lane in told[-1].lanes if lane.rows)
    chunks = [chunk for record in told for chunk in record.chunks if chunk.kept]
    assert sum(chunk.rows for chunk in chunks) == 60
    assert all(begun < chunk.claimed < chunk.done < time.time() for chunk in chunks)
    # about once a second, and once more at the end
    assert len(told) <= 3 + (time.time() - begun) / 0.9


def rows_told(heard: list[Record]) -> int:
    """Rows that all lanes have done, as was told last."""
    told = [record for record in heard if isinstance(record, Source)]
    return sum(lane.rows for lane in told[-1].lanes) if told else 0

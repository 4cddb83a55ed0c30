from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import taut
from taut.spark.sinks import FileSink, FormatSink, MemorySink


@pytest.mark.spark
def test_files_replace_a_batch_that_comes_again(spark: SparkSession, tmp_path: Path) -> None:
    sink = taut.sink("parquet", path=str(tmp_path / "out"))
    sink(spark.range(3), 0)
    sink(spark.range(10, 14), 1)
    sink(spark.range(3), 0)
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted((r["batch_id"], r["id"]) for r in found.collect()) == [
        (0, 0), (0, 1), (0, 2), (1, 10), (1, 11), (1, 12), (1, 13),
    ]  # fmt: skip


@pytest.mark.spark
def test_a_batch_without_rows_leaves_no_folder(spark: SparkSession, tmp_path: Path) -> None:
    sink = taut.sink("json", path=str(tmp_path))
    sink(spark.range(0), 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.spark
def test_memory_replaces_and_is_bounded(spark: SparkSession) -> None:
    sink = MemorySink(limit=5)
    sink(spark.range(3), 0)
    sink(spark.range(3), 0)
    assert [r["id"] for r in sink.rows()] == [0, 1, 2]
    with pytest.raises(MemoryError, match=r"6 rows are over limit=5.*parquet"):
        sink(spark.range(3), 1)


@pytest.mark.spark
def test_any_batch_format(spark: SparkSession) -> None:
    sink = taut.sink("noop")
    assert isinstance(sink, FormatSink)
    sink(spark.range(3), 0)


def test_a_file_sink_needs_a_path() -> None:
    with pytest.raises(taut.StartError, match=r"taut.sink\('parquet'\): option path is missing"):
        taut.sink("parquet")
    with pytest.raises(taut.StartError, match="a name such as 'parquet'"):
        taut.sink("")
    assert isinstance(taut.sink("orc", path="x"), FileSink)

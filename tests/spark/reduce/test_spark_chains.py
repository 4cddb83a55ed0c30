"""Jobs that take each other's output, with windows and with rows that wait."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from tests.spark.reduce.test_spark_reduce import ROWS, SMALL, folded, rows_of, run

import taut
from taut.workloads.reduce import windowed_words, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def total(after: str, name: str = "total") -> taut.Job:
    """How many rows have come out of a job, by the length of the word."""
    return taut.Job(
        name=name, after=after, key="int", value="bigint", output="length int, n bigint",
        map=lambda time, key, row: [(len(row[0]), 1)],
        init=lambda key: 0,
        update=lambda time, key, one, n: (n + one, [(key, n + one)]),
    )  # fmt: skip


def expected_windows(job: taut.Job) -> Counter[Any]:
    rows = list(SMALL.rows(0, ROWS))
    closed = math.floor(1e3 * (max(row.time for row in rows) - 1.0)) / 1e3
    return Counter({row: n for row, n in folded(job, rows).items() if row[1] <= closed})


def test_a_job_with_windows_before_another(spark: SparkSession, tmp_path: Path) -> None:
    first = windowed_words("2 s")
    frame = SMALL.stream(spark).withWatermark("time", "1 second")
    out, shed, sink = run(spark, tmp_path, frame, [first, total(first.name)], time="time")
    windows = expected_windows(first)
    assert rows_of(out[first.name]) == windows
    lengths = Counter(len(word) for word, _, _ in windows.elements())
    assert max(rows_of(out["total"])) == max(lengths.items())
    assert len(out["total"].rows()) == lengths.total()
    assert not shed.rows()
    assert sink.stats().results == windows.total() + lengths.total()


def test_a_job_with_windows_after_another(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that come out have the time of the row that they came with."""
    first = words(threshold=1)
    after = taut.Job(
        name="seconds", after=first.name, key="string", value="bigint", window="2 s",
        output="word string, end double, n bigint",
        map=lambda time, key, row: [(row[0], 1)],
        init=lambda key, window: 0,
        update=lambda time, key, one, n: (n + one, None),
        finalize=lambda key, window, n: [(key, window.end, n)],
    )  # fmt: skip
    frame = SMALL.stream(spark).withWatermark("time", "1 second")
    out, shed, _ = run(spark, tmp_path, frame, [first, after], time="time")
    assert rows_of(out[first.name]) == folded(first, SMALL.rows(0, ROWS))
    got = rows_of(out["seconds"])
    assert not shed.rows()
    counts = expected_windows(windowed_words("2 s"))
    assert got
    assert got == counts


def test_results_of_a_window_are_in_the_same_window_of_a_job_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    first = windowed_words("2 s")
    after = taut.Job(
        name="different", after=first.name, key="string", value="bigint", window="2 s",
        output="end double, n bigint",
        map=lambda time, key, row: [("all", 1)],
        init=lambda key, window: 0,
        update=lambda time, key, one, n: (n + one, None),
        finalize=lambda key, window, n: [(window.end, n)],
    )  # fmt: skip
    frame = SMALL.stream(spark).withWatermark("time", "1 second")
    out, shed, _ = run(spark, tmp_path, frame, [first, after], time="time")
    words_of = Counter(end for _, end, _ in rows_of(out[first.name]))
    got = dict(rows_of(out["different"]))
    assert got
    assert set(got) <= set(words_of.items())
    assert not shed.rows()


def test_two_jobs_after_one(spark: SparkSession, tmp_path: Path) -> None:
    first = words(threshold=10)
    jobs = [first, total(first.name), total(first.name, "again")]
    out, _, _ = run(spark, tmp_path, SMALL.stream(spark), jobs)
    counted = folded(first, SMALL.rows(0, ROWS))
    assert rows_of(out[first.name]) == counted
    assert rows_of(out["total"]) == rows_of(out["again"])
    assert len(out["total"].rows()) == counted.total()
    reduced = taut.map_reduce(SMALL.stream(spark), jobs)
    with pytest.raises(taut.StartError, match="job= is missing: results of one of total, again"):
        reduced.results(SMALL.batch(spark))


def test_late_rows_of_windows_are_worked_on_before_these_are_closed(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = windowed_words("2 s")
    frame = SMALL.stream(spark).withWatermark("time", "1 second")
    out, shed, sink = run(
        spark, tmp_path, frame, job, time="time", slo="p99 <= 20 s", late="process"
    )
    assert rows_of(out) == expected_windows(job)
    assert not shed.rows()
    stats = sink.stats()
    assert stats.readmitted > 0
    assert stats.processed + stats.waiting == ROWS


def test_what_is_learned_of_a_batch_and_told(spark: SparkSession, tmp_path: Path) -> None:
    """How long a batch takes after its reducers is heard of in the next but one."""
    _, _, sink = run(spark, tmp_path, SMALL.stream(spark), words(threshold=1))
    batches = sink.stats().batches
    assert len(batches) == 3
    assert (batches[0].lead, batches[0].after) == (pytest.approx(0.2, abs=1e-3), 0.2), "not yet"
    assert abs(batches[-1].lead - 0.2) > 1e-3
    assert batches[-1].after not in (0.0, 0.2)
    assert batches[-1].after < 30.0
    assert sum(batch.results for batch in batches) == ROWS


def test_numbers_are_not_cut(spark: SparkSession, tmp_path: Path) -> None:
    frame = SMALL.stream(spark)
    halves = frame.withColumn("value", F.col("value") * F.lit(0.5))
    whole = frame.withColumn("value", F.col("value").cast("double"))
    job = words(threshold=1)
    out, shed, _ = run(spark, tmp_path / "whole", whole, job)
    assert rows_of(out) == folded(job, SMALL.rows(0, ROWS))
    out, shed, _ = run(spark, tmp_path / "halves", halves, job, on_error="side-output")
    assert (len(out.rows()), len(shed.rows())) == (0, ROWS)
    assert {row.reason.split(";")[0] for row in shed.rows()} == {
        "the value 0.5 (double) is no int64"
    }


def test_columns_that_do_not_suit_are_refused(spark: SparkSession) -> None:
    frame = SMALL.stream(spark)
    with pytest.raises(taut.JobError, match=r"the values are timestamp.*, and value='int64'"):
        taut.map_reduce(frame, words(), value="time")
    other = frame.withWatermark("arrival", "1 second")
    with pytest.raises(
        taut.StartError,
        match=r"windows by time='time', and df a watermark on arrival, .*withWatermark\('time'",
    ):
        taut.map_reduce(other, windowed_words(), time="time")
    taut.map_reduce(other, windowed_words())
    renamed = frame.withWatermark("time", "1 second").withColumnRenamed("time", "at")
    taut.map_reduce(renamed, windowed_words(), time="at")

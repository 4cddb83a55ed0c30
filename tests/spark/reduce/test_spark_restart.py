"""A query that ends, and goes on from its checkpoint under other circumstances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from tests.spark.reduce.test_spark_reduce import ROWS, SMALL, folded, rows_of, run

import taut
from taut.workloads.generator import Load
from taut.workloads.reduce import WordLoad, words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

_PARTITIONS = "spark.sql.shuffle.partitions"


@contextmanager
def partitions(spark: SparkSession, many: int) -> Iterator[None]:
    before = spark.conf.get(_PARTITIONS)
    spark.conf.set(_PARTITIONS, str(many))
    try:
        yield
    finally:
        spark.conf.set(_PARTITIONS, str(before))


def part(upto: int) -> WordLoad:
    """The first rows of a stream that goes on."""
    load = Load(SMALL.load.start, 1_000, total=upto, max_rows_per_batch=2_000, partitions=2)
    return WordLoad(load, keys=300, out_of_order="1 s")


@pytest.mark.parametrize("reducers", [None, 3])
def test_another_number_of_partitions_goes_on_with_the_states(
    spark: SparkSession, tmp_path: Path, reducers: int | None
) -> None:
    """As on a machine with more cores, and then on one with fewer."""
    job, counted = words(threshold=1), Counter[Any]()
    for many, upto in ((2, 2_000), (5, 4_000), (1, ROWS)):
        with partitions(spark, many):
            out, _, sink = run(spark, tmp_path, part(upto).stream(spark), job, reducers=reducers)
        assert sink.stats().rows == 2_000
        counted += rows_of(out)
    assert counted == folded(job, SMALL.rows(0, ROWS))


def test_another_number_of_reducers_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = words(threshold=1)
    run(spark, tmp_path, part(2_000).stream(spark), job, reducers=4)
    for many in (2, 6):
        with pytest.raises(StreamingQueryException, match=r"begun with 4 reducers, .*reducers=4"):
            run(spark, tmp_path, part(4_000).stream(spark), job, reducers=many)
    _, _, sink = run(spark, tmp_path, part(4_000).stream(spark), job, reducers=4)
    assert sink.stats().rows == 2_000


def test_a_job_of_another_name_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    job = words(threshold=1)
    run(spark, tmp_path, part(2_000).stream(spark), job)
    other = replace(job, name="renamed")
    with pytest.raises(StreamingQueryException, match=r"has the states of 'words', .* 'renamed'"):
        run(spark, tmp_path, part(4_000).stream(spark), other)
    out, _, _ = run(spark, tmp_path, part(4_000).stream(spark), job)
    assert rows_of(out) == folded(job, SMALL.rows(0, 4_000)) - folded(job, SMALL.rows(0, 2_000))


def test_all_reducers_know_of_each_other_from_the_first_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Also those that had no key yet: one of them would take keys of another for new."""
    rows = SMALL.stream(spark).where("key = 'w1'")
    job = words(threshold=1)
    run(spark, tmp_path, rows, job, reducers=6)
    with pytest.raises(StreamingQueryException, match="begun with 6 reducers"):
        run(spark, tmp_path, part(2 * ROWS).stream(spark).where("key = 'w1'"), job, reducers=5)


@pytest.mark.parametrize("late", [{"late": "process"}, {"readmit": True}], ids=["process", "wait"])
def test_a_query_that_takes_what_is_there_ends_when_none_wait(
    spark: SparkSession, tmp_path: Path, late: dict[str, Any]
) -> None:
    job = words(threshold=1)
    out, shed, sink = run(spark, tmp_path, SMALL.stream(spark), job, slo="p99 <= 20 s", **late)
    stats = sink.stats()
    assert (stats.rows, stats.waiting) == (ROWS, 0)
    assert stats.processed + len(shed.rows()) == ROWS
    assert Counter(row.word for row in out.rows()) + Counter(r.key for r in shed.rows()) == (
        Counter(row.key for row in SMALL.rows(0, ROWS))
    )
    if "readmit" in late:
        assert {row.reason for row in shed.rows()} == {"waited too long"}
    else:
        assert stats.readmitted > 0
        assert not shed.rows()
    # and goes on
    _, _, sink = run(
        spark, tmp_path, part(ROWS + 2_000).stream(spark), job, slo="p99 <= 20 s", **late
    )
    assert sink.stats().rows == 2_000


def test_under_a_runtime_too(spark: SparkSession, tmp_path: Path) -> None:
    reduced = taut.map_reduce(
        SMALL.stream(spark), words(threshold=1), slo="p99 <= 20 s", late="process"
    )
    out = taut.sink("memory")
    with taut.Runtime(spark) as runtime:
        query = runtime.start(
            reduced.frame, name="drained", sink=reduced.sink(out),
            checkpoint=tmp_path / "checkpoint", available_now=True,
        )  # fmt: skip
        assert runtime.await_termination(timeout=200)
        assert query.error() is None
    assert len(out.rows()) == ROWS


def test_late_can_be_changed_to_what_an_error_says(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of long ago cannot be on time; the same checkpoint goes on with another ``late=``."""
    job = words(threshold=1)
    options: dict[str, Any] = {"slo": "p99 <= 20 s"}
    with pytest.raises(StreamingQueryException, match=r"rows cannot be out .*='side-output'"):
        run(spark, tmp_path, SMALL.stream(spark), job, late="fail", **options)
    _, shed, sink = run(spark, tmp_path, SMALL.stream(spark), job, late="side-output", **options)
    assert sink.stats().processed + len(shed.rows()) == ROWS

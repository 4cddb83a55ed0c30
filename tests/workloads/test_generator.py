from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from taut.workloads import Delay, Load, Schedule, WorkloadError
from taut.workloads.columns import event_time
from taut.workloads.generator import LoadReader, Rows, schedule_from

PAST = 1_790_000_000.0


@given(
    rate=st.integers(1, 3_000_000),
    start=st.integers(0, 2 * 10**15),
    elapsed=st.integers(-5, 10**10),
    total=st.none() | st.integers(0, 1_000),
)
def test_a_row_counts_exactly_from_its_arrival(
    rate: int, start: int, elapsed: int, total: int | None
) -> None:
    schedule = Schedule(start, rate, total)
    now = start + elapsed
    rows = schedule.rows_by(now)
    assert rows >= 0
    assert total is None or rows <= total
    if rows:
        assert schedule.arrival_us(rows - 1) <= now
    if rows != total:
        assert schedule.arrival_us(rows) > now


def test_the_reader_follows_the_schedule_however_late_it_asks() -> None:
    reader = LoadReader(Schedule(round((time.time() - 10) * 1e6), rate=100), partitions=1)
    rows = reader.latestOffset({"rows": 0}, ReadAllAvailable())["rows"]
    assert 1_000 <= rows <= 1_500


def test_an_idle_reader_waits_only_a_little() -> None:
    reader = LoadReader(Schedule(round((time.time() + 3_600) * 1e6), rate=1), partitions=1)
    begun = time.monotonic()
    assert reader.latestOffset({"rows": 0}, ReadAllAvailable()) == {"rows": 0}
    assert time.monotonic() - begun < 0.5


def test_admits_no_more_than_the_limit() -> None:
    reader = LoadReader(Schedule(0, rate=100, total=50), partitions=1)
    assert reader.latestOffset({"rows": 10}, ReadMaxRows(7)) == {"rows": 17}
    assert reader.latestOffset({"rows": 48}, ReadMaxRows(7)) == {"rows": 50}


@pytest.mark.parametrize(("low", "high", "parts"), [(0, 10, 3), (5, 6, 4), (7, 7, 2), (0, 9, 1)])
def test_partitions_cut_the_range_without_loss(low: int, high: int, parts: int) -> None:
    reader = LoadReader(Schedule(0, 1), parts)
    ranges = reader.partitions({"rows": low}, {"rows": high})
    assert all(isinstance(each, Rows) and each.low < each.high for each in ranges)
    rows = [n for each in ranges if isinstance(each, Rows) for n in range(each.low, each.high)]
    assert rows == list(range(low, high))
    assert len(ranges) <= parts


def test_reads_arrow_in_bounded_chunks() -> None:
    reader = pickle.loads(pickle.dumps(LoadReader(Schedule(0, 1), 1)))
    batches = list(reader.read(Rows(3, 150_003)))
    assert max(batch.num_rows for batch in batches) <= 65_536
    numbers = [n for batch in batches for n in batch.column(0).to_pylist()]
    assert numbers == list(range(3, 150_003))


@pytest.mark.parametrize(
    "options",
    [
        {"rate": "1"},
        {"start": "soon", "rate": "1"},
        {"start": "0", "rate": "0"},
        {"start": "0", "rate": "1", "total": "-1"},
    ],
)
def test_refuses_options(options: dict[str, str]) -> None:
    with pytest.raises(WorkloadError):
        schedule_from(options)


def test_a_delay_needs_a_known_shape_and_a_bound() -> None:
    with pytest.raises(WorkloadError, match="uniform"):
        Delay("gaussian", 1)  # type: ignore[arg-type]
    with pytest.raises(WorkloadError, match="bound"):
        Delay("zipf")


def consumed(df: DataFrame, checkpoint: Path) -> tuple[list[list[int]], list[int]]:
    batches: list[list[int]] = []
    query = (
        df.writeStream.option("checkpointLocation", str(checkpoint))
        .foreachBatch(lambda batch, _: batches.append([row["n"] for row in batch.collect()]))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    counted = [progress["numInputRows"] for progress in query.recentProgress]
    return batches, [count for count in counted if count]


@pytest.mark.spark
def test_exact_rows_and_a_restart_goes_on_where_it_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    load = Load(PAST, rate=100, total=1_000, partitions=2, max_rows_per_batch=400)
    batches, counted = consumed(load.stream(spark), tmp_path)
    assert sorted(n for batch in batches for n in batch) == list(range(1_000))
    assert counted == [400, 400, 200]

    longer = Load(PAST, rate=100, total=1_500)
    batches, counted = consumed(longer.stream(spark), tmp_path)
    assert sorted(n for batch in batches for n in batch) == list(range(1_000, 1_500))
    assert counted == [500]


@pytest.mark.spark
def test_event_time_is_the_arrival_to_the_microsecond(spark: SparkSession) -> None:
    load = Load(PAST + 0.123456, rate=7, total=100)
    at = event_time(F.col("n"), Delay())
    rows = load.batch(spark).select("n", F.unix_micros(at).alias("at")).collect()
    assert [row["at"] for row in rows] == [load.schedule.arrival_us(row["n"]) for row in rows]


@pytest.mark.spark
@pytest.mark.parametrize("shape", ["uniform", "zipf", "bursty"])
def test_delays_stay_within_the_bound(spark: SparkSession, shape: str) -> None:
    delay = Delay(shape, 2_000)  # type: ignore[arg-type]
    late = delay.micros(F.col("n"))
    assert late is not None
    delays = [row[0] for row in spark.range(20_000).toDF("n").select(late).collect()]
    assert min(delays) >= 0
    assert max(delays) <= 2_000_000
    assert len(set(delays)) > 1_000
    if shape == "zipf":
        assert sorted(delays)[len(delays) // 2] < 100_000, "most rows are nearly at once"

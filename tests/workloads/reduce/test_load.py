from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from taut.workloads import Load, WorkloadError
from taut.workloads.reduce import ClickLoad, WordLoad, Zipf, clicks_load, sessions, words_load
from taut.workloads.reduce.draws import hashed, hashed_array, uniform_array
from taut.workloads.reduce.fold import fold
from taut.workloads.reduce.load import KeyedLoad

START = 1_790_000_000.123456
TOTAL = 20_000
LOAD = Load(START, rate=7_000, total=TOTAL)
LOADS = {
    "words": WordLoad(LOAD),
    "words, s=1.5": WordLoad(LOAD, keys=1_000, zipf=1.5, out_of_order="2 s"),
    "words, s=0.8": WordLoad(LOAD, zipf=0.8),
    "lines": WordLoad(LOAD, words_per_line=8, out_of_order="500 ms"),
    "clicks": ClickLoad(LOAD, out_of_order="2 s"),
    "clicks, s=0": ClickLoad(LOAD, users=3, zipf=0.0, pages=1),
}


def by_micros(df: DataFrame) -> list[tuple[object, ...]]:
    columns = F.unix_micros("time"), "key", "value", F.unix_micros("arrival")
    return [tuple(row) for row in df.select(*columns).collect()]


def expected(load: KeyedLoad, high: int = TOTAL) -> list[tuple[object, ...]]:
    return [
        (round(row.time * 1e6), row.key, row.value, round(row.arrival * 1e6))
        for row in load.rows(0, high)
    ]


@pytest.mark.spark
@pytest.mark.parametrize("name", LOADS)
def test_python_makes_the_rows_that_spark_makes(spark: SparkSession, name: str) -> None:
    df = LOADS[name].batch(spark)
    assert by_micros(df) == expected(LOADS[name])
    key = "bigint" if name.startswith("clicks") else "string"
    value = "string" if name == "lines" else "bigint"
    types = [("time", "timestamp"), ("key", key), ("value", value), ("arrival", "timestamp")]
    assert df.dtypes == types


@pytest.mark.spark
def test_python_hashes_as_spark_does(spark: SparkSession) -> None:
    numbers = [0, 1, -1, 2**31, 2**32 + 7, -(2**63), 2**63 - 1]
    df = spark.createDataFrame([(n,) for n in numbers], "n bigint")
    got = [row[0] for row in df.select(hashed(F.col("n"), 9)).collect()]
    assert got == hashed_array(np.array(numbers, dtype=np.int64), 9).tolist()


@pytest.mark.spark
def test_the_streams_have_these_rows(spark: SparkSession, tmp_path: Path) -> None:
    bounds = {"total": 1_000, "partitions": 2, "max_rows_per_batch": 400}
    load = Load(START, 500, 1_000)
    streams = {
        "words": (
            words_load(spark, 500, START, keys=50, zipf=1.2, out_of_order="1 s", **bounds),  # type: ignore[arg-type]  # all are whole numbers
            WordLoad(load, keys=50, zipf=1.2, out_of_order="1 s"),
        ),
        "clicks": (
            clicks_load(spark, 500, START, users=50, pages=9, **bounds),  # type: ignore[arg-type]
            ClickLoad(load, users=50, pages=9),
        ),
    }
    for name, (stream, same) in streams.items():
        rows: list[tuple[object, ...]] = []
        query = (
            stream.writeStream.option("checkpointLocation", str(tmp_path / name))
            .foreachBatch(lambda batch, _, rows=rows: rows.extend(by_micros(batch)))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        assert sorted(rows, key=str) == sorted(expected(same, 1_000), key=str)


def test_any_part_can_be_had_by_itself() -> None:
    load = LOADS["clicks"]
    assert list(load.rows(65_530, 65_545)) == list(load.rows(0, 65_545))[65_530:]
    assert list(load.rows(5, 5)) == []


def test_lines_have_the_words_that_rows_of_words_have() -> None:
    lines = " ".join(row.value for row in WordLoad(LOAD, words_per_line=5).rows(10, 20))
    assert lines.split() == [row.key for row in WordLoad(LOAD).rows(50, 100)]


def test_times_are_arrivals_unless_out_of_order() -> None:
    rows = list(LOADS["words"].rows(0, 100))
    assert [row.arrival for row in rows] == [LOAD.schedule.arrival_us(n) / 1e6 for n in range(100)]
    assert all(row.time == row.arrival for row in rows)

    late = np.array([row.arrival - row.time for row in LOADS["clicks"].rows(0, 20_000)])
    assert late.min() >= 0
    assert 1.99 < late.max() <= 2.000001
    assert late.mean() == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("keys", [1, 7, 20_000])
@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.99, 1.0, 1.0001, 1.5, 3.0, 10.0])
def test_ranks_follow_the_stated_law(keys: int, exponent: float) -> None:
    law = Zipf(keys, exponent)
    draws = 300_000
    ranks = law.ranks(uniform_array(np.arange(draws, dtype=np.int64), 1))
    assert ranks.min() >= 1
    assert ranks.max() <= keys
    shares = law.shares()
    assert shares.sum() == pytest.approx(1.0)
    seen = np.bincount(ranks, minlength=keys + 1)[1:]
    # ranks put together until a group is expected 100 times: chi squared over the groups
    groups = np.minimum(np.cumsum(shares) * draws // 100, draws // 100 - 1).astype(int)
    want = np.bincount(groups, shares * draws)
    got = np.bincount(groups, seen)
    want, got = want[want > 20], got[want > 20]
    chi = ((got - want) ** 2 / want).sum()
    # its mean is the number of groups and its deviation the root of twice that
    assert chi <= len(want) + 4 * np.sqrt(2 * len(want))


def test_the_law_is_nearly_zipfs() -> None:
    ranks = np.arange(1, 20_001)
    true = (1 / ranks) / (1 / ranks).sum()
    off = Zipf(20_000).shares() / true
    assert Zipf(20_000).shares()[0] == pytest.approx(0.104, abs=0.0005)
    assert true[0] == pytest.approx(0.095, abs=0.0005)
    assert abs(off[1:] - 1).max() < 0.07
    assert Zipf(9, 0.0).shares() == pytest.approx([1 / 9] * 9)


def test_a_draw_just_below_one_has_the_last_rank() -> None:
    top = np.array([np.nextafter(1.0, 0.0)])
    for keys in (1, 2, 3, 1_000, 10**9):
        for exponent in (0.0, 0.5, 1.0, 2.0, 10.0):
            assert Zipf(keys, exponent).ranks(top)[0] <= keys
    assert Zipf(1_000, 1.0).ranks(top)[0] == 1_000


def test_clicks_make_sessions_of_seldom_users() -> None:
    load = ClickLoad(Load(START, rate=500), users=5_000, out_of_order="2 s")
    clicks = [row[:3] for row in load.rows(0, 60_000)]
    outputs, states = fold(sessions("30 s"), clicks)
    assert len(outputs) > 1_000
    ended = Counter(user for user, *_ in outputs)
    assert 1 not in ended
    assert sum(row[3] for row in outputs) + sum(s.clicks for s in states.values()) == 60_000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"keys": 0}, "keys=0"),
        ({"zipf": -1.0}, "zipf=-1.0"),
        ({"zipf": float("nan")}, "zipf=nan"),
        ({"words_per_line": -1}, "words_per_line=-1"),
        ({"out_of_order": "some"}, "out_of_order='some'"),
    ],
)
def test_refuses_words(options: dict[str, object], said: str) -> None:
    with pytest.raises(WorkloadError, match=said):
        WordLoad(LOAD, **options)  # type: ignore[arg-type]  # wrong on purpose


def test_refuses_clicks() -> None:
    with pytest.raises(WorkloadError, match="users=0"):
        ClickLoad(LOAD, users=0)
    with pytest.raises(WorkloadError, match="pages=0"):
        ClickLoad(LOAD, pages=0)
    with pytest.raises(WorkloadError, match="rate=0"):
        ClickLoad(Load(START, 0))


@pytest.mark.spark
def test_a_stream_without_a_bound_has_them_too(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    start = float(int(time.time()) - 1_000)
    rows: list[tuple[object, ...]] = []
    query = (
        words_load(spark, 1, start, words_per_line=3, out_of_order="5 s")
        .writeStream.option("checkpointLocation", str(tmp_path))
        .foreachBatch(lambda batch, _: rows.extend(by_micros(batch)))
        .start()
    )
    try:
        eventually(lambda: len(rows) >= 1_000)
    finally:
        query.stop()
    same = WordLoad(Load(start, 1), words_per_line=3, out_of_order="5 s")
    assert rows == expected(same, len(rows))

"""Two jobs are profiled, planned together, and run under one runtime at their intervals."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as F
from tests.conftest import Eventually
from tests.planning.synthetic import profile

import taut
from taut.planning.settings import Settings
from taut.spark.planning import profiling
from taut.spark.planning.app import App
from taut.watch.records import Expected, Record
from taut.workloads.generator import Load
from taut.workloads.reduce import words, words_load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
RATE = 1_000
LEAST = 6


def nowhere(df: DataFrame, batch_id: int) -> None:
    df.write.format("noop").mode("overwrite").save()


def counting(start: float, calls: list[float]) -> App:
    """Words counted by a reducer."""

    def app(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        rows = words_load(
            spark,
            RATE,
            start,
            keys=500,
            partitions=settings.lanes,
            max_rows_per_batch=settings.cap,
        )
        counted = taut.map_reduce(rows, words(threshold=50), time="time")

        def noted(df: DataFrame, batch_id: int) -> None:
            calls.append(time.time())
            nowhere(df, batch_id)

        return counted.frame, counted.sink(noted, shed=nowhere)

    return app


def odd(start: float, calls: list[float]) -> App:
    """Rows shuffled by a key, without state."""

    def app(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        rows = Load(start, RATE, None, settings.lanes, settings.cap).stream(spark)
        spread = rows.repartition(settings.reducers, F.col("n") % 7)

        def noted(df: DataFrame, batch_id: int) -> None:
            calls.append(time.time())
            nowhere(df, batch_id)

        return spread, noted

    return app


def test_two_jobs_run_at_the_intervals_that_were_planned(
    spark: SparkSession, tmp_path: Path, eventually: Eventually, heard: list[Record]
) -> None:
    made = {"counting": counting, "odd": odd}
    demands = [
        taut.Demand(
            profile=profiling.take(
                spark, app(time.time() - 7_200, []), name, rate=RATE, warm_up=4.0, seconds=12.0
            ),
            slo="p99 <= 9 s",
            rate=RATE,
        )
        for name, app in made.items()
    ]
    plan = taut.plan_together(demands, spark=spark)
    assert 1 <= plan.concurrency <= 2
    calls: dict[str, list[float]] = {name: [] for name in made}
    apps = {name: app(time.time(), calls[name]) for name, app in made.items()}
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with plan.apply(spark, apps, tmp_path) as runtime:
        assert runtime.concurrency == plan.concurrency
        assert spark.conf.get("spark.sql.shuffle.partitions") == before
        eventually(lambda: min(len(each) for each in calls.values()) > LEAST)
        assert set(runtime.queries) == set(made)
        told = [record.query for record in heard if isinstance(record, Expected)]
        assert told == list(made)
    for each in plan.plans:
        between = [b - a for a, b in pairwise(calls[each.app][1:])]
        interval = each.settings.trigger
        assert median(between) == pytest.approx(interval, rel=0.25), each.app


def test_apps_that_are_not_those_of_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    known = msgspec.structs.replace(profile(), app="known")
    plan = taut.plan_together([taut.Demand(profile=known, slo="p99 <= 2 s", rate=1_000)])
    with pytest.raises(taut.PlanError, match=r"apps=\['other'\]: the plan is for \['known'\]"):
        plan.apply(spark, {"other": odd(0.0, [])}, tmp_path)
    with pytest.raises(taut.PlanError, match="a streaming DataFrame is needed"):
        plan.apply(spark, {"known": lambda spark, _: (spark.range(3), nowhere)}, tmp_path)

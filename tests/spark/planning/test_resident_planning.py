"""A resident job is profiled where its rows arrive, and planned, on a real Spark."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import taut
from taut.errors import PlanError, ProfileError
from taut.spark.planning import lanes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
CALL_S = 0.005


def call(row: dict[str, Any]) -> dict[str, Any]:
    """What a row takes: it stands for a call to another machine."""
    time.sleep(CALL_S)
    return row


def written(rows: Any) -> None:
    assert rows.num_rows


def nowhere(df: DataFrame, batch_id: int) -> None:
    df.write.format("noop").mode("overwrite").save()


def calling(
    spark: SparkSession, settings: taut.Settings, rate: int = 100, **how: str
) -> tuple[DataFrame, Any]:
    options = {"timing": "resident", "startingOffsets": "latest"} | settings.source() | how
    rows = taut.read(spark, "schedule", start=time.time(), rate=rate, arrivals="random", **options)
    return rows.map(call).to(written).load(), nowhere


def test_a_resident_job_is_profiled_and_planned(spark: SparkSession, tmp_path: Path) -> None:
    steps: list[Any] = []

    def answers(spark: SparkSession, settings: taut.Settings) -> tuple[DataFrame, Any]:
        return calling(spark, settings)[0], taut.sink("json", path=str(tmp_path / "out"))

    plan = taut.plan_resident(
        answers, slo="p99 <= 1 s", rate=100, spark=spark, seconds=8.0, watch=steps.append
    )
    assert not list(tmp_path.iterdir()), "what a profile writes is removed"
    profile = plan.profile
    profile.check(spark=spark.version)
    assert (profile.app, profile.lanes) == ("answers", 2)
    # corrected by what lanes were busy for in all, which may take a little off each row
    assert min(profile.rows) >= 0.8 * CALL_S
    assert all(0.0 < pause < 30.0 for pause in profile.pauses)
    assert 1 <= plan.settings.lanes <= 2
    assert plan.most >= 100
    assert plan.expected["p99"].seconds <= 1.0
    assert {step.of for step in steps} == {8}
    # what was measured once is enough for another objective
    other = taut.plan_resident(profile=profile, slo="p50 <= 500 ms", spark=spark)
    assert other.rate > plan.rate
    with pytest.raises(taut.Infeasible, match="cannot be met at any rate"):
        taut.plan_resident(profile=profile, slo="p50 <= 1 ms", spark=spark)


def test_only_resident_jobs_have_such_a_plan(spark: SparkSession) -> None:
    def in_batches(spark: SparkSession, settings: taut.Settings) -> tuple[DataFrame, Any]:
        rows = taut.read(spark, "schedule", start=time.time(), rate=10, lanes=settings.lanes)
        return rows.load(), nowhere

    with pytest.raises(PlanError, match="in_batches is not resident"):
        taut.plan_resident(in_batches, slo="p99 <= 1 s", spark=spark)
    with pytest.raises(PlanError, match="app= or profile= is needed"):
        taut.plan_resident(slo="p99 <= 1 s", spark=spark)


def test_without_rows_it_says_so(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_PATIENCE_S", 4.0)

    def later(spark: SparkSession, settings: taut.Settings) -> tuple[DataFrame, Any]:
        options = {"timing": "resident"} | settings.source()
        rows = taut.read(spark, "schedule", start=time.time() + 3_600, rate=10, **options)
        return rows.to(written).load(), nowhere

    with pytest.raises(ProfileError, match=r"later: 0 rows and .* do rows arrive"):
        taut.plan_resident(later, slo="p99 <= 1 s", spark=spark, seconds=1.0)


def test_an_app_that_fails_says_why(spark: SparkSession) -> None:
    def failing(row: dict[str, Any]) -> dict[str, Any]:
        raise RuntimeError("no price for it")

    def broken(spark: SparkSession, settings: taut.Settings) -> tuple[DataFrame, Any]:
        options = {"timing": "resident"} | settings.source()
        rows = taut.read(spark, "schedule", start=time.time(), rate=10, **options)
        return rows.map(failing).to(written).load(), nowhere

    with pytest.raises(ProfileError, match="no price for it"):
        taut.plan_resident(broken, slo="p99 <= 1 s", spark=spark, seconds=5.0)

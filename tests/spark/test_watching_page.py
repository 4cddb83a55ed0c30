"""The live page of a runtime on a real Spark, in a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.watch.browser import chromium, found, until

import taut
from taut.errors import WatchError

pytestmark = pytest.mark.spark

UPDATES = "() => globalThis.taut?.updates ?? 0"


def windowed(spark: SparkSession) -> DataFrame:
    rows = spark.readStream.format("rate").option("rowsPerSecond", 50).load()
    stamped = rows.withWatermark("timestamp", "0 seconds")
    return stamped.groupBy(F.window("timestamp", "1 second")).count()


def collect(df: DataFrame, _: int) -> None:
    df.collect()


def says(text: str) -> str:
    return f"() => document.body.innerText.includes({text!r})"


def test_the_page_follows_a_runtime_and_the_one_that_takes_its_place(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = found()
    if path is None:
        pytest.skip("no Chromium found: `apt-get install chromium`, or `make setup` as root")
    with chromium(path) as browser:
        page = browser.new_page()
        broken: list[str] = []
        page.on("pageerror", lambda error: broken.append(str(error)))
        with taut.Runtime(spark, trace=False) as runtime:
            for name, slo in (("hasty", "p99 <= 1 ms"), ("patient", "p99 <= 60 s")):
                runtime.start(
                    windowed(spark), name=name, sink=collect, slo=slo, checkpoint=tmp_path / name
                )
            server = runtime.watch()
            page.goto(server.url)
            until(page, says("Missed: hasty ("), within=60)
            assert not page.evaluate(says("Missed: hasty, patient"))
            seen = page.evaluate(UPDATES)
            until(page, f"() => ({UPDATES})() > {seen}")
            with (
                taut.Runtime(spark, trace=False) as other,
                pytest.raises(WatchError, match=str(server.port)),
            ):
                other.watch(port=server.port)
            assert all(query.active for query in runtime.queries.values())
        until(page, "() => globalThis.taut?.state !== 'live'")
        with taut.Runtime(spark, trace=False) as runtime:
            runtime.start(windowed(spark), name="anew", sink=collect, checkpoint=tmp_path / "anew")
            runtime.watch(port=server.port)
            until(page, says("anew"), within=60)
            assert not page.evaluate(says("hasty"))
        assert broken == []

"""R2, R4, R5, R6, the refusals, and what a user sees of a running query."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import taut
from taut.policy import Decision, QueryView
from taut.workloads.generator import Load

pytestmark = pytest.mark.spark


@pytest.fixture
def runtime(spark: SparkSession) -> Iterator[taut.Runtime]:
    with taut.Runtime(spark) as made:
        yield made
        for query in made.queries.values():
            if isinstance(query, taut.Query):
                query.probe.check()
        made._turns.check()


def live(spark: SparkSession, rate: int = 200) -> DataFrame:
    start = round(time.time(), 3)
    rows = Load(start, rate).stream(spark)
    at = F.timestamp_micros(
        F.lit(int(start * 1_000_000)) + (F.col("n") * 1_000_000 / rate).cast("long")
    )
    return rows.select("n", at.alias("at")).withWatermark("at", "0 seconds")


def windowed(spark: SparkSession, window: str = "2 seconds") -> DataFrame:
    return live(spark).groupBy(F.window("at", window)).count()


def committed(checkpoint: Path) -> set[int]:
    return {int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit()}


def test_windows_come_out_and_status_tells(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    sink = taut.sink("memory")
    query = runtime.start(
        windowed(spark), name="views", sink=sink, slo="p99 <= 1 s", checkpoint=tmp_path
    )
    assert isinstance(query, taut.Query)
    assert query.shape.window == taut.Window(2.0, 2.0)
    eventually(lambda: query.status().windows >= 3)
    eventually(lambda: query.status().state == "held")
    status = query.status()
    assert status.last_latency is not None
    assert status.last_latency > 0
    assert status.due_in is not None
    assert status.due_in < 4
    eventually(lambda: query.status().slack is not None)
    slack = query.status().slack
    assert slack is not None
    assert slack.earliest <= slack.due <= slack.latest
    assert slack.cost > 0
    ends = [row["window"].end for row in sink.rows()]
    assert len(ends) == len(set(ends))


def test_no_batch_runs_that_nobody_waits_for(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    query = runtime.start(
        windowed(spark), name="views", sink=lambda df, _: df.collect(), checkpoint=tmp_path
    )
    eventually(lambda: query.status().windows >= 2)
    before = query.status()
    eventually(lambda: query.status().windows >= before.windows + 3)
    after = query.status()
    assert after.batches - before.batches <= 3 * (after.windows - before.windows)


def test_stop_lets_the_running_batch_finish_and_commit(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    entered, release, seen = threading.Event(), threading.Event(), []

    def slow(df: DataFrame, batch_id: int) -> None:
        df.collect()
        entered.set()
        release.wait(60)
        seen.append(batch_id)

    runtime = taut.Runtime(spark)
    runtime.start(live(spark), name="slow", sink=slow, checkpoint=tmp_path)
    assert entered.wait(60)
    stopper = threading.Thread(target=runtime.stop)
    stopper.start()
    eventually(lambda: runtime._stopping)
    assert stopper.is_alive()
    assert seen == []
    release.set()
    stopper.join(60)
    assert not stopper.is_alive()
    assert set(seen) == committed(tmp_path) == {0}
    assert runtime.queries["slow"].status().state == "ended"


def test_stop_past_its_timeout_interrupts_and_says_so(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entered = threading.Event()

    def endless(df: DataFrame, batch_id: int) -> None:
        entered.set()
        assert spark._jvm is not None
        spark._jvm.java.lang.Thread.sleep(600_000)

    runtime = taut.Runtime(spark)
    runtime.start(live(spark), name="endless", sink=endless, checkpoint=tmp_path)
    assert entered.wait(60)
    with caplog.at_level(logging.WARNING, "taut"):
        runtime.stop(timeout="100 ms")
    assert "interrupted in the middle of a batch: ['endless']" in caplog.text
    assert not (tmp_path / "commits" / "0").exists()


def test_a_held_query_can_be_stopped_by_spark_itself(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    query = runtime.start(
        windowed(spark, "1 hour"),
        name="held",
        sink=lambda df, _: df.collect(),
        checkpoint=tmp_path,
    )
    eventually(lambda: query.status().state == "held" and query.status().due_in is not None)
    query.query.stop()
    assert query.status().state == "ended"
    assert query.error() is None


class Broken:
    """Decides well for a while, then raises."""

    def __init__(self) -> None:
        self.decisions = 0

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        self.decisions += 1
        if self.decisions > 3:
            raise ZeroDivisionError("bad policy")
        return Decision(queries[0].name if queries else None)


def test_a_failing_policy_fails_open_with_one_warning(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[..., None],
) -> None:
    with caplog.at_level(logging.WARNING, "taut"), taut.Runtime(spark, Broken()) as runtime:
        queries = [
            runtime.start(
                windowed(spark),
                name=f"q{i}",
                sink=lambda df, _: df.collect(),
                checkpoint=tmp_path / str(i),
            )
            for i in range(2)
        ]
        eventually(lambda: runtime._turns.open)
        before = [q.status().batches for q in queries]
        eventually(
            lambda: all(q.status().batches > b + 3 for q, b in zip(queries, before, strict=True))
        )
    assert caplog.text.count("policy Broken failed") == 1
    assert "bad policy" in caplog.text


def test_a_failing_query_does_not_take_the_others_with_it(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[..., None],
) -> None:
    def failing(df: DataFrame, batch_id: int) -> None:
        raise OSError("disk full")

    wrong = live(spark).where(F.expr("assert_true(n < 100, 'row of doom') is null"))
    runtime = taut.Runtime(spark, hold_limit="1 s")
    sink = taut.sink("memory")
    with caplog.at_level(logging.WARNING, "taut"):
        good = runtime.start(windowed(spark), name="good", sink=sink, checkpoint=tmp_path / "g")
        bad = runtime.start(live(spark), name="bad", sink=failing, checkpoint=tmp_path / "b")
        doomed = runtime.start(
            wrong, name="doomed", sink=lambda df, _: df.collect(), checkpoint=tmp_path / "d"
        )
        eventually(lambda: bad.status().state == doomed.status().state == "failed")
        before = good.status().windows
        eventually(lambda: good.status().windows >= before + 2)
    assert "bad failed, the others go on: sink raised on batch 0: OSError: disk full" in caplog.text
    runtime.stop()
    with pytest.raises(taut.TautError, match=r"2 of 3 queries failed(.|\n)*bad: (.|\n)*disk full"):
        runtime.await_termination()


def test_a_stream_without_data_blocks_nobody(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    silent = Load(time.time() - 10, 10, total=20).stream(spark)
    runtime.start(silent, name="silent", sink=lambda df, _: df.collect(), checkpoint=tmp_path / "s")
    busy = runtime.start(
        windowed(spark), name="busy", sink=lambda df, _: df.collect(), checkpoint=tmp_path / "b"
    )
    eventually(lambda: busy.status().windows >= 2)
    eventually(lambda: runtime.queries["silent"].status().state == "waiting for data")


def test_window_learned_from_the_output(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    hidden = live(spark).withColumn(
        "bucket",
        F.struct(
            F.timestamp_seconds(F.expr("unix_seconds(at) div 2 * 2")).alias("start"),
            F.timestamp_seconds(F.expr("unix_seconds(at) div 2 * 2 + 2")).alias("end"),
        ),
    )
    query = runtime.start(
        hidden.groupBy("bucket", F.window("at", "2 seconds").alias("w")).count().drop("w"),
        name="hidden",
        sink=taut.sink("memory"),
        checkpoint=tmp_path,
    )
    assert isinstance(query, taut.Query)
    query.probe.window = None
    query._learner = taut.spark.window.WindowLearner()
    eventually(lambda: query.probe.window == taut.Window(2.0, 2.0))


@pytest.mark.parametrize("policy", ["spark-default", "spark-fair", "spark-trigger"])
def test_stock_baselines_run_ungated(
    spark: SparkSession, tmp_path: Path, policy: str, eventually: Callable[..., None]
) -> None:
    sink = taut.sink("memory")
    pools: list[str | None] = []

    def noting(df: DataFrame, batch_id: int) -> None:
        pools.append(spark.sparkContext.getLocalProperty("spark.scheduler.pool"))
        sink(df, batch_id)

    with taut.Runtime(spark, policy) as runtime:
        query = runtime.start(windowed(spark), name="q", sink=noting, checkpoint=tmp_path)
        eventually(lambda: len(sink.rows()) >= 2)
        assert query.status().state == "running"
    assert set(pools) == {"q" if policy == "spark-fair" else None}
    assert spark.sparkContext.getLocalProperty("spark.scheduler.pool") is None


# -- refusals: a clear error, and nothing started ---------------------------------------------


def started(spark: SparkSession) -> set[str]:
    return {q.name for q in spark.streams.active}


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"slo": "quick"}, taut.SloError, r"quick.*p99 <= "),
        ({"name": ""}, taut.StartError, r"name=''.*not empty"),
        ({"sink": "parquet"}, taut.StartError, r"sink='parquet' is not callable.*taut.sink"),
        ({"checkpoint": ""}, taut.StartError, r"checkpoint=''.*folder is needed"),
        ({"window": ("1 s", "2 s")}, taut.StartError, r"slide must be above 0 and at most"),
        ({"window": "soon"}, taut.TautError, r"soon"),
    ],
)
def test_refused(
    spark: SparkSession,
    runtime: taut.Runtime,
    tmp_path: Path,
    change: dict[str, Any],
    error: type[Exception],
    told: str,
) -> None:
    good: dict[str, Any] = {"name": "q", "sink": print, "checkpoint": tmp_path / "c"}
    with pytest.raises(error, match=told):
        runtime.start(windowed(spark), **(good | change))
    assert started(spark) == set()
    assert runtime.queries == {}


def test_missing_checkpoint_is_refused(spark: SparkSession, runtime: taut.Runtime) -> None:
    with pytest.raises(TypeError, match="checkpoint"):
        runtime.start(windowed(spark), name="q", sink=print)  # type: ignore[call-arg]


def test_not_streaming_is_refused(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path
) -> None:
    with pytest.raises(taut.StartError, match=r"not a streaming DataFrame.*readStream"):
        runtime.start(spark.range(3), name="q", sink=print, checkpoint=tmp_path)


def test_name_and_checkpoint_in_use_are_refused(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path
) -> None:
    runtime.start(windowed(spark), name="q", sink=taut.sink("memory"), checkpoint=tmp_path / "c")
    with pytest.raises(taut.StartError, match=r"name='q' is in use"):
        runtime.start(windowed(spark), name="q", sink=print, checkpoint=tmp_path / "d")
    with pytest.raises(taut.StartError, match=r"checkpoint=.* is in use by another query"):
        runtime.start(windowed(spark), name="r", sink=print, checkpoint=tmp_path / "c")
    assert started(spark) == {"q"}


def test_unknown_policy_is_refused(spark: SparkSession) -> None:
    with pytest.raises(taut.StartError, match=r"policy='fastest'.*least-slack.*spark-default"):
        taut.Runtime(spark, "fastest")
    with pytest.raises(taut.StartError, match=r"decide\(now, queries\)"):
        taut.Runtime(spark, object())  # type: ignore[arg-type]


def test_used_after_stop_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    runtime = taut.Runtime(spark)
    runtime.stop()
    runtime.stop()
    with pytest.raises(taut.RuntimeStopped, match="make a new Runtime"):
        runtime.start(windowed(spark), name="q", sink=print, checkpoint=tmp_path)


def test_policies_are_listed() -> None:
    listed = taut.Runtime.policies()
    assert set(listed) == {
        "least-slack", "fcfs", "round-robin", "highest-rate", "streambox",
        "spark-default", "spark-fair", "spark-trigger",
    }  # fmt: skip
    assert all(listed.values())

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
from pyspark.sql.datasource import DataSource

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


def events(spark: SparkSession, rate: int = 200) -> DataFrame:
    start = round(time.time(), 3)
    rows = Load(start, rate).stream(spark)
    at = F.timestamp_micros(
        F.lit(int(start * 1_000_000)) + (F.col("n") * 1_000_000 / rate).cast("long")
    )
    return rows.select("n", at.alias("at"))


def live(spark: SparkSession) -> DataFrame:
    return events(spark).withWatermark("at", "0 seconds")


class Unmade(DataSource):
    """A source whose reader cannot be made."""

    @classmethod
    def name(cls) -> str:
        return "unmade"

    def schema(self) -> str:
        return "n bigint"

    def streamReader(self, schema: Any) -> Any:
        raise OSError("no such broker")


def unmade(spark: SparkSession) -> DataFrame:
    spark.dataSource.register(Unmade)
    return spark.readStream.format("unmade").load()


def windowed(spark: SparkSession, window: str = "2 seconds") -> DataFrame:
    return live(spark).groupBy(F.window("at", window)).count()


def collect(df: DataFrame, _: int) -> None:
    df.collect()


def start_several(
    runtime: taut.Runtime, df: DataFrame, folder: Path, count: int
) -> list[taut.Query]:
    """Start ``q0``, ``q1`` and so on, each with a checkpoint of its own in ``folder``."""
    started = [
        runtime.start(df, name=f"q{i}", sink=collect, checkpoint=folder / str(i))
        for i in range(count)
    ]
    return [query for query in started if isinstance(query, taut.Query)]


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
    held = []

    def is_held() -> bool:
        held.append(query.status())
        return held[-1].state == "held" and held[-1].slack is not None

    eventually(is_held)
    slack = held[-1].slack
    assert slack is not None
    assert slack.earliest <= slack.due <= slack.latest
    assert slack.cost > 0
    ends = [row["window"].end for row in sink.rows()]
    assert len(ends) == len(set(ends))


def test_no_batch_runs_that_nobody_waits_for(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    query = runtime.start(windowed(spark), name="views", sink=collect, checkpoint=tmp_path)
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


def test_an_interrupted_sink_has_not_failed(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entered = threading.Event()

    def waiting(df: DataFrame, batch_id: int) -> None:
        entered.set()
        df.where(F.expr("java_method('java.lang.Thread', 'sleep', 600000L) is null")).collect()

    runtime = taut.Runtime(spark)
    query = runtime.start(live(spark), name="waiting", sink=waiting, checkpoint=tmp_path)
    assert entered.wait(60)
    runtime.stop(timeout="100 ms")
    assert query.status().state == "ended"
    assert query.error() is None
    assert runtime.await_termination()


def test_a_sink_that_cannot_be_interrupted_delays_stop_by_some_seconds_only(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    entered, release = threading.Event(), threading.Event()
    monkeypatch.setattr("taut.spark.ending._END_BOUND", 1.0)

    def deaf(df: DataFrame, batch_id: int) -> None:
        entered.set()
        release.wait(120)

    runtime = taut.Runtime(spark)
    stuck = runtime.start(live(spark), name="deaf", sink=deaf, checkpoint=tmp_path / "d")
    other = runtime.start(live(spark), name="other", sink=collect, checkpoint=tmp_path / "o")
    assert entered.wait(60)
    stopper = threading.Thread(target=runtime.stop, kwargs={"timeout": "100 ms"})
    with caplog.at_level(logging.WARNING, "taut"):
        stopper.start()
        stopper.join(60)
    assert not stopper.is_alive()
    assert "['deaf'] still run" in caplog.text
    assert not other.active
    release.set()
    eventually(lambda: not stuck.active)


def test_one_query_that_cannot_be_stopped_leaves_the_others_to_stop(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = taut.Runtime(spark)
    first, second = start_several(runtime, live(spark), tmp_path, 2)

    def gone(deadline: float) -> bool:
        raise ConnectionError("JVM gone")

    monkeypatch.setattr(first, "end", gone)
    with caplog.at_level(logging.WARNING, "taut"):
        runtime.stop()
    assert "could not be stopped: {'q0': \"ConnectionError('JVM gone')\"}" in caplog.text
    assert not second.active
    first.query.stop()


def test_a_source_that_cannot_be_made_leaves_nothing_behind(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with pytest.raises(taut.StartError, match="q did not start"):
        runtime.start(unmade(spark), name="q", sink=print, checkpoint=tmp_path)
    assert runtime.queries == {}
    sink = taut.sink("memory")
    runtime.start(live(spark), name="q", sink=sink, checkpoint=tmp_path / "fresh")
    eventually(lambda: len(sink.rows()) > 0)


def test_the_name_and_checkpoint_of_a_failed_query_are_free_at_once(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    def failing(df: DataFrame, batch_id: int) -> None:
        raise OSError("disk full")

    frame = live(spark)
    query = runtime.start(frame, name="q", sink=failing, checkpoint=tmp_path)
    eventually(lambda: not query.active)
    sink = taut.sink("memory")
    runtime.start(frame, name="q", sink=sink, checkpoint=tmp_path)
    eventually(lambda: len(sink.rows()) > 0)


def test_one_query_can_be_stopped_alone(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    first, second = start_several(runtime, windowed(spark), tmp_path, 2)
    eventually(lambda: all(q.status().windows >= 1 for q in (first, second)))
    first.stop()
    assert first.status().state == "ended"
    seen = second.status().windows
    eventually(lambda: second.status().windows > seen)
    again = runtime.start(
        windowed(spark), name="q0", sink=taut.sink("memory"), checkpoint=tmp_path / "0"
    )
    assert again.active


def test_results_are_not_replaced_by_another_query(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    out = tmp_path / "out"
    query = runtime.start(
        live(spark), name="a", sink=taut.sink("json", path=out), checkpoint=tmp_path / "a"
    )
    with pytest.raises(taut.StartError, match=r"is written by query 'a'.*path of its own"):
        runtime.start(
            live(spark), name="b", sink=taut.sink("json", path=out), checkpoint=tmp_path / "b"
        )
    eventually(lambda: any(out.glob("batch_id=*")))
    query.stop()
    with pytest.raises(taut.StartError, match=r"holds results and checkpoint=.* is new"):
        runtime.start(
            live(spark), name="b", sink=taut.sink("json", path=out), checkpoint=tmp_path / "b"
        )
    runtime.start(
        live(spark), name="a", sink=taut.sink("json", path=out), checkpoint=tmp_path / "a"
    )


def test_a_held_query_can_be_stopped_by_spark_itself(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    query = runtime.start(
        windowed(spark, "1 hour"),
        name="held",
        sink=collect,
        checkpoint=tmp_path,
    )
    eventually(lambda: query.status().state == "held" and query.status().due_in is not None)
    query.query.stop()
    assert query.status().state == "ended"
    assert query.error() is None


class Never:
    """Gives nobody a turn."""

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        return Decision(None)


def test_no_policy_can_starve_a_query(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with taut.Runtime(spark, Never(), hold_limit="500 ms") as runtime:
        queries = start_several(runtime, windowed(spark), tmp_path, 3)
        eventually(lambda: all(q.status().windows >= 2 for q in queries))
        assert not runtime._turns.open


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
        queries = start_several(runtime, windowed(spark), tmp_path, 2)
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
        doomed = runtime.start(wrong, name="doomed", sink=collect, checkpoint=tmp_path / "d")
        eventually(lambda: bad.status().state == doomed.status().state == "failed")
        before = good.status().windows
        eventually(lambda: good.status().windows >= before + 2)
        eventually(lambda: "query doomed failed, the others go on" in caplog.text)
    assert "bad failed, the others go on: sink raised on batch 0: OSError: disk full" in caplog.text
    runtime.stop()
    with pytest.raises(taut.TautError, match=r"2 of 3 queries failed(.|\n)*bad: (.|\n)*disk full"):
        runtime.await_termination()


def test_a_stream_without_data_blocks_nobody(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    silent = Load(time.time() - 10, 10, total=20).stream(spark)
    runtime.start(silent, name="silent", sink=collect, checkpoint=tmp_path / "s")
    busy = runtime.start(windowed(spark), name="busy", sink=collect, checkpoint=tmp_path / "b")
    eventually(lambda: busy.status().windows >= 2)
    eventually(lambda: runtime.queries["silent"].status().state == "waiting for data")


def hidden_window(spark: SparkSession) -> DataFrame:
    """Windows of two seconds that the plan shows as plain arithmetic."""
    ended = F.timestamp_seconds(F.expr("unix_seconds(at) div 2 * 2 + 2"))
    counts = (
        events(spark)
        .select(ended.alias("end"))
        .withWatermark("end", "2 seconds")
        .groupBy("end")
        .count()
    )
    start = F.col("end") - F.expr("interval 2 seconds")
    return counts.select(F.struct(start.alias("start"), "end").alias("bucket"), "count")


def test_window_learned_from_the_output(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    sink = taut.sink("memory")
    query = runtime.start(hidden_window(spark), name="hidden", sink=sink, checkpoint=tmp_path)
    assert isinstance(query, taut.Query)
    assert query.shape.window is None
    eventually(lambda: query.probe.window == taut.Window(2.0, 2.0))
    eventually(lambda: query.status().windows >= 2)
    ends = [row["bucket"].end for row in sink.rows()]
    assert len(ends) == len(set(ends))


def test_rows_that_come_out_before_their_window_ends_are_not_held_for_it(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    start = F.expr("timestamp_seconds(unix_seconds(at) div 3600 * 3600)")
    end = F.expr("timestamp_seconds(unix_seconds(at) div 3600 * 3600 + 3600)")
    tagged = live(spark).select(F.struct(start.alias("start"), end.alias("end")).alias("hour"), "n")
    sink = taut.sink("memory")
    query = runtime.start(tagged, name="tagged", sink=sink, checkpoint=tmp_path)
    assert isinstance(query, taut.Query)
    eventually(lambda: query._learner is None)
    seen = len(sink.rows())
    eventually(lambda: len(sink.rows()) > seen)
    assert query.probe.window is None


def test_a_mode_that_puts_rows_out_as_they_change_has_no_window_to_wait_for(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    seen: list[int] = []
    query = runtime.start(
        windowed(spark, "1 hour"),
        name="changes",
        sink=lambda df, _: seen.extend(row["count"] for row in df.collect()),
        checkpoint=tmp_path,
        slo="p99 <= 2 s",
        output_mode="Update",
    )
    assert query.shape.window is None
    eventually(lambda: len(seen) >= 3)
    assert seen == sorted(seen)


def test_facts_that_cannot_be_read_do_not_end_a_query(
    spark: SparkSession,
    runtime: taut.Runtime,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    def unreadable(reader: object) -> None:
        raise AttributeError("another Spark")

    monkeypatch.setattr("taut.spark.probe.BatchReader.read", unreadable)
    sink = taut.sink("memory")
    with caplog.at_level(logging.WARNING, "taut"):
        query = runtime.start(windowed(spark), name="blind", sink=sink, checkpoint=tmp_path)
        eventually(lambda: len(sink.rows()) >= 2)
    assert query.status().error is None
    assert caplog.text.count("runs without facts from Spark: AttributeError('another Spark')") == 1


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
        ({"start_timeout": "1 fortnight"}, taut.TautError, r"fortnight"),
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


def test_a_start_that_is_given_up_leaves_no_query_behind(
    spark: SparkSession,
    runtime: taut.Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(self: object, seconds: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(taut.Query, "wait_for_sources", interrupted)
        with pytest.raises(KeyboardInterrupt):
            runtime.start(windowed(spark), name="q", sink=print, checkpoint=tmp_path)
    assert started(spark) == set()
    assert runtime.queries == {}


def test_await_termination_bears_a_query_that_is_being_started(
    spark: SparkSession, runtime: taut.Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Event(), threading.Event()
    begin = taut.Query.begin

    def slow(self: taut.Query, writer: Any) -> None:
        entered.set()
        release.wait(60)
        begin(self, writer)

    monkeypatch.setattr(taut.Query, "begin", slow)
    starting = threading.Thread(
        target=runtime.start,
        args=(windowed(spark),),
        kwargs={"name": "q", "sink": taut.sink("memory"), "checkpoint": tmp_path},
    )
    starting.start()
    assert entered.wait(60)
    assert not runtime.await_termination(timeout="300 ms")
    release.set()
    starting.join(60)
    assert started(spark) == {"q"}


def test_memory_is_read_with_rocksdb_bounded_and_without(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    from taut.spark.probe import MemoryProbe, state_limit

    assert 0.0 < MemoryProbe(spark).used(0) < 1.0
    assert state_limit(spark) == 0
    bounded = "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage"
    spark.conf.set(bounded, "true")
    try:
        assert state_limit(spark) == 500 * 2**20
        assert MemoryProbe(spark).used(250 * 2**20) >= 0.5
        assert MemoryProbe(spark).used(2**40) == 1.0
    finally:
        spark.conf.unset(bounded)

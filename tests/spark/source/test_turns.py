"""A Taut source under a Runtime: held in the source, steered while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import taut
from taut.policy import Decision, QueryView
from taut.watch.records import Record, Source
from taut.watch.trace import read as recorded

pytestmark = pytest.mark.spark

Eventually = Callable[..., None]


class OneByOne:
    """A policy that runs a query only when a test says so."""

    def __init__(self) -> None:
        self.tickets = threading.Semaphore(0)

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        run = queries[0].name if queries and self.tickets.acquire(blocking=False) else None
        return Decision(run, again=now + 0.01)


class Seen:
    def __init__(self) -> None:
        self.batches: dict[int, list[str]] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [row["value"] for row in df.collect()]

    def values(self) -> list[str]:
        return sorted(value for rows in dict(self.batches).values() for value in rows)


@pytest.fixture
def log() -> Iterator[taut.MemoryLog]:
    with taut.MemoryLog() as made:
        yield made


def commits(checkpoint: Path) -> int:
    return len([p for p in (checkpoint / "commits").iterdir() if p.name.isdigit()])


def read(spark: SparkSession, log: taut.MemoryLog, **options: Any) -> taut.Read:
    return taut.read(spark, log, startingOffsets="earliest", **options)


def test_a_held_query_has_committed_and_takes_what_has_arrived_when_its_turn_comes(
    spark: SparkSession, log: taut.MemoryLog, tmp_path: Path, eventually: Eventually
) -> None:
    policy, seen = OneByOne(), Seen()
    log.append(["a"])
    with taut.Runtime(spark, policy=policy) as runtime:
        query = runtime.start(read(spark, log).load(), name="q", sink=seen, checkpoint=tmp_path)
        assert isinstance(query, taut.Query)
        eventually(lambda: query._gate.held_in_sources)
        eventually(lambda: commits(tmp_path) == 1)
        log.append(["b"])
        log.append(["c"])
        assert query.status().state == "held"
        policy.tickets.release()
        eventually(lambda: seen.values() == ["a", "b", "c"])
        assert seen.batches == {0: ["a"], 1: ["b", "c"]}
        eventually(lambda: commits(tmp_path) == 2)
    assert query.status().state == "ended"
    assert commits(tmp_path) == 2, "stopping a held query plans nothing"


def test_a_query_held_in_its_source_can_be_stopped_and_goes_on_after_a_restart(
    spark: SparkSession, log: taut.MemoryLog, tmp_path: Path, eventually: Eventually
) -> None:
    seen = Seen()
    for n in range(3):
        log.append([f"row {n}"])
        runtime = taut.Runtime(spark, policy=OneByOne())
        query = runtime.start(read(spark, log).load(), name="q", sink=seen, checkpoint=tmp_path)
        assert isinstance(query, taut.Query)
        eventually(lambda query=query: query._gate.held_in_sources)
        log.append([f"later {n}"])
        if n == 1:
            query.query.stop()  # as Spark does it, past the runtime
        runtime.stop(timeout=60)
        assert not query.query.isActive
        assert query.query.exception() is None
    drained = read(spark, log).load().writeStream.foreachBatch(seen)
    drained = drained.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    drained.start().awaitTermination()
    assert seen.values() == sorted(f"{word} {n}" for n in range(3) for word in ("row", "later"))


def test_windows_come_out_on_time_with_the_gate_in_the_source(
    spark: SparkSession, tmp_path: Path, eventually: Eventually
) -> None:
    import time

    rows = taut.read(spark, "schedule", start=round(time.time(), 3), rate=200)
    counts = (
        rows.load()
        .withWatermark("arrival", "0 seconds")
        .groupBy(F.window("arrival", "2 seconds"))
        .count()
    )
    sink = taut.sink("memory")
    with taut.Runtime(spark) as runtime:
        query = runtime.start(counts, name="q", sink=sink, slo="p99 <= 1 s", checkpoint=tmp_path)
        assert isinstance(query, taut.Query)
        eventually(lambda: query.status().windows >= 3)
        eventually(lambda: query._gate.held_in_sources)
        before = query.status()
        eventually(lambda: query.status().windows >= before.windows + 3)
        after = query.status()
        assert after.batches - before.batches <= 3 * (after.windows - before.windows)
    whole = sorted(sink.rows(), key=lambda row: row["window"].start)[1:]
    assert {row["count"] for row in whole} == {400}


def test_two_queries_of_one_read_run_side_by_side(
    spark: SparkSession, log: taut.MemoryLog, tmp_path: Path, eventually: Eventually
) -> None:
    df = read(spark, log).load()
    sinks = [Seen(), Seen()]
    with taut.Runtime(spark, policy="fcfs") as runtime:
        for n, sink in enumerate(sinks):
            runtime.start(df, name=f"q{n}", sink=sink, checkpoint=tmp_path / str(n))
        for n in range(3):
            log.append([f"row {n}"])
            expected = [f"row {k}" for k in range(n + 1)]
            eventually(lambda expected=expected: [s.values() for s in sinks] == [expected] * 2)


def test_a_taut_source_joined_with_another_is_held_at_the_gate(
    spark: SparkSession, log: taut.MemoryLog, tmp_path: Path, eventually: Eventually
) -> None:
    rate = spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")
    both = read(spark, log).load().select("value").union(rate.where("false"))
    seen = Seen()
    log.append(["a"])
    with taut.Runtime(spark, policy="fcfs") as runtime:
        query = runtime.start(both, name="q", sink=seen, checkpoint=tmp_path)
        assert isinstance(query, taut.Query)
        eventually(lambda: seen.values() == ["a"])
        assert not query._gate.held_in_sources
        log.append(["b"])
        eventually(lambda: seen.values() == ["a", "b"])


def test_the_budget_changes_while_the_query_runs(
    spark: SparkSession, log: taut.MemoryLog, tmp_path: Path, eventually: Eventually
) -> None:
    seen = Seen()
    stream = read(spark, log, maxOffsetsPerTrigger=50)
    log.append([f"{n}" for n in range(100)])
    writer = stream.load().writeStream.foreachBatch(seen)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        eventually(lambda: len(seen.values()) == 100)
        assert {len(rows) for rows in seen.batches.values()} == {50}
        stream.limit(10)
        eventually(lambda: stream.control.heard)
        log.append([f"{n}" for n in range(100, 140)])
        eventually(lambda: len(seen.values()) == 140)
        assert {len(rows) for batch, rows in seen.batches.items() if batch >= 2} == {10}
        stream.limit(None)
        eventually(lambda: stream.control.heard)
        log.append([f"{n}" for n in range(140, 240)])
        eventually(lambda: len(seen.values()) == 240)
        assert {len(rows) for batch, rows in seen.batches.items() if batch >= 6} == {50}
    finally:
        query.stop()


def test_a_query_that_ends_while_its_source_is_held_is_forgotten(
    spark: SparkSession, log: taut.MemoryLog, tmp_path: Path, eventually: Eventually
) -> None:
    stream = read(spark, log)
    log.append(["a"])
    with taut.Runtime(spark, policy=OneByOne()) as runtime:
        query = runtime.start(stream.load(), name="q", sink=Seen(), checkpoint=tmp_path)
        assert isinstance(query, taut.Query)
        eventually(lambda: query._gate.held_in_sources)
        query.query.stop()
        eventually(lambda: "q" not in runtime._turns)
        assert not stream.control.told.held
        assert query.status().state == "ended"


def test_what_is_there_is_processed_and_the_query_ends(
    spark: SparkSession, log: taut.MemoryLog, tmp_path: Path
) -> None:
    seen = Seen()
    log.append([f"{n}" for n in range(30)])
    with taut.Runtime(spark) as runtime:
        runtime.start(
            read(spark, log, maxOffsetsPerTrigger=10).load(),
            name="q", sink=seen, checkpoint=tmp_path, available_now=True,
        )  # fmt: skip
        assert runtime.await_termination("120 s")
    assert seen.values() == sorted(f"{n}" for n in range(30))
    assert len(seen.batches) == 3


def test_a_resident_batch_has_no_budget(spark: SparkSession, log: taut.MemoryLog) -> None:
    with pytest.raises(ValueError, match="a resident batch takes all"):
        read(spark, log, timing="resident").limit(10)


def test_a_resident_query_runs_freely(
    spark: SparkSession,
    log: taut.MemoryLog,
    tmp_path: Path,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = tmp_path / "done"
    rows = read(spark, log, timing="resident", lanes=1, horizon="2 s").to(
        lambda batch: done.write_text(",".join(batch.column("value").to_pylist()))
    )
    with taut.Runtime(spark, policy=OneByOne()) as runtime:
        query = runtime.start(rows.load(), name="q", sink=Seen(), checkpoint=tmp_path / "c")
        assert not isinstance(query, taut.Query)
        log.append(["a"])
        eventually(lambda: done.exists() and done.read_text() == "a")
        assert "resident lanes" not in caplog.text
        tasks = spark.sparkContext.defaultParallelism
        more = read(spark, log, timing="resident", lanes=tasks - 1)
        runtime.start(more.load(), name="more", sink=Seen(), checkpoint=tmp_path / "more")
        assert f"query more: resident lanes keep {tasks} of the {tasks} tasks" in caplog.text


def test_a_resident_query_that_is_stopped_ends_in_silence(
    spark: SparkSession,
    log: taut.MemoryLog,
    tmp_path: Path,
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun: list[int] = []
    ended: list[str] = []
    seen = Seen()

    def sink(df: DataFrame, batch_id: int) -> None:
        begun.append(batch_id)
        try:
            seen(df, batch_id)
        except Exception as error:
            ended.append(str(error))
            raise

    with taut.Runtime(spark) as runtime:
        stream = read(spark, log, timing="resident", lanes=1, horizon="5 s").load()
        query = runtime.start(stream, name="q", sink=sink, slo="p99 <= 1 s", checkpoint=tmp_path)
        assert "q: a resident query runs freely, slo=p99 <= 1 s does nothing" in caplog.text
        log.append(["a"])
        eventually(lambda: query.status().batches >= 1 and seen.values() == ["a"])
        eventually(lambda: len(begun) > len(seen.batches))
    assert ended, "the batch was interrupted"
    assert query.error() is None
    # py4j logs every error of a sink that reaches Spark, but for the short one that is a stop
    assert "exception while executing the Python Proxy" not in caplog.text


@pytest.mark.parametrize("timing", [{"timing": "batch"}, {"timing": "resident", "horizon": "2 s"}])
def test_what_a_source_tells_as_its_query_ends_is_recorded(
    spark: SparkSession,
    log: taut.MemoryLog,
    tmp_path: Path,
    heard: list[Record],
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
    timing: dict[str, str],
) -> None:
    """Spark ends a source's process with a signal, and goes on; the run is closed thereafter."""
    monkeypatch.setattr("taut.spark.source.control._PARTS_WITHIN", 60.0)
    seen = Seen()
    with taut.Runtime(spark, trace=tmp_path / "runs") as runtime:
        stream = read(spark, log, lanes=1, **timing).load()
        runtime.start(stream, name="q", sink=seen, checkpoint=tmp_path / "checkpoint")
        eventually(lambda: any(isinstance(record, Source) for record in heard), within=60)
        log.append(["a", "b"])
        # it tells once a second, and so for the most part not of these
        eventually(lambda: seen.values() == ["a", "b"])
    assert runtime.trace is not None
    told = [each for each in recorded(runtime.trace) if isinstance(each, Source)]
    assert sum(lane.rows for lane in told[-1].lanes) == 2

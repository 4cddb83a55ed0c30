"""What is recorded of a runtime on a real Spark, and what a snapshot shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import taut
from taut.spark.watching import Watching
from taut.watch import hub
from taut.watch.records import Batch, Ended, Run, Started, Turn
from taut.watch.server import Server
from taut.watch.snapshot import QueryNow, decode
from taut.watch.trace import read, to_pandas

pytestmark = pytest.mark.spark


def rows(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").option("rowsPerSecond", 50).load()


def windowed(spark: SparkSession) -> DataFrame:
    stamped = rows(spark).withWatermark("timestamp", "0 seconds")
    return stamped.groupBy(F.window("timestamp", "1 second")).count()


def collect(df: DataFrame, _: int) -> None:
    df.collect()


def test_a_trace_tells_what_status_tells(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    with taut.Runtime(spark, trace=tmp_path / "runs") as runtime:
        views = runtime.start(
            windowed(spark), name="views", sink=collect, slo="p99 <= 5 s", checkpoint=tmp_path / "a"
        )
        plain = runtime.start(
            rows(spark), name="plain", sink=collect, slo="p90 <= 3 s", checkpoint=tmp_path / "b"
        )
        eventually(lambda: views.status().windows >= 3 and plain.status().batches >= 2)
        eventually(lambda: views.status().state == "held")
        seen, status = {q.name: q for q in runtime.snapshot().queries}, views.status()
        assert runtime.overhead() > 0
    assert hub.heard() is False
    assert seen["views"].window == (1.0, 1.0, 0.0)
    assert seen["views"].verdict in ("met", "at risk")
    assert seen["views"].slo == "p99 <= 5 s"
    assert seen["views"].due is not None
    assert set(seen["views"].phases) == {"held", "planning", "running"}
    assert seen["plain"].results > 0
    if seen["views"].batches == status.batches:  # no batch in between
        assert (seen["views"].results, seen["views"].late) == (status.windows, status.late)
        assert status.last_latency is not None
        assert 0.0 < seen["views"].latencies[-1][1] <= status.last_latency, "from when it was due"

    assert runtime.trace is not None
    records = list(read(runtime.trace))
    assert isinstance(records[0], Run)
    assert records[0].machine["spark"] == spark.version
    assert {r.query for r in records if isinstance(r, Started)} == {"views", "plain"}
    assert {r.query: r.error for r in records if isinstance(r, Ended)} == dict.fromkeys(
        ["views", "plain"]
    )
    final = views.status()
    batches = [r for r in records if isinstance(r, Batch) and r.query == "views"]
    assert [b.batch for b in batches] == list(range(final.batches))
    assert sum(b.windows for b in batches) == final.windows
    last = next(b for b in reversed(batches) if b.windows)
    assert last.written - last.ends[-1] == pytest.approx(final.last_latency)
    for batch in batches:
        assert batch.granted <= batch.begun <= batch.run <= batch.written
        assert batch.planned <= batch.run
    turns = {(r.query, r.at): r for r in records if isinstance(r, Turn)}
    assert all((b.query, b.granted) in turns for b in batches)
    whys = [t.why for t in turns.values() if t.query == "views"]
    assert whys[0] == "planned"
    assert "policy" in whys
    assert any(t.slack is not None for t in turns.values() if t.why == "policy")

    table = to_pandas(tmp_path / "runs", "batch")
    assert len(table) == sum(isinstance(r, Batch) for r in records)
    assert (table.written - table.run).min() > 0


def test_recording_is_opened_outside_the_lock(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, free = Watching._open, list[bool]()

    def look(self: Watching) -> object:
        lock = self._runtime._lock

        def take() -> None:
            free.append(lock.acquire(blocking=False))
            if free[-1]:
                lock.release()

        # only another thread can tell, for the one that has a lock may take it again
        other = threading.Thread(target=take)
        other.start()
        other.join()
        return opened(self)

    monkeypatch.setattr(Watching, "_open", look)
    with taut.Runtime(spark, policy="spark-default", trace=tmp_path / "runs") as runtime:
        runtime.start(rows(spark), name="plain", sink=collect, checkpoint=tmp_path / "a")
    assert free == [True]


def test_after_a_restart_the_oldest_rows_and_windows_are_late(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    made: list[list[Batch]] = []
    for _ in range(2):
        with taut.Runtime(spark, trace=tmp_path / "runs") as runtime:
            queries = [
                runtime.start(df, name=name, sink=collect, checkpoint=tmp_path / name)
                for name, df in (("views", windowed(spark)), ("plain", rows(spark)))
            ]
            eventually(lambda them=queries: all(q.status().batches >= 3 for q in them))
        assert runtime.trace is not None
        made.append([r for r in read(runtime.trace) if isinstance(r, Batch)])
    before, after = made
    for name in ("views", "plain"):
        last = [b for b in before if b.query == name][-1]
        first = next(b for b in after if b.query == name)
        assert first.batch in (last.batch, last.batch + 1)
        assert first.input_known
        if first.batch > last.batch:
            assert first.input == pytest.approx(first.planned - last.planned, abs=0.01)
    assert not before[0].input_known
    views = [b for b in before + after if b.query == "views"]
    ends = [end for batch in views for end in batch.ends]
    assert ends == sorted(set(ends))
    assert ends[-1] - ends[0] == len(ends) - 1, "no window is left out"


def test_a_learned_window_is_told(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    hidden = windowed(spark).withColumnRenamed("count", "n")
    with taut.Runtime(spark) as runtime:
        assert runtime.trace is None
        assert runtime.snapshot().queries == ()
        query = runtime.start(hidden, name="hidden", sink=collect, checkpoint=tmp_path)
        assert isinstance(query, taut.Query)
        eventually(lambda: query.status().windows >= 1)
        (seen,) = runtime.snapshot().queries
        assert seen.window == (1.0, 1.0, 0.0)
    (seen,) = runtime.snapshot().queries
    assert seen.state == "ended"


def test_queries_that_take_no_turns_and_those_that_fail(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    def fails(df: DataFrame, batch_id: int) -> None:
        if batch_id:  # in the first it would be the start that fails
            raise OSError("no space")

    trace = tmp_path / "runs"
    with taut.Runtime(spark, policy="spark-default", trace=trace) as runtime:
        free = runtime.start(rows(spark), name="free", sink=collect, checkpoint=tmp_path / "a")
        bad = runtime.start(rows(spark), name="bad", sink=fails, checkpoint=tmp_path / "b")
        eventually(lambda: free.status().batches >= 2 and not bad.active)
        seen = {q.name: q for q in runtime.snapshot().queries}
    assert seen["free"].state == "running"
    assert seen["free"].batches >= 2
    assert seen["free"].latency is not None
    assert seen["bad"].state == "failed"
    assert str(seen["bad"].error).startswith("OSError: no space")
    ended = {r.query: r for r in read(trace) if isinstance(r, Ended)}
    assert ended["free"].error is None
    assert ended["bad"].error == seen["bad"].error


def test_windows_of_queries_that_take_no_turns_are_judged(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    written: dict[float, float] = {}

    def note(df: DataFrame, _: int) -> None:
        ends = [row.window.end.timestamp() for row in df.collect()]
        written.update(dict.fromkeys(ends, time.time()))

    def standing(runtime: taut.Runtime) -> dict[str, QueryNow]:
        return {q.name: q for q in runtime.snapshot().queries}

    with taut.Runtime(spark, policy="spark-default", trace=tmp_path / "runs") as runtime:
        for name, slo, sink in (
            ("hasty", "p99 <= 1 ms", note),
            ("patient", "p99 <= 60 s", collect),
        ):
            runtime.start(
                windowed(spark), name=name, sink=sink, slo=slo, checkpoint=tmp_path / name
            )
        eventually(lambda: min(q.results for q in standing(runtime).values()) >= 3)
        seen = standing(runtime)
        assert runtime.snapshot().concurrency == 0
    assert (seen["hasty"].verdict, seen["patient"].verdict) == ("missed", "met")
    assert seen["hasty"].late == seen["hasty"].results
    assert seen["patient"].late == 0
    batches = [r for r in read(runtime.trace or "") if isinstance(r, Batch) and r.query == "hasty"]
    told = {end: batch.written for batch in batches for end in batch.ends}
    assert len(told) == sum(batch.windows for batch in batches)
    for end, at in told.items():
        assert at == pytest.approx(written[end], abs=0.5), "what the sink saw itself"
    for batch in batches:
        assert batch.begun <= batch.planned <= batch.run <= batch.written


def test_a_trace_that_cannot_be_written_stops_no_query(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[..., None],
) -> None:
    (tmp_path / "file").write_text("no folder")
    with taut.Runtime(spark, trace=tmp_path / "file" / "runs") as runtime:
        query = runtime.start(
            windowed(spark), name="views", sink=collect, checkpoint=tmp_path / "a"
        )
        eventually(lambda: query.status().windows >= 1)
        snapshot = runtime.snapshot()
        assert snapshot.queries[0].batches >= 1
        assert any("cannot be written" in note for note in snapshot.notes)
        began = time.monotonic()
    assert time.monotonic() - began < 30
    assert caplog.text.count("cannot be written to") == 1
    assert "Not a directory" in caplog.text


def test_a_page_is_opened_on_the_snapshot_and_closed_last(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []
    close = Server.close

    def heard_and_close(server: Server) -> None:
        closed.append(hub.heard())
        close(server)

    monkeypatch.setattr(Server, "close", heard_and_close)
    with taut.Runtime(spark) as runtime:
        assert not hub.heard(), "nobody watches yet"
        page = runtime.watch()
        assert hub.heard()
        shown = decode(httpx.get(f"{page.url}snapshot.json").content)
        assert shown.policy == "least-slack"
        assert not closed
    assert closed == [False], "recording has ended by then"
    with pytest.raises(httpx.ConnectError):
        httpx.get(page.url)
    with pytest.raises(taut.RuntimeStopped):
        runtime.watch()

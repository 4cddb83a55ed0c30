"""Ways of dealing out rows, chosen by option, on Spark: same rows, and what they are for."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import taut
from taut import MemoryLog
from taut.spark.source.options import SourceOptions

pytestmark = pytest.mark.spark

COMBINATIONS = [
    ("fixed", "adaptive", "proportional"),
    ("fixed", "replicate-20", "round-robin"),
    ("even", "replicate-50", "largest-backlog"),
    ("balance", "none", "largest-backlog"),
    ("balance", "adaptive", "round-robin"),
    ("executor", "replicate-100", "proportional"),
    ("shared", "adaptive", "largest-backlog"),
]


@pytest.mark.parametrize(("dispatch", "replay", "admission"), COMBINATIONS)
def test_same_rows(
    spark: SparkSession, tmp_path: Path, dispatch: str, replay: str, admission: str
) -> None:
    stream = taut.read(
        spark, "schedule", start=1_790_000_000.0, rate=1_000, total=2_000, partitions=3, lanes=2,
        startingOffsets="earliest", chunk=20, maxOffsetsPerTrigger=900, dispatch=dispatch,
        replay=replay, admission=admission,
    )  # fmt: skip
    seen: Counter[int] = Counter()
    batches = []

    def sink(df: Any, batch_id: int) -> None:
        rows = df.select("n").toArrow().column("n").to_pylist()
        seen.update(rows)
        batches.append(len(rows))

    writer = stream.load().writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()
    assert seen == Counter(range(2_000))
    assert batches == [900, 900, 200]


@pytest.mark.parametrize(
    ("dispatch", "replay", "egress"),
    [
        ("fixed", "none", "largest-backlog"),
        ("balance", "adaptive", "largest-backlog"),
        ("two-choices", "replicate-100", "round-robin"),
    ],
)
def test_resident_lanes_write_each_row_once(
    spark: SparkSession,
    tmp_path: Path,
    eventually: Callable[..., None],
    dispatch: str,
    replay: str,
    egress: str,
) -> None:
    log = MemoryLog(partitions=2)
    out = tmp_path / "out"
    out.mkdir()

    def sink(rows: pa.RecordBatch) -> None:
        for value in rows.column("value").to_pylist():
            with (out / value).open("a") as file:
                file.write("x")

    stream = taut.read(
        spark, log, lanes=2, timing="resident", horizon="3 s", startingOffsets="earliest",
        dispatch=dispatch, replay=replay, egress=egress,
    )  # fmt: skip
    query = (
        stream.to(sink)
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        for first in range(0, 400, 40):
            log.append([f"{n}" for n in range(first, first + 40)])
            eventually(lambda upto=first + 40: len(list(out.iterdir())) == upto)
        eventually(lambda: _ended(query))
    finally:
        query.stop()
        log.close()
    assert {file.name: file.read_text() for file in out.iterdir()} == {
        f"{n}": "x" for n in range(400)
    }
    stats = stream.stats()
    assert stats is not None
    assert stats.issued - stats.replayed >= 400
    if dispatch != "fixed":
        assert len(stats.shares) == 2
        assert sum(stats.shares.values()) == pytest.approx(1.0)


def _ended(query: StreamingQuery) -> bool:
    """Whether a batch with rows has ended: what its sinks wrote will not be written again."""
    if query.exception() is not None:
        raise AssertionError(str(query.exception()))
    return any(progress["numInputRows"] for progress in query.recentProgress)


def test_a_batch_takes_from_the_largest_backlogs(spark: SparkSession, tmp_path: Path) -> None:
    ends: dict[str, Any] = {}
    for admission in ("proportional", "largest-backlog"):
        stream = taut.read(
            spark, "schedule", start=1_790_000_000.0, rate=1_000, total=1_400, partitions=5,
            skew=10, lanes=2, startingOffsets="earliest", maxOffsetsPerTrigger=700,
            admission=admission,
        )  # fmt: skip
        writer = stream.load().writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / admission)).start()
        query.awaitTermination()
        ends[admission] = json.loads(query.recentProgress[0]["sources"][0]["endOffset"])
    # 1,000 rows wait in one partition and 100 in each of the four others
    assert ends["proportional"] == {"0": 500, "1": 50, "2": 50, "3": 50, "4": 50}
    assert ends["largest-backlog"] == {"0": 700, "1": 0, "2": 0, "3": 0, "4": 0}


def test_what_replay_costs_is_told(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    log = MemoryLog()
    stream = taut.read(
        spark, log, lanes=2, chunk=5, replay="replicate-100", startingOffsets="earliest"
    ).map(_slowly, column="value")
    assert stream.stats() is None
    writer = stream.load().writeStream.format("noop")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        log.append([f"{n}" for n in range(200)])
        eventually(lambda: (stats := stream.stats()) is not None and stats.replayed > 0)
    finally:
        query.stop()
        log.close()
    stats = stream.stats()
    assert stats is not None
    assert 0.0 < stats.cost <= 1.0


@pytest.mark.parametrize("dispatch", ["fixed", "shared", "balance"])
def test_a_row_that_hangs_is_done_by_another_lane(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None], dispatch: str
) -> None:
    """The first lane to meet it would wait for minutes; it is interrupted, and does it not again.

    Nothing else is left to be issued or to finish by the time that there is a timeout.
    """
    there, over = tmp_path / "there", tmp_path / "over"

    def meets(row: dict[str, Any]) -> dict[str, Any]:
        if row["n"] == _MARK:
            try:
                there.touch(exist_ok=False)
            except FileExistsError:
                return {"n": row["n"]}
            try:
                threading.Event().wait(_LONG)
            except taut.Abandoned:
                over.touch()
                raise
        return {"n": row["n"]}

    stream = taut.read(
        spark, "schedule", start=1_790_000_000.0, rate=1_000, total=2_000, partitions=2, lanes=2,
        startingOffsets="earliest", chunk=5, dispatch=dispatch, replay="adaptive",
    ).map(meets, "n bigint")  # fmt: skip
    seen: Counter[int] = Counter()

    def sink(df: Any, batch_id: int) -> None:
        seen.update(df.select("n").toArrow().column("n").to_pylist())

    writer = stream.load().writeStream.foreachBatch(sink)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        eventually(lambda: _ended(query))
        eventually(lambda: (stats := stream.stats()) is not None and stats.replayed > 0)
    finally:
        query.stop()
    assert seen == Counter(range(2_000))
    assert over.exists(), "the lane was interrupted"
    stats = stream.stats()
    assert stats is not None
    assert stats.timeout is not None
    assert stats.replayed < 2_000


_MARK, _LONG = 700, 250.0


def _slowly(value: str) -> str:
    import time

    time.sleep(0.002)  # work: both lanes are to be busy at once
    return value


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"dispatch": "stolen"}, "dispatch='stolen' is not known; one of: fixed, shared"),
        ({"replay": "often"}, "replay='often' is not known; one of: none, adaptive"),
        ({"admission": "all"}, "admission='all' is not known; one of: proportional"),
        ({"egress": "none"}, "egress='none' is not known; one of: all"),
        ({"dispatch": "two-choices"}, "dispatch='two-choices' needs timing='resident'"),
        ({"lanes": "1", "dispatch": "balance"}, "dispatch='balance' needs another lane"),
        ({"lanes": "1", "replay": "adaptive"}, "replay='adaptive' needs another lane"),
        ({"balanceEvery": "1 s"}, "balanceEvery='1 s' needs dispatch='balance' or 'two-choices'"),
        ({"replayBudget": "0.1"}, "replayBudget='0.1' needs replay='adaptive'"),
        ({"replay": "replicate-20", "replayBudget": "0.1"}, "needs replay='adaptive'"),
        (
            {"lanes": "1", "egress": "round-robin"},
            "egress='round-robin' needs another lane to take",
        ),
        ({"replay": "adaptive", "replayBudget": "2"}, "replayBudget=2.0: the share of the chunks"),
        ({"replay": "adaptive", "replayBudget": "few"}, "replayBudget='few': a share"),
        ({"dispatch": "balance", "balanceEvery": "0 s"}, "balanceEvery=0.0 s: 1 ms to 1 h"),
        ({"egressEvery": "10 ms"}, "egressEvery='10 ms' needs egress='largest-backlog'"),
        ({"egress": "round-robin", "egressEvery": "soon"}, "option egressEvery: duration 'soon'"),
        ({"silence": "soon"}, "option silence: duration 'soon'"),
        ({"admission": "largest-backlog"}, "needs maxOffsetsPerTrigger: without it batches take"),
        (
            {"timing": "resident", "admission": "largest-backlog"},
            "admission='largest-backlog' needs timing='batch': a resident one takes all",
        ),
    ],
)
def test_what_contradicts_is_refused_with_the_reason(given: dict[str, str], told: str) -> None:
    options = {name.lower(): value for name, value in given.items()}
    with pytest.raises(taut.StartError, match=re.escape(told)):
        SourceOptions.parse(options)


def test_an_admission_may_wait_for_a_limit(spark: SparkSession) -> None:
    how = {"start": 0.0, "rate": 1.0, "total": 1, "lanes": 2}
    taut.read(spark, "schedule", admission="largest-backlog", **how).load()
    source = spark.readStream.format("taut").options(log="schedule", **how)
    with pytest.raises(Exception, match="admission='largest-backlog' needs maxOffsetsPerTrigger"):
        source.option("admission", "largest-backlog").load()


def test_a_resident_checkpoint_is_not_taken_for_one_of_batches(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    how = {"start": 1_790_000_000.0, "rate": 1_000, "total": 100, "lanes": 1}
    for timing in ("resident", "batch"):
        options = {"horizon": "1 s"} if timing == "resident" else {}
        stream = taut.read(
            spark, "schedule", timing=timing, startingOffsets="earliest", **how, **options
        ).load()
        writer = stream.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            if timing == "resident":
                eventually(lambda query=query: _ended(query))
            else:
                with pytest.raises(Exception, match="the checkpoint is that of a resident query"):
                    query.awaitTermination(120)
        finally:
            query.stop()


def test_an_egress_needs_a_sink(spark: SparkSession) -> None:
    how = {"start": 0.0, "rate": 1.0, "total": 1, "lanes": 2}
    stream = taut.read(spark, "schedule", egress="largest-backlog", **how)
    with pytest.raises(taut.StartError, match=r"egress='largest-backlog'.*\.to\(sink\)"):
        stream.load()
    stream.to(lambda rows: None).load()

"""Resident timing: rows are taken as they arrive, and a batch has the same rows when replayed."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import taut
from taut.policy.chunking import Guided
from taut.policy.sharing import SharedQueue
from taut.spark.source.connection import Place
from taut.spark.source.dealt import Batch
from taut.spark.source.lane import run_lane
from taut.spark.source.logs.files import FilesLog
from taut.spark.source.logs.memory import MemoryLog
from taut.spark.source.logs.schedule import ScheduleLog
from taut.spark.source.operators import Chain
from taut.spark.source.options import SourceOptions
from taut.spark.source.reader import ResidentReader
from taut.spark.source.resident import PAUSE, UNTIL, Feeder, Pauses, horizon_for, offset, until
from taut.spark.source.server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def fed(server: Server, log: Any, start: dict[str, int], end: float) -> tuple[Place, Feeder]:
    chunking = Guided(1, 100, share=1.0)
    batch = Batch(SharedQueue(2, chunking), chunking, silence=5.0, wait=0.0)
    server.do(lambda distributor: distributor.open("1", batch))
    feeder = Feeder(log, server, "1", batch, start, end)
    feeder.start()
    return Place(server.address, server.token, "1"), feeder


def take_all(place: Place, log: Any) -> Counter[int]:
    with ThreadPoolExecutor(2) as pool:
        lanes = pool.map(lambda n: list(run_lane(place, n, 0, log, Chain())), range(2))
    return Counter(n for share in lanes for rows in share for n in rows.column("n").to_pylist())


def test_a_batch_has_what_arrives_before_its_end(server: Server) -> None:
    begin = time.time()
    log = ScheduleLog(start=begin, rate=500.0, partitions=3)
    end = begin + 2.0
    place, _ = fed(server, log, dict(log.at(begin)), end)
    assert take_all(place, log) == Counter(range(1_000))


def test_a_batch_whose_time_has_passed_is_replayed_with_the_same_rows(server: Server) -> None:
    log = ScheduleLog(start=1_000.0, rate=100.0, partitions=2)
    place, _ = fed(server, log, dict(log.at(1_002.0)), 1_005.0)
    assert take_all(place, log) == Counter(range(200, 500))


class Delayed(ScheduleLog):
    """Rows are seen 300 ms after they have arrived."""

    settle = 0.5

    def at(self, when: float) -> Any:
        return super().at(min(when, time.time() - 0.3))

    def latest(self) -> Any:
        return self.at(time.time())


class Away(ScheduleLog):
    """Answers when its broker is back, long after it was asked."""

    def wait(self, known: Any, timeout: float) -> Any:
        time.sleep(1.8)
        return self.latest()


@pytest.mark.parametrize("kind", [Delayed, Away])
def test_a_batch_has_its_rows_however_late_they_are_seen(
    server: Server, kind: type[ScheduleLog]
) -> None:
    begin = time.time()
    log = kind(start=begin, rate=500.0, partitions=3)
    place, feeder = fed(server, log, dict.fromkeys("012", 0), begin + 1.5)
    assert take_all(place, log) == Counter(range(750))
    assert feeder.ended == {"0": 250, "1": 250, "2": 250}


def three_seconds_ahead() -> float:
    return time.time() + 3.0


def test_a_log_whose_clock_is_ahead_fails_the_batch(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    begin = time.time()
    log = ScheduleLog(start=begin, rate=100.0, clock=three_seconds_ahead)
    place, _ = fed(server, log, {"0": 0}, begin + 1.5)
    with pytest.raises(RuntimeError, match="the log cannot be read"):
        list(run_lane(place, 0, 0, log, Chain()))
    assert "the log's clock is ahead" in caplog.text


def test_the_next_batch_takes_what_came_too_late_for_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader = ResidentReader(
        ScheduleLog(start=0.0, rate=1.0), Chain(), SourceOptions(timing="resident")
    )
    assert reader._after(10.0) == {"0": 10}
    reader._feeder = Feeder(Any, Any, "1", Any, {}, 10.0)
    for ended, begin in [({"0": 10}, 10), ({"0": 7}, 7)]:
        assert not caplog.text
        reader._feeder.ended = ended
        assert reader._after(10.0) == {"0": begin}
        assert reader._after(20.0) == {"0": 20}
    assert "rows from {'0': 7} on arrived before 10.0" in caplog.text


def test_a_log_that_fails_ends_the_batch_instead_of_waiting_for_ever(server: Server) -> None:
    class Failing(ScheduleLog):
        def wait(self, known: Any, timeout: float) -> Any:
            raise OSError("disk gone")

    log = Failing(start=time.time(), rate=10.0)
    place, _ = fed(server, log, {"0": 0}, time.time() + 60)
    with pytest.raises(RuntimeError, match="the log cannot be read"):
        list(run_lane(place, 0, 0, log, Chain()))


def test_pauses_are_measured_and_make_batches_longer() -> None:
    pauses = Pauses()
    assert pauses.horizon(None) == horizon_for(0.5)
    pauses.began(5.0)
    assert pauses.last is None, "the first batch follows none"
    pauses.ended(10.0)
    pauses.began(10.5)
    assert pauses.last == pytest.approx(0.5)
    assert pauses.horizon(None) == pytest.approx(125.0)
    assert pauses.horizon(30.0) == 30.0
    assert 0.5 / horizon_for(0.5) < 0.01
    assert horizon_for(0.0) == 10.0
    assert horizon_for(100.0) == 300.0


def test_offsets_are_times_and_show_the_last_pause() -> None:
    assert offset(12.5, None) == {UNTIL: 12_500_000}
    assert offset(12.5, 0.25) == {UNTIL: 12_500_000, PAUSE: 250_000}
    assert until(offset(12.5, 0.25)) == 12.5


def test_a_log_without_times_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"resident.*FilesLog does not"):
        ResidentReader(FilesLog(str(tmp_path)), Chain(), SourceOptions(timing="resident"))


@pytest.mark.spark
def test_rows_reach_a_sink_in_the_lane_before_their_batch_ends(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    folder = str(tmp_path / "seen")
    Path(folder).mkdir()

    def note(batch: Any) -> None:
        for value in batch.column("value").to_pylist():
            (Path(folder) / value).touch()

    log = MemoryLog()
    rows: dict[int, list[str]] = {}

    def sink(df: DataFrame, batch_id: int) -> None:
        rows[batch_id] = [row["value"] for row in df.collect()]

    df = (
        taut.read(
            spark, log, timing="resident", horizon="5 min", lanes=2, startingOffsets="earliest"
        )
        .to(note)
        .load()
    )
    writer = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    try:
        for n in range(5):
            log.append([f"r{n}"])
            eventually(lambda n=n: (Path(folder) / f"r{n}").exists())
        assert rows == {}, "the batch is still open"
    finally:
        query.stop()
        log.close()


@pytest.mark.spark
def test_batches_follow_each_other_without_loss(spark: SparkSession, tmp_path: Path) -> None:
    rows: dict[int, list[int]] = {}

    def sink(df: DataFrame, batch_id: int) -> None:
        rows[batch_id] = [row["n"] for row in df.collect()]

    begin = time.time() + 5
    df = taut.read(
        spark, "schedule", start=begin, rate=200, partitions=2, timing="resident",
        horizon="2 s", lanes=2, startingOffsets="earliest",
    ).load()  # fmt: skip
    query = df.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path)).start()
    try:
        limit = time.monotonic() + 120
        while sum(map(len, rows.values())) < 1_000 and time.monotonic() < limit:
            query.awaitTermination(1)
        shown = [p["sources"][0]["endOffset"] for p in query.recentProgress]
    finally:
        query.stop()
    seen = Counter(n for batch in rows.values() for n in batch)
    assert set(seen.values()) == {1}
    assert seen.keys() == set(range(len(seen)))
    assert len(seen) >= 1_000
    assert any(PAUSE in str(end) for end in shown), "the pause is shown in the progress"


@pytest.mark.spark
def test_a_restart_goes_on_where_it_was_stopped(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    log = MemoryLog()
    rows: dict[int, list[str]] = {}

    def sink(df: DataFrame, batch_id: int) -> None:
        rows[batch_id] = [row["value"] for row in df.collect()]

    def run(within: Callable[[], None]) -> None:
        df = taut.read(spark, log, timing="resident", horizon="2 s", lanes=2).load()
        writer = df.writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
        try:
            within()
        finally:
            query.stop()

    def first() -> None:
        eventually(lambda: 0 in rows)
        log.append([f"{n}" for n in range(10)])
        eventually(lambda: any(rows.values()))
        # in the middle of a batch
        log.append([f"{n}" for n in range(10, 20)])

    def then() -> None:
        eventually(lambda: sum(map(len, rows.values())) >= 30)

    run(first)
    log.append([f"{n}" for n in range(20, 30)])
    run(then)
    log.close()
    assert Counter(row for batch in rows.values() for row in batch) == Counter(map(str, range(30)))

"""What a source tells of its lanes, and that it is bounded."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from taut.policy.chunking import FixedSize
from taut.policy.sharing import Range, SharedQueue
from taut.policy.timeout import Replay, Replication
from taut.spark.source.dealt import Batch
from taut.spark.source.distributor import Distributor
from taut.spark.source.lane import run_lane
from taut.spark.source.logs.files import FilesLog
from taut.spark.source.logs.schedule import ScheduleLog
from taut.spark.source.lookout import Lookout
from taut.spark.source.operators import Chain
from taut.spark.source.options import SourceOptions
from taut.spark.source.protocol import Answer, Chunk, Join, Report
from taut.spark.source.reader import TautReader
from taut.spark.source.tally import (
    MOST_BYTES,
    MOST_CHUNKS,
    MOST_LANES,
    MOST_PARTITIONS,
    OTHERS,
    Standing,
    Tally,
    largest,
)
from taut.watch.records import Chunk as Done
from taut.watch.records import Lane, Source


@pytest.fixture
def tally() -> Tally:
    made = Tally()
    made.wanted = True
    return made


def done(tally: Tally, lane: int, chunk: int, rows: int = 1) -> None:
    if tally.picks():
        tally.note(lane, chunk, rows, 1e5, 2e5, False, True)


class Lanes:
    """A batch of 40 rows in chunks of ten, and its lanes, by hand."""

    def __init__(self, tally: Tally, key: str = "1", replay: Replay | None = None) -> None:
        chunking = FixedSize(10, claims_per_second=1.0)
        self.key = key
        self.batch = Batch(
            SharedQueue(2, chunking), chunking, silence=5.0, wait=0.1, replay=replay, tally=tally
        )
        self.batch.add([Range("a", 0, 30), Range("b", 0, 10)])
        self.batch.close()
        self.attempts: dict[int, int] = {}
        self.asked: dict[int, int] = {}
        for lane in (0, 1):
            self.join(lane, 0)

    def join(self, lane: int, attempt: int) -> None:
        self.attempts[lane], self.asked[lane] = attempt, 0
        self.batch.join(Join(self.key, lane, attempt, f"host:{lane}"), 0.0)

    def report(self, lane: int, now: float, *done: Chunk, seconds: float = 0.0) -> Chunk:
        ids = tuple(chunk.id for chunk in done)
        asked = Report(self.key, lane, self.attempts[lane], self.asked[lane], ids, seconds)
        self.asked[lane] += 1
        answer = self.batch.report(asked, now)
        self.batch.check()
        assert isinstance(answer, Answer)
        return answer.chunks[0] if answer.chunks else Chunk(-1, "", 0, 0)


def test_lanes_are_counted_over_all_batches(tally: Tally) -> None:
    for key in ("1", "2"):
        lanes = Lanes(tally, key)
        first, second = lanes.report(0, 1.0), lanes.report(1, 2.0)
        assert lanes.batch.open_since == {0: 1.0, 1: 2.0}
        assert lanes.batch.waiting == {"a": 10, "b": 10}
        lanes.report(0, 3.0, first, seconds=1.5)
        assert lanes.batch.open_since == {0: 3.0, 1: 2.0}
        lanes.report(1, 4.0, second, seconds=2.0)
        assert lanes.batch.waiting == {"a": 0, "b": 0}
    assert [(lane.rows, lane.chunks, lane.busy) for lane in tally.lanes.values()] == [
        (20, 2, 3.0), (20, 2, 4.0),
    ]  # fmt: skip
    assert tally.lanes[1].place == "host:1"
    assert tally.take() == ([Done(0, 0, 10, 1.0, 3.0), Done(1, 1, 10, 2.0, 4.0)] * 2, 0)
    assert tally.take() == ([], 0)


def test_single_chunks_are_noted_only_while_that_is_wanted(tally: Tally) -> None:
    tally.wanted = False
    lanes = Lanes(tally)
    chunk = lanes.report(0, 1.0)
    chunk = lanes.report(0, 2.0, chunk)
    tally.wanted = True
    lanes.report(0, 3.0, chunk)
    assert tally.take() == ([Done(0, 1, 10, 2.0, 3.0)], 0)
    assert tally.lanes[0].chunks == 2


def test_who_was_given_a_chunk_once_more_and_whose_rows_count(tally: Tally) -> None:
    lanes = Lanes(tally, replay=Replication(1.0))
    first = lanes.report(0, 1.0)
    again = lanes.report(1, 2.0)
    assert again == first
    lanes.report(1, 3.0, again)
    other = lanes.report(0, 4.0, first)
    assert other.id == 1, "the one that lane 1 has now"
    assert tally.take() == (
        [Done(1, 0, 10, 2.0, 3.0, again=True), Done(0, 0, 10, 1.0, 4.0, kept=False)], 0,
    )  # fmt: skip
    assert [(lane.rows, lane.replays) for lane in tally.lanes.values()] == [(0, 1), (10, 1)]


def test_what_a_lost_lane_had_is_done_again(tally: Tally) -> None:
    lanes = Lanes(tally)
    lost = lanes.report(0, 1.0)
    lanes.join(0, 1)
    assert lanes.batch.open_since == {}
    assert lanes.report(1, 2.0) == lost
    lanes.report(1, 3.0, lost)
    assert tally.take() == ([Done(1, 0, 10, 2.0, 3.0, again=True)], 0)
    assert tally.lanes[1].replays == 0, "nobody was too long about it"


def test_a_report_that_comes_twice_counts_once(tally: Tally) -> None:
    lanes = Lanes(tally)
    chunk = lanes.report(0, 1.0)
    lanes.report(0, 2.0, chunk)
    lanes.asked[0] -= 1
    lanes.report(0, 3.0, chunk)
    assert tally.lanes[0].rows == 10
    assert len(tally.take()[0]) == 1


@pytest.mark.parametrize("chunks", [1, MOST_CHUNKS, MOST_CHUNKS + 1, 10_000])
def test_of_many_chunks_some_are_told_from_all_of_the_time(tally: Tally, chunks: int) -> None:
    for number in range(chunks):
        done(tally, 0, number)
        tally.check()
    told, left_out = tally.take()
    assert len(told) + left_out == chunks
    assert min(chunks, MOST_CHUNKS // 2) <= len(told) <= MOST_CHUNKS
    gaps = [b.chunk - a.chunk for a, b in pairwise(told)]
    assert len({*gaps}) <= 1, "evenly spread"


def test_what_is_told_is_small_however_much_there_is(tally: Tally) -> None:
    for lane in range(1_000):
        tally.lane(lane, f"{'host' * 100}:{lane}").rows = 2**40
    for number in range(1_000):
        done(tally, number, number, 2**40)
    waiting = {f"{'path/' * 30}{number}": 2**40 for number in range(1_000)}
    since = dict.fromkeys(range(1_000), 1.5)
    told = Standing.of(tally, since, waiting).told({}, 1_000.0, 10.0)
    assert len(msgspec.msgpack.encode(told)) <= MOST_BYTES
    assert len(told.chunks) + told.left_out == 1_000
    assert 0 < len(told.lanes) <= MOST_LANES
    assert len(told.lanes) + told.lanes_left_out == 1_000
    assert len(told.backlog) == MOST_PARTITIONS + 1
    assert sum(told.backlog.values()) == 1_000 * 2**40


def test_what_is_told_as_a_rule_leaves_nothing_out(tally: Tally) -> None:
    for lane in range(64):
        tally.lane(lane, f"worker-{lane}.cluster.example:123456").rows = 10**6
    for number in range(MOST_CHUNKS):
        done(tally, number, number, 1_000)
    waiting = {f"clicks-{number}": 10**6 for number in range(48)}
    told = Standing.of(tally, {1: 5.0}, waiting).told({"clicks-1": 7}, 1_000.0, 10.0)
    assert len(msgspec.msgpack.encode(told)) < MOST_BYTES
    assert (told.left_out, told.lanes_left_out, OTHERS in told.backlog) == (0, 0, False)
    assert told.backlog["clicks-1"] == 10**6 + 7


def test_times_are_those_of_the_epoch(tally: Tally) -> None:
    lanes = Lanes(tally)
    distributor = Distributor()
    distributor.open("1", lanes.batch)
    chunk = lanes.report(0, 11.0)
    lanes.report(0, 12.0, chunk, seconds=0.5)
    told = distributor.standing(tally).told({"b": 5, "c": 1}, now=1_000.0, monotonic=20.0)
    assert told.at == 1_000.0
    assert told.lanes == (
        Lane(0, "host:0", 10, 1, 0.5, open_since=992.0), Lane(1, "host:1"),
    )  # fmt: skip
    assert told.chunks == (Done(0, 0, 10, 991.0, 992.0),)
    assert told.backlog == {"a": 10, "b": 15, "c": 1}


def facts(reader: TautReader) -> Source:
    told = reader._facts(True)
    assert told is not None
    return told


def test_a_reader_tells_what_waits_in_its_batches_and_beyond_them() -> None:
    log = ScheduleLog(start=0.0, rate=1_000.0, partitions=2, total=200)
    reader = TautReader(log, Chain(), SourceOptions(lanes=1, chunk=10))

    def backlog() -> dict[str, int]:
        return facts(reader).backlog

    try:
        assert backlog() == {}
        start = {"0": 0, "1": 0}
        reader.latestOffset(start, ReadAllAvailable())
        assert backlog() == {"0": 100, "1": 100}
        (lane,) = reader.partitions(start, {"0": 30, "1": 0})
        assert backlog() == {"0": 100, "1": 100}, "planned, and not taken"
        rows = run_lane(lane.place, 0, 0, log, Chain())  # type: ignore[attr-defined] # a Lane
        assert sum(batch.num_rows for batch in rows) == 30
        assert backlog() == {"0": 70, "1": 100}
        carried = pickle.loads(pickle.dumps(reader))
        assert (carried._tally, carried._lookout) == (None, None)
        assert reader._facts(False) is None
        assert not reader._tally.wanted
    finally:
        reader.stop()


def test_rows_that_come_while_a_query_is_held_are_told(eventually: Callable[..., None]) -> None:
    now = [1.0]
    log = ScheduleLog(start=0.0, rate=1_000.0, clock=lambda: now[0])
    reader = TautReader(log, Chain(), SourceOptions(lanes=1, chunk=10_000))

    def backlog() -> dict[str, int]:
        return facts(reader).backlog

    try:
        end = reader.latestOffset({"0": 0}, ReadAllAvailable())
        (lane,) = reader.partitions({"0": 0}, end)
        list(run_lane(lane.place, 0, 0, log, Chain()))  # type: ignore[attr-defined] # a Lane
        assert backlog() == {}
        now[0] = 4.0
        eventually(lambda: backlog() == {"0": 3_000})
        reader.prepareForTriggerAvailableNow()
        now[0] = 9.0
        reader.latestOffset(end, ReadAllAvailable())
        assert facts(reader).unit == "rows"
        assert backlog() == {"0": 3_000}, "what comes later is not for this query"
    finally:
        reader.stop()
    assert reader._lookout is None or not reader._lookout._thread.is_alive()


def test_bytes_that_wait_are_told_as_such(tmp_path: Path, eventually: Callable[..., None]) -> None:
    (tmp_path / "a").write_text("one\n")
    reader = TautReader(FilesLog(tmp_path), Chain(), SourceOptions(lanes=1))
    try:
        reader.latestOffset({}, ReadAllAvailable())
        (tmp_path / "b").write_text("two\n")
        eventually(lambda: facts(reader).backlog == {"a": 4, "b": 4})
        assert facts(reader).unit == "bytes"
    finally:
        reader.stop()


def test_a_log_that_hangs_or_fails_holds_nobody_up(caplog: pytest.LogCaptureFixture) -> None:
    answer, asked = threading.Event(), threading.Event()

    def look() -> dict[str, int]:
        asked.set()
        assert answer.wait(10)
        answer.clear()
        return {"0": 1}

    closed = threading.Event()
    lookout = Lookout(look, closed.set)
    assert lookout.latest(0.0) == {}
    assert asked.wait(10)
    answer.set()
    assert lookout.latest(10.0) == {"0": 1}
    lookout.stop()
    answer.set()
    assert closed.wait(10), "in the thread that has looked"

    def fails() -> dict[str, int]:
        raise OSError("no broker")

    lookout = Lookout(fails, fails)  # type: ignore[arg-type]
    for _ in range(3):
        assert lookout.latest(10.0) == {}
    lookout.stop(10.0)
    assert not lookout._thread.is_alive()
    assert caplog.text.count("no broker") == 1


def test_partitions_in_which_nothing_waits_are_not_told() -> None:
    assert largest(Counter({"a": 0, "b": 2})) == {"b": 2}
    assert largest(Counter()) == {}

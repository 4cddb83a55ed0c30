"""A Kafka topic as a log, against a real broker."""

from __future__ import annotations

import json
import multiprocessing
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.conftest import wait_until
from tests.spark.source.kafka_broker import Broker, Unavailable
from tests.spark.source.kafka_broker import broker as running
from tests.spark.source.test_log_contract import Expected, check_cuts, check_refusals

import taut
from taut.errors import DataLost, LogError
from taut.planning.profile import Windows
from taut.spark.planning import profiling, trial
from taut.spark.source.logs import open_log
from taut.spark.source.logs.base import ARRIVAL, OFFSET
from taut.spark.source.logs.kafka import KafkaLog
from taut.spark.source.operators import Chain
from taut.spark.source.options import SourceOptions
from taut.spark.source.reader import ResidentReader

NOBODY = "127.0.0.1:9"
_numbers = count()


class Topic:
    """A topic of its own for a test."""

    def __init__(self, broker: Broker, partitions: int = 1, **config: str) -> None:
        self.name = f"topic-{next(_numbers)}"
        self.servers = broker.servers
        self.client = {"bootstrap.servers": self.servers, "log_level": "2"}
        self.admin = AdminClient(self.client)
        named = {key.replace("_", "."): value for key, value in config.items()}
        (made,) = self.admin.create_topics([NewTopic(self.name, partitions, config=named)]).values()
        made.result()
        self._until_there_are(partitions)

    def log(self, **more: str) -> KafkaLog:
        named = {key.replace("_", "."): value for key, value in more.items()}
        return KafkaLog(self.name, {"bootstrap.servers": self.servers} | named, timeout=20.0)

    def put(self, values: Sequence[Any], partition: int = 0, **how: Any) -> None:
        """Append records; values, or (key, value)."""
        producer = Producer(self.client | {"linger.ms": "0"})
        send(producer, self.name, values, partition, **how)
        assert producer.flush(30) == 0

    @contextmanager
    def transaction(self, values: Sequence[Any], commit: bool) -> Iterator[None]:
        """Append records that are committed, or not, at the end of the block."""
        name = f"{self.name}-{next(_numbers)}"
        producer = Producer(self.client | {"transactional.id": name})
        producer.init_transactions(30)
        producer.begin_transaction()
        send(producer, self.name, values, 0)
        assert producer.flush(30) == 0
        yield
        (producer.commit_transaction if commit else producer.abort_transaction)(30)

    def widen(self, partitions: int) -> None:
        (made,) = self.admin.create_partitions([NewPartitions(self.name, partitions)]).values()
        made.result()
        self._until_there_are(partitions)

    def delete(self, before: dict[int, int]) -> None:
        gone = [TopicPartition(self.name, number, end) for number, end in before.items()]
        for done in self.admin.delete_records(gone).values():
            done.result()

    def read(self, spark: SparkSession, **options: Any) -> taut.spark.source.read.Read:
        given = {"kafka.bootstrap.servers": self.servers, "startingOffsets": "earliest"} | options
        return taut.read(spark, "kafka", subscribe=self.name, **given)

    def _until_there_are(self, partitions: int) -> None:
        def seen() -> bool:
            topic = self.admin.list_topics(self.name, timeout=10).topics[self.name]
            return topic.error is None and len(topic.partitions) == partitions

        wait_until(seen)


def send(producer: Producer, topic: str, values: Sequence[Any], partition: int, **how: Any) -> None:
    for each in values:
        key, value = each if isinstance(each, tuple) else (None, each)
        producer.produce(topic, value, key, partition, **how)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        with running(tmp_path_factory.mktemp("kafka")) as made:
            yield made
    except Unavailable as reason:
        pytest.skip(str(reason))


def values(batch: pa.RecordBatch) -> list[Any]:
    return batch.column("value").to_pylist()


# -- the log --------------------------------------------------------------------------------------

BYTES = st.none() | st.binary(max_size=9)


@contextmanager
def topic_with_rows(broker: Broker, data: st.DataObject) -> Iterator[tuple[KafkaLog, Expected]]:
    """Stamped by the broker, or with the gaps that transactions leave."""
    gaps = data.draw(st.booleans())
    kind = {} if gaps else {"message_timestamp_type": "LogAppendTime"}
    topic, expected = Topic(broker, partitions=2, **kind), Expected({"0": [], "1": []})
    for rows in data.draw(st.lists(st.lists(st.tuples(BYTES, BYTES), max_size=9), max_size=4)):
        where = data.draw(st.sampled_from(["0", "1"]))
        if gaps and where == "0":
            kept = data.draw(st.booleans())
            with topic.transaction(rows, commit=kept):
                pass
        else:
            kept = True
            topic.put(rows, int(where))
        expected[where] += [{"key": key, "value": value} for key, value in rows if kept]
    log = topic.log()
    yield log, expected
    log.close()


@settings(derandomize=True, deadline=None, database=None, max_examples=12)
@given(data=st.data())
def test_any_cuts_give_each_row_once_and_in_order(broker: Broker, data: st.DataObject) -> None:
    with topic_with_rows(broker, data) as (log, expected):
        check_cuts(log, expected, data)


@settings(derandomize=True, deadline=None, database=None, max_examples=2)
@given(data=st.data())
def test_refuses_ranges_that_cannot_be(broker: Broker, data: st.DataObject) -> None:
    with topic_with_rows(broker, data) as (log, expected):
        check_refusals(log, expected)


def test_consecutive_chunks_jumps_and_steps_back_read_the_same(broker: Broker) -> None:
    topic = Topic(broker, partitions=2)
    for partition in range(2):
        topic.put([b"%d" % n for n in range(9_000)], partition)
    log = topic.log()
    for partition, start, end in [
        ("0", 0, 10), ("0", 10, 500), ("0", 600, 700), ("1", 0, 5), ("0", 700, 800), ("0", 10, 20),
        ("0", 8_000, 9_000), ("0", 8_999, 9_000), ("1", 5, 9_000), ("0", 0, 9_000),
    ]:  # fmt: skip
        batch = log.read(partition, start, end)
        assert values(batch) == [b"%d" % n for n in range(start, end)]
        assert batch.column(OFFSET).to_pylist() == list(range(start, end))


def test_several_threads_read_at_once(broker: Broker) -> None:
    topic = Topic(broker)
    topic.put([b"%d" % n for n in range(2_000)])
    log = topic.log()
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda at: values(log.read("0", at, at + 100)), range(0, 2_000, 100))
    assert [value for chunk in found for value in chunk] == [b"%d" % n for n in range(2_000)]


def test_a_forked_process_reads_with_clients_of_its_own(broker: Broker) -> None:
    topic = Topic(broker)
    topic.put([b"a", b"b"])
    log = topic.log()
    assert values(log.read("0", 0, 1)) == [b"a"]
    fork = multiprocessing.get_context("fork")
    results = fork.SimpleQueue()

    def read() -> None:
        results.put((dict(log.latest()), values(log.read("0", 1, 2))))
        log.close()

    child = fork.Process(target=read)
    child.start()
    assert results.get() == ({"0": 2}, [b"b"])
    child.join(30)
    assert child.exitcode == 0
    assert values(log.read("0", 1, 2)) == [b"b"]


def test_arrival_is_the_record_s_time(broker: Broker) -> None:
    told = Topic(broker)
    told.put([b"x"], timestamp=1_790_000_000_123)
    (arrival,) = told.log().read("0", 0, 1).column(ARRIVAL).cast(pa.int64()).to_pylist()
    assert arrival == 1_790_000_000_123_000
    assert not told.log().timed

    stamped = Topic(broker, message_timestamp_type="LogAppendTime")
    before = time.time()
    stamped.put([b"x"], timestamp=1_790_000_000_123)
    (arrival,) = stamped.log().read("0", 0, 1).column(ARRIVAL).cast(pa.int64()).to_pylist()
    assert before - 1 < arrival / 1e6 < time.time() + 1
    assert stamped.log().timed


def test_the_offset_of_a_time_is_the_first_that_arrived_then_or_later(broker: Broker) -> None:
    topic = Topic(broker, partitions=2)
    for n in range(3):
        topic.put([b"x", b"y"], timestamp=1_790_000_000_000 + 1_000 * n)
    log = topic.log()
    for when, offset in [(0, 0), (0.0001, 2), (0.999, 2), (1, 2), (2, 4), (2.001, 6)]:
        assert log.at(1_790_000_000 + when) == {"0": offset, "1": 0}


def test_new_partitions_are_seen(broker: Broker, eventually: Callable[..., None]) -> None:
    topic = Topic(broker)
    log = topic.log()
    assert log.latest() == {"0": 0}
    topic.widen(3)
    eventually(lambda: log.latest() == {"0": 0, "1": 0, "2": 0})


def test_records_that_were_deleted_are_lost(broker: Broker) -> None:
    topic = Topic(broker)
    topic.put([b"%d" % n for n in range(10)])
    topic.delete({0: 6})
    log = topic.log()
    assert log.earliest() == {"0": 6}
    with pytest.raises(DataLost, match=r"range \[5, 8\): records before 6 are gone"):
        log.read("0", 5, 8)
    assert values(log.read("0", 6, 8)) == [b"6", b"7"]
    with pytest.raises(DataLost, match=r"range \[6, 11\): it ends at 10"):
        log.read("0", 6, 11)


def test_offsets_of_transactions_are_no_rows_and_hold_nothing_up(broker: Broker) -> None:
    topic = Topic(broker)
    with topic.transaction([b"a", b"b"], commit=True):
        pass
    with topic.transaction([b"c", b"d"], commit=False):
        pass
    log = topic.log()
    assert log.latest() == {"0": 6}
    assert [values(log.read("0", n, n + 1)) for n in range(6)] == [[b"a"], [b"b"], [], [], [], []]
    assert values(log.read("0", 0, 6)) == [b"a", b"b"]
    everything = topic.log(isolation_level="read_uncommitted")
    assert values(everything.read("0", 0, 6)) == [b"a", b"b", b"c", b"d"]


def test_an_open_transaction_is_not_read_but_counts_for_times(broker: Broker) -> None:
    topic = Topic(broker, message_timestamp_type="LogAppendTime")
    topic.put([b"a"])
    log = topic.log()
    with ThreadPoolExecutor(1) as pool:
        with topic.transaction([b"b"], commit=True):
            topic.put([b"c"])
            assert log.latest() == {"0": 1}
            assert topic.log(isolation_level="read_uncommitted").latest() == {"0": 3}
            after = time.time() + 10
            assert log.at(after) == {"0": 3}
            waiting = pool.submit(log.read, "0", 0, 3)
        assert values(waiting.result(30)) == [b"a", b"b", b"c"]
    assert log.at(after)["0"] >= 3
    assert log.latest() == {"0": 4}


def test_compacted_offsets_are_no_rows_and_hold_nothing_up(
    broker: Broker, eventually: Callable[..., None]
) -> None:
    topic = Topic(
        broker, cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01"
    )
    for n in range(20):  # each record is so much younger that it begins a segment
        topic.put([(b"k%d" % (n % 2), b"%d" % n)], timestamp=1_790_000_000_000 + 10_000 * n)
    log = topic.log()
    eventually(lambda: len(values(log.read("0", 0, 20))) < 10)
    log.close()
    whole = log.read("0", 0, 20).column(OFFSET).to_pylist()
    single = [log.read("0", n, n + 1).column(OFFSET).to_pylist() for n in range(20)]
    assert single == [[n] if n in whole else [] for n in range(20)]


# -- what is refused ------------------------------------------------------------------------------


def test_a_topic_that_is_missing_is_named_and_not_made(broker: Broker) -> None:
    log = KafkaLog("nowhere", {"bootstrap.servers": broker.servers})
    for _ in range(2):
        with pytest.raises(LogError, match=r"subscribe='nowhere': there is no such topic"):
            log.latest()
    with pytest.raises(LogError, match=r"subscribe='nowhere'"):
        _ = log.timed
    admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": "2"})
    assert "nowhere" not in admin.list_topics(timeout=10).topics


def test_a_partition_that_is_missing_is_named(broker: Broker) -> None:
    topic = Topic(broker, partitions=2)
    log = KafkaLog(topic.name, {"bootstrap.servers": broker.servers}, timeout=1.0)
    with pytest.raises(LogError, match=r"partition 7, range \[0, 1\): there are only \[0, 1\]"):
        log.read("7", 0, 1)


def test_servers_that_do_not_answer_are_named() -> None:
    log = KafkaLog("t", {"bootstrap.servers": NOBODY}, timeout=1.0)
    told = rf"kafka.bootstrap.servers='{NOBODY}': no answer within 1 s.*Connection refused"
    with pytest.raises(LogError, match=told):
        log.latest()
    with pytest.raises(LogError, match=told):
        log.read("0", 0, 1)


def test_a_setting_that_is_not_known_is_named() -> None:
    log = KafkaLog("t", {"bootstrap.servers": NOBODY, "fetch.max.wait.ms": "5"})
    for call in (log.latest, lambda: log.read("0", 0, 1)):
        with pytest.raises(LogError, match=r'property: "fetch.max.wait.ms".*librdkafka'):
            call()


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ["kafka", "kafka_clients", "kafka_stream"]:
        monkeypatch.delitem(sys.modules, f"taut.spark.source.logs.{name}")
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(
        LogError, match=r"log='kafka'.*confluent_kafka.*pip install confluent-kafka"
    ):
        open_log({"log": "kafka"})


def test_resident_timing_refuses_the_producers_clocks(broker: Broker) -> None:
    log = Topic(broker).log()
    with pytest.raises(LogError, match=r"message.timestamp.type=CreateTime.*LogAppendTime"):
        ResidentReader(log, Chain(), SourceOptions(timing="resident"))


# -- on Spark -------------------------------------------------------------------------------------


class Out:
    """A sink that keeps the rows of each batch, replacing those that come again."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [bytes(row["value"]) for row in df.collect()]

    def seen(self) -> Counter[bytes]:
        return Counter(value for batch in dict(self.batches).values() for value in batch)


def start(df: DataFrame, out: Out, checkpoint: Path, **trigger: Any) -> Any:
    writer = df.writeStream.foreachBatch(out).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def drain(df: DataFrame, out: Out, checkpoint: Path) -> None:
    start(df, out, checkpoint, availableNow=True).awaitTermination()


def numbered(first: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(first, end)]


@pytest.mark.spark
def test_a_restart_goes_on_and_reads_partitions_that_were_added(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic, out = Topic(broker, partitions=2), Out()
    df = topic.read(spark, lanes=3, chunk=50, maxOffsetsPerTrigger=600).load()
    assert df.schema.simpleString() == (
        "struct<key:binary,value:binary,arrival:timestamp,log_partition:string,log_offset:bigint>"
    )
    for partition in range(2):
        topic.put(numbered(500 * partition, 500 * partition + 500), partition)
    drain(df, out, tmp_path)
    assert [len(rows) for rows in out.batches.values()] == [600, 400]
    topic.widen(3)
    for partition in range(3):
        topic.put(numbered(1_000 + 100 * partition, 1_100 + 100 * partition), partition)
    drain(df, out, tmp_path)
    assert out.seen() == Counter(numbered(0, 1_300))


@pytest.mark.spark
def test_rows_that_come_while_it_runs(
    broker: Broker, spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    topic, out = Topic(broker), Out()
    query = start(topic.read(spark).load(), out, tmp_path)
    try:
        for n in range(3):
            topic.put(numbered(20 * n, 20 * n + 20))
            eventually(lambda n=n: out.seen() == Counter(numbered(0, 20 * n + 20)))
    finally:
        query.stop()


@pytest.mark.spark
def test_a_broker_that_dies_and_comes_back_within_a_batch_costs_no_row(
    broker: Broker, spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    topic, out = Topic(broker), Out()
    there, go_on = tmp_path / "there", tmp_path / "go_on"
    for first in range(0, 3_000, 50):
        topic.put(numbered(first, first + 50))

    def wait_at_500(row: dict[str, Any]) -> bool:
        if row["log_offset"] == 500:
            there.touch()
        while there.exists() and not go_on.exists():
            threading.Event().wait(0.02)
        return True

    little = {"kafka.fetch.message.max.bytes": 1_000, "kafka.queued.min.messages": 1}
    df = topic.read(spark, lanes=2, chunk=100, **little).filter(wait_at_500).load()
    query = start(df, out, tmp_path / "c", availableNow=True)
    eventually(there.exists)
    broker.kill()
    go_on.touch()
    broker.start()
    query.awaitTermination()
    assert out.seen() == Counter(numbered(0, 3_000))
    assert len(out.batches) == 1


@pytest.mark.spark
def test_records_that_are_gone_are_told_of(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    topic, out = Topic(broker), Out()
    topic.put(numbered(0, 10))
    drain(topic.read(spark).load(), out, tmp_path)
    topic.put(numbered(10, 20))
    topic.delete({0: 15})
    with pytest.raises(StreamingQueryException, match="failOnDataLoss=false goes on"):
        drain(topic.read(spark).load(), out, tmp_path)
    drain(topic.read(spark, failOnDataLoss=False).load(), out, tmp_path)
    assert out.seen() == Counter([*numbered(0, 10), *numbered(15, 20)])


@pytest.mark.spark
def test_what_is_wrong_is_told_by_the_query(
    broker: Broker, spark: SparkSession, tmp_path: Path
) -> None:
    nowhere = {"kafka.bootstrap.servers": NOBODY, "timeout": "1 s"}
    with pytest.raises(StreamingQueryException, match=f"servers='{NOBODY}': no answer"):
        drain(taut.read(spark, "kafka", subscribe="t", **nowhere).load(), Out(), tmp_path / "a")
    with pytest.raises(StreamingQueryException, match="subscribe='no': there is no such topic"):
        drain(
            taut.read(
                spark, "kafka", subscribe="no", **{"kafka.bootstrap.servers": broker.servers}
            ).load(),
            Out(),
            tmp_path / "b",
        )


@pytest.mark.spark
def test_resident_batches_have_each_row_once(
    broker: Broker, spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    topic = Topic(broker, partitions=2, message_timestamp_type="LogAppendTime")
    out = Out()
    df = topic.read(spark, timing="resident", horizon="2 s", lanes=2).load()
    query = start(df, out, tmp_path)
    try:
        for n in range(4):
            with topic.transaction(numbered(30 * n, 30 * n + 10), commit=True):
                topic.put(numbered(30 * n + 10, 30 * n + 30), partition=n % 2)
            if n % 2:
                eventually(lambda n=n: out.seen() == Counter(numbered(0, 30 * n + 30)))
    finally:
        query.stop()
    assert out.seen() == Counter(numbered(0, 120))


def planned_until(checkpoint: Path) -> float:
    """When the batch ends that was planned last, epoch seconds."""
    planned = [path for path in (checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    last = max(planned, key=lambda path: int(path.name)).read_text().splitlines()[-1]
    return float(json.loads(last)["until_us"]) / 1e6


@pytest.mark.spark
def test_a_transaction_that_is_open_at_the_end_of_a_resident_batch_holds_it(
    broker: Broker, spark: SparkSession, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    topic = Topic(broker, message_timestamp_type="LogAppendTime")
    out = Out()
    df = topic.read(spark, timing="resident", horizon="2 s", lanes=1).load()
    query = start(df, out, tmp_path)
    try:
        eventually((tmp_path / "commits" / "0").exists)
        with topic.transaction(numbered(0, 10), commit=True):
            topic.put(numbered(10, 20))
            opened = time.time()
            eventually(lambda: opened < planned_until(tmp_path) < time.time() - 2.0)
            assert not out.seen(), "their batch waits for the transaction"
        eventually(lambda: out.seen() == Counter(numbered(0, 20)))
    finally:
        query.stop()
    assert out.seen() == Counter(numbered(0, 20))


@pytest.mark.spark
def test_the_app_of_the_page_on_planning_is_profiled_from_a_topic(
    broker: Broker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its backlog is shorter than a profile would like: what there is of it is taken."""
    monkeypatch.setattr(trial, "_DRY_S", 1.0)
    page = (Path(__file__).parents[3] / "docs" / "plan.md").read_text()
    code = next(
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "kafka" in block
    )
    topic = Topic(broker, partitions=2)
    begun = int(time.time() * 1e3) - 60_000
    for second in range(20):
        for partition in range(2):
            rows = [(f"customer {n % 7}", "an order") for n in range(500)]
            topic.put(rows, partition, timestamp=begun + 1_000 * second)
    names: dict[str, Any] = {}
    exec(code.replace("localhost:9092", topic.servers).replace('"orders"', repr(topic.name)), names)
    profile = profiling.take(spark, names["app"], "orders", rate=1_000, seconds=10.0)
    profile.check(spark=spark.version)
    assert profile.windows == Windows(2.0)
    assert {one.lanes for one in profile.samples} == {1, 2}
    assert sum(one.out for one in profile.samples) > 0

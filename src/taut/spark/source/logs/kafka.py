"""A Kafka topic as a log, through confluent-kafka (the extra ``taut[kafka]``).

An offset is Kafka's own. Arrival is the record's time: when the broker appended it if the topic
says ``message.timestamp.type=LogAppendTime``, else what the producer wrote.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from taut.spark.source.logs.base import ADDED, DataLost, Log, LogError, Offsets

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_TIMEOUT = 30.0
_AT_ONCE = 5_000
_COLUMNS = [pa.field("key", pa.binary()), pa.field("value", pa.binary())]
_SET_HERE = {"group.id", "enable.auto.commit", "auto.offset.reset", "enable.auto.offset.store"}


@dataclass(frozen=True)
class KafkaLog(Log):
    """The partitions of one topic.

    Parameters
    ----------
    topic
        Its name.
    settings
        Of the Kafka client, ``bootstrap.servers`` among them.
    timeout
        Seconds until a broker that does not answer is an error.
    """

    topic: str
    settings: Mapping[str, str]
    timeout: float = _TIMEOUT
    _open: dict[tuple[int, int], Consumer] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not self.settings.get("bootstrap.servers"):
            raise LogError(
                "log 'kafka': option kafka.bootstrap.servers is missing, such as 'localhost:9092'"
            )
        ours = sorted(_SET_HERE & set(self.settings))
        if ours:
            raise LogError(f"kafka settings {ours} are set by Taut: Spark keeps the offsets")

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": {}}

    def schema(self) -> pa.Schema:
        return pa.schema([*_COLUMNS, *ADDED])

    def options(self) -> dict[str, str]:
        """What makes this log again, as options of a data source."""
        kafka = {f"kafka.{key}": value for key, value in self.settings.items()}
        return {"log": "kafka", "subscribe": self.topic} | kafka

    def earliest(self) -> Offsets:
        return {p: low for p, (low, _) in self._watermarks().items()}

    def latest(self) -> Offsets:
        return {p: high for p, (_, high) in self._watermarks().items()}

    def at(self, when: float) -> Offsets:
        from confluent_kafka import TopicPartition

        asked = [
            TopicPartition(self.topic, number, round(when * 1_000)) for number in self._numbers()
        ]
        found = self._try(lambda c: c.offsets_for_times(asked, timeout=self.timeout))
        latest = self.latest()
        # Kafka answers -1 when no record is so young
        return {
            str(f.partition): f.offset if f.offset >= 0 else latest[str(f.partition)] for f in found
        }

    def read(self, partition: str, start: int, end: int) -> pa.RecordBatch:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        low, high = self._try(
            lambda c: c.get_watermark_offsets(
                TopicPartition(self.topic, int(partition)), self.timeout
            )
        )
        if start < low or end > high:
            raise DataLost(
                f"topic {self.topic!r} partition {partition}: offsets [{start}, {end}) are not "
                f"there, it holds [{low}, {high})"
            )
        records = self._consume(consumer, int(partition), start, end)
        consumer.unassign()
        return _batch(records, partition)

    def close(self) -> None:
        """Close the connections of this process."""
        while self._open:
            _, consumer = self._open.popitem()
            consumer.close()

    def _consume(self, consumer: Consumer, number: int, start: int, end: int) -> list[Any]:
        """All records of a range; offsets may be missing in it (compaction, transactions)."""
        from confluent_kafka import TopicPartition

        here = TopicPartition(self.topic, number, start)
        consumer.assign([here])
        records: list[Any] = []
        limit = time.monotonic() + self.timeout
        while True:
            found = consumer.consume(min(_AT_ONCE, end - start), timeout=0.1)
            for record in found:
                self._raise(record.error())
                if start <= record.offset() < end:
                    records.append(record)
            (position,) = consumer.position([here])
            if position.offset >= end:
                return records
            if found:
                limit = time.monotonic() + self.timeout
            elif time.monotonic() > limit:
                raise LogError(
                    f"topic {self.topic!r} partition {number}: no records after offset "
                    f"{position.offset} of [{start}, {end}) within {self.timeout} s"
                )

    def _watermarks(self) -> dict[str, tuple[int, int]]:
        from confluent_kafka import TopicPartition

        return {
            str(n): self._try(
                lambda c, n=n: c.get_watermark_offsets(TopicPartition(self.topic, n), self.timeout)
            )
            for n in self._numbers()
        }

    def _numbers(self) -> list[int]:
        found = self._try(lambda c: c.list_topics(self.topic, timeout=self.timeout))
        topic = found.topics[self.topic]
        if topic.error is not None or not topic.partitions:
            servers = self.settings["bootstrap.servers"]
            raise LogError(f"topic {self.topic!r} at {servers}: {topic.error or 'no partitions'}")
        return sorted(topic.partitions)

    def _consumer(self) -> Consumer:
        """One a thread: librdkafka's consumers are not shared, and do not survive a fork."""
        try:
            from confluent_kafka import Consumer
        except ImportError:
            raise LogError(
                "log 'kafka' needs the package confluent-kafka: pip install 'taut[kafka]'"
            ) from None

        key = (os.getpid(), threading.get_ident())
        if key not in self._open:
            self._open[key] = Consumer(
                {
                    **self.settings,
                    "group.id": "taut",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",
                }
            )
        return self._open[key]

    def _try(self, call: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return call(self._consumer())
        except KafkaException as error:
            servers = self.settings["bootstrap.servers"]
            raise LogError(f"topic {self.topic!r} at {servers}: {error.args[0]}") from error

    def _raise(self, error: Any) -> None:
        if error is not None:
            raise LogError(f"topic {self.topic!r}: {error}")


def _batch(records: list[Any], partition: str) -> pa.RecordBatch:
    count = len(records)
    return pa.RecordBatch.from_arrays(
        [
            pa.array([r.key() for r in records], pa.binary()),
            pa.array([r.value() for r in records], pa.binary()),
            pa.array([r.timestamp()[1] * 1_000 for r in records], pa.int64()).cast(ADDED[0].type),
            pa.array([partition] * count, pa.string()),
            pa.array([r.offset() for r in records], pa.int64()),
        ],
        schema=pa.schema([*_COLUMNS, *ADDED]),
    )


def from_options(options: Mapping[str, str]) -> KafkaLog:
    """From the options of a data source: ``subscribe`` and ``kafka.*``, as Spark's Kafka source."""
    topic = options.get("subscribe")
    if not topic:
        raise LogError("log 'kafka': option subscribe is missing, the name of a topic")
    prefix = "kafka."
    settings = {k[len(prefix) :]: v for k, v in options.items() if k.startswith(prefix)}
    return KafkaLog(topic, settings)

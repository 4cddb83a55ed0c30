"""A Kafka topic as a log, through confluent-kafka (the extra ``taut[kafka]``)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from taut.duration import duration, seconds
from taut.errors import DataLost, DurationError, LogError
from taut.spark.source.logs.base import Log, Offsets
from taut.spark.source.logs.kafka_clients import OURS, admin, rest, stream, trouble
from taut.spark.source.logs.kafka_stream import PASSING, OutOfRange
from taut.spark.source.logs.options import required
from taut.spark.source.logs.rows import assemble, check_range, complete, micros, nothing

PATIENCE = 60.0
_FIRST = 10.0
"""Seconds until servers that never answered are taken for wrong ones."""
_AGAIN = 0.1
_PARTITIONS_FOR = 1.0
"""Seconds after which new partitions are looked for; not more than it takes to settle."""
_PREFIX = "kafka."
_TIMESTAMPS = "message.timestamp.type"
_MOST_BYTES = 2**31 - 1  # of one Arrow array
_SCHEMA = complete(pa.schema([("key", pa.binary()), ("value", pa.binary())]))

_T = TypeVar("_T")


class KafkaLog(Log):
    """The partitions of one topic, named "0", "1" and so on. An offset is Kafka's own.

    A row is a record's key and value, as bytes; it arrived at the record's time. That is when the
    broker appended it if the topic has message.timestamp.type=LogAppendTime, and what its producer
    says otherwise. Offsets without a record (compacted, of a transaction) are no rows.

    Parameters
    ----------
    topic
        Its name.
    settings
        Of librdkafka, without "kafka.": ``bootstrap.servers``, security and so on.
    timeout
        Seconds a broker may not answer before that is an error.
    """

    settle = 1.0
    pace = 0.01  # as often as Spark asks its own Kafka source

    def __init__(self, topic: str, settings: Mapping[str, str], timeout: float = PATIENCE) -> None:
        if "," in topic:
            raise LogError(f"option subscribe={topic!r}: must be one topic; read each by itself")
        ours = sorted(OURS.keys() & settings.keys())
        if ours:
            raise LogError(f"option {_PREFIX}{ours[0]}={settings[ours[0]]!r}: is set by Taut")
        self.topic = topic
        self._servers = required(
            {_PREFIX + key: value for key, value in settings.items()},
            f"{_PREFIX}bootstrap.servers",
            "localhost:9092",
        )
        self._settings = dict(settings)
        self._timeout = timeout
        self._reached = False
        self._partitions: tuple[float, list[int]] = (0.0, [])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_partitions": (0.0, [])}

    def schema(self) -> pa.Schema:
        return _SCHEMA

    @cached_property
    def timed(self) -> bool:
        """Whether the broker stamps the records: asked once."""
        return self._timestamps == "LogAppendTime"

    def untimed(self) -> str:
        return (
            f"topic {self.topic!r} has {_TIMESTAMPS}={self._timestamps}, the producers' clocks; "
            f"set {_TIMESTAMPS}=LogAppendTime for the topic before its first record"
        )

    def earliest(self) -> Offsets:
        return self._list(self._numbers(), OffsetSpec.earliest())

    def latest(self) -> Offsets:
        return self._list(self._numbers(), OffsetSpec.latest(), self._isolation)

    def at(self, when: float) -> Offsets:
        """For each partition the first offset whose row arrived at ``when`` or later.

        Records of a transaction that is still open count: else the answer would change when it
        ends. A range up to there can be read once it has.
        """
        numbers, milliseconds = self._numbers(), -(-micros(when) // 1_000)
        # asked first: a record that comes in between is later than this end, not before it
        ends = self._list(numbers, OffsetSpec.latest())
        found = self._list(numbers, OffsetSpec.for_timestamp(milliseconds))
        return {name: at if at >= 0 else ends[name] for name, at in found.items()}

    def read(self, partition: str, start: int, end: int) -> pa.RecordBatch:
        check_range(partition, start, end)
        if not partition.isdecimal():
            raise LogError(f"partition {partition!r} of {self}: must be a number")
        if start == end:
            return nothing(_SCHEMA)
        number, asked = int(partition), f"{self}, partition {partition}, range [{start}, {end})"

        def at_end() -> None:
            high = self._offset(number, OffsetSpec.latest())
            if end > high:
                raise DataLost(f"{asked}: it ends at {high}; was the topic made anew?")

        def stalled(trouble: str) -> None:
            if number not in self._numbers():
                raise LogError(f"{asked}: there are only {self._numbers()}")
            at_end()
            stable = self._offset(number, OffsetSpec.latest(), self._isolation)
            if stable >= end:
                raise LogError(f"{asked}: no record for {duration(self._timeout)}: {trouble}")

        try:
            with stream(self._settings, self.topic, number, start) as reading:
                records = reading.read(
                    self.topic, number, start, end, self._timeout, at_end, stalled
                )
        except OutOfRange:
            low = self._offset(number, OffsetSpec.earliest())
            at_end()
            raise DataLost(f"{asked}: records before {low} are gone") from None
        except KafkaException as error:
            raise LogError(f"{asked}: {error.args[0].str()}") from error
        return _rows(records, partition) if records else nothing(_SCHEMA)

    def close(self) -> None:
        """Fetch no more. The connections of the process stay, for the next batch."""
        rest(self._settings, self.topic)

    def options(self) -> dict[str, str]:
        """What makes this log again, as options of a data source."""
        kafka = {_PREFIX + key: value for key, value in self._settings.items()}
        return {"log": "kafka", "subscribe": self.topic, "timeout": duration(self._timeout)} | kafka

    def __repr__(self) -> str:
        return f"KafkaLog({self.topic!r} at {self._servers})"

    @cached_property
    def _timestamps(self) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)

        def describe(client: AdminClient, left: float) -> str:
            (found,) = client.describe_configs([resource], request_timeout=left).values()
            return str(found.result()[_TIMESTAMPS].value)

        return self._ask(describe)

    @property
    def _isolation(self) -> IsolationLevel:
        committed = self._settings.get("isolation.level", "read_committed") == "read_committed"
        return IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    def _offset(
        self,
        number: int,
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> int:
        return self._list([number], spec, isolation)[str(number)]

    def _list(
        self,
        numbers: list[int],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[str, int]:
        """Offsets of partitions, of each broker in one request."""
        asked = {TopicPartition(self.topic, number): spec for number in numbers}

        def ask(client: AdminClient, left: float) -> dict[str, int]:
            found = client.list_offsets(asked, isolation_level=isolation, request_timeout=left)
            return {str(each.partition): made.result().offset for each, made in found.items()}

        return self._ask(ask)

    def _numbers(self) -> list[int]:
        """The partitions there are; new ones are seen after a while."""
        looked, numbers = self._partitions
        if numbers and time.monotonic() < looked + _PARTITIONS_FOR:
            return numbers

        def describe(client: AdminClient, left: float) -> list[int]:
            # not list_topics(): that makes a topic which is not there
            (found,) = client.describe_topics(wanted, request_timeout=left).values()
            return sorted(each.id for each in found.result().partitions)

        wanted = TopicCollection([self.topic])
        self._partitions = time.monotonic(), self._ask(describe)
        return self._partitions[1]

    def _ask(self, call: Callable[[AdminClient, float], _T]) -> _T:
        """An answer of the brokers; asks again while they may come back."""
        patience = self._timeout if self._reached else min(_FIRST, self._timeout)
        limit = time.monotonic() + patience
        while True:
            left = limit - time.monotonic()
            try:
                answer = call(admin(self._settings), max(left, _AGAIN))
            except KafkaException as error:
                fault = error.args[0]
                if fault.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise LogError(
                        f"option subscribe={self.topic!r}: there is no such topic at "
                        f"{self._servers}; must be the name of one"
                    ) from error
                if fault.code() not in PASSING and not fault.retriable():
                    raise LogError(f"{self}: {fault.str()}") from error
                if time.monotonic() + _AGAIN > limit:
                    raise LogError(
                        f"option kafka.bootstrap.servers={self._servers!r}: no answer within "
                        f"{duration(patience)} ({trouble(self._settings) or fault.str()}); must be "
                        'brokers that can be reached from here, such as "localhost:9092"'
                    ) from error
                time.sleep(_AGAIN)
            else:
                self._reached = True
                return answer


def _rows(records: list[Message], partition: str) -> pa.RecordBatch:
    if sum(map(len, records)) > _MOST_BYTES:
        raise LogError(f"{len(records)} records of more than {_MOST_BYTES} bytes: set chunk lower")
    count = len(records)
    times = np.fromiter((each.timestamp()[1] for each in records), np.int64, count)
    return assemble(
        _SCHEMA,
        [
            pa.array([each.key() for each in records], pa.binary()),
            pa.array([each.value() for each in records], pa.binary()),
        ],
        times * 1_000,
        partition,
        np.fromiter((each.offset() for each in records), np.int64, count),
    )


def from_options(options: Mapping[str, str]) -> KafkaLog:
    """The log of ``subscribe``, ``kafka.*`` as of Spark's Kafka source, and ``timeout``."""
    settings = {
        key.removeprefix(_PREFIX): value
        for key, value in options.items()
        if key.startswith(_PREFIX)
    }
    try:
        timeout = seconds(options.get("timeout", PATIENCE))
    except DurationError as error:
        raise LogError(f"option timeout: {error}") from error
    return KafkaLog(required(options, "subscribe", "events"), settings, timeout)

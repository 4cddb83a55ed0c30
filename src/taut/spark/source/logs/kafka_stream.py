"""Reading a range of a Kafka partition through a consumer that stays where it is.

A lane takes many small ranges, mostly one after the other. The consumer is set to an offset only
when it is not there already, and fetches on by itself; what came too early is kept for the next
range.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

_SKIP = 2_000
"""Offsets that are read and dropped rather than jumped over: a jump costs a round trip."""
_AT_ONCE = 10_000
_NAP = 0.1
"""Seconds between two looks whether the range has ended without a record."""
_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}
PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._RESOLVE,
    KafkaError._NOENT,  # no leader
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
}
"""Errors that go away by themselves, such as when a broker is started again."""


class OutOfRange(Exception):
    """The broker does not have the offset at which the range begins."""


class Stream:
    """A consumer, and the one partition in which it reads. For one thread at a time."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._where: tuple[str, int] | None = None
        self._kept: deque[Message] = deque()
        self._next = 0
        self._reached = 0

    def suits(self, topic: str, partition: int, start: int) -> bool:
        """Whether the offset can be had without a jump."""
        near = self._next <= start <= self._reached + _SKIP
        return near and self._where == (topic, partition)

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        patience: float,
        at_end: Callable[[], None],
        stalled: Callable[[str], None],
    ) -> list[Message]:
        """The records of [start, end); there may be fewer than offsets.

        Parameters
        ----------
        at_end
            Called when the partition ends before the range; raises when that is an error.
        stalled
            Called with what is known of the cause when nothing has come for ``patience``
            seconds; raises, or the stream waits on.

        Raises
        ------
        OutOfRange
            When the broker does not have the first offset.
        KafkaException
            When the broker refuses.
        """
        jumps = not self.suits(topic, partition, start)
        if jumps:
            self._jump(topic, partition, start)
        try:
            found = self._read(start, end, patience, at_end, stalled)
            if jumps and (not found or found[0].offset() > start):
                # after a jump a consumer was seen to begin too late, on a busy machine; what is not
                # there the second time either, such as what was compacted, is not in the topic
                self._jump(topic, partition, start)
                again = self._read(start, end, patience, at_end, stalled)
                found = max(found, again, key=len)
        except BaseException:
            self._where = None  # what is under way would be missed by the next read
            raise
        self._next = end
        return found

    def rest(self) -> None:
        """Fetch no more until the next read; connections stay open."""
        self._where = None
        self._kept.clear()
        self._consumer.unassign()

    def _read(
        self,
        start: int,
        end: int,
        patience: float,
        at_end: Callable[[], None],
        stalled: Callable[[str], None],
    ) -> list[Message]:
        found: list[Message] = []
        trouble, limit = "no answer", time.monotonic() + patience
        while True:
            while self._kept and self._kept[0].offset() < end:
                message = self._kept.popleft()
                if message.offset() >= start:
                    found.append(message)
            if self._reached >= end:
                return found
            before = self._reached
            for event in self._fetch(min(end - before, _AT_ONCE)):
                trouble = self._note(event, at_end, end) or trouble
            if self._reached > before:
                limit = time.monotonic() + patience
            elif time.monotonic() > limit:
                stalled(trouble)
                limit = time.monotonic() + patience

    def _jump(self, topic: str, partition: int, start: int) -> None:
        self._where = topic, partition
        self._kept.clear()
        self._next = self._reached = start
        self._consumer.assign([TopicPartition(topic, partition, start)])

    def _fetch(self, most: int) -> list[Message]:
        """What has come, after a short wait if it is nothing."""
        first = self._consumer.poll(_NAP)
        if first is None:
            self._follow()
            return []
        # consume() waits until it has all it may take: not for more than is there already
        return [first, *self._consumer.consume(most, timeout=0.0)] if most > 1 else [first]

    def _follow(self) -> None:
        """Go past offsets without a record, such as the end of a transaction."""
        assert self._where is not None
        (position,) = self._consumer.position([TopicPartition(*self._where)])
        self._reached = max(self._reached, position.offset)

    def _note(self, event: Message, at_end: Callable[[], None], end: int) -> str | None:
        """Keep a record, or see what an event says; the text of an error that may pass."""
        error = event.error()
        if (event.topic(), event.partition()) != self._where:
            return None if error is None else str(error.str())
        if error is None:
            self._kept.append(event)
            self._reached = event.offset() + 1
            return None
        if error.code() == KafkaError._PARTITION_EOF:
            self._reached = max(self._reached, event.offset() or 0)
            if self._reached < end:
                at_end()
            return None
        if error.code() in PASSING or error.retriable():
            return str(error.str())
        raise OutOfRange(error.str()) if error.code() in _GONE else KafkaException(error)

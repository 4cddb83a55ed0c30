"""A consumer that misbehaves, as a real one cannot be made to."""

from __future__ import annotations

from collections import deque

import pytest
from confluent_kafka import TopicPartition

from taut.spark.source.logs.kafka_stream import Stream


class Record:
    def __init__(self, offset: int) -> None:
        self._offset = offset

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return self._offset


class Consumer:
    """Has the offsets it is given; begins as many late as it is told, jump by jump."""

    def __init__(self, has: list[int], late: list[int]) -> None:
        self._has = has
        self._late = deque(late)
        self._waiting: deque[int] = deque()
        self._position = 0
        self.jumps = 0

    def assign(self, where: list[TopicPartition]) -> None:
        self.jumps += 1
        from_ = where[0].offset + (self._late.popleft() if self._late else 0)
        self._waiting = deque(offset for offset in self._has if offset >= from_)

    def poll(self, timeout: float) -> Record | None:
        if not self._waiting:
            self._position = self._has[-1] + 1
            return None
        return Record(self._waiting.popleft())

    def consume(self, most: int, timeout: float) -> list[Record]:
        return [Record(self._waiting.popleft()) for _ in range(min(most, len(self._waiting)))]

    def position(self, where: list[TopicPartition]) -> list[TopicPartition]:
        return [TopicPartition("t", 0, self._position)]


def never(*_: object) -> None:
    raise AssertionError("not called")


def read(consumer: Consumer, start: int, end: int) -> list[int]:
    stream = Stream(consumer)  # type: ignore[arg-type]
    return [each.offset() for each in stream.read("t", 0, start, end, 5.0, never, never)]


def test_a_consumer_that_begins_too_late_is_set_back_once_more() -> None:
    consumer = Consumer([*range(2_000)], late=[796])
    assert read(consumer, 0, 2_000) == [*range(2_000)]
    assert consumer.jumps == 2


def test_one_that_begins_where_it_should_jumps_once() -> None:
    consumer = Consumer([*range(50)], late=[])
    assert read(consumer, 10, 50) == [*range(10, 50)]
    assert consumer.jumps == 1


@pytest.mark.parametrize("has", [[*range(20, 50)], [49]])
def test_offsets_that_are_not_there_the_second_time_either_are_gone(has: list[int]) -> None:
    consumer = Consumer(has, late=[])
    assert read(consumer, 10, 50) == has
    assert consumer.jumps == 2


def test_a_range_without_a_record_is_empty() -> None:
    assert read(Consumer([60], late=[]), 10, 50) == []

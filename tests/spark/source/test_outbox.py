"""The outbox of a lane, by a gate that the test opens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import count

import pyarrow as pa
import pytest
from tests.conftest import wait_until

from taut.spark.source.outbox import Free, Outbox


def rows(start: int, many: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(start, start + many))})


def numbers(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


class Door:
    """A gate that the test opens."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.opened = threading.Event()
        self.closed = 0

    def waits(self, rows: int) -> None:
        assert not self.closed
        self.told.append(rows)

    def open(self) -> bool:
        assert not self.closed
        return self.opened.is_set()

    def close(self) -> None:
        self.closed += 1


def in_thread(f: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=f, daemon=True)
    thread.start()
    return thread


def put_many(outbox: Outbox, many: int) -> None:
    for n in range(many):
        outbox.put(rows(n))


def test_what_waits_goes_to_the_sink_together_and_in_order() -> None:
    door, written = Door(), list[pa.RecordBatch]()
    outbox = Outbox(written.append, door)
    for start in range(0, 2_500, 250):
        outbox.put(rows(start, 250))
    outbox.put(rows(0, 0))
    outbox.check()
    assert outbox.rows == 2_500
    door.opened.set()
    outbox.flush()
    outbox.check()
    assert [batch.num_rows for batch in written] == [1_000, 1_000, 500]
    assert numbers(written) == list(range(2_500))
    assert door.told == [*range(250, 2_501, 250), 1_500, 500, 0]
    outbox.close()


def test_put_waits_while_too_many_rows_do() -> None:
    door, written = Door(), list[pa.RecordBatch]()
    outbox = Outbox(written.append, door, most_rows=10)
    putting = in_thread(lambda: put_many(outbox, 100))
    wait_until(lambda: outbox.rows == 10)
    outbox.check()
    door.opened.set()
    putting.join()
    outbox.flush()
    assert numbers(written) == list(range(100))
    assert max(door.told) == 10
    outbox.close()


def test_more_rows_than_may_wait_go_alone() -> None:
    door, written = Door(), list[pa.RecordBatch]()
    outbox = Outbox(written.append, door, most_rows=10)
    outbox.put(rows(0, 50))
    putting = in_thread(lambda: outbox.put(rows(50, 50)))
    outbox.check()
    door.opened.set()
    putting.join()
    outbox.flush()
    assert [batch.num_rows for batch in written] == [50, 50]
    outbox.close()


def test_flush_waits_for_a_write_under_way() -> None:
    let, written, seen = threading.Event(), list[pa.RecordBatch](), list[int]()

    def sink(batch: pa.RecordBatch) -> None:
        let.wait()
        written.append(batch)

    outbox = Outbox(sink, Free())
    outbox.put(rows(0, 5))

    def flush() -> None:
        outbox.flush()
        seen.append(len(numbers(written)))

    flushing = in_thread(flush)
    assert outbox.rows == 5
    let.set()
    flushing.join()
    assert seen == [5]
    outbox.close()


def test_what_the_sink_raises_is_raised_by_put_and_flush() -> None:
    calls = count()

    def sink(batch: pa.RecordBatch) -> None:
        if next(calls) == 1:
            raise OSError("the sink is full")

    door = Door()
    outbox = Outbox(sink, door, most_rows=1)
    door.opened.set()
    with pytest.raises(OSError, match="the sink is full"):
        put_many(outbox, 100)
    for _ in range(2):
        with pytest.raises(OSError, match="the sink is full"):
            outbox.flush()
    with pytest.raises(OSError, match="the sink is full"):
        outbox.put(rows(0))
    outbox.check()
    assert next(calls) == 2  # nothing is written after what could not be
    assert door.told[-1] == 0  # and nobody waits for it
    outbox.close()


def test_close_drops_what_waits_and_says_so() -> None:
    door, written = Door(), list[pa.RecordBatch]()
    outbox = Outbox(written.append, door)
    outbox.put(rows(0, 7))
    outbox.close()
    outbox.close()
    assert door.closed == 1
    for call in (outbox.flush, lambda: outbox.put(rows(7))):
        with pytest.raises(ValueError, match="closed, with 7 rows not written"):
            call()
    assert written == []


def test_close_does_not_wait_for_a_sink_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("taut.spark.source.outbox._GRACE", 0.01)
    let, begun, door = threading.Event(), threading.Event(), Door()
    door.opened.set()

    def sink(batch: pa.RecordBatch) -> None:
        begun.set()
        let.wait()

    outbox = Outbox(sink, door)
    outbox.put(rows(0))
    begun.wait()
    flushed = list[str]()

    def flush() -> None:
        try:
            outbox.flush()
        except ValueError as error:
            flushed.append(str(error))

    flushing = in_thread(flush)
    outbox.close()
    flushing.join()
    assert flushed == ["the outbox was closed, with 1 rows not written"]
    assert door.closed == 1
    let.set()
    wait_until(lambda: outbox.rows == 0)
    assert door.told == [1]  # a gate that was closed is told nothing more


def test_an_outbox_without_room() -> None:
    with pytest.raises(ValueError, match="most_rows=0: at least 1 is needed"):
        Outbox(print, Free(), most_rows=0)

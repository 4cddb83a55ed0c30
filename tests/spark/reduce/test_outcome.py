"""What the driver counts, from what reducers tell."""

from __future__ import annotations

import math
from typing import Any

import pytest

import taut
from taut.spark.reduce.outcome import ReduceSink
from taut.spark.reduce.terms import LATE, Stats, Terms
from taut.watch.records import Record, Reduced


def told(reducer: int = 1, job: str = "sums", ended: float = 10.0, **given: Any) -> Stats:
    return Stats(reducer, job, 0, ended - 1.0, ended, ended + 1.0, **given)


def sink(objective: float = 1.0) -> ReduceSink:
    return ReduceSink({}, Terms(objective), {}, None)


def test_rows_on_time_are_those_out_by_their_deadline() -> None:
    to = sink()
    stats = told(rows=10, kept=7, bad=1, deadlines=[(20.0, 4), (30.0, 2)], shed={LATE: 3})
    batch = to.hear(0, 25.0, [stats], aside=4)
    assert (batch.on_time, batch.late, batch.bad) == (2, 4, 1)
    assert (batch.processed, batch.shed) == (6, {LATE: 3})


def test_rows_that_all_failed_are_neither_on_time_nor_late() -> None:
    batch = sink().hear(0, 25.0, [told(rows=3, kept=3, bad=3)], aside=3)
    assert (batch.on_time, batch.late, batch.processed, batch.bad) == (0, 0, 0, 3)


def test_a_row_that_waited_and_failed_takes_none_from_those_on_time() -> None:
    stats = told(rows=2, kept=2, readmitted=3, bad=1, deadlines=[(30.0, 2)])
    batch = sink().hear(0, 25.0, [stats], aside=1)
    assert (batch.on_time, batch.late) == (2, 2)


def test_that_no_row_is_expected_on_time_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    to = sink(1.0)
    to.hear(3, 25.0, [told(lead=0.3, after=0.5)], aside=0)
    sink(math.inf).hear(3, 25.0, [told(lead=9.0)], aside=0)
    assert not caplog.records
    to.hear(4, 25.0, [told(lead=0.3, after=0.5), told(lead=0.7, after=0.5)], aside=0)
    to.hear(5, 25.0, [told(lead=0.7, after=0.5)], aside=0)
    (record,) = caplog.records
    assert "batch 4 is taken to need 1.20 s" in record.getMessage()
    assert "within 1 s: none is expected on time" in record.getMessage()


def test_without_an_objective_nothing_is_late() -> None:
    batch = sink(math.inf).hear(0, 25.0, [told(rows=5, kept=5, bad=1)], aside=1)
    assert (batch.on_time, batch.late) == (4, 0)


def test_keys_and_rows_that_wait_are_counted_once_for_each_reducer_and_job() -> None:
    to = sink()
    batch = to.hear(
        0,
        25.0,
        [
            told(1, ended=12.0, hot=2, hot_bytes=20, cold=3, waiting=4, results=5),
            told(1, ended=11.0, hot=9, hot_bytes=90, cold=9, waiting=9, results=6),
            told(2, hot=10, hot_bytes=100, cold=0, waiting=1),
            told(1, "other", hot=100, hot_bytes=1_000, cold=1),
        ],
        aside=0,
    )
    assert (batch.hot, batch.hot_bytes, batch.cold, batch.waiting) == (112, 1_120, 4, 5)
    assert batch.results == 11, "what was done is added up"


def test_a_reducer_that_is_not_called_stands_as_before() -> None:
    to = sink()
    to.hear(0, 25.0, [told(1, hot=3, waiting=4), told(2, hot=5, waiting=1)], aside=0)
    batch = to.hear(1, 26.0, [], aside=0)
    assert (batch.hot, batch.waiting, to.stats().waiting) == (8, 5, 5)
    batch = to.hear(2, 27.0, [told(1, hot=1)], aside=0)
    assert (batch.hot, batch.waiting, to.stats().waiting) == (6, 1, 1)


def test_what_a_batch_was_taken_to_need_is_that_of_the_slowest() -> None:
    given = [told(1, lead=0.1, after=0.5, results=2), told(2, lead=0.3, after=0.2, results=1)]
    to = sink()
    batch = to.hear(0, 25.0, given, aside=0)
    assert (batch.lead, batch.after, batch.results) == (0.3, 0.5, 3)
    to.hear(1, 26.0, given, aside=0)
    assert to.stats().results == 6


@pytest.mark.parametrize("policy", ["fifo", "cost-aware"])
def test_rows_wait_only_where_some_may_be_left(policy: str) -> None:
    assert Terms(1.0, policy, patience=9.0).waits == (policy != "fifo")
    assert not Terms(math.inf, policy, patience=9.0).waits


def test_those_who_watch_hear_of_every_batch(heard: list[Record]) -> None:
    stats = told(rows=10, kept=7, bad=1, deadlines=[(20.0, 4), (30.0, 2)], shed={LATE: 3}, hot=4)
    sink().hear(3, 25.0, [stats], aside=4)
    sink(math.inf).hear(4, 26.0, [], aside=0)
    assert heard == [
        Reduced(
            at=25.0, query="", batch=3, objective=1.0, rows=10, processed=6, on_time=2, late=4,
            bad=1, shed={LATE: 3}, hot=4, began=9.0, ended=10.0, predicted=11.0,
        ),
        Reduced(at=26.0, query="", batch=4, began=26.0, ended=26.0, predicted=26.0),
    ]  # fmt: skip


def test_a_name_that_cannot_be_found_ends_nothing(
    heard: list[Record], caplog: pytest.LogCaptureFixture
) -> None:
    job = taut.Job(init=lambda key: 0, update=lambda *row: (0, []), output="n bigint", name="sums")
    lost: Any = object()
    to = ReduceSink({"sums": job}, Terms(1.0), {}, None, lost)
    to.hear(0, 25.0, [], aside=0)
    to.hear(1, 26.0, [], aside=0)
    assert [record.query for record in heard if isinstance(record, Reduced)] == ["sums", "sums"]
    assert len(caplog.records) == 1

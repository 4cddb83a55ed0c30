"""Reducers as Spark calls them, with a handle and timers of our own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from tests.spark.reduce.stores import EPOCH, Row, Told, packed_by

from taut.errors import JobError
from taut.spark.reduce import keyed
from taut.spark.reduce.blobs import PACKED, from_columns
from taut.spark.reduce.job import Job
from taut.spark.reduce.mapper import Mapper
from taut.spark.reduce.processor import Processor
from taut.spark.reduce.reducers import Reducers
from taut.spark.reduce.terms import Terms
from taut.workloads.reduce import windowed_words


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    keyed.forget()
    yield
    keyed.forget()


class Value:
    def __init__(self) -> None:
        self.held: Any = None

    def get(self) -> Any:
        return self.held

    def update(self, value: Any) -> None:
        self.held = value


class Map:
    def __init__(self) -> None:
        self.held: dict[Any, Any] = {}

    def getValue(self, key: Any) -> Any:
        return self.held.get(key)

    def updateValue(self, key: Any, value: Any) -> None:
        self.held[key] = value

    def removeKey(self, key: Any) -> None:
        del self.held[key]

    def iterator(self) -> Iterator[Any]:
        return iter(list(self.held.items()))


class Handle:
    """What Spark gives a processor, for one reducer; states live on from task to task."""

    def __init__(self) -> None:
        self.states: dict[str, Any] = {}
        self.timers: set[int] = set()

    def getValueState(self, name: str, schema: str) -> Value:
        made: Value = self.states.setdefault(name, Value())
        return made

    def getMapState(self, name: str, key: str, value: str) -> Map:
        made: Map = self.states.setdefault(name, Map())
        return made

    def registerTimer(self, at: int) -> None:
        self.timers.add(at)


class Times:
    def __init__(self, watermark: float) -> None:
        self.watermark = watermark

    def getCurrentWatermarkInMs(self) -> int:
        return round((EPOCH + self.watermark) * 1_000)

    def getCurrentProcessingTimeInMs(self) -> int:
        return round(EPOCH * 1_000)


def task(
    job: Job, handle: Handle, rows: list[Row], watermark: float, reducers: int = 1
) -> list[Told]:
    """One batch of one reducer: rows, then the timers that are over; what each call told."""
    among = Reducers(reducers, 1)
    processor = Processor([job], Terms(), True, among)
    processor.init(handle)  # type: ignore[arg-type]  # what it uses of a handle
    times: Any = Times(watermark)
    packed = packed_by(Mapper((job,), among), rows, EPOCH)
    mine = [one for one in packed if one.reducer == 0]
    calls = []
    if mine:
        frame = pd.DataFrame(dict(zip(PACKED.names, zip(*mine, strict=True), strict=True)))
        calls.append(processor.handleInputRows((0,), iter([frame]), times))
    over = sorted(at for at in handle.timers if at <= times.getCurrentWatermarkInMs())
    handle.timers -= set(over)
    calls += [processor.handleExpiredTimer((0,), times, None) for _ in over]  # type: ignore[arg-type]  # it is not looked at
    told = []
    for call in calls:
        for frame in call:
            heard = Told()
            heard.add(from_columns([frame[name].tolist() for name in PACKED.names]), job)
            told.append(heard)
    return told


def test_windows_that_are_over_are_closed_at_once() -> None:
    job, handle = windowed_words("5 s"), Handle()
    (come,) = task(job, handle, [(float(n), f"k{n % 3}", 1, 0.0) for n in range(30)], 0.0)
    assert len(handle.timers) == 6
    assert come.stats[0].hot == 6 * 3
    batches = keyed._read_head(handle.states["windowed_words_head"].get()[0]).batches
    (closed,) = task(job, handle, [], 21.0)
    assert {end - EPOCH for _, end, _ in closed.results} == {5.0, 10.0, 15.0, 20.0}
    assert closed.stats[0].results == len(closed.results)
    head = keyed._read_head(handle.states["windowed_words_head"].get()[0])
    assert head.batches == batches + 1, "not once for each of four windows"
    (rest,) = task(job, handle, [], 100.0)
    assert sum(n for _, _, n in closed.results + rest.results) == 30


def test_rows_and_windows_of_a_batch_are_told_one_after_the_other() -> None:
    job, handle = windowed_words("5 s"), Handle()
    task(job, handle, [(1.0, "a", 1, 0.0), (6.0, "a", 1, 0.0)], 0.0)
    rows, closed = task(job, handle, [(11.0, "b", 1, 0.0)], 10.5)
    assert (rows.stats[0].rows, rows.stats[0].hot) == (1, 3)
    assert (len(closed.results), closed.stats[0].hot) == (2, 1)
    assert closed.stats[0].ended >= rows.stats[0].ended


def test_a_job_of_another_name_does_not_begin_with_nothing() -> None:
    job, handle = windowed_words("5 s"), Handle()
    row = (1.0, "a", 1, 0.0)
    task(job, handle, [row], 0.0)
    other = replace(job, name="renamed")
    for rows, watermark in (([row], 0.0), ([], 100.0)):
        timers = set(handle.timers)
        with pytest.raises(
            JobError,
            match=r"the states of 'windowed_words', and the jobs here are 'renamed': .*as it was",
        ):
            task(other, handle, rows, watermark)
        handle.timers = timers
    (_, closed) = task(job, handle, [row], 100.0)
    assert closed.results == [("a", EPOCH + 5.0, 2)]


def test_keys_that_are_spread_another_way_than_before_are_refused() -> None:
    job, handle = windowed_words("5 s"), Handle()
    rows = [(float(n), f"k{n}", 1, 0.0) for n in range(20)]
    task(job, handle, rows, 0.0, reducers=2)
    with pytest.raises(Exception, match=r"begun with 2 reducers, and now there are 3: .*=2"):
        task(job, handle, rows, 0.0, reducers=3)
    with pytest.raises(Exception, match="begun with 2 reducers, and now there are 1"):
        task(job, handle, [], 30.0, reducers=1)
    assert task(job, handle, rows, 0.0, reducers=2)

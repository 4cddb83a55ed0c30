"""Reducers as Spark runs them: a processor with state, called once a batch for each reducer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)

from taut.errors import JobError
from taut.spark.reduce.blobs import BEAT, PACKED, ROWS, Packed, from_columns
from taut.spark.reduce.job import Job
from taut.spark.reduce.reducer import Done, Reducer
from taut.spark.reduce.reducers import Reducers
from taut.spark.reduce.terms import BATCH, WRITTEN, Moment, Terms

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, TimerValues


_NAMES = "taut"
"""Where the names of jobs are; those of jobs' own states end in what they are."""
_read_names = msgspec.msgpack.Decoder(list[str]).decode
_write_names = msgspec.msgpack.Encoder().encode


class SparkStore:
    """The states of one job in Spark's state store, of the reducer that is being called."""

    def __init__(self, handle: StatefulProcessorHandle, job: str) -> None:
        self._head = handle.getValueState(f"{job}_head", "data binary")
        self._log = handle.getMapState(f"{job}_log", "place bigint", "data binary")
        self._cold = handle.getMapState(f"{job}_cold", "name binary", "data binary")

    def head(self) -> bytes | None:
        """What the reducer knows."""
        found = self._head.get()
        return None if found is None else bytes(found[0])

    def set_head(self, data: bytes) -> None:
        """And what it will."""
        self._head.update((data,))

    def read(self, place: int) -> bytes:
        """From the log."""
        found = self._log.getValue((place,))
        if found is None:
            raise LookupError(f"place {place} of the log is empty")
        return bytes(found[0])

    def write(self, place: int, data: bytes) -> None:
        """To the log."""
        self._log.updateValue((place,), (data,))

    def drop(self, place: int) -> None:
        """From the log."""
        self._log.removeKey((place,))

    def cold(self, key: bytes) -> bytes | None:
        """The state of a key that is not in memory."""
        found = self._cold.getValue((key,))
        return None if found is None else bytes(found[0])

    def set_cold(self, key: bytes, data: bytes) -> None:
        """Keep one."""
        self._cold.updateValue((key,), (data,))

    def drop_cold(self, key: bytes) -> None:
        """Forget one."""
        self._cold.removeKey((key,))

    def all_cold(self) -> Iterator[tuple[bytes, bytes]]:
        """All of them."""
        for key, data in self._cold.iterator():
            yield bytes(key[0]), bytes(data[0])


class Processor(StatefulProcessor):
    """All jobs of one level, at every reducer.

    Parameters
    ----------
    jobs
        That take rows here.
    terms
        What the user has chosen.
    windowed
        Whether Spark tells the watermark here, and calls when it has passed a window.
    reducers
        Which there are.
    """

    def __init__(
        self, jobs: Sequence[Job], terms: Terms, windowed: bool, reducers: Reducers
    ) -> None:
        self._jobs = tuple(jobs)
        self._terms = terms
        self._windowed = windowed
        self._reducers = reducers
        self._ids: tuple[int, ...] = ()
        self._stores: dict[str, SparkStore] = {}
        self._handle: StatefulProcessorHandle | None = None
        self._called: set[int] = set()
        self._closed: set[int] = set()

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark calls this first, in every task."""
        self._handle = handle
        self._names = handle.getValueState(_NAMES, "data binary")
        self._stores = {job.name: SparkStore(handle, job.name) for job in self._jobs}
        self._ids = self._reducers.ids()
        self._called, self._closed = set(), set()

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        """Reduce what has come for a reducer; pass on what is not for reducing."""
        (reducer,) = key
        self._same_jobs()
        come: dict[str, list[Packed]] = {job.name: [] for job in self._jobs}
        passed: list[Packed] = []
        stamp = 0
        for frame in rows:
            for one in from_columns([frame[name].tolist() for name in PACKED.names]):
                if one.kind == ROWS:
                    come[one.job].append(one)
                elif one.kind != BEAT:
                    passed.append(one)
                stamp = max(stamp, one.stamp)
        self._called.add(reducer)
        moment = self._moment(stamp, timerValues)
        if passed:
            yield _frame(passed)
        for job in self._jobs:
            done = self._reducer(job, reducer).batch(self._stores[job.name], come[job.name], moment)
            yield self._told(done, moment)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """Close windows that are over; or go on with rows that wait though none have come."""
        (reducer,) = key
        if self._windowed and reducer in self._closed:
            return  # all that are over by this watermark, for the first of its timers
        self._same_jobs()
        self._closed.add(reducer)
        moment = self._moment(timerValues.getCurrentProcessingTimeInMs() * 1_000, timerValues)
        if not self._windowed and reducer in self._called:
            # it has had its time in this batch, and is to be called again
            self._again(moment)
            return
        for job in self._jobs:
            store, reduce = self._stores[job.name], self._reducer(job, reducer)
            if not self._windowed:
                yield self._told(reduce.batch(store, [], moment), moment)
            elif job.windows is not None:
                yield self._told(reduce.close(store, moment), moment)

    def close(self) -> None:
        """Nothing is left open."""

    def _same_jobs(self) -> None:
        """A job whose states are in the checkpoint is still there: they are found by its name."""
        found = self._names.get()
        known = [] if found is None else _read_names(bytes(found[0]))
        now = [job.name for job in self._jobs]
        lost = [name for name in known if name not in now]
        if lost:
            raise JobError(
                f"the checkpoint has the states of {', '.join(map(repr, lost))}, and the jobs here "
                f"are {', '.join(map(repr, now))}: states are found by the name of their job. Name "
                "it as it was, or start with a new checkpoint"
            )
        if len(now) > len(known):
            self._names.update((_write_names(now),))

    def _reducer(self, job: Job, reducer: int) -> Reducer:
        return Reducer(job, self._terms, reducer, ids=self._ids)

    def _told(self, done: Done, moment: Moment) -> pd.DataFrame:
        assert self._handle is not None
        for at in done.timers:
            self._handle.registerTimer(at)
        if done.waiting and not self._windowed:
            self._again(moment)
        return _frame(done.packed)

    def _again(self, moment: Moment) -> None:
        assert self._handle is not None
        self._handle.registerTimer(moment.stamp_us // 1_000 + 1)

    def _moment(self, stamp_us: int, values: TimerValues) -> Moment:
        context = TaskContext.get()
        told = None if context is None else context.getLocalProperty(WRITTEN)
        batch = None if context is None else context.getLocalProperty(BATCH)
        moment = Moment(-1 if batch is None else int(batch), stamp_us)
        if self._windowed:
            moment = Moment(moment.batch, stamp_us, values.getCurrentWatermarkInMs() * 1_000)
        if told:
            number, at = told.split(":")
            written = (int(number), float(at))
            moment = Moment(moment.batch, stamp_us, moment.watermark_us, written)
        return moment


def _frame(packed: Sequence[Packed]) -> pd.DataFrame:
    return pd.DataFrame(dict(zip(PACKED.names, zip(*packed, strict=True), strict=True)))

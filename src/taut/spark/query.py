"""A query under a Runtime: what users hold, and what ties gate, probe and turns together."""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from taut.duration import seconds as to_seconds
from taut.errors import StartError
from taut.policy.turns import State, Turns
from taut.policy.view import Slack
from taut.slo import Slo
from taut.spark.checkpoint import CheckpointLock
from taut.spark.ending import end_all
from taut.spark.failure import in_short
from taut.spark.freely import FreeBatches
from taut.spark.gate import Gate, Interrupted, JvmLatch
from taut.spark.probe import BatchReader, Probe, read_progress
from taut.spark.sinks import SinkFunction
from taut.spark.source.control import Sources
from taut.spark.watching import Watching
from taut.spark.window import Look, Shape, Window, WindowLearner, look_at_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("taut")

_POLL = 0.02
_LEARN_FROM = 10
"""Outputs that are looked at for windows that the plan does not show."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a query stands, for a person to read.

    ``state`` is held, running, planned, waiting for data, ended or failed; ``due_in`` the
    seconds until its next window is expected to be complete; ``slack`` with its parts;
    ``last_latency`` of the last window, from its end to its rows being out.
    """

    name: str
    state: str
    held_for: float | None = None
    due_in: float | None = None
    slack: Slack | None = None
    last_latency: float | None = None
    windows: int = 0
    late: int = 0
    batches: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Stands:
    """Where a query stands with its runtime: since when, when it is due, and its slack."""

    state: str
    since: float
    due: float | None
    slack: Slack | None


class _Owner(Protocol):
    """What a query needs of its runtime."""

    spark: SparkSession
    _turns: Turns
    _lock: Any
    _watching: Watching

    def _planned(self, query: Query) -> bool: ...
    def _written(self, query: Query, now: float, watermark: float | None) -> bool: ...
    def _ended(self, query: Query) -> None: ...


class _Started(ABC):
    """What all queries share: a name, an objective, and Spark's own handle."""

    name: str
    query: StreamingQuery
    sink: SinkFunction
    told = False
    """Whether its failure has been told."""
    over = False
    """Whether the runtime knows that it has ended."""
    started_at = 0.0
    ended_told = False
    """Whether those who watch know that it has ended."""
    resident = 0
    """Tasks that its sources keep for good."""
    slo: Slo | None
    _lock_file: CheckpointLock
    _sources: Sources

    @property
    def begun(self) -> bool:
        """Whether Spark has started it, so that there is a ``query``."""
        return "query" in self.__dict__

    @property
    def active(self) -> bool:
        """Whether the query runs, or is about to."""
        return not self.begun or self.query.isActive

    def error(self) -> str | None:
        """What ended it, if it failed."""
        error = None if self.active else self.query.exception()
        return None if error is None else in_short(str(error))

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, so long at most; its error is kept for :meth:`error`."""
        from pyspark.errors import StreamingQueryException

        if not self.begun:
            time.sleep(min(seconds, _POLL))
            return
        # the JVM's call raises the query's own error, which is told for all queries together
        with contextlib.suppress(StreamingQueryException):
            # typed as whole seconds, but takes fractions as well
            self.query.awaitTermination(max(0.001, seconds))  # type: ignore[arg-type]

    def wait_for_sources(self, seconds: float) -> None:
        """Wait until Spark has made the query's sources; raises what kept it from that."""
        limit = time.monotonic() + seconds
        # a query that has failed says so a moment before it counts as ended
        unsettled = ("Initializing", "Terminated")
        while self.query.isActive and self.query.status["message"].startswith(unsettled):
            if time.monotonic() > limit:
                log.warning("query %s: its sources take over %s s to start", self.name, seconds)
                return
            time.sleep(_POLL)
        error = None if self._wrote() else _Started.error(self)
        if error is not None:
            raise StartError(f"{self.name} did not start: {error}")

    def stop(self, timeout: float | str = 60.0) -> None:
        """Stop this query alone, as :meth:`Runtime.stop` does all of them."""
        seconds = to_seconds(timeout)
        end_all([self], time.monotonic() + seconds, seconds)

    @property
    @abstractmethod
    def window(self) -> Window | None:
        """The window whose results it puts out, as far as it is known."""

    @abstractmethod
    def stands(self, now: float) -> Stands | None:
        """Where it stands with the runtime, whose lock is held; None when it has ended."""

    @abstractmethod
    def drain(self) -> None:
        """Let a written batch commit; no further one runs."""

    @abstractmethod
    def end(self, deadline: float) -> bool:
        """Stop it once its running batch has committed; False if it had to be interrupted."""

    def release(self) -> None:
        """Give its checkpoint free, once it has ended."""
        self._sources.release()
        self._lock_file.release()

    def _wrote(self) -> bool:
        """Whether a batch has reached the sink: then an error is the query's, not its start's."""
        return self.query.lastProgress is not None


class StockQuery(_Started):
    """A query that Spark runs by itself, as the baselines do."""

    cpu_seconds = 0.0

    def __init__(
        self,
        name: str,
        sink: SinkFunction,
        slo: Slo | None,
        shape: Shape,
        lock: CheckpointLock,
        sources: Sources,
        watching: Watching | None = None,
    ) -> None:
        self.name = name
        self.slo = slo
        self.shape = shape
        self.sink = sink
        self.resident = sources.resident
        self._sources = sources
        self._lock_file = lock
        self._ending = False
        # rows of a resident query are out long before its batch is
        closes = None if self.resident else shape
        self._batches = FreeBatches(name, closes, slo.seconds if slo else 0.0, watching)
        self._jvm: Any = None

    def begin(self, writer: Any, spark: SparkSession, pool: str | None) -> None:
        """Start it, in a scheduler pool of its own if one is named."""
        self._sources.announce()
        self._jvm = spark._jvm
        key = "spark.scheduler.pool"
        before = spark.sparkContext.getLocalProperty(key)
        if pool is not None:
            spark.sparkContext.setLocalProperty(key, pool)
        try:
            self.query = writer.foreachBatch(self._write).start()
        finally:
            if pool is not None:
                spark.sparkContext._jsc.setLocalProperty(key, before)

    @property
    def window(self) -> Window | None:
        """The window of its plan."""
        return self.shape.window

    def stands(self, now: float) -> Stands | None:
        """It runs, or it has ended."""
        return Stands("running", self.started_at, None, None) if self.active else None

    def status(self) -> Status:
        """Where the query stands."""
        error = self.error()
        state = "running" if self.active else "failed" if error else "ended"
        last = self.query.lastProgress if self.begun else None
        return Status(self.name, state, batches=last["batchId"] + 1 if last else 0, error=error)

    def drain(self) -> None:
        """Nothing holds it, so there is nothing to let go."""

    def end(self, deadline: float) -> bool:
        """Stop it as Spark does, which interrupts a running batch."""
        self._ending = True
        self.query.stop()
        self.release()
        return True

    def _write(self, df: DataFrame, batch_id: int) -> None:
        run = time.time()
        try:
            self.sink(df, batch_id)
        except Exception:
            # whatever an interrupted sink says: Spark's look at a long error overflows its stack
            if self._ending:
                raise Interrupted from None
            raise
        written = time.time()
        query = self.query if self.begun else None
        began = time.thread_time()
        self._batches.wrote(self._jvm, query, batch_id, run, written)
        self.cpu_seconds += time.thread_time() - began


class Query(_Started):
    """A query that a Runtime gives turns to."""

    def __init__(
        self,
        runtime: _Owner,
        name: str,
        sink: SinkFunction,
        slo: Slo | None,
        shape: Shape,
        lock: CheckpointLock,
        sources: Sources,
        *,
        eager: bool = False,
    ) -> None:
        self.name = name
        self.slo = slo
        self.shape = shape
        self.probe = Probe(name, shape, slo.seconds if slo else 0.0, eager=eager)
        self._runtime = runtime
        self.sink = sink
        self._lock_file = lock
        self._planned_batch: BatchReader | None = None
        self._called = 0.0
        self._failure: str | None = None
        self._looks = 0
        self._blind = False
        hidden = shape.watermark and not shape.window and not shape.session
        self._learner = WindowLearner() if hidden else None
        self._gate = Gate(
            JvmLatch(runtime.spark._jvm),
            self._write,
            self._on_planned,
            self._on_written,
            self._on_let_go,
            self._on_failed,
            sources,
        )
        self._sources = sources

    def begin(self, writer: Any) -> None:
        """Start it; its first batch waits at the gate for a turn."""
        self._sources.claim()
        self.query = writer.foreachBatch(self._gate).start()

    @property
    def window(self) -> Window | None:
        """The window whose results it puts out, as far as it is known."""
        return self.probe.window

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds used in its gate."""
        return self._gate.cpu_seconds

    def grant(self) -> None:
        """Give it its turn."""
        self._gate.grant()

    def waits_for_data(self) -> bool:
        """Whether Spark looks for new data and finds none."""
        if not self.begun:
            return False
        status = self.query.status
        # Taut's sources wait for data themselves, so that they are asked nearly all the time
        asking = self._sources.known and status["message"].startswith("Getting offsets")
        return not status["isDataAvailable"] and (asking or not status["isTriggerActive"])

    def set_free(self) -> None:
        """It cannot be given turns: let its sources plan as they like."""
        self._sources.go()

    def error(self) -> str | None:
        """What ended it, if it failed."""
        return self._failure or super().error()

    def status(self) -> Status:
        """Where the query stands."""
        now = time.time()
        probe = self.probe
        with self._runtime._lock:
            stands = self.stands(now) if self.active else None
        error = self.error() if stands is None else None
        if stands is None:
            stands = Stands("failed" if error else "ended", now, None, None)
        return Status(
            self.name,
            stands.state,
            now - stands.since if stands.state == State.HELD.value else None,
            None if stands.due is None else stands.due - now,
            stands.slack,
            probe.latency,
            probe.windows,
            probe.late,
            probe.batches,
            error,
        )

    def stands(self, now: float) -> Stands | None:
        """Where it stands with the runtime, whose lock is held; None when it has ended."""
        turns = self._runtime._turns
        if self.name not in turns:
            return None
        view = self.probe.view(now, now, now)
        reckon = getattr(turns.policy, "slack", None)
        slack = turns.slack(self.name) if reckon is None else reckon(now, view)
        due = max((s.sweep + s.delay.mean for s in view.streams), default=None)
        if turns.state(self.name) in (State.PLANNED, State.RUNNING):
            due = self.probe.emits() or due
            if reckon is not None and slack is not None:
                slack = self.probe.at_work(now, view, turns.turn(self.name), slack)
        if self.probe.window is not None and not view.streams:
            # before a watermark is known it would be that of rows, which nobody waits for
            slack = None
        return Stands(turns.state(self.name).value, turns.since(self.name), due, slack)

    def drain(self) -> None:
        """Let a written batch commit; no further one runs."""
        self._gate.drain()

    def end(self, deadline: float) -> bool:
        """Stop it once its running batch has committed; False if it had to be interrupted."""
        drained = self._drained(deadline)
        self._gate.end()
        self.query.stop()
        self._runtime._ended(self)
        self._runtime._watching.ended(self, self.error())
        self.release()
        return drained

    def _wrote(self) -> bool:
        return self._failure is not None or self._gate.last_written is not None

    def _drained(self, deadline: float) -> bool:
        while self.active and not self._gate.parked.is_set():
            if self._committed():
                return True
            if time.monotonic() >= deadline:
                return False
            self._gate.parked.wait(_POLL)
        return True

    def release(self) -> None:
        """Give its checkpoint free, unless a sink that could not be interrupted still writes."""
        self._sources.release()
        if not self._gate.busy:
            super().release()

    def _committed(self) -> bool:
        # a trigger that has been begun and waits in a source is no batch
        in_source = self._gate.held_in_sources or self.waits_for_data()
        if self.query.status["isTriggerActive"] and not in_source:
            return False
        last = self._gate.last_written
        progress = self.query._jsq.lastProgress()
        return last is None or (progress is not None and progress.batchId() >= last)

    # -- called by the gate, in the query's thread ------------------------------------------

    def _on_planned(self, batch_id: int) -> bool:
        with self._probing():
            if self._planned_batch is None and self.begun:
                execution = self.query._jsq.streamingQuery()
                self._planned_batch = BatchReader(self._runtime.spark._jvm, execution)
                self.probe.goes_on_after(self._planned_batch.before(batch_id))
            if (reader := self._planned_batch) is not None:
                facts = reader.read()
                with self._runtime._lock:
                    turns = self._runtime._turns
                    loose = self.name in turns and turns.state(self.name) is State.LOOSE
                    progress = partial(read_progress, reader.execution)
                    self.probe.planned(facts, progress, fresh=loose)
        self._called = time.time()
        return self._runtime._planned(self)

    def _on_written(self, batch_id: int) -> bool:
        now = time.time()
        # one hold of the lock: the next turn cannot be told before this batch
        with self._runtime._lock:
            turns = self._runtime._turns
            granted = turns.last_turn(self.name) if self.name in turns else 0.0
            out = None
            with self._probing():
                out = self.probe.written(now)
            goes_on = self._runtime._written(self, now, self.probe.watermark)
            if out is not None:
                watching = self._runtime._watching
                watching.wrote(self, batch_id, granted, self._called, now, out, goes_on)
        return goes_on

    def _on_let_go(self) -> None:
        self.probe.resumed(time.time())

    @contextlib.contextmanager
    def _probing(self) -> Iterator[None]:
        """Facts only help to decide: that they cannot be read must not end the query."""
        try:
            yield
        except Exception as error:
            self.probe.give_up()
            if not self._blind:
                self._blind = True
                log.warning("query %s: runs without facts from Spark: %r", self.name, error)
                self._runtime._watching.started(self)

    def _on_failed(self, error: Exception | None, batch_id: int) -> None:
        self._runtime._ended(self)
        self._sources.release()
        if error is None:
            return
        self._failure = f"sink raised on batch {batch_id}: {type(error).__name__}: {error}"
        self.told = True
        self._runtime._watching.ended(self, self._failure)
        log.warning("query %s failed, the others go on: %s", self.name, self._failure)

    def _write(self, df: DataFrame, batch_id: int) -> None:
        if self._learner is None:
            self.sink(df, batch_id)
            return
        look = None
        with self._probing():
            look = look_at_windows(df)
        self.sink(df if look is None else look.df, batch_id)
        with self._probing():
            self._learn(look, self._learner)

    def _learn(self, look: Look | None, learner: WindowLearner) -> None:
        found = [] if look is None else look.windows()
        self._looks += bool(found)
        if look is None or self._looks > _LEARN_FROM:
            self._learner = None
            return
        for start, end in found:
            if end > self.probe.watermark:
                # rows come out before their window is complete: they are not due at its end
                self._learner = None
                return
            learner.observe(start, end)
        window = learner.window()
        if window is not None and window != self.probe.window:
            log.info("query %s: learned %s from its output", self.name, window)
            self.probe.learn_window(window)
            self._runtime._watching.started(self)

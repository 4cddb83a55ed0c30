"""A query under a Runtime: what users hold, and what ties gate, probe and turns together."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from taut.policy.turns import State, Turns
from taut.slo import Slo
from taut.spark.checkpoint import CheckpointLock
from taut.spark.gate import Gate, JvmLatch
from taut.spark.probe import BatchReader, Probe, read_progress
from taut.spark.sinks import SinkFunction
from taut.spark.source.control import Sources
from taut.spark.started import POLL, Stands, StartedQuery, Status
from taut.spark.watching import Watching
from taut.spark.window import Look, Shape, Window, WindowLearner, look_at_windows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("taut")

_LEARN_FROM = 10
"""Outputs that are looked at for windows that the plan does not show."""


class _Owner(Protocol):
    """What a query needs of its runtime."""

    spark: SparkSession
    _turns: Turns
    _lock: Any
    _watching: Watching

    def _planned(self, query: Query) -> bool: ...
    def _written(self, query: Query, now: float, watermark: float | None) -> bool: ...
    def _ended(self, query: Query) -> None: ...


class Query(StartedQuery):
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
        self.release()
        self._sources.hear_out(deadline)
        self._runtime._watching.ended(self, self.error())
        return drained

    def _wrote(self) -> bool:
        return self._failure is not None or self._gate.last_written is not None

    def _drained(self, deadline: float) -> bool:
        while self.active and not self._gate.parked.is_set():
            if self._committed():
                return True
            if time.monotonic() >= deadline:
                return False
            self._gate.parked.wait(POLL)
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

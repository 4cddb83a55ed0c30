"""The gate: where a query's own thread waits for its turn.

Spark calls ``foreachBatch`` in the thread that runs the query. The gate writes the batch
through the sink and then keeps that thread until the query is granted its next turn, so that
the batch that follows is planned with the freshest offsets. A batch that was planned without a
turn (the first one, or one after a time without data) waits before it is run.

Where all sources of a query can be held, as Taut's can, they are held instead: the written batch
then commits at once, and the next one is not planned until the turn has come.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from taut.spark.sinks import SinkFunction

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Latch(Protocol):
    """Where a thread waits until another opens it; opening before the wait counts."""

    def wait(self) -> None: ...
    def open(self) -> None: ...


class Hold(Protocol):
    """Sources that can be kept from planning a batch."""

    def hold(self) -> bool: ...
    def go(self) -> None: ...


class Interrupted(Exception):
    """Spark stopped a query that waited at its gate.

    Spark tells a stop from a failure by this text, and its pattern overflows the stack on the
    long trace of the original error; hence the same text, short.
    """

    def __init__(self) -> None:
        super().__init__(
            "py4j.protocol.Py4JJavaError: An error occurred while calling the gate: "
            "java.lang.InterruptedException"
        )


def _no_interrupts(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], Interrupted))


# py4j logs every error of a callback, and a stop is none
logging.getLogger("py4j.clientserver").addFilter(_no_interrupts)


class JvmLatch:
    """A latch inside the JVM.

    A callback's calls run in the JVM thread that called it, so a query that waits here can be
    interrupted by ``query.stop()``; one that waited in Python would block it.
    """

    def __init__(self, jvm: Any) -> None:
        self._semaphore = jvm.java.util.concurrent.Semaphore(0)

    def wait(self) -> None:
        """Wait until opened, or until Spark interrupts the query."""
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # py4j has none

        try:
            self._semaphore.acquire()
        except Py4JJavaError as error:
            if "InterruptedException" in str(error.java_exception):
                raise Interrupted from None
            raise

    def open(self) -> None:
        """Let one waiting thread go."""
        self._semaphore.release()


class Gate:
    """Passes batches of one query to its sink, and holds the query between them.

    Parameters
    ----------
    latch
        Where the query's thread waits.
    sink
        Takes ``(df, batch_id)``.
    planned
        Called when a batch is planned; True if it may run at once.
    written
        Called when a batch is out; True if the query may go on at once.
    let_go
        Called when the query goes on, with or without having waited.
    failed
        Called when the batch ends with an error: that of the sink with its batch id, or None
        when the query was stopped while it waited or wrote.
    sources
        The query's sources, if they can be held; ``hold()`` says whether they are.
    """

    def __init__(
        self,
        latch: Latch,
        sink: SinkFunction,
        planned: Callable[[int], bool],
        written: Callable[[int], bool],
        let_go: Callable[[], None],
        failed: Callable[[Exception | None, int], None],
        sources: Hold | None = None,
    ) -> None:
        self._latch = latch
        self._sink = sink
        self._planned = planned
        self._written = written
        self._let_go = let_go
        self._failed = failed
        self._sources = sources
        self._moving = threading.Lock()
        self._held: Literal["here", "in sources"] | None = None
        self._granted = False
        self._draining = False
        self._ending = False
        self.parked = threading.Event()
        self.busy = False
        """Whether the sink is at work."""
        self.cpu_seconds = 0.0
        self.last_written: int | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Run one batch; this is what ``foreachBatch`` calls."""
        started = time.thread_time()
        self._leave_sources()
        if self._planned(batch_id):
            self._forget_grant()
        else:
            self._wait(batch_id)
            # what it costs counts from here, not from when the last batch ended
            self._let_go()
        self.cpu_seconds += time.thread_time() - started
        while self._draining:
            # stopping: this batch stays in the offset log, and a restart runs it
            self.parked.set()
            self._wait(batch_id, parked=True)
        self.busy = True
        try:
            self._sink(df, batch_id)
        except Exception as error:
            if self._ending or "java.lang.InterruptedException" in str(error):
                # whatever an interrupted sink says, the query was stopped and has not failed
                self._failed(None, batch_id)
                raise Interrupted from None
            self._failed(error, batch_id)
            raise
        finally:
            self.busy = False
        started = time.thread_time()
        self.last_written = batch_id
        if self._written(batch_id):
            self._let_go()
        elif not self._hold_sources():
            self._wait(batch_id)
            self._let_go()
        self.cpu_seconds += time.thread_time() - started

    @property
    def held_in_sources(self) -> bool:
        """Whether the last batch commits, or has, and the sources wait for the next turn."""
        return self._held == "in sources"

    def grant(self) -> None:
        """Let the waiting query go on, or the one that is about to wait."""
        with self._moving:
            held, self._held = self._held, None
            self._granted = held is None
            if held == "here":
                self._latch.open()
            elif held == "in sources" and self._sources is not None:
                self._sources.go()
                self._let_go()

    def drain(self) -> None:
        """Let a written batch commit, and run no further one."""
        with self._moving:
            self._draining = True
            if self._held == "here":
                self._held = None
                self._latch.open()

    def end(self) -> None:
        """From here on the query may be interrupted: an error of its sink is no failure."""
        self._ending = True

    def _leave_sources(self) -> None:
        """A batch is planned although the sources are held: they had not heard of it yet."""
        with self._moving:
            if self._held == "in sources" and self._sources is not None:
                self._held = None
                self._sources.go()

    def _forget_grant(self) -> None:
        """A grant that this batch runs by is not one for the next."""
        with self._moving:
            self._granted = False

    def _hold_sources(self) -> bool:
        """Have the sources wait instead of this thread; True if there is nothing to wait for."""
        with self._moving:
            if self._granted or self._draining:
                self._granted = False
                self._let_go()
                return True
            if self._sources is None or not self._sources.hold():
                return False
            self._held = "in sources"
            return True

    def _wait(self, batch_id: int, *, parked: bool = False) -> None:
        with self._moving:
            if self._granted or (self._draining and not parked):
                self._granted = False
                return
            self._held = "here"
        try:
            self._latch.wait()
        except Exception:  # whatever ended the wait has ended the query: raised on
            self._failed(None, batch_id)
            raise

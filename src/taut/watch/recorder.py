"""The recorder: takes records from the threads that make them, and brings them to board and trace.

Telling is one append. A thread of its own does the rest, some times a second.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from taut.watch import hub
from taut.watch.board import Board
from taut.watch.query_board import Live
from taut.watch.records import LeftOut, Record, Run
from taut.watch.snapshot import Snapshot
from taut.watch.trace import Trace

log = logging.getLogger("taut")

EVERY = 0.25
MOST_WAITING = 100_000
"""Records between two looks; what comes beyond is counted and dropped."""

Tell = Callable[[Record], None]

_made: weakref.WeakSet[Recorder] = weakref.WeakSet()


@atexit.register
def _close() -> None:
    """Those that nobody has closed write what they have."""
    for recorder in list(_made):
        recorder.close()


class Recorder:
    """Feeds a board and a trace, once it has been opened.

    Parameters
    ----------
    trace
        None for none.

    Attributes
    ----------
    tell
        Takes a record and returns at once; None while nobody wants any, so that none is made.
    """

    def __init__(self, trace: Trace | None = None, *, most_waiting: int = MOST_WAITING) -> None:
        self.trace = trace
        self.tell: Tell | None = None
        self._own_seconds = 0.0
        self._most = most_waiting
        self._waiting: deque[Record] = deque()
        self._dropped = 0
        self._board = Board()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned = False
        self._run_id = ""
        _made.add(self)

    def open(self, run: Run, known: Iterable[Record] = ()) -> None:
        """Begin; ``known`` is what has happened before and still matters."""
        with self._lock:
            if self._thread is not None or self._closing.is_set():
                return
            self._board.observe(run)
            self._waiting.extend(known)
            self.tell = self._take
            self._run_id = run.run
            hub.subscribe(self._hear)
            self._thread = threading.Thread(target=self._run, name="taut-watch", daemon=True)
            self._thread.start()

    @property
    def cpu_seconds(self) -> float:
        """Used by the threads of recorder and trace."""
        return self._own_seconds + (self.trace.cpu_seconds if self.trace else 0.0)

    def snapshot(
        self,
        now: float,
        live: Mapping[str, Live] | None = None,
        *,
        notes: Iterable[str] = (),
        overhead: float = 0.0,
    ) -> Snapshot:
        """How everything stands, with what was told up to now."""
        said = self.trace.note() if self.trace else None
        with self._lock:
            self._drain()
            notes = [*notes, said] if said else notes
            return self._board.snapshot(now, live, notes=notes, overhead=overhead)

    def close(self) -> None:
        """Write what was told; nothing is taken from here on."""
        hub.unsubscribe(self._hear)
        self.tell = None
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=10.0)
        with self._lock:
            self._drain()
        if self.trace is not None:
            self.trace.close()

    def check(self) -> None:
        """Assert the invariants."""
        with self._lock:
            self._board.check()
            assert len(self._waiting) <= self._most + threading.active_count()

    def _hear(self, record: Record) -> None:
        """From the hub, where other runtimes of this process listen too."""
        if hub.is_for(getattr(record, "query", ""), self._run_id):
            self._take(record)

    def _take(self, record: Record) -> None:
        # threads that look at the same time may each add one more: a bound, not a limit
        if len(self._waiting) < self._most:
            self._waiting.append(record)
        else:
            self._dropped += 1

    def _run(self) -> None:
        while not self._closing.wait(EVERY):
            if not self._waiting and not self._dropped:
                continue
            started = time.thread_time()
            with self._lock:
                self._drain()
            self._own_seconds += time.thread_time() - started

    def _drain(self) -> None:
        lot = [self._waiting.popleft() for _ in range(len(self._waiting))]
        dropped, self._dropped = self._dropped, 0
        if dropped:
            lot.append(LeftOut(time.time(), dropped, "they came faster than they were looked at"))
        for record in lot:
            try:
                self._board.observe(record)
            except Exception as error:  # one that makes no sense must not hide all the others
                if not self._warned:
                    self._warned = True
                    log.warning("watch: a record was not understood: %r: %r", error, record)
        if lot and self.trace is not None:
            self.trace.write(lot)

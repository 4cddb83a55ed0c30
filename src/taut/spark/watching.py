"""What a runtime tells those who watch: records of its turns and batches, a snapshot, a page.

Everything here is called by the threads that run queries, and raises nothing there. While nobody
watches, ``tell`` is None and no record is made.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import platform
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol

import msgspec

from taut.spark.failure import in_short
from taut.spark.starting import STOCK
from taut.watch import hub
from taut.watch.records import Batch, Ended, Record, Run, SlackParts, Started, Turn
from taut.watch.runs import KEEP_RUNS, folder_name, folder_of_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from taut.policy.turns import Turns
    from taut.policy.view import Slack
    from taut.spark.probe import Out, Probe
    from taut.spark.query import Query
    from taut.spark.stock import StockQuery
    from taut.spark.window import Window
    from taut.watch.query_board import Live
    from taut.watch.recorder import Recorder, Tell
    from taut.watch.server import Server
    from taut.watch.snapshot import Snapshot

log = logging.getLogger("taut")

P = ParamSpec("P")

MOST_ENDS = 32
"""Window ends that a record names; a batch that catches up may have thousands."""


class _Owner(Protocol):
    """What is watched."""

    spark: SparkSession
    policy_name: str
    concurrency: int
    _turns: Turns
    _lock: Any

    @property
    def queries(self) -> Mapping[str, Query | StockQuery]: ...
    def overhead(self) -> float: ...


def _harmless(
    told: Callable[Concatenate[Watching, P], None],
) -> Callable[Concatenate[Watching, P], None]:
    """Who watches must not end what is watched: what goes wrong in it is told once."""

    @functools.wraps(told)
    def safely(self: Watching, /, *args: P.args, **options: P.kwargs) -> None:
        try:
            told(self, *args, **options)
        except Exception as error:
            self.failed(error)

    return safely


class Watching:
    """Who watches a runtime, and what they are told."""

    def __init__(self, runtime: _Owner, trace: bool | str | Path | None) -> None:
        self.tell: Tell | None = None
        self._runtime = runtime
        self.note: str | None = None
        """What those who look should know, as a sentence."""
        self._made = self._began = time.time()
        self._counts_from = 0.0
        self._run = secrets.token_hex(3)
        self.folder = _folder(trace, self._run, self._began)
        """Where this run is recorded, None if it is not."""
        self._recorder: Recorder | None = None
        self._cpu_before = 0.0
        self._pages: list[Server] = []
        self._granted: dict[str, float] = {}
        self._closed = self._failed = False

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds that watching has used in threads of its own."""
        recorder = self._recorder
        return self._cpu_before + (0.0 if recorder is None else recorder.cpu_seconds)

    # -- told by the threads that run queries ---------------------------------------------------

    @_harmless
    def started(self, query: Query | StockQuery) -> None:
        """A query is started, or more is known of it."""
        if query.ended_told:
            return
        query.started_at = query.started_at or time.time()
        hub.own(query.name, self._run)
        tell = self.tell
        if tell is not None:
            tell(_started(query))
        elif self.folder is not None and not self._failed:
            self._open()

    @_harmless
    def ended(self, query: Query | StockQuery, error: str | None) -> None:
        """A query has ended; again is harmless."""
        if not query.ended_told:
            query.ended_told = True
            tell = self.tell
            if tell is not None:
                tell(Ended(time.time(), query.name, None if error is None else in_short(error)))

    @_harmless
    def granted(self, name: str) -> None:
        """A query may run, or runs on; the runtime's lock is held."""
        tell = self.tell
        if tell is None:
            return
        turns = self._runtime._turns
        turn = turns.turn(name)
        # of a policy that has failed turns go on for good, batch by batch
        if turn is not None and turn.started != self._granted.get(name):
            slack = _parts(turns.slack(name)) if turn.why == "policy" else None
            tell(Turn(turn.started, name, turn.waited_since, turn.until, turn.why, slack))
            self._granted[name] = turn.started

    @_harmless
    def wrote(
        self,
        query: Query,
        batch: int,
        granted: float,
        called: float,
        written: float,
        out: Out,
        goes_on: bool,
    ) -> None:
        """A batch is out; Spark had called for it to be written at ``called``."""
        tell = self.tell
        if tell is None:
            return
        begun = out.begun or called
        run = max(called, begun)
        ends, windows, late = self._counted(query.probe.window, out)
        tell(
            Batch(
                query.name,
                batch,
                granted if math.isfinite(granted) and granted > 0 else begun,
                begun,
                out.planned or run,
                run,
                written,
                out.arrived_over or 0.0,
                query.probe.watermark,
                ends,
                windows,
                late,
                out.delay,
                goes_on,
                out.arrived_over is not None,
            )
        )

    @_harmless
    def wrote_freely(
        self, name: str, batch: int, run: float, written: float, over: float | None
    ) -> None:
        """A batch of a query that takes no turns is out: its rows came ``over`` so many seconds."""
        tell = self.tell
        if tell is not None:
            times = (run, run, run, run, written, over or 0.0)
            tell(Batch(name, batch, *times, goes_on=True, input_known=over is not None))

    @_harmless
    def wrote_by_itself(
        self, probe: Probe, batch: int, run: float, written: float, out: Out
    ) -> None:
        """A batch of such a query is out, and its windows are known."""
        tell = self.tell
        if tell is not None:
            planned = min(out.planned, run)
            times = (planned, planned, planned, run, written, out.arrived_over or 0.0)
            closed = (*self._counted(probe.window, out), out.delay)
            known = out.arrived_over is not None
            tell(Batch(probe.name, batch, *times, probe.watermark, *closed, True, known))

    def _counted(self, window: Window | None, out: Out) -> tuple[tuple[float, ...], int, int]:
        """Ends of windows that are out, how many those are, and how many of them were late.

        Without those that had ended before it counts, which are the oldest and late first.
        """
        windows, late = out.windows, out.late
        if window is not None and windows and out.after < self._counts_from:
            windows = window.ends_between(self._counts_from, out.upto)
            late = max(0, late - (out.windows - windows))
        return (_ends(window, out.upto, windows) if windows else ()), windows, late

    def failed(self, error: Exception) -> None:
        """Something could not be told."""
        if not self._failed:
            self._failed = True
            log.warning("watch: the queries go on, but something is not told: %r", error)

    # -- asked by those who watch -----------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """How everything stands."""
        recorder = self._open()
        now = time.time()
        live = {}
        for name, query in self._runtime.queries.items():
            # a policy that cannot say its slack, or a JVM that is gone: shown without
            with contextlib.suppress(Exception):
                stands = self._stands(query, now)
                if stands is not None:
                    live[name] = stands
        failure = self._runtime._turns.failure
        failed = f"Policy {self._runtime.policy_name} failed, queries run freely: {failure!r}"
        notes = (self.note, None if failure is None else failed)
        seen = recorder.snapshot(
            now,
            live,
            notes=[note for note in notes if note is not None],
            overhead=self._runtime.overhead() / max(1.0, now - self._made),
        )
        free = self._runtime.policy_name in STOCK
        return msgspec.structs.replace(seen, concurrency=0) if free else seen

    def begin_anew(self, trace: bool | str | Path | None) -> None:
        """Count from here on, as a run of its own.

        What came before, a warm-up, is not in it; nor are windows that had ended before and come
        out later.
        """
        self._open()
        with self._runtime._lock:
            before = self._recorder
            assert before is not None
            self._recorder = self.tell = None
            self._granted.clear()
            hub.disown(self._run)
            self._began, self._run = time.time(), secrets.token_hex(3)
            self._counts_from = self._began
            self.folder = _folder(trace, self._run, self._began)
            for query in self._runtime.queries.values():
                if not query.ended_told:
                    hub.own(query.name, self._run)
            self._open()
            self._cpu_before += before.cpu_seconds
        before.close()

    def page(self, host: str, port: int, token: str | None) -> Server:
        """Open a page, until the runtime stops."""
        from taut.watch.server import Server

        self._open()
        page = Server(self.snapshot, host=host, port=port, token=token)
        self._pages.append(page)
        # a token is for those who look, and logs are read by others
        secret = "" if page.token is None else "; page.url has its token"
        log.info("watch: the page is at %s%s", page.url.partition("?")[0], secret)
        return page

    def close(self) -> None:
        """The runtime has stopped: write what is left, then close the pages; again is harmless."""
        with contextlib.ExitStack() as last:
            # from the last to the first, also when one of them fails or is interrupted
            last.callback(hub.disown, self._run)
            for page in self._pages:
                last.callback(page.close)
            last.callback(self._close_recorder)
            for query in self._runtime.queries.values():
                with contextlib.suppress(Exception):  # without a JVM there is nobody to ask
                    if not query.ended_told and not query.active:
                        self.ended(query, query.error())

    def _close_recorder(self) -> None:
        self._closed = True
        self.tell = None
        if self._recorder is not None:
            self._recorder.close()

    def _open(self) -> Recorder:
        """Begin to record, where that has not begun; the runtime's lock is not held here."""
        # numpy and the sketches take long to import: only for those who watch, before the lock
        from taut.watch.recorder import Recorder
        from taut.watch.trace import Files, Trace

        with self._runtime._lock:
            if self._recorder is None:
                run = self._run_record()
                trace = None
                if self.folder is not None:
                    trace = Trace(Files(self.folder, run), keep_runs=KEEP_RUNS)
                queries = self._runtime.queries.values()
                known: list[Record] = [_started(q) for q in queries if not q.ended_told]
                recorder = Recorder(trace)
                recorder.open(run, known)
                self._recorder, self.tell = recorder, recorder.tell
                if self._closed:
                    self.close()
            return self._recorder

    def _stands(self, query: Query | StockQuery, now: float) -> Live | None:
        from taut.watch.query_board import Live

        with self._runtime._lock:
            stands = query.stands(now)
        if stands is None:
            if not query.ended_told and not query.active:
                self.ended(query, query.error())
            return None
        return Live(stands.state, stands.since, stands.due, _parts(stands.slack))

    def _run_record(self) -> Run:
        spark = self._runtime.spark
        machine = {
            "host": platform.node(),
            "system": platform.system(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "spark": spark.version,
            "master": spark.sparkContext.master,
            "tasks": spark.sparkContext.defaultParallelism,
        }
        return Run(
            self._began,
            self._run,
            self._runtime.policy_name,
            self._runtime.concurrency,
            self._runtime._turns.hold_limit,
            machine=machine,
        )


def _folder(trace: bool | str | Path | None, run: str, at: float) -> Path | None:
    try:
        place = folder_of_runs(trace)
    except RuntimeError as error:  # a user without a home
        log.warning("trace: nothing is recorded, there is no folder for it: %s", error)
        return None
    return None if place is None else place / folder_name(run, at)


def _started(query: Query | StockQuery) -> Started:
    window = query.window
    return Started(
        query.started_at,
        query.name,
        None if query.slo is None else str(query.slo),
        None if query.slo is None else query.slo.seconds,
        None if query.slo is None else query.slo.quantile,
        None if window is None else (window.length, window.slide, window.start),
        query.resident,
    )


def _parts(slack: Slack | None) -> SlackParts | None:
    if slack is None:
        return None
    parts = (slack.value, slack.due, slack.earliest, slack.latest, slack.cost)
    return SlackParts(*parts) if all(map(math.isfinite, parts)) else None


def _ends(window: Window | None, upto: float, windows: int) -> tuple[float, ...]:
    """The ends of so many windows, the last ones of many."""
    if window is None:
        return ()
    last = window.end_after(upto - window.slide)
    if windows == 1:
        return (last,)
    count = min(windows, MOST_ENDS)
    return tuple(last - window.slide * n for n in range(count - 1, -1, -1))

"""Runtime: many streaming queries on one Spark, each run when its output is due."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from taut.duration import seconds as to_seconds
from taut.errors import RuntimeStopped, StartError, TautError
from taut.policy import MemoryManaged, Policy, QueryView
from taut.policy.turns import Turns
from taut.slo import Slo
from taut.spark.checkpoint import CheckpointLock
from taut.spark.ending import end_all
from taut.spark.probe import MemoryProbe
from taut.spark.query import Query
from taut.spark.sinks import SinkFunction, file_paths, refuse_old_results
from taut.spark.source.control import Desk, sources_of
from taut.spark.starting import STOCK, named_policies, policy_of, refuse_wrong, shape_of
from taut.spark.stock import StockQuery
from taut.spark.watching import Watching
from taut.spark.window import Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from taut.watch.server import Server
    from taut.watch.snapshot import Snapshot

log = logging.getLogger("taut")

_POLL = 0.02
_IDLE_AFTER = 0.3
_MEMORY_EVERY = 5.0
_ALIVE_EVERY = 5.0


class Runtime:
    """Runs streaming queries so that each one's results are out when they are due.

    Parameters
    ----------
    spark
        A classic SparkSession; :func:`taut.session` gives one with settings that suit.
    policy
        A name from :meth:`policies`, or an object with ``decide(now, queries)``.
    concurrency
        Turns at a time; by default one for every core.
    hold_limit
        No query is held for longer while others run.
    trace
        A folder: every decision and every batch is recorded there, in a folder for each run, of
        which the newest 20 are kept. False for none; by default that of the variable
        ``TAUT_TRACE`` (``off`` for none), else ``taut/runs`` in the user's cache.

    Examples
    --------
    >>> with Runtime(spark) as runtime:                              # doctest: +SKIP
    ...     runtime.start(df, name="views", sink=taut.sink("parquet", path="out"),
    ...                   slo="p99 <= 1 s", checkpoint="checkpoints/views")
    ...     runtime.await_termination()
    """

    def __init__(
        self,
        spark: SparkSession,
        policy: str | Policy = "least-slack",
        *,
        concurrency: int | None = None,
        hold_limit: str | float = "60 s",
        trace: bool | str | Path | None = None,
    ) -> None:
        if not hasattr(spark, "_jvm"):
            raise StartError(
                "spark is a Spark Connect session: foreachBatch runs in the server there, so "
                "nothing can be held from here; use a classic session, such as taut.session()"
            )
        self.spark = spark
        self.policy_name, built = policy_of(policy)
        cores = spark.sparkContext.defaultParallelism
        self.concurrency = max(1, cores) if concurrency is None else concurrency
        self._turns = Turns(built, concurrency=self.concurrency, hold_limit=to_seconds(hold_limit))
        self._watching = Watching(self, trace)
        self._memory = MemoryProbe(spark) if isinstance(built, MemoryManaged) else None
        self._queries: dict[str, Query | StockQuery] = {}
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._nudged = False
        self._stopping = False
        self._stopped = False
        self._warned = False
        self._cpu_seconds = 0.0
        self._desk_before = Desk.cpu_seconds()
        self._next_memory = self._next_alive = 0.0
        self._thread: threading.Thread | None = None
        if self.policy_name not in STOCK:
            self._thread = threading.Thread(target=self._run, name="taut-turns", daemon=True)
            self._thread.start()

    # -- what users call ---------------------------------------------------------------

    def start(
        self,
        df: DataFrame,
        *,
        name: str,
        sink: SinkFunction,
        checkpoint: str | Path,
        slo: str | Slo | None = None,
        window: str | tuple[str, ...] | Window | None = None,
        output_mode: str = "append",
        available_now: bool = False,
        start_timeout: str | float = "60 s",
    ) -> Query | StockQuery:
        """Start a streaming query; nothing is started when anything given is wrong.

        Returns when Spark has made the query's sources, so that a source that cannot be made is
        an error here, and many queries do not all start their sources in the same moment.

        Parameters
        ----------
        df
            Any streaming DataFrame.
        name
            Its name, not in use here.
        sink
            A callable ``(df, batch_id)``, or what :func:`taut.sink` gives.
        checkpoint
            Where Spark keeps the query's progress; not in use by another query.
        slo
            Its latency objective, such as ``"p99 <= 1 s"``.
        window
            Length, or (length, slide[, start]), where it cannot be read from the plan.
        output_mode
            Spark's output mode.
        available_now
            Process what is there, then end.
        start_timeout
            How long making the sources may take before a warning; the query goes on.
        """
        self._refuse_if_stopped()
        objective = None if slo is None else Slo(slo)
        patience = to_seconds(start_timeout)
        given = None if window is None else Window.of(window)
        refuse_wrong(df, name, sink, checkpoint)
        refuse_old_results(name, sink, str(checkpoint), self.spark)
        shape = shape_of(df, given, output_mode)
        sources = sources_of(df, name)
        self._warn_of_lanes(name, sources.resident, objective)
        writer: Any = (
            df.writeStream.queryName(name)
            .outputMode(output_mode)
            .option("checkpointLocation", str(checkpoint))
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        with self._lock:
            self._refuse_if_stopped()
            if name in self._queries and self._queries[name].active:
                raise StartError(f"name={name!r} is in use by a running query of this runtime")
            for ended in self._queries.values():
                if not ended.active:
                    self._forget(ended)
            self._refuse_shared_path(name, sink)
            lock = CheckpointLock.take(str(checkpoint), name, self.spark)
            query: Query | StockQuery
            if self.policy_name in STOCK or sources.resident:
                query = StockQuery(name, sink, objective, shape, lock, sources, self._watching)
            else:
                query = Query(
                    self, name, sink, objective, shape, lock, sources, eager=available_now
                )
                self._turns.add(name, time.time())
            self._queries[name] = query
        # outside the lock: the other queries go on meanwhile
        try:
            self._watching.started(query)
            self._begin(query, writer, available_now)
            query.wait_for_sources(patience)
        except BaseException as error:
            query.told = True
            self._watching.ended(query, str(error))
            if query.begun:
                query.query.stop()
            with self._lock:
                self._forget(query)
                if self._queries.get(name) is query:
                    del self._queries[name]
            raise
        return query

    def stop(self, timeout: float | str = 60.0) -> None:
        """Stop all queries; a running batch finishes and commits first.

        What has not finished after ``timeout`` is interrupted, with a warning that names it; a
        restart from its checkpoint runs that batch again.
        """
        deadline = time.monotonic() + to_seconds(timeout)
        with self._lock:
            if self._stopped:
                return
            self._stopping = True
        with closing(self._watching):
            try:
                end_all(self._begun(deadline), deadline, to_seconds(timeout))
            finally:
                with self._lock:
                    self._stopped = True
                    self._nudge()
            if self._thread is not None:
                self._thread.join(timeout=10.0)

    def _begun(self, deadline: float) -> list[Query | StockQuery]:
        """All queries, once those that are being started in other threads have begun."""
        while True:
            queries = list(self.queries.values())
            if all(q.begun for q in queries) or time.monotonic() >= deadline:
                return [q for q in queries if q.begun]
            time.sleep(_POLL)

    def await_termination(self, timeout: float | str | None = None) -> bool:
        """Wait until every query has ended; False if ``timeout`` came first.

        Raises
        ------
        TautError
            When queries failed, naming each with its error; the others have ended by then too.
        """
        limit = None if timeout is None else time.monotonic() + to_seconds(timeout)
        while True:
            with self._lock:
                queries = list(self._queries.values())
                stopped = self._stopped
            active = [q for q in queries if q.active]
            if stopped or not active:
                break
            left = math.inf if limit is None else limit - time.monotonic()
            if left <= 0:
                return False
            active[0].wait(min(left, 0.5))
        failures = {q.name: e for q in queries if (e := q.error()) is not None}
        if failures:
            told = "\n".join(f"  {n}: {e}" for n, e in failures.items())
            raise TautError(f"{len(failures)} of {len(queries)} queries failed:\n{told}")
        return True

    @staticmethod
    def policies() -> dict[str, str]:
        """The names that ``policy`` takes, each with a line that says what it does."""
        return named_policies()

    @property
    def queries(self) -> Mapping[str, Query | StockQuery]:
        """The queries by name, those that ended included."""
        with self._lock:
            return dict(self._queries)

    def overhead(self) -> float:
        """CPU seconds that deciding, holding and watching have used so far."""
        gates = sum(q.cpu_seconds for q in self.queries.values())
        desk = Desk.cpu_seconds() - self._desk_before
        return self._cpu_seconds + gates + desk + self._watching.cpu_seconds

    @property
    def trace(self) -> Path | None:
        """The folder in which this run is recorded, None when it is not."""
        return self._watching.folder

    def snapshot(self) -> Snapshot:
        """How everything stands: queries, latencies, verdicts, sources, reduces, plans.

        Without a trace it is kept from the first call on.
        """
        return self._watching.snapshot()

    def watch(self, *, port: int = 0, host: str = "127.0.0.1", token: str | None = None) -> Server:
        """Open a page that shows the queries while they run, until the runtime stops.

        Parameters
        ----------
        port
            By default any that is free; the page's ``url`` has it.
        host
            Where it can be reached from; by default from this machine alone.
        token
            What a visitor has to know: 16 characters or more. By default nothing on this machine's
            own addresses, and a random one elsewhere, which is part of the ``url``.
        """
        self._refuse_if_stopped()
        return self._watching.page(host, port, token)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what the queries' threads call ----------------------------------------------------

    def _planned(self, query: Query) -> bool:
        with self._lock:
            if self._stopping or query.name not in self._turns:
                return True
            may_run = self._turns.planned(query.name, time.time())
            if not may_run:
                self._nudge()
            elif self._turns.open:
                self._watching.granted(query.name)
            return may_run

    def _written(self, query: Query, now: float, watermark: float | None) -> bool:
        with self._lock:
            if self._stopping or query.name not in self._turns:
                return True
            goes_on = self._turns.written(query.name, now, watermark)
            if not goes_on:
                self._nudge()
            return goes_on

    def _ended(self, query: Query) -> None:
        with self._lock:
            if self._queries.get(query.name) is query:
                self._turns.remove(query.name)
            self._nudge()

    # -- the thread that grants turns --------------------------------------------------------

    def _nudge(self) -> None:
        self._nudged = True
        self._wake.notify()

    def _run(self) -> None:
        while True:
            with self._lock:
                started = time.thread_time()
                self._nudged = False
                if self._stopped:
                    return
                wait = 0.2 if self._stopping else self._safe_step()
                self._cpu_seconds += time.thread_time() - started
                if not self._nudged:
                    self._wake.wait(wait)

    def _safe_step(self) -> float:
        try:
            return self._step(time.time())
        except BaseException as error:
            # this thread must outlive any fault: without it held queries would stay held
            self._turns.fail(error)
            self._warn()
            return 0.5

    def _step(self, now: float) -> float:
        """Grant what is due; returns the seconds until something may be due again."""
        self._watch_memory(now)
        names, again = self._turns.grant(now, lambda held: self._views(now, held))
        for name in names:
            self._watching.granted(name)
            self._open(name)
        self._warn()
        self._watch_idle(now)
        pause = 0.5 if again is None else min(0.5, again - now)
        if self._turns.awaiting_batch(now):
            pause = min(pause, _IDLE_AFTER)
        return max(0.001, pause)

    def _open(self, name: str) -> None:
        query = self._queries[name]
        assert isinstance(query, Query)
        try:
            query.grant()
        except Exception as error:
            # a query that cannot be let go, its JVM gone or its thread: the others still can
            log.warning("query %s could not be let go: %r", name, error)
            self._turns.remove(name)
            query.set_free()

    def _warn(self) -> None:
        if self._turns.failure is not None and not self._warned:
            self._warned = True
            log.warning(
                "policy %s failed, queries run freely as stock Spark from here on: %r",
                self.policy_name,
                self._turns.failure,
            )

    def _views(self, now: float, held: Sequence[str]) -> list[QueryView]:
        views = []
        for name in held:
            query = self._queries[name]
            assert isinstance(query, Query)
            views.append(
                query.probe.view(now, self._turns.since(name), self._turns.last_turn(name))
            )
        return views

    def _watch_idle(self, now: float) -> None:
        """A turn whose query finds no data, or has died, must not block the others."""
        for name in self._turns.awaiting_batch(now - _IDLE_AFTER):
            query = self._queries[name]
            assert isinstance(query, Query)
            if not query.active:
                self._forget(query)
                self._nudged = True
            elif query.waits_for_data():
                self._turns.idle(name, now)
                self._nudged = True
        if now >= self._next_alive:
            self._next_alive = now + _ALIVE_EVERY
            for query in self._queries.values():
                if not query.over and not query.active:
                    self._forget(query)
                    self._nudged = True

    def _watch_memory(self, now: float) -> None:
        policy = self._turns.policy
        if self._memory is None or now < self._next_memory:
            return
        assert isinstance(policy, MemoryManaged)
        self._next_memory = now + _MEMORY_EVERY
        state = sum(
            q.probe.state_bytes
            for q in self._queries.values()
            if isinstance(q, Query) and q.name in self._turns
        )
        try:
            policy.observe(now, self._memory.used(state))
        except Exception as error:
            log.warning("memory is not watched, its use cannot be read: %r", error)
            self._memory = None

    # -- starting ---------------------------------------------------------------------------

    def _begin(self, query: Query | StockQuery, writer: Any, available_now: bool) -> None:
        if isinstance(query, Query):
            query.begin(writer)
        else:
            window = query.shape.window
            if self.policy_name == "spark-trigger" and window and not available_now:
                milliseconds = round(window.slide * 1000)
                writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
            pool = query.name if self.policy_name == "spark-fair" else None
            query.begin(writer, self.spark, pool)
        with self._lock:
            if not self._stopping:
                return
        end_all([query], time.monotonic() + _POLL, _POLL)
        raise RuntimeStopped(f"{query.name}: the runtime was stopped while it started")

    def _forget(self, query: Query | StockQuery) -> None:
        """A query has ended: its name and its checkpoint are free."""
        if self._queries.get(query.name) is query:
            self._turns.remove(query.name)
        query.over = True
        query.release()
        error = None if query.told else query.error()
        self._watching.ended(query, error)
        if error is not None:
            query.told = True
            log.warning("query %s failed, the others go on: %s", query.name, error)

    def _warn_of_lanes(self, name: str, lanes: int, slo: Slo | None) -> None:
        """Resident lanes stay: where they are all that Spark runs at a time, everything else waits.

        Said before the query starts, for then nothing else may get so far.
        """
        if lanes and slo is not None:
            log.warning("query %s: a resident query runs freely, slo=%s does nothing", name, slo)
        with self._lock:
            others = [q for q in self._queries.values() if isinstance(q, StockQuery) and q.active]
        kept = lanes + sum(q.resident for q in others)
        tasks = self.spark.sparkContext.defaultParallelism
        if lanes and kept >= tasks:
            log.warning(
                "query %s: resident lanes keep %d of the %d tasks that Spark runs at a time, so "
                "that nothing runs beside them; give it fewer (lanes=), or Spark more cores",
                name, kept, tasks,
            )  # fmt: skip

    def _refuse_shared_path(self, name: str, sink: SinkFunction) -> None:
        for path in file_paths(sink):
            for other in self._queries.values():
                if other.active and path in file_paths(other.sink):
                    raise StartError(
                        f"{name}: path={path!r} is written by query {other.name!r}, and their "
                        "batches would replace each other; each query needs a path of its own"
                    )

    def _refuse_if_stopped(self) -> None:
        if self._stopping or self._stopped:
            raise RuntimeStopped("this runtime was stopped; make a new Runtime to start queries")

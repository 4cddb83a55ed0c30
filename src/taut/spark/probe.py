"""What Spark shows of a query, turned into the view that policies take.

Read in the thread of the batch itself, a few calls into the JVM a batch: no listener, no extra
job, nothing that runs while the query does not.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from taut.policy.cost import BatchCost
from taut.policy.slack import DelayHistory
from taut.policy.turns import Turn
from taut.policy.view import Delay, Operator, QueryView, Slack, Stream
from taut.spark.window import Shape, Window

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """A planned batch: when its offsets were fetched, and the watermark it runs with."""

    planned: float
    watermark: float


@dataclass(frozen=True, slots=True)
class ProgressFacts:
    """A finished batch: rows in, rows that left the state, bytes of state."""

    rows_in: int
    rows_out: int | None
    state_bytes: int


@dataclass(frozen=True, slots=True)
class Out:
    """A batch whose rows are out.

    Attributes
    ----------
    begun, planned
        When the query was let go, and when the batch's offsets were fetched; 0 if not known.
    arrived_over
        Seconds over which its rows came, up to ``planned``; None if that is not known.
    after, upto
        The windows that came out with it end in between.
    windows, late
        How many those are, and how many were late.
    delay
        Seconds after its end at which a window can first be complete.
    """

    begun: float
    planned: float
    arrived_over: float | None
    after: float
    upto: float
    windows: int
    late: int
    delay: float


class BatchReader:
    """Reads what batch a query has planned, from its execution in the JVM.

    This is most of what Taut adds to a batch. The getters are therefore composed in the JVM, once
    for all queries: two calls a batch, and no proxies for what lies between, cost about half.
    """

    def __init__(self, jvm: Any, execution: Any) -> None:
        self.execution = execution
        self._nothing = jvm.java.util.Collections.emptyList()
        timestamp, watermark = _getters(jvm, execution.getClass())
        self._timestamp = timestamp.bindTo(execution)
        self._watermark = watermark.bindTo(execution)

    def read(self) -> BatchFacts:
        """The batch that is planned."""
        planned = self._timestamp.invokeWithArguments(self._nothing)
        watermark = self._watermark.invokeWithArguments(self._nothing)
        return BatchFacts(planned / 1000.0, watermark / 1000.0)

    def before(self, batch_id: int) -> BatchFacts | None:
        """The batch before this one, from the checkpoint; None if it cannot be had."""
        if batch_id < 1:
            return None
        # only what is counted of the first batch hangs on it
        with contextlib.suppress(Exception):
            found = self.execution.offsetLog().offsetSeqMetadataForBatchId(batch_id - 1)
            if found.isDefined():
                last = found.get()
                return BatchFacts(last.batchTimestampMs() / 1e3, last.batchWatermarkMs() / 1e3)
        return None


@lru_cache(maxsize=2)
def _getters(jvm: Any, execution_class: Any) -> tuple[Any, Any]:
    path = ("lastExecution", "offsetSeqMetadata")
    return (
        _getter(jvm, execution_class, *path, "batchTimestampMs"),
        _getter(jvm, execution_class, *path, "batchWatermarkMs"),
    )


def _getter(jvm: Any, owner: Any, *names: str) -> Any:
    """A method handle that follows methods without arguments from one result to the next."""
    handles = jvm.java.lang.invoke.MethodHandles
    no_arguments = jvm.java.lang.reflect.Array.newInstance(owner.getClass(), 0)
    found: Any = None
    for name in names:
        method = owner.getMethod(name, no_arguments)
        step = handles.publicLookup().unreflect(method)
        found = step if found is None else handles.filterReturnValue(found, step)
        owner = method.getReturnType()
    return found


def read_progress(execution: Any) -> ProgressFacts | None:
    """The last finished batch, or None before the first."""
    progress = execution.lastProgress()
    if progress is None:
        return None
    operators = progress.stateOperators()
    return ProgressFacts(
        rows_in=progress.numInputRows(),
        rows_out=operators[len(operators) - 1].numRowsRemoved() if len(operators) else None,
        state_bytes=sum(o.memoryUsedBytes() for o in operators),
    )


class MemoryProbe:
    """The share of memory in use: the driver's heap, or the state stores against their limit.

    Of the heap counts what the last collection left: before one, garbage looks like memory in
    use. State stores are limited by RocksDB's bound when one is set, else by the memory of the
    executors, which holds them.
    """

    LIMIT_EVERY = 12
    """Looks between two at the limit, which changes when executors come and go."""

    def __init__(self, spark: SparkSession) -> None:
        assert spark._jvm is not None
        management = spark._jvm.java.lang.management.ManagementFactory
        pools = management.getMemoryPoolMXBeans()
        self._pools = [p for p in pools if p.getType().name() == "HEAP"]
        self._heap = management.getMemoryMXBean().getHeapMemoryUsage().getMax()
        self._spark = spark
        self._limit = 0
        self._looks = 0

    def used(self, state_bytes: int) -> float:
        """Share of memory in use, 0 to 1; ``state_bytes`` is what the state stores hold."""
        after = [p.getCollectionUsage() for p in self._pools]
        heap = sum(usage.getUsed() for usage in after if usage is not None)
        if self._looks % self.LIMIT_EVERY == 0:
            self._limit = state_limit(self._spark) or self._heap
        self._looks += 1
        return min(1.0, float(max(heap / self._heap, state_bytes / self._limit)))


def state_limit(spark: SparkSession) -> int:
    """Bytes that the state stores of all queries may take; 0 when only the driver's heap limits."""
    rocksdb = "spark.sql.streaming.stateStore.rocksdb."
    local = str(spark.sparkContext.master).startswith("local")
    executors = 1 if local else max(1, spark.sparkContext._jsc.sc().getExecutorIds().size())
    if spark.conf.get(rocksdb + "boundedMemoryUsage", "false") == "true":
        bound = spark.conf.get(rocksdb + "maxMemoryUsageMB", "500")
        return int(bound or 500) * 2**20 * executors
    if local:
        return 0
    assert spark._jvm is not None
    megabytes = spark._jvm.org.apache.spark.network.util.JavaUtils.byteStringAsMb
    return int(megabytes(spark.conf.get("spark.executor.memory", "1g"))) * 2**20 * executors


@dataclass(frozen=True, slots=True)
class _Known:
    """What stays the same of a query from one batch to the next, for all looks at it meanwhile."""

    end: float | None
    delay: Delay
    batch_cost: float
    cost_per_second: float
    rows_per_second: float
    selectivity: float
    row_cost: float


class Probe:
    """Keeps what is known of one query: its window, watermark, delays and costs."""

    SAMPLE_AFTER = 15.0
    """Seconds between two looks at the progress, which costs more than all else in a batch."""

    def __init__(self, name: str, shape: Shape, objective: float, *, eager: bool = False) -> None:
        self.name = name
        self.window = shape.window
        self.objective = objective
        self.latency: float | None = None
        self.windows = 0
        self.late = 0
        self.batches = 0
        self.state_bytes = 0
        self.watermark = 0.0
        self._eager = eager
        self._session = shape.session
        self._delays = DelayHistory()
        self._cost = BatchCost()
        self._planned: float | None = None
        self._checkpointed: BatchFacts | None = None
        self._input = 0.0
        self._arrived_over: float | None = None
        self._started = 0.0
        self._swept = (0.0, 0.0)
        self._catching_up = False
        self._rows_in = self._rows_out = self._row_seconds = 0.0
        self._sampled = 0.0
        self._known: _Known | None = None

    def resumed(self, now: float) -> None:
        """The query was let go: its next batch starts to be planned."""
        self._started = now

    def goes_on_after(self, last: BatchFacts | None) -> None:
        """The next batch that is seen here follows this one, which the checkpoint knows."""
        self._checkpointed, self._planned = last, None

    def planned(
        self,
        facts: BatchFacts,
        progress: Callable[[], ProgressFacts | None],
        *,
        fresh: bool = False,
    ) -> None:
        """A batch is planned; every few seconds the last one's progress is looked at.

        ``fresh``: Spark had looked for rows all the time, so that they have only just come.
        """
        before, last = self.watermark, self._planned
        self.watermark = max(before, facts.watermark)
        if last is not None:
            if self._input > 0 and facts.planned >= self._sampled + self.SAMPLE_AFTER:
                self._sampled = facts.planned
                self._sample(progress(), self._input)
            self._learn_delay(before, last, facts)
            self._input = max(0.0, facts.planned - last)
            self._arrived_over = 0.0 if fresh else self._input
        elif (known := self._checkpointed) is not None:
            # rows came while nobody looked, and windows ended
            before = max(before, known.watermark)
            self._arrived_over = max(0.0, facts.planned - known.planned)
        self._planned = facts.planned
        self._swept = (before, self.watermark)
        self._known = None

    def written(self, now: float) -> Out:
        """The batch's rows are out."""
        self.batches += 1
        if self._started:
            self._cost.observe(self._input, now - self._started)
        delay = max(0.0, self._delays.estimate().mean)
        windows, late = self._count(now, *self._swept, delay)
        if self.window is None and self._planned is not None and self._arrived_over is not None:
            self.latency = now - self._planned + self._arrived_over
        out = Out(
            self._started,
            self._planned or 0.0,
            self._arrived_over,
            *self._swept,
            windows,
            late,
            delay,
        )
        self._started = now
        self._swept = (0.0, 0.0)
        self._known = None
        return out

    def next_end(self) -> float | None:
        """The end of the first window that is not out, None when that is not known."""
        if self.window is None or self.watermark <= 0 or self._eager:
            return None
        return self.window.end_after(self.watermark)

    def view(self, now: float, held_since: float, last_turn: float) -> QueryView:
        """The query as a policy sees it."""
        planned = self._planned if self._planned is not None else held_since
        waiting = max(0.0, now - planned)
        known = self._known
        if known is None:
            known = self._known = self._look()
        end, delay = known.end, known.delay
        if end is not None and self._catching_up:
            # a stream that runs faster than the clock has more waiting: due at once
            delay = Delay(min(0.0, now - end), 0.0)
        queued = known.rows_per_second * waiting
        return QueryView(
            name=self.name,
            held_since=held_since,
            last_turn=last_turn,
            oldest=planned,
            batch_cost=known.batch_cost,
            queued_cost=known.cost_per_second * waiting,
            batches=2 if end is not None or self._session else 1,
            streams=() if end is None else (Stream(end, delay),),
            objective=0.0 if self._eager else self.objective,
            operators=(Operator(queued, known.selectivity, known.row_cost),),
        )

    def at_work(self, now: float, view: QueryView, turn: Turn | None, slack: Slack) -> Slack:
        """The slack of what comes out with the turn that it has, or that its batch waits for.

        Of its cost only what is still to come is taken off. Policies decide by ``slack``, which is
        that of ``view``: of a query that is held.
        """
        left = self._left(now, view, turn)
        due = self.emits()
        if due is not None:
            return Slack(due + view.objective - now - left, due, due, due, left)
        if view.streams or not (turn is None or turn.in_batch):
            return replace(slack, value=slack.value + slack.cost - left, cost=left)
        limit = view.oldest - (self._arrived_over or 0.0) + view.objective
        return Slack(limit - now - left, limit, limit, limit, left)

    def emits(self) -> float | None:
        """When the first window was due that comes out with the planned batch; None if none does.

        Its watermark has passed them, so that a view is of the windows after.
        """
        if self.window is None or not self._ends(*self._swept):
            return None
        return self.window.end_after(self._swept[0]) + max(0.0, self._delays.estimate().mean)

    def _left(self, now: float, view: QueryView, turn: Turn | None) -> float:
        """Seconds that it is expected to take from now to its output, once it has its turn."""
        planned = turn is None or turn.in_batch
        input_seconds = self._input if planned else max(0.0, now - view.oldest)
        batch = view.batch_cost + self._cost.per_second * input_seconds
        gone = 0.0 if turn is None else max(0.0, now - max(self._started, turn.started))
        done = 0 if turn is None else turn.batches
        more = 0 if self.emits() is not None else max(0, view.batches - done - 1)
        return max(0.0, batch - gone) + more * view.batch_cost

    def learn_window(self, window: Window) -> None:
        """Take a window that was learned from the output."""
        self.window = window
        self._known = None

    def give_up(self) -> None:
        """Spark's facts cannot be read: without them the query counts as one without a window."""
        self.window = None
        self._known = None

    def check(self) -> None:
        """Assert the invariants."""
        self._delays.check()
        self._cost.check()
        assert self._input >= 0.0
        assert self._known in (None, self._look())
        assert self.late <= self.windows

    def _count(self, now: float, after: float, upto: float, delay: float) -> tuple[int, int]:
        """The windows that end in (after, upto] are out: how many, and how many are late."""
        ended = self._ends(after, upto)
        if not ended or self.window is None:
            return 0, 0
        self.windows += ended
        self.latency = now - self.window.end_after(upto - self.window.slide)
        if self.objective <= 0:
            return ended, 0
        late = self._ends(after, min(upto, now - self.objective - delay))
        self.late += late
        return ended, late

    def _look(self) -> _Known:
        rate = self._rows_in / self._row_seconds if self._row_seconds > 0 else 0.0
        selectivity = self._rows_out / self._rows_in if self._rows_in > 0 else 1.0
        per_second = self._cost.per_second
        return _Known(
            end=self.next_end(),
            delay=self._delays.estimate(),
            batch_cost=self._cost.fixed,
            cost_per_second=per_second,
            rows_per_second=rate,
            selectivity=min(1.0, selectivity),
            row_cost=per_second / rate if rate > 0 else 0.0,
        )

    def _ends(self, after: float, upto: float) -> int:
        if self.window is None or after <= 0 or upto <= after:
            return 0
        return self.window.ends_between(after, upto)

    def _learn_delay(self, before: float, last: float, facts: BatchFacts) -> None:
        """The watermark of this batch came with the rows of the last: their delay is known."""
        # the first watermark may come with a backlog of any age, which is no delay
        if facts.watermark <= before or before <= 0:
            return
        slack = max(1.0, self.window.slide if self.window else 0.0)
        self._catching_up = facts.watermark - before > 1.5 * self._input + slack
        if self._catching_up:
            return
        delay = last - facts.watermark
        self._delays.observe(delay)
        if self._ends(before, facts.watermark):
            self._delays.close(delay)

    def _sample(self, progress: ProgressFacts | None, input_seconds: float) -> None:
        if progress is None:
            return
        self.state_bytes = progress.state_bytes
        fade = 0.9
        self._rows_in = fade * self._rows_in + progress.rows_in
        self._row_seconds = fade * self._row_seconds + input_seconds
        rows_out = progress.rows_in if progress.rows_out is None else progress.rows_out
        self._rows_out = fade * self._rows_out + rows_out

"""One query as Spark runs it, task by task: what a plan is made for, and more than its model has.

A batch takes the rows that have arrived. The driver plans it and writes the log, tasks map, others
reduce, results are written, and something follows before the next batch. Tasks wait until the
driver has started them and a slot is free, slow their neighbours on the executor for as long as
they run, and take a random time; keys are not alike, so one reducer has more to do than another;
executors and the driver pause.

Many such queries are simulated side by side, as rows of an array: none knows of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from taut.planning.profile import PHASES, Sample
from taut.planning.quantile import Spans
from taut.planning.settings import Cluster, Settings
from taut.sim.draws import NOTHING, Array, Constant, Draws, Zipf
from taut.sim.kernel import Kernel

_DIGITS = 1e-9
ENDLESS = 600.0
"""Seconds of a batch from which on it is known that batches grow without end."""
_DRIVER = ("plan", "log", "write", "after")


@dataclass(frozen=True, slots=True)
class Stage:
    """Seconds that a task takes alone: without rows, for each row, and for each that comes out."""

    task: float = 0.0
    row: float = 0.0
    out: float = 0.0

    def __post_init__(self) -> None:
        for name in ("task", "row", "out"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} s: must not be negative")


@dataclass(frozen=True, slots=True)
class Engine:
    """What is the same for all jobs.

    Attributes
    ----------
    dispatch
        Seconds until the driver has started a task; one after another.
    crowding
        By how much a task at work slows each other one on its executor, as a share.
    task
        What a task takes, as multiples of what it should.
    pause_every, pause
        Seconds between pauses of an executor, or of the driver, and how long they are.
    """

    dispatch: float = 0.0
    crowding: float = 0.0
    task: Draws = field(default_factory=lambda: Constant(1.0))
    pause_every: float = math.inf
    pause: Draws = NOTHING

    def __post_init__(self) -> None:
        if not self.dispatch >= 0.0 or not self.crowding >= 0.0:
            raise ValueError(
                f"dispatch={self.dispatch}, crowding={self.crowding}: must not be negative"
            )
        if not self.pause_every > 0.0:
            raise ValueError(f"pause_every={self.pause_every} s: must be above 0")


@dataclass(frozen=True, slots=True)
class Job:
    """What a batch of it has to do.

    Attributes
    ----------
    plan, log, write, after
        Seconds of the driver.
    write_out
        Seconds for each row that comes out.
    keys, zipf
        Keys there are, and how unevenly rows fall on them. A key is always with the same reducer.
    window
        Seconds from window to window, each with a row for every key in it; 0 without any.
    delay
        Seconds from a row's own time, by which windows go, until it arrives.
    ratio
        Rows out for each row in; None for one for every key that came, as counts that are
        updated have. Not of windows.
    """

    name: str
    plan: Draws = NOTHING
    log: Draws = NOTHING
    map: Stage = Stage()
    reduce: Stage = Stage()
    write: Draws = NOTHING
    after: Draws = NOTHING
    write_out: float = 0.0
    keys: int = 1
    zipf: float = 0.0
    window: float = 0.0
    delay: float = 0.0
    ratio: float | None = 0.0

    def __post_init__(self) -> None:
        if self.keys < 1:
            raise ValueError(f"keys={self.keys}: at least 1 is needed")
        for name in ("write_out", "zipf", "window", "delay"):
            if not getattr(self, name) >= 0.0:
                raise ValueError(f"{name}={getattr(self, name)}: must not be negative")

    def run(
        self,
        engine: Engine,
        cluster: Cluster,
        settings: Settings,
        rate: float,
        *,
        batches: int,
        warm_up: int = 0,
        beside: int = 1,
        backlog: float = 0.0,
        seed: int = 0,
    ) -> Outcome:
        """Batches after a warm-up, of so many queries side by side.

        Parameters
        ----------
        rate
            Rows a second, which come evenly.
        backlog
            Seconds of rows that have come before the query starts, as when it is profiled.
        """
        if not rate > 0.0 or batches < 1 or warm_up < 0 or beside < 1:
            raise ValueError(
                f"rate={rate}, batches={batches}, warm_up={warm_up}, beside={beside}: rate, "
                "batches and beside must be above 0, warm_up not below"
            )
        running = _Running(self, engine, cluster, settings, rate, beside, backlog, Kernel(seed))
        followed: list[Batch] = []
        while len(followed) < warm_up + batches and not running.endless:
            followed.append(running.batch())
        outcome = Outcome(self, settings, rate, followed[warm_up:], running.endless)
        outcome.check()
        return outcome

    def came(self, rows: Array | float) -> Array:
        """How many keys are among so many rows, on average."""
        many, keys = _different(self.keys, self.zipf)
        return np.interp(np.log1p(rows), many, keys)


@lru_cache(maxsize=64)
def _different(keys: int, zipf: float) -> tuple[Array, Array]:
    """Logarithms of rows, and keys among them."""
    chances = Zipf(zipf, keys, 1.0).chances()
    rows = np.concatenate([[0.0], np.geomspace(1.0, 1e9, 256)])
    found = [float(-np.expm1(-many * chances).sum()) for many in rows]
    return np.log1p(rows), np.array(found)


@lru_cache(maxsize=1024)
def dealt(keys: int, zipf: float, reducers: int) -> tuple[Array, Array]:
    """The share of the rows, and of the keys, that each reducer has: keys are dealt by a hash."""
    chances = Zipf(zipf, keys, 1.0).chances()
    # the same hash for any number of reducers, as on Spark
    owner = Kernel(0).stream("hash").integers(0, 2**31, keys) % reducers
    rows = np.bincount(owner, chances, minlength=reducers)
    return rows / rows.sum(), np.bincount(owner, minlength=reducers) / keys


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of each of the queries side by side.

    Attributes
    ----------
    first, last
        The times between which its rows arrived.
    closed
        Ends of windows that came out with it; not a number where there was none.
    """

    start: Array
    next_start: Array
    first: Array
    last: Array
    rows: Array
    out: Array
    seconds: dict[str, Array]
    closed: list[Array]

    @property
    def ended(self) -> Array:
        """When the next one could start."""
        ended: Array = self.start + np.sum(list(self.seconds.values()), axis=0)
        return ended

    @property
    def written(self) -> Array:
        """When its results were."""
        return self.ended - self.seconds["after"]


class _Running:
    """The queries at work."""

    def __init__(
        self,
        job: Job,
        engine: Engine,
        cluster: Cluster,
        settings: Settings,
        rate: float,
        beside: int,
        backlog: float,
        kernel: Kernel,
    ) -> None:
        self._job, self._engine, self._cluster = job, engine, cluster
        self._settings, self._rate, self._kernel = settings, rate, kernel
        # a query starts at any moment, and triggers and windows go by the clock
        self._start = kernel.stream("start").random(beside) * max(job.window, settings.trigger)
        self._upto = self._start - backlog
        """The arrival of the last row that was taken."""
        self._closed = self._windows()
        self.endless = False
        """Whether batches grow without end."""

    def batch(self) -> Batch:
        """The next one of each."""
        job, start, first = self._job, self._start, self._upto
        # the watermark that a batch has found takes effect in the next
        closed = self._windows()
        windows, self._closed = closed - self._closed, closed
        rows = np.floor(self._rate * (start - first) + _DIGITS * self._rate)
        if self._settings.cap is not None:
            rows = np.minimum(rows, self._settings.cap)
        rows = np.maximum(rows, 0.0)
        self._upto = first + rows / self._rate
        if job.window:
            out = np.rint(windows * job.came(self._rate * job.window))
        else:
            out = np.rint(job.came(rows) if job.ratio is None else job.ratio * rows)
        seconds = self._seconds(rows, out)
        ended = start + np.sum(list(seconds.values()), axis=0)
        self._start = self._next(start, ended)
        self.endless = bool((ended - start).max() > ENDLESS)
        ends = [
            np.where(nth < windows, (closed - nth) * job.window, np.nan)
            for nth in range(int(windows.max()))
        ]
        return Batch(start, self._start, first, self._upto, rows, out, seconds, ends)

    def _windows(self) -> Array:
        """How many have ended before the last row that was taken."""
        job = self._job
        if not job.window:
            return np.zeros_like(self._upto)
        return np.floor((self._upto - job.delay) / job.window + _DIGITS)

    def _next(self, start: Array, ended: Array) -> Array:
        """A late one starts at once, else at the next multiple of the interval."""
        every = self._settings.trigger
        if not every:
            return ended
        return np.maximum(ended, (np.floor(start / every + _DIGITS) + 1.0) * every)

    def _seconds(self, rows: Array, out: Array) -> dict[str, Array]:
        job, many = self._job, len(rows)
        driver = np.array(
            [getattr(job, phase).sample(self._kernel.stream(phase), many) for phase in _DRIVER]
        )
        driver[_DRIVER.index("write")] += job.write_out * out
        took = dict(zip(_DRIVER, self._paused(driver), strict=True))
        lanes, reducers = self._settings.lanes, self._settings.reducers
        even = np.broadcast_to(rows[:, None] / lanes, (many, lanes))
        took["map"] = self._stage("map", job.map.task + job.map.row * even)
        of_rows, of_keys = dealt(job.keys, job.zipf, reducers)
        random = self._kernel.stream("keys")
        mine = random.multinomial(rows.astype(np.int64), of_rows)
        work = job.reduce.task + job.reduce.row * mine + job.reduce.out * out[:, None] * of_keys
        took["reduce"] = self._stage("reduce", work)
        return {phase: took[phase] for phase in PHASES}

    def _stage(self, name: str, work: Array) -> Array:
        engine, random = self._engine, self._kernel.stream(f"{name} tasks")
        taken = work * engine.task.sample(random, work.size).reshape(work.shape)
        ends = executors_end(taken, self._cluster, engine.dispatch, engine.crowding)
        took: Array = self._paused(ends).max(axis=1)
        return took

    def _paused(self, seconds: Array) -> Array:
        """With the pauses that fall into such times."""
        engine = self._engine
        if engine.pause_every == math.inf:
            return seconds
        random = self._kernel.stream("pauses")
        many = random.poisson(seconds / engine.pause_every).ravel()
        which = np.repeat(np.arange(many.size), many)
        added = np.bincount(which, engine.pause.sample(random, which.size), minlength=many.size)
        return seconds + added.reshape(seconds.shape)


def executors_end(work: Array, cluster: Cluster, dispatch: float, crowding: float) -> Array:
    """When the last task of a stage ends on each executor: a row of tasks for each query.

    Tasks are dealt to the executors in turn. Those of a single wave slow each other for as long as
    both are at work, as if begun together; with more tasks than slots all cores are taken to be at
    work all the time, and a task goes to the slot that is free first.

    >>> executors_end(np.array([[1.0, 3.0]]), Cluster(1, 2), 0.0, 0.5)
    array([[3.5]])
    >>> executors_end(np.array([[1.0, 3.0, 1.0]]), Cluster(2, 1), 0.0, 0.0)
    array([[2., 3.]])
    """
    tasks, slots, executors = work.shape[1], cluster.slots, cluster.executors
    started = dispatch * np.arange(1.0, tasks + 1.0)
    if tasks <= slots:
        each = math.ceil(tasks / executors)
        # where an executor has a task less than others, one that takes no time
        all_tasks, begun = np.zeros((len(work), each * executors)), np.zeros(each * executors)
        all_tasks[:, :tasks], begun[:tasks] = work, started
        mine = all_tasks.reshape(len(work), each, executors).swapaxes(1, 2)
        begun = begun.reshape(each, executors).T
        order = np.argsort(mine, axis=2)
        ranked = np.take_along_axis(mine, order, axis=2)
        # until the shortest is done all slow each other, then one less, and so on
        slower = 1.0 + crowding * np.arange(each - 1.0, -1.0, -1.0)
        took = np.cumsum(np.diff(ranked, axis=2, prepend=0.0) * slower, axis=2)
        begins = np.take_along_axis(np.broadcast_to(begun, mine.shape), order, axis=2)
        last: Array = (begins + took).max(axis=2)
        return last
    slowed = work * (1.0 + crowding * (cluster.cores - 1))
    free = started[:slots] + slowed[:, :slots]
    queries = np.arange(len(work))
    for task in range(slots, tasks):
        slot = free.argmin(axis=1)
        begins = np.maximum(free[queries, slot], started[task])
        free[queries, slot] = begins + slowed[:, task]
    last = free.reshape(len(work), cluster.cores, executors).max(axis=1)
    return last


class Outcome:
    """What the measured batches took, and how late results were."""

    def __init__(
        self, job: Job, settings: Settings, rate: float, batches: list[Batch], endless: bool
    ) -> None:
        self.batches = batches
        self._settings, self._rate = settings, rate
        self._windowed = job.window > 0.0
        self.endless = endless
        """Batches grew without end, and so would latency."""
        self._spans = Spans(*np.empty((3, 0)))
        if not endless:
            self._spans = _of_windows(batches) if job.window else _of_rows(batches)

    @property
    def mean(self) -> float:
        """Seconds on average, of rows or of windows."""
        return math.inf if self.endless else self._spans.moments().mean

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the rows, or windows, were out."""
        return math.inf if self.endless else self._spans.quantile(share)

    def samples(self) -> Iterator[Sample]:
        """The batches of each query, as a profile has them."""
        for query in range(len(self.batches[0].start)):
            for batch in self.batches:
                # the watermark that a batch runs with came with the rows of the one before it,
                # which in a backlog are as many
                swept = float(batch.last[query] - batch.first[query]) if self._windowed else 0.0
                yield Sample(
                    self._settings.lanes,
                    self._settings.reducers,
                    int(batch.rows[query]),
                    int(batch.out[query]),
                    0,
                    {phase: float(took[query]) for phase, took in batch.seconds.items()},
                    swept,
                )

    def check(self) -> None:
        """Assert what holds of batches that follow each other."""
        every = self._settings.trigger
        for batch in self.batches:
            assert all((took >= 0.0).all() for took in batch.seconds.values())
            assert (batch.last <= batch.start + 1e-6).all(), "no row is taken before it comes"
            assert np.allclose(batch.rows, self._rate * (batch.last - batch.first), atol=1e-3)
            late = batch.next_start - batch.ended
            assert (late >= 0.0).all()
            waited = batch.next_start[late > 0.0]
            assert not waited.size or np.allclose(waited, every * np.rint(waited / every))
        for before, after in zip(self.batches, self.batches[1:], strict=False):
            assert (after.start == before.next_start).all()
            assert (after.first == before.last).all(), "each row is taken, once"


def _of_rows(batches: list[Batch]) -> Spans:
    low, width, rows = (
        np.concatenate(column)
        for column in zip(
            *((b.written - b.last, b.last - b.first, b.rows) for b in batches), strict=True
        )
    )
    some = rows > 0.0
    return Spans(low[some], width[some], rows[some])


def _of_windows(batches: list[Batch]) -> Spans:
    late = np.concatenate([b.written - end for b in batches for end in b.closed] or [np.empty(0)])
    late = late[~np.isnan(late)]
    return Spans(late, np.zeros_like(late), np.ones_like(late))

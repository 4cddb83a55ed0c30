"""Many windowed queries as Spark runs them: micro-batches, each with a fixed cost.

A batch reads what has arrived; the watermark that it computes takes effect in the next one, so a
window comes out with the second batch after the row that passes its end. Under a policy, queries
are held between batches by the very object that holds them on Spark
(:class:`taut.policy.turns.Turns`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from taut.policy.cost import BatchCost
from taut.policy.slack import DelayHistory
from taut.policy.turns import State, Turns
from taut.policy.view import Operator, Policy, QueryView, Stream
from taut.sim.draws import Array, Draws, drawing
from taut.sim.kernel import Kernel
from taut.sim.queries.checks import check_names, check_policy, check_times
from taut.sim.queries.cores import Cores


@dataclass(frozen=True, slots=True)
class Query:
    """One windowed query.

    Attributes
    ----------
    rate
        Rows a second.
    window
        Seconds; windows follow each other from ``offset`` on.
    fixed
        Core seconds of a batch without rows.
    row_cost
        Core seconds of a row.
    delay
        From a window's end until the row arrives that passes it.
    objective
        Seconds after its end by which a window should be out.
    """

    name: str
    rate: float
    window: float
    fixed: float
    row_cost: float
    delay: Draws
    offset: float = 0.0
    objective: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rate", "window", "fixed", "objective"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{self.name}: {name}={getattr(self, name)}: must be above 0")
        if not self.row_cost >= 0.0:
            raise ValueError(f"{self.name}: row_cost={self.row_cost}: must not be negative")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What runs them.

    Attributes
    ----------
    cores
        Batches share them evenly.
    concurrency
        Turns at a time, where there is a policy.
    hold_limit
        Seconds after which a held query goes first.
    """

    cores: float = 2.0
    concurrency: int = 1
    hold_limit: float = 60.0

    def run(
        self,
        queries: Sequence[Query],
        policy: Policy | None,
        seconds: float,
        warm_up: float = 0.0,
        seed: int = 0,
    ) -> Outcome:
        """Windows that end in ``seconds`` after the warm-up are measured; None is stock Spark."""
        check_names([query.name for query in queries])
        check_times(seconds, warm_up)
        kernel = Kernel(seed)
        running = Running(
            [_Drawn(query, kernel) for query in queries],
            Cores(kernel, self.cores),
            None if policy is None else self.turns(policy),
            kernel,
        )
        running.begin()
        end = warm_up + seconds
        kernel.run(end)
        while not running.past(end):
            kernel.run(kernel.now + 1.0)
        running.check()
        return Outcome(running, warm_up, end)

    def turns(self, policy: Policy) -> Turns:
        """Who may run, by a policy."""
        return Turns(policy, concurrency=self.concurrency, hold_limit=self.hold_limit)


class QueryAtWork(ABC):
    """A query at work, whatever its arrivals and costs are taken from."""

    batches_a_turn = 2
    """Batches from the start of a turn to its output: one reads, the next puts out."""

    def __init__(self, name: str, objective: float, begins: float = 0.0) -> None:
        self.name = name
        self.objective = objective
        self.begins = begins
        """When its first batch is planned."""
        self.read = begins
        """Up to when rows have been read, by arrival."""
        self.watermark = -math.inf
        """That the next batch runs with."""
        self.out: list[tuple[float, float]] = []
        """Ends of windows, and when each came out."""
        self.batches = 0
        self.history = DelayHistory()
        self.cost = BatchCost()

    @abstractmethod
    def ingest(self, now: float) -> float:
        """Read what has arrived; the core seconds of the batch from here on."""

    @abstractmethod
    def emit(self, watermark: float, now: float) -> None:
        """A batch has ended that ran with this watermark."""

    @abstractmethod
    def passed(self) -> float:
        """The watermark after what was read."""

    @abstractmethod
    def past(self, end: float) -> bool:
        """Whether all windows that end by then are out."""

    @abstractmethod
    def streams(self, now: float) -> tuple[Stream, ...]:
        """What the next window waits for, as a policy sees it; nothing without a window."""

    @abstractmethod
    def operators(self, waiting: float) -> tuple[Operator, ...]:
        """Its pipeline with what came in so many seconds waiting before it."""

    def lead(self, now: float) -> float:
        """Core seconds of a batch before it reads; asked once for every batch."""
        return 0.0

    def next_data(self, now: float) -> float:
        """When there is something to read: now, unless nothing comes for a while."""
        return now

    def over(self, now: float) -> bool:
        """Whether it plans no more batches."""
        return False

    def view(self, now: float, turns: Turns) -> QueryView:
        """As a policy sees it."""
        waiting = now - self.read
        return QueryView(
            self.name,
            held_since=turns.since(self.name),
            last_turn=turns.last_turn(self.name),
            oldest=self.read,
            batch_cost=self.cost.fixed,
            queued_cost=self.cost.per_second * waiting,
            batches=self.batches_a_turn,
            streams=self.streams(now),
            objective=self.objective,
            operators=self.operators(waiting),
        )

    def check(self) -> None:
        """Assert what holds between events."""
        self.history.check()
        self.cost.check()
        ends = [end for end, _ in self.out]
        assert ends == sorted(set(ends))


class _Drawn(QueryAtWork):
    """A query whose delays are drawn and whose rows come at a steady rate."""

    def __init__(self, spec: Query, kernel: Kernel) -> None:
        super().__init__(spec.name, spec.objective)
        self.spec = spec
        self._delay = drawing(spec.delay, kernel.stream(f"{spec.name}/delay"), together=64)
        self._arrivals: dict[int, float] = {}
        self._swept = 0
        self._came_out = 0

    def end(self, window: int) -> float:
        """When a window ends."""
        return self.spec.offset + (window + 1) * self.spec.window

    def arrival(self, window: int) -> float:
        """When the row arrives that passes a window's end; never before that of the one before."""
        while window not in self._arrivals:
            n = len(self._arrivals)
            before = self._arrivals.get(n - 1, -math.inf)
            self._arrivals[n] = max(before, self.end(n) + self._delay())
        return self._arrivals[window]

    def ingest(self, now: float) -> float:
        rows = self.spec.rate * (now - self.read)
        self.read = now
        while self.arrival(self._swept) <= now:
            self.history.close(self.arrival(self._swept) - self.end(self._swept))
            self._swept += 1
        return self.spec.fixed + rows * self.spec.row_cost

    def emit(self, watermark: float, now: float) -> None:
        while self.end(self._came_out) <= watermark:
            self.out.append((self.end(self._came_out), now))
            self._came_out += 1

    def passed(self) -> float:
        return self.end(self._swept - 1) if self._swept else -math.inf

    def past(self, end: float) -> bool:
        return bool(self.out) and self.out[-1][0] + self.spec.window > end

    def streams(self, now: float) -> tuple[Stream, ...]:
        return (Stream(self.end(self._came_out), self.history.estimate()),)

    def operators(self, waiting: float) -> tuple[Operator, ...]:
        return (Operator(self.spec.rate * waiting, 0.01, max(self.spec.row_cost, 1e-9)),)


class Running:
    """All queries at work, on cores that they share."""

    IDLE_AFTER = 0.3
    """Seconds after which a turn without data ends, as on Spark."""

    def __init__(
        self, queries: Iterable[QueryAtWork], cores: Cores, turns: Turns | None, kernel: Kernel
    ) -> None:
        self.queries = {query.name: query for query in queries}
        self.cores = cores
        self.turns = turns
        self._kernel = kernel
        self._asked = math.inf

    def begin(self) -> None:
        """All plan their first batch, those that begin later then."""
        for name, query in self.queries.items():
            if query.begins <= self._kernel.now:
                self._add(name)
            else:
                self._kernel.at(query.begins, self._join, name)
        self._grant(None)

    def past(self, end: float) -> bool:
        """Whether all windows that end by then are out."""
        return all(query.past(end) for query in self.queries.values())

    def check(self) -> None:
        """Assert what holds between events."""
        self._kernel.check()
        self.cores.check()
        if self.turns is not None:
            self.turns.check()
            assert self.turns.failure is None, self.turns.failure
            check_policy(self.turns.policy)
        for query in self.queries.values():
            query.check()

    def _join(self, name: str) -> None:
        self._add(name)
        self._grant(None)

    def _add(self, name: str) -> None:
        if self.turns is not None:
            self.turns.add(name, self._kernel.now)
        self._plan(name)

    def _plan(self, name: str) -> None:
        query, turns, now = self.queries[name], self.turns, self._kernel.now
        if query.over(now):
            if turns is not None:
                turns.remove(name)
                self._kernel.after(0.0, self._grant)
            return
        data = query.next_data(now)
        if data > now:
            self._kernel.at(data, self._found, name)
            if turns is not None and turns.state(name) is State.RUNNING:
                self._kernel.at(min(data, now + self.IDLE_AFTER), self._idle, (name, data))
        elif turns is None or turns.planned(name, now):
            self._run(name)

    def _idle(self, waits: tuple[str, float]) -> None:
        """A query with a turn has found no data for a while."""
        name, data = waits
        if self.turns is not None and data > self._kernel.now:
            self.turns.idle(name, self._kernel.now)
            self._grant(None)

    def _found(self, name: str) -> None:
        """Data has come to a query that had none."""
        self._plan(name)
        self._grant(None)

    def _run(self, name: str) -> None:
        begun = self._kernel.now
        lead = self.queries[name].lead(begun)
        if lead > 0.0:
            self.cores.work(lead, lambda: self._read(name, begun))
        else:
            self._read(name, begun)

    def _read(self, name: str, begun: float) -> None:
        query, now = self.queries[name], self._kernel.now
        watermark, input_s = query.watermark, now - query.read
        seconds = query.ingest(now)
        query.watermark = query.passed()

        def ended() -> None:
            query.batches += 1
            query.cost.observe(input_s, self._kernel.now - begun)
            query.emit(watermark, self._kernel.now)
            self._ended(name, watermark)

        self.cores.work(seconds, ended)

    def _ended(self, name: str, watermark: float) -> None:
        turns = self.turns
        if turns is None:
            self._plan(name)
            return
        known = None if watermark == -math.inf else watermark
        if turns.written(name, self._kernel.now, known):
            self._plan(name)
        elif self.queries[name].over(self._kernel.now):
            turns.remove(name)
        self._grant(None)

    def _grant(self, asked: float | None) -> None:
        """Let queries run that may, and look again when that can change."""
        turns, now = self.turns, self._kernel.now
        if turns is None or (asked is not None and asked != self._asked):
            return
        planned = set(turns.names(State.PLANNED))
        granted, again = turns.grant(
            now, lambda names: [self.queries[name].view(now, turns) for name in names]
        )
        self._asked = math.inf
        for name in granted:
            if name in planned:
                self._run(name)
            else:
                self._plan(name)
        if again is not None:
            self._asked = max(again, now + 1e-6)
            self._kernel.at(self._asked, self._grant, self._asked)


class Outcome:
    """What a run has shown."""

    def __init__(self, running: Running, since: float, until: float) -> None:
        measured = array("d")
        for query in running.queries.values():
            measured.extend(out - end for end, out in query.out if since < end <= until)
        self.latencies: Array = np.array(measured)
        """Seconds from a window's end until it was out."""
        self.batches = sum(query.batches for query in running.queries.values())
        self.used = running.cores.used
        """Core seconds."""

    @property
    def mean(self) -> float:
        """Seconds on average."""
        return float(self.latencies.mean())

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the windows were out."""
        return float(np.quantile(self.latencies, share, method="inverted_cdf"))

"""Many windowed queries as Spark runs them: micro-batches, each with a fixed cost.

A batch reads what has arrived; the watermark that it computes takes effect in the next one, so a
window comes out with the second batch after the row that passes its end. Under a policy, queries
are held between batches by the very object that holds them on Spark
(:class:`taut.policy.turns.Turns`).
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
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
        running = _Running(self, queries, policy, kernel)
        running.begin()
        end = warm_up + seconds
        kernel.run(end)
        while not running.past(end):
            kernel.run(kernel.now + 1.0)
        running.check()
        return Outcome(running, warm_up, end)


class _Stream:
    """A query at work."""

    def __init__(self, spec: Query, kernel: Kernel) -> None:
        self.spec = spec
        self.read = 0.0
        """Up to when rows have been read, by arrival."""
        self.watermark = -math.inf
        """That the next batch runs with."""
        self.out: list[tuple[float, float]] = []
        """Ends of windows, and when each came out."""
        self.batches = 0
        self.history = DelayHistory()
        self.cost = BatchCost()
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

    @property
    def sweep(self) -> float:
        """The end of the first window that is not out."""
        return self.end(self._came_out)

    def ingest(self, now: float) -> float:
        """Read what has arrived; the core seconds of the batch."""
        rows = self.spec.rate * (now - self.read)
        self.read = now
        while self.arrival(self._swept) <= now:
            self.history.close(self.arrival(self._swept) - self.end(self._swept))
            self._swept += 1
        return self.spec.fixed + rows * self.spec.row_cost

    def emit(self, watermark: float, now: float) -> None:
        """A batch has ended that ran with this watermark."""
        while self.end(self._came_out) <= watermark:
            self.out.append((self.end(self._came_out), now))
            self._came_out += 1

    def passed(self) -> float:
        """The watermark after what was read: the last end that was passed."""
        return self.end(self._swept - 1) if self._swept else -math.inf

    def view(self, now: float, turns: Turns) -> QueryView:
        """As a policy sees it."""
        name, spec = self.spec.name, self.spec
        waiting = now - self.read
        return QueryView(
            name,
            held_since=turns.since(name),
            last_turn=turns.last_turn(name),
            oldest=self.read,
            batch_cost=self.cost.fixed,
            queued_cost=self.cost.per_second * waiting,
            batches=2,
            streams=(Stream(self.sweep, self.history.estimate()),),
            objective=spec.objective,
            operators=(Operator(spec.rate * waiting, 0.01, max(spec.row_cost, 1e-9)),),
        )


class _Running:
    """All queries at work."""

    def __init__(
        self, spec: Cluster, queries: Sequence[Query], policy: Policy | None, kernel: Kernel
    ) -> None:
        self.streams = {query.name: _Stream(query, kernel) for query in queries}
        self.cores = Cores(kernel, spec.cores)
        self.turns: Turns | None = None
        if policy is not None:
            self.turns = Turns(policy, concurrency=spec.concurrency, hold_limit=spec.hold_limit)
        self._kernel = kernel
        self._asked = math.inf

    def begin(self) -> None:
        """All plan their first batch."""
        for name in self.streams:
            if self.turns is not None:
                self.turns.add(name, 0.0)
            self._plan(name)
        self._grant(None)

    def past(self, end: float) -> bool:
        """Whether all windows that end by then are out."""
        return all(
            stream.out and stream.out[-1][0] + stream.spec.window > end
            for stream in self.streams.values()
        )

    def check(self) -> None:
        """Assert what holds between events."""
        self._kernel.check()
        self.cores.check()
        if self.turns is not None:
            self.turns.check()
            assert self.turns.failure is None, self.turns.failure
            check_policy(self.turns.policy)
        for stream in self.streams.values():
            stream.history.check()
            stream.cost.check()
            ends = [end for end, _ in stream.out]
            assert ends == sorted(set(ends))

    def _plan(self, name: str) -> None:
        if self.turns is None or self.turns.planned(name, self._kernel.now):
            self._run(name)

    def _run(self, name: str) -> None:
        stream, begun = self.streams[name], self._kernel.now
        watermark, input_s = stream.watermark, begun - stream.read
        seconds = stream.ingest(begun)
        stream.watermark = stream.passed()

        def ended() -> None:
            stream.batches += 1
            stream.cost.observe(input_s, self._kernel.now - begun)
            stream.emit(watermark, self._kernel.now)
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
        self._grant(None)

    def _grant(self, asked: float | None) -> None:
        """Let queries run that may, and look again when that can change."""
        turns, now = self.turns, self._kernel.now
        if turns is None or (asked is not None and asked != self._asked):
            return
        planned = set(turns.names(State.PLANNED))
        granted, again = turns.grant(
            now, lambda names: [self.streams[name].view(now, turns) for name in names]
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

    def __init__(self, running: _Running, since: float, until: float) -> None:
        measured = array("d")
        for stream in running.streams.values():
            measured.extend(out - end for end, out in stream.out if since < end <= until)
        self.latencies: Array = np.array(measured)
        """Seconds from a window's end until it was out."""
        self.batches = sum(stream.batches for stream in running.streams.values())
        self.used = running.cores.used
        """Core seconds."""

    @property
    def mean(self) -> float:
        """Seconds on average."""
        return float(self.latencies.mean())

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the windows were out."""
        return float(np.quantile(self.latencies, share, method="inverted_cdf"))

"""Many windowed queries as an engine with an operator at a time runs them, cycle by cycle.

Events wait before the first operator of their query, in memory, and go through all of them at
once: what waits between operators is not modelled, so that selectivity makes no room. Every cycle
a policy says in which order queries have a core; a core that is done with one goes on to the next.
A window is out when all that came before its sweeping watermark has been worked through. Near the
bound of memory work becomes slower, for the engine collects garbage; at the bound sources are
held, and events wait outside.

Latency counts as the works measure it, by markers that sources send along: from the window's end,
without the time that a held source did not let the watermark in.
"""

from __future__ import annotations

import math
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import chain
from typing import NamedTuple

import numpy as np

from taut.policy.memory import MemoryManaged
from taut.policy.slack import DelayHistory
from taut.policy.view import Operator, Policy, QueryView, Stream
from taut.sim.draws import Array, Draws, drawing
from taut.sim.kernel import Kernel
from taut.sim.queries.checks import check_names, check_times


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One query.

    Attributes
    ----------
    rate
        Events a second.
    window
        Seconds between the ends of windows, from ``offset`` on.
    steps
        Of each operator: seconds an event, and events out for one in.
    delay
        From a window's end until its sweeping watermark arrives.
    inputs
        Streams that are joined: a window is swept when the last of them has passed its end.
    """

    name: str
    rate: float
    window: float
    steps: tuple[tuple[float, float], ...]
    delay: Draws
    offset: float = 0.0
    inputs: int = 1

    def __post_init__(self) -> None:
        for name in ("rate", "window"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{self.name}: {name}={getattr(self, name)}: must be above 0")
        if self.inputs < 1:
            raise ValueError(f"{self.name}: inputs={self.inputs}: at least 1 is needed")
        if not self.event_cost > 0.0 or any(cost < 0.0 or out < 0.0 for cost, out in self.steps):
            raise ValueError(f"{self.name}: steps={self.steps}: an event must cost something")

    @property
    def event_cost(self) -> float:
        """Seconds that an event takes on its way through all operators."""
        cost, kept = 0.0, 1.0
        for seconds, selectivity in self.steps:
            cost += kept * seconds
            kept *= selectivity
        return cost


@dataclass(frozen=True, slots=True)
class Node:
    """A machine.

    Attributes
    ----------
    cores
        Queries that run at a time.
    cycle
        Seconds from one decision to the next.
    memory
        Events that may wait in it.
    pressure, slower
        From this share of the memory on, work takes so many times as long.
    """

    cores: int = 4
    cycle: float = 0.12
    memory: float = 20e6
    pressure: float = 0.9
    slower: float = 1.3

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise ValueError(f"cores={self.cores}: at least 1 is needed")
        for name in ("cycle", "memory", "pressure"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        if not self.slower >= 1.0:
            raise ValueError(f"slower={self.slower}: at least 1")

    def run(
        self,
        queries: Sequence[Pipeline],
        policy: Policy | None,
        seconds: float,
        warm_up: float = 0.0,
        seed: int = 0,
    ) -> Outcome:
        """Watermarks that come after the warm-up count; without a policy all share the cores."""
        check_names([query.name for query in queries])
        check_times(seconds, warm_up)
        kernel = Kernel(seed)
        working = [_Working(query, kernel) for query in queries]
        turns = _Turns(self, policy, working)
        used = []
        cycles = math.ceil((warm_up + seconds) / self.cycle)
        for n in range(cycles):
            now = n * self.cycle
            self._let_in(working, now)
            share = sum(each.waiting for each in working) / self.memory
            used.append(share)
            turns.spend(now, share, self.slower if share >= self.pressure else 1.0)
        for each in working:
            each.check()
        if isinstance(policy, MemoryManaged):
            policy.check()
        return Outcome(working, warm_up, cycles * self.cycle, used)

    def _let_in(self, working: Sequence[_Working], upto: float) -> None:
        """Events come; those for which there is no room wait outside, all sources alike."""
        for each in working:
            each.generate(upto)
        wanted = sum(each.outside for each in working)
        room = self.memory - sum(each.waiting for each in working)
        part = min(1.0, max(0.0, room) / wanted) if wanted else 1.0
        for each in working:
            each.let_in(part, upto)


class _Mark(NamedTuple):
    """A sweeping watermark: its window's end, when it came, and how many events are before it.

    ``delays`` are those of the inputs, of which the last has made it; ``network`` is how long after
    the end it was sent to the source, which may have let it in later.
    """

    end: float
    came: float
    before: float
    delays: tuple[float, ...]
    network: float


class _Working:
    """A query at work; events are counted, not kept."""

    def __init__(self, spec: Pipeline, kernel: Kernel) -> None:
        self.spec = spec
        self.generated = self.came = self.done = 0.0
        """Events so far: sent, let in, and through."""
        self.last_turn = -math.inf
        self.histories = [DelayHistory() for _ in range(spec.inputs)]
        self.out: list[tuple[float, float]] = []
        """When watermarks came, and how late their windows were out."""
        self.marks: deque[_Mark] = deque()
        """Sweeping watermarks that were let in and are not through."""
        self._held: deque[_Mark] = deque()
        self._looked = -math.inf
        self._cost = spec.event_cost
        self._delay = drawing(spec.delay, kernel.stream(f"{spec.name}/delay"), together=64)
        self._window = 0
        self._next = self._draw(0, -math.inf)

    @property
    def waiting(self) -> float:
        """Events in memory."""
        return self.came - self.done

    @property
    def outside(self) -> float:
        """Events that the source has not let in."""
        return self.generated - self.came

    def generate(self, upto: float) -> None:
        """Events are sent until then."""
        while self._next.came <= upto:
            self._held.append(self._next)
            self._window += 1
            self._next = self._draw(self._window, self._next.came)
        self.generated = self.spec.rate * upto

    def let_in(self, part: float, now: float) -> None:
        """This part of what is outside comes in."""
        self.came = self.generated if part >= 1.0 else self.came + part * self.outside
        while self._held and self._held[0].before <= self.came:
            mark = self._held.popleft()
            for history, delay in zip(self.histories, mark.delays, strict=True):
                history.close(delay)
            # one that was held since a cycle before came when it was let in
            self.marks.append(mark if mark.came > self._looked else mark._replace(came=now))
        self._looked = now

    def work(self, now: float, seconds: float, slower: float) -> float:
        """Have a core from now on for so long at most, and say how long it took."""
        cost = self._cost * slower
        events = min(self.waiting, seconds / cost)
        begin, self.done = self.done, self.done + events
        if self.came - self.done < 1e-6:
            self.done = self.came
        while self.marks and self.marks[0].before <= self.done:
            mark = self.marks.popleft()
            over = now + max(0.0, mark.before - begin) * cost
            self.out.append((mark.came, over - mark.came + mark.network))
        return events * cost

    def view(self, now: float) -> QueryView:
        """As a policy sees it."""
        spec = self.spec
        first = next(chain(self.marks, self._held, (self._next,)))
        return QueryView(
            spec.name,
            held_since=self.last_turn,
            last_turn=self.last_turn,
            oldest=self.done / spec.rate,
            batch_cost=0.0,
            queued_cost=self.waiting * self._cost,
            streams=tuple(Stream(first.end, history.estimate()) for history in self.histories),
            operators=tuple(
                Operator(0.0 if n else self.waiting, selectivity, seconds)
                for n, (seconds, selectivity) in enumerate(spec.steps)
            ),
        )

    def check(self) -> None:
        """Assert what holds between cycles."""
        assert -1e-6 <= self.done <= self.came <= self.generated + 1e-6
        assert all(late >= 0.0 for _, late in self.out)
        for history in self.histories:
            history.check()

    def _draw(self, window: int, before: float) -> _Mark:
        """The watermark that sweeps a window; never before that of the one before."""
        end = self._end(window)
        delays = tuple(self._delay() for _ in self.histories)
        came = max(before, end + max(delays))
        return _Mark(end, came, self.spec.rate * came, delays, came - end)

    def _end(self, window: int) -> float:
        return self.spec.offset + (window + 1) * self.spec.window


class _Turns:
    """Who has a core, and for how long."""

    def __init__(self, node: Node, policy: Policy | None, working: Sequence[_Working]) -> None:
        self._node = node
        self._policy = policy
        self._working = {each.spec.name: each for each in working}
        self._kept: list[str] = []

    def spend(self, now: float, used: float, slower: float) -> None:
        """Work for a cycle."""
        busy = [each for each in self._working.values() if each.waiting > 0.0]
        if self._policy is None:
            self._share(busy, now, slower)
            return
        if isinstance(self._policy, MemoryManaged):
            self._policy.observe(now, min(1.0, used))
        views = {each.spec.name: each.view(now) for each in busy}
        # until its watermark is through, where the policy wants that
        self._kept = [name for name in self._kept if self._working[name].marks and name in views]
        first = self._kept.copy()
        free = [(now, core) for core in range(self._node.cores)]
        end = now + self._node.cycle
        while views and free[0][0] < end - 1e-9:
            at = free[0][0]
            name = first.pop(0) if first else self._choose(now, list(views.values()))
            if name is None:
                return  # the policy leaves the cores idle until the next cycle
            del views[name]
            each = self._working[name]
            took = each.work(at, end - at, slower)
            # a turn that the end of the cycle cuts short goes on in the next, or whoever is last
            # in a round would be last for ever
            if at <= now or each.waiting <= 0.0:
                each.last_turn = at
            heapreplace(free, (at + took, free[0][1]))

    def _share(self, busy: Sequence[_Working], now: float, slower: float) -> None:
        """All have a core in turns, so short that they seem to work at once."""
        left = self._node.cycle * self._node.cores
        for n, each in enumerate(
            sorted(busy, key=lambda each: each.waiting * each.spec.event_cost)
        ):
            part = left / (len(busy) - n)
            part = min(part, self._node.cycle)
            left -= each.work(now, part, slower)

    def _choose(self, now: float, views: Sequence[QueryView]) -> str | None:
        assert self._policy is not None
        decision = self._policy.decide(now, views)
        name = decision.run
        if name is not None and decision.until == "swept" and self._working[name].marks:
            self._kept.append(name)
        return name


class Outcome:
    """What a run has shown."""

    def __init__(
        self, working: Sequence[_Working], since: float, until: float, used: Sequence[float]
    ) -> None:
        late = array("d")
        for each in working:
            late.extend(late_by for came, late_by in each.out if came > since)
            # those that are not out yet are at least as late as now
            late.extend(
                until - mark.came + mark.network for mark in each.marks if mark.came > since
            )
        self.latencies: Array = np.array(late)
        assert (self.latencies >= 0.0).all()
        """Seconds from a window's end until it was out, without what a source was held."""
        self.events = sum(each.done for each in working)
        """That are through."""
        self.throughput = self.events / until
        """Of them a second."""
        self.memory: Array = np.array(used)
        """Share of the memory in use, cycle by cycle."""

    @property
    def mean(self) -> float:
        """Seconds on average."""
        return float(self.latencies.mean())

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the windows were out."""
        return float(np.quantile(self.latencies, share, method="inverted_cdf"))

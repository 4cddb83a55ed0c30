"""Many windowed queries as an engine with an operator at a time runs them, cycle by cycle.

Every operator of a query has a queue before it, in memory. Every cycle a policy says in which order
queries have a core; a core that is done with one goes on to the next. Without a policy all that
have work share the cores evenly. A core works on one operator of its query at a time, from the
first to the last: that takes a train of events, and those after it all that waits before them. So
a filter that has run has freed memory, whether or not the rest of the pipeline has. What windows
keep as their state takes none.

A window is out when all that came before its sweeping watermark is through the last operator. Near
the bound of memory work becomes slower, for the engine collects garbage; at the bound sources are
held, and events wait outside. Latency counts from the window's end, whoever held the watermark.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapreplace
from itertools import accumulate, chain
from operator import mul
from typing import NamedTuple

import numpy as np

from taut.policy.memory import MemoryManaged
from taut.policy.order import StreamBox
from taut.policy.slack import DelayHistory
from taut.policy.view import Operator, Policy, QueryView, Stream
from taut.sim.draws import Array, Draws, drawing
from taut.sim.kernel import Kernel
from taut.sim.queries.checks import check_names, check_policy, check_times
from taut.sim.queries.cores import Together


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
        if not self.event_cost > 0.0 or any(cost < 0.0 or out <= 0.0 for cost, out in self.steps):
            raise ValueError(
                f"{self.name}: steps={self.steps}: an event must cost something, and leave a part"
            )

    @property
    def kept(self) -> tuple[float, ...]:
        """Of an event of the source, how much comes to each operator."""
        return tuple(accumulate((out for _, out in self.steps[:-1]), mul, initial=1.0))

    @property
    def event_cost(self) -> float:
        """Seconds that an event takes on its way through all operators."""
        return sum(kept * step[0] for kept, step in zip(self.kept, self.steps, strict=False))


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
    train
        Events that the first operator works through before the next one has the core.
    """

    cores: int = 4
    cycle: float = 0.12
    memory: float = 20e6
    pressure: float = 0.9
    slower: float = 1.3
    train: float = 1_000.0

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise ValueError(f"cores={self.cores}: at least 1 is needed")
        for name in ("cycle", "memory", "pressure", "train"):
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
        """Windows that end in ``seconds`` after the warm-up are measured; None shares the cores.

        The run goes on until they are out, but no longer than ``seconds`` again: one that is not
        out then counts as late as it is by then, and as missed.
        """
        check_names([query.name for query in queries])
        check_times(seconds, warm_up)
        kernel = Kernel(seed)
        working = [_Working(query, self.train, kernel) for query in queries]
        turns = _Turns(self, policy, working)
        since, until = warm_up, warm_up + seconds
        used, through, times, now = array("d"), array("d"), array("d"), 0.0
        while now < until or (now < until + seconds and any(each.owes(until) for each in working)):
            self._let_in(working, now)
            times.append(now)
            through.append(sum(each.done for each in working))
            used.append(sum(each.waiting for each in working) / self.memory)
            turns.spend(now, used[-1], self.slower if used[-1] >= self.pressure else 1.0)
            now = len(used) * self.cycle
        through.append(sum(each.done for each in working))
        kernel.check()
        check_policy(policy)
        for each in working:
            each.check()
        first, last = bisect_left(times, since), bisect_left(times, until)
        return Outcome(
            [window for each in working for window in each.windows(since, until)],
            now,
            through[last],
            (through[last] - through[first]) / (max(1, last - first) * self.cycle),
            np.array(used[:last]),
        )

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

    ``delays`` are those of the inputs, of which the last has made it.
    """

    end: float
    came: float
    before: float
    delays: tuple[float, ...]


class _Window(NamedTuple):
    """When it ended, when its watermark was let in, and when it was out; infinity if not yet."""

    end: float
    let_in: float
    out: float


class _Working:
    """A query at work; events are counted, not kept.

    All counts are in events of the source: of those, ``kept`` says how many come to an operator.
    """

    def __init__(self, spec: Pipeline, train: float, kernel: Kernel) -> None:
        self.spec = spec
        self.generated = self.came = 0.0
        """Events so far: sent, and let in."""
        self.last_turn = -math.inf
        self.histories = [DelayHistory() for _ in range(spec.inputs)]
        self.marks: deque[_Mark] = deque()
        """Sweeping watermarks that were let in and are not through."""
        self._out: list[_Window] = []
        self._held: deque[_Mark] = deque()
        self._looked = -math.inf
        self._train = train
        self._kept = spec.kept
        self._costs = [kept * step[0] for kept, step in zip(self._kept, spec.steps, strict=True)]
        self._onward = list(accumulate(reversed(self._costs)))[::-1]
        """Seconds of an event from each operator to the output."""
        self._passed = [0.0] * len(spec.steps)
        """Events that are through each operator."""
        self._at, self._upto = 0, 0.0
        """The operator that is worked on, and up to which event."""
        self._delay = drawing(spec.delay, kernel.stream(f"{spec.name}/delay"), together=64)
        self._window = 0
        self._next = self._draw(0, -math.inf)

    @property
    def done(self) -> float:
        """Events that are through all operators."""
        return self._passed[-1]

    @property
    def outside(self) -> float:
        """Events that the source has not let in."""
        return self.generated - self.came

    def queues(self) -> Iterator[float]:
        """What waits before each operator, in events of the source."""
        before = self.came
        for passed in self._passed:
            yield before - passed
            before = passed

    @property
    def waiting(self) -> float:
        """Events in memory."""
        return float(sum(map(mul, self.queues(), self._kept)))

    @property
    def cost(self) -> float:
        """Seconds that they take to the output."""
        return float(sum(map(mul, self.queues(), self._onward)))

    def owes(self, until: float) -> bool:
        """Whether a window that ended by then is not out."""
        return self._first.end <= until

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
            # one that was held since a cycle before came in only now
            self.marks.append(mark if mark.came > self._looked else mark._replace(came=now))
        self._looked = now

    def work(
        self, seconds: float, slower: float, when: Callable[[float], float], operators: int
    ) -> float:
        """Have a core for so long at most, for the first operators, and say how long it took.

        ``when`` gives the time at which so much of it is over.
        """
        used = 0.0
        while used < seconds and self._ready(operators):
            n, begin = self._at, self._passed[self._at]
            cost = self._costs[n] * slower
            events = self._upto - begin
            if events * cost > seconds - used:
                events = (seconds - used) / cost
            # what rounding leaves is done too
            passed = self._upto if self._upto - begin - events < 1e-6 else begin + events
            self._passed[n] = passed
            while n == len(self._costs) - 1 and self.marks and self.marks[0].before <= passed:
                mark = self.marks.popleft()
                out = when(used + max(0.0, mark.before - begin) * cost)
                self._out.append(_Window(mark.end, mark.came, out))
            used += events * cost
        return min(used, seconds)

    def windows(self, since: float, until: float) -> Iterator[_Window]:
        """All that ended between, out or not."""
        after = self._window
        while self._end(after) <= until:
            after += 1
        known = chain(
            self._out,
            (_Window(mark.end, mark.came, math.inf) for mark in self.marks),
            (_Window(mark.end, math.inf, math.inf) for mark in self._held),
            (_Window(self._end(n), math.inf, math.inf) for n in range(self._window, after)),
        )
        return (window for window in known if since < window.end <= until)

    def view(self, now: float) -> QueryView:
        """As a policy sees it."""
        spec, first = self.spec, self._first
        return QueryView(
            spec.name,
            held_since=self.last_turn,
            last_turn=self.last_turn,
            oldest=self.done / spec.rate,
            batch_cost=0.0,
            queued_cost=self.cost,
            streams=tuple(Stream(first.end, history.estimate()) for history in self.histories),
            operators=tuple(
                Operator(queued * kept, selectivity, seconds)
                for queued, kept, (seconds, selectivity) in zip(
                    self.queues(), self._kept, spec.steps, strict=True
                )
            ),
        )

    def check(self) -> None:
        """Assert what holds between cycles."""
        assert all(queued >= 0.0 for queued in self.queues())
        assert self.came <= self.generated + 1e-6
        assert all(window.end <= window.let_in <= window.out for window in self._out)
        ends = [window.end for window in self.windows(-math.inf, self._next.end)]
        assert len(ends) == self._window + 1 and ends == sorted(ends)
        for history in self.histories:
            history.check()

    @property
    def _first(self) -> _Mark:
        """The watermark of the first window that is not out."""
        return next(chain(self.marks, self._held, (self._next,)))

    def _ready(self, operators: int) -> bool:
        """Whether any of the first operators has work, after moving on to the one whose turn it is.

        The first takes a train, those after it all that waits before them.
        """
        if self._at < operators and self._passed[self._at] < self._upto:
            return True
        after = self._at + 1 if self._at + 1 < operators else 0
        for n in chain(range(after, operators), range(after)):
            before = self._passed[n - 1] if n else min(self.came, self._passed[0] + self._train)
            if before > self._passed[n]:
                self._at, self._upto = n, before
                return True
        return False

    def _draw(self, window: int, before: float) -> _Mark:
        """The watermark that sweeps a window; never before that of the one before."""
        end = self._end(window)
        delays = tuple(self._delay() for _ in self.histories)
        came = max(before, end + max(delays))
        return _Mark(end, came, self.spec.rate * came, delays)

    def _end(self, window: int) -> float:
        return self.spec.offset + (window + 1) * self.spec.window


class _Turns:
    """Who has a core, and for how long."""

    def __init__(self, node: Node, policy: Policy | None, working: Sequence[_Working]) -> None:
        self._node = node
        self._policy = policy
        self._working = {each.spec.name: each for each in working}
        self._kept: dict[str, float] = {}
        """By query that goes on until a window is out: the window's end."""

    def spend(self, now: float, used: float, slower: float) -> None:
        """Work for a cycle."""
        busy = [each for each in self._working.values() if each.cost > 0.0]
        if self._policy is None:
            self._share(busy, now, slower)
            return
        if isinstance(self._policy, MemoryManaged):
            self._policy.observe(now, min(1.0, used))
        views = {each.spec.name: each.view(now) for each in busy}
        self._kept = {
            name: end
            for name, end in self._kept.items()
            if name in views and self._working[name].owes(end)
        }
        first = list(self._kept)
        free = [(now, core) for core in range(self._node.cores)]
        end = now + self._node.cycle
        while views and free[0][0] < end - 1e-9:
            at = free[0][0]
            name = first.pop(0) if first else self._choose(now, list(views.values()))
            if name is None:
                return  # the policy leaves the cores idle until the next cycle
            each, view = self._working[name], views.pop(name)
            operators = len(view.operators)
            if isinstance(self._policy, MemoryManaged):
                operators = self._policy.cut(view)
            took = each.work(end - at, slower, at.__add__, operators)
            # a turn that the end of the cycle cuts short goes on in the next, or whoever is last
            # in a round would be last for ever
            if at <= now or each.cost <= 0.0:
                each.last_turn = at
            heapreplace(free, (at + took, free[0][1]))

    def _share(self, busy: Sequence[_Working], now: float, slower: float) -> None:
        """All have a core in turns, so short that they seem to work at once."""
        node, pieces = self._node, [each.cost * slower for each in busy]
        shared = Together(pieces, node.cores, now, now + node.cycle)
        for each, seconds in zip(busy, pieces, strict=True):
            # all of its work, where it gets so far: rounding must not leave any
            most = seconds * (1.0 + 1e-9) if seconds <= shared.level else shared.level
            each.work(most, slower, shared.when, len(each.spec.steps))

    def _choose(self, now: float, views: Sequence[QueryView]) -> str | None:
        assert self._policy is not None
        name = self._policy.decide(now, views).run
        # all others decide anew every cycle, as published
        if name is not None and isinstance(self._policy, StreamBox) and self._working[name].marks:
            self._kept[name] = self._working[name].marks[0].end
        return name


class Outcome:
    """What a run has shown."""

    def __init__(
        self, windows: Sequence[_Window], ended: float, events: float, rate: float, used: Array
    ) -> None:
        self.latencies: Array = np.array([min(w.out, ended) - w.end for w in windows])
        """Seconds from a window's end until it was out, or until the run was over."""
        inside = [min(w.out, ended) - w.let_in for w in windows if w.let_in < math.inf]
        self.inside: Array = np.array(inside)
        """Seconds that watermarks which a source has let in were inside; the time before that,
        while the source was held, is not in it."""
        self.missed = sum(w.out == math.inf for w in windows) / max(1, len(windows))
        """Share of the windows that were not out when the run was over."""
        self.events = events
        """Through all operators when the last window ended."""
        self.throughput = rate
        """Of them a second, while windows were measured."""
        self.memory = used
        """Share of the memory in use, cycle by cycle."""

    @property
    def mean(self) -> float:
        """Seconds on average."""
        return float(self.latencies.mean())

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the windows were out."""
        return float(np.quantile(self.latencies, share, method="inverted_cdf"))

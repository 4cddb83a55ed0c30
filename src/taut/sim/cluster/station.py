"""Tasks and the queues before them.

A station is one queue and the tasks that take from it: one task, or those of a worker that share.
Where a task waits instead of computing, a tuple's end is known when it arrives, and a hop is a
single event. Where it computes, it needs a core, and waits for one in the order of asking. Which
tuple a task takes from a queue that several share, :class:`.SharedQueue` says, as it does of lanes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappush
from typing import Protocol

from taut.policy.chunking import FixedSize
from taut.policy.sharing import Range, SharedQueue
from taut.sim.cluster.machine import Running
from taut.sim.cluster.unit import Flight
from taut.sim.kernel import Action, Kernel

Hop = tuple[Action, Callable[[], float]]
"""What happens when a tuple has come over, and a draw of how long that takes."""


class Onward(Protocol):
    """Where a tuple goes from a task."""

    next_hop: Callable[[], Hop] | None
    """Who gets the next one, and how long it takes there; None where that depends on the tuple, on
    others' load, or on a link, so that it cannot be said before the tuple leaves."""
    hop_now: Callable[[], Hop] | None
    """The same at the moment that it leaves; None where that depends on the tuple or on a link."""

    def depart(self, flight: Flight) -> None:
        """A tuple leaves."""
        ...


class Station:
    """What both kinds have in common: who they are, and what they count."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        machine: Running,
        servers: int,
        work: Callable[[], float],
        onward: Onward,
    ) -> None:
        self.kernel = kernel
        self.name = name
        self.machine = machine
        self.servers = servers
        self.tuples = 0
        """That have arrived; those that have been served, where that is known only then."""
        self.waited = 0.0
        """Seconds that they were in the queue, all together."""
        self.stayed = 0.0
        """Seconds that they were in queue and service."""
        self.work = work
        self.onward = onward

    def arrive(self, flight: Flight) -> None:
        """A tuple comes in."""
        raise NotImplementedError

    def check(self) -> None:
        """Assert what holds between events."""
        assert self.servers >= 1
        assert -1e-9 <= self.waited <= self.stayed + 1e-6 * max(1.0, self.stayed)


class Line:
    """A queue that tasks share: a tuple is one offset of a log, and tasks are its lanes."""

    def __init__(self, tasks: int) -> None:
        self._sharing = SharedQueue(tasks, FixedSize(1))
        self._held: dict[int, tuple[float, Flight]] = {}
        self._next = 0

    def append(self, came: tuple[float, Flight]) -> None:
        """A tuple comes in."""
        n = self._next
        self._next = n + 1
        self._held[n] = came
        self._sharing.add((Range("tuples", n, n + 1),))

    def popleft(self) -> tuple[float, Flight]:
        """What the next task takes; any of them may have anything."""
        cut = self._sharing.take(0)
        assert cut is not None
        return self._held.pop(cut.start)

    def __len__(self) -> int:
        return self._sharing.left


class Waiting(Station):
    """A task that needs no core: first come, first served."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        machine: Running,
        servers: int,
        work: Callable[[], float],
        onward: Onward,
    ) -> None:
        super().__init__(kernel, name, machine, servers, work, onward)
        self._free = [0.0]
        """When the task is done with all that it has."""
        if onward.next_hop is not None:
            self.arrive = self._quick(onward.next_hop)  # type: ignore[method-assign, assignment]

    def arrive(self, flight: Flight) -> None:
        """Find when the tuple is done, and put that down."""
        kernel = self.kernel
        now = kernel.now
        start = max(now, self._free[0])
        end = self._free[0] = self.machine.done(start, self.work())
        self.tuples += 1
        self.waited += start - now
        self.stayed += end - now
        heappush(kernel.heap, (end, next(kernel.ids), self.onward.depart, flight))

    def check(self) -> None:
        """Assert what holds between events."""
        super().check()
        assert self.servers == 1

    def _quick(self, hop: Callable[[], Hop]) -> Action:
        """The same where the way on is known, with all at hand: most of a run is spent here."""
        kernel, machine, work, free = self.kernel, self.machine, self.work, self._free
        heap, number, push = kernel.heap, kernel.ids.__next__, heappush
        pace, calm, through = machine.pace, machine.calm, machine.through

        def arrive(flight: Flight) -> None:
            now = kernel.now
            start = free[0]
            if start < now:  # noqa: PLR1730 -- a call of max takes three times as long
                start = now
            end = start + work() * pace
            if start < calm[0] or end > calm[1]:
                end = through(start, end)
            free[0] = end
            self.tuples += 1
            self.waited += start - now
            self.stayed += end - now
            action, delay = hop()
            push(heap, (end + delay(), number(), action, flight))

        return arrive


class Computing(Station):
    """Tasks that need a core for each tuple, and stand in line for it."""

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        machine: Running,
        servers: int,
        work: Callable[[], float],
        onward: Onward,
    ) -> None:
        super().__init__(kernel, name, machine, servers, work, onward)
        self._idle = servers
        self._asking = 0
        """Tasks that stand in line for a core."""
        self._queue: deque[tuple[float, Flight]] | Line
        self._queue = deque() if servers == 1 else Line(servers)
        self._there = 0
        self._changed = 0.0
        self.there_over_time = 0.0
        """Tuples in queue and service, integrated over time."""
        # at hand, for most of a run is spent here
        self._number = kernel.ids.__next__
        self._heap = kernel.heap
        self._calm = machine.calm
        self._pace = machine.pace
        self._ended = self._end

    def arrive(self, flight: Flight) -> None:
        """Begin if a task and a core are free, else wait."""
        now = self.kernel.now
        self.there_over_time += self._there * (now - self._changed)
        self._there += 1
        self._changed = now
        if not self._idle:
            self._queue.append((now, flight))
            return
        self._idle -= 1
        machine = self.machine
        if machine.free > 0:
            machine.free -= 1
            self._begin(now, (now, flight))
        else:
            self._queue.append((now, flight))
            self._asking += 1
            machine.waiting.append(self)

    def granted(self) -> None:
        """A task that stood in line has a core: it takes the next tuple."""
        self._asking -= 1
        now = self.kernel.now
        came = self._queue.popleft()
        self.waited += now - came[0]
        self._begin(now, came)

    def _begin(self, now: float, came: tuple[float, Flight]) -> None:
        """A task has a tuple and a core."""
        end = now + self.work() * self._pace
        calm = self._calm
        if now < calm[0] or end > calm[1]:
            end = self.machine.through(now, end)
        heappush(self._heap, (end, self._number(), self._ended, came))

    def check(self) -> None:
        """Assert what holds between events."""
        super().check()
        assert 0 <= self._idle <= self.servers
        assert not self._queue or self._idle == 0
        assert len(self._queue) >= self._asking == self.machine.waiting.count(self)
        busy = self.servers - self._idle - self._asking
        assert self._there == len(self._queue) + busy
        # Little's law, once everyone has left
        apart = abs(self.there_over_time - self.stayed)
        assert self._there or apart <= 1e-9 * max(1.0, self.stayed)

    def _end(self, came: tuple[float, Flight]) -> None:
        since, flight = came
        now = self.kernel.now
        self.there_over_time += self._there * (now - self._changed)
        self._there -= 1
        self._changed = now
        self.tuples += 1
        self.stayed += now - since
        machine = self.machine
        # who has more to do stands in line again, behind those who have waited meanwhile
        if len(self._queue) > self._asking:
            self._asking += 1
            machine.waiting.append(self)
        else:
            self._idle += 1
        if machine.waiting:
            machine.waiting.popleft().granted()
        else:
            machine.free += 1
        hop = self.onward.hop_now
        if hop is None:
            self.onward.depart(flight)
        else:
            action, delay = hop()
            heappush(self._heap, (now + delay(), self._number(), action, flight))

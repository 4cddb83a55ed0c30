"""Spouts: they emit, wait until it is done, and issue once more what takes too long."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappush

from taut.policy.timeout import AdaptiveTimeout, NoReplay, Replay
from taut.sim.cluster.machine import Machine, Pauses, Running
from taut.sim.cluster.network import Departures
from taut.sim.cluster.unit import Flight, Unit
from taut.sim.draws import Draws, Uniform, Zipf, drawing
from taut.sim.kernel import Kernel

_TRIES = 64
"""A second instance that would go where the first went is sent on to the next task, so often."""


@dataclass(frozen=True, slots=True)
class Spout:
    """Where tuples come from.

    Parameters
    ----------
    tasks
        Spouts that emit independently.
    gaps
        From one tuple of a task to its next.
    replay
        Which tuples are issued twice; every task builds its own.
    keys
        Tuples have keys from 0 to below this, of a Zipf distribution.
    zipf
        Its exponent; 0 for keys that are all alike.
    pauses
        Of each task alone, beside those of its machine: whoever emits and hears stands still.
    late
        Timeouts are looked at in turns, so that one is seen late by up to this share of it.
    """

    tasks: int
    gaps: Draws
    replay: Callable[[], Replay] = NoReplay
    keys: int = 1
    zipf: float = 0.0
    pauses: Pauses | None = None
    late: float = 0.0

    def __post_init__(self) -> None:
        if not self.late >= 0.0:
            raise ValueError(f"late={self.late}: must not be negative")
        if self.tasks < 1:
            raise ValueError(f"tasks={self.tasks}: at least 1 is needed")
        if not self.gaps.mean > 0.0:
            raise ValueError(f"gaps={self.gaps}: must be above 0 on average")
        if self.keys < 1:
            raise ValueError(f"keys={self.keys}: at least 1 is needed")


class Emitting:
    """A task of a spout at work.

    A tuple's latency is from when it is first issued until the task hears that one of its
    instances is done. A machine that pauses neither emits nor hears. The second instance goes to
    another task than the first, unless there is none or the key says which.
    """

    def __init__(
        self,
        kernel: Kernel,
        name: str,
        machine: Running,
        spec: Spout,
        departures: Departures,
        since: float,
        until: float,
    ) -> None:
        self.name = name
        self.issued = 0
        """Units."""
        self.twice = 0
        """Instances beyond the first of a unit."""
        self.open = 0
        """Units that are not done."""
        self.flying = 0
        """Instances that are not done."""
        self.latencies = array("d")
        """Of the units that were issued in the measured time."""
        self.measured_twice = 0
        self.replay = spec.replay()
        self._learns = not isinstance(self.replay, NoReplay)
        self._kernel = kernel
        self._machine = machine
        self._own = Machine(pauses=spec.pauses).build(kernel, name)
        self._gap = drawing(spec.gaps, kernel.stream(f"{name}/gaps"))
        self._key = _keys(spec, kernel, name)
        self._late = drawing(Uniform(spec.late), kernel.stream(f"{name}/late"))
        self._departures = departures
        self._elsewhere = self._learns and departures.apart
        self._since = since
        self._until = until
        kernel.after(self._gap(), self._emit)

    def acknowledged(self, flight: Flight) -> None:
        """Word that an instance is done has come to the machine; the task hears it when it runs."""
        now = self._kernel.now
        hears = self._goes_on(now)
        if hears > now:
            heappush(self._kernel.heap, (hears, next(self._kernel.ids), self._hear, flight))
        else:
            self._hear(flight)

    def check(self) -> None:
        """Assert what holds between events."""
        assert 0 <= self.open <= self.flying <= self.issued + self.twice
        assert self.measured_twice <= self.twice <= self.issued
        assert all(latency >= 0.0 for latency in self.latencies)
        if isinstance(self.replay, AdaptiveTimeout):
            self.replay.check()

    def _goes_on(self, at: float) -> float:
        """When the task next runs, if not then."""
        calm, own = self._machine.calm, self._own.calm
        if calm[0] <= at <= calm[1] and own[0] <= at <= own[1]:
            return at
        found = self._own.done(self._machine.done(at, 0.0), 0.0)
        return found if found == at else self._machine.done(found, 0.0)

    def _emit(self, _: object) -> None:
        kernel = self._kernel
        now = kernel.now
        if now > self._until:
            return
        unit = Unit(self, now, self._key())
        self.issued += 1
        self.open += 1
        if self._learns:
            due = self.replay.due(1, now)
            if due is not None and due < math.inf:
                seen = due + (due - now) * self._late()
                heappush(kernel.heap, (seen, next(kernel.ids), self._overdue, unit))
        self._issue(unit)
        # one that is stopped emits when it goes on
        at = self._goes_on(now + self._gap())
        heappush(kernel.heap, (at, next(kernel.ids), self._emit, None))

    def _issue(self, unit: Unit) -> None:
        self.flying += 1
        departures = self._departures
        hop = departures.hop_now
        if hop is None:
            departures.depart(Flight(unit))
            return
        kernel = self._kernel
        action, delay = hop()
        if self._elsewhere:
            for _ in range(_TRIES):
                if action != unit.to:
                    break
                action, delay = hop()
            unit.to = action
        heappush(kernel.heap, (kernel.now + delay(), next(kernel.ids), action, Flight(unit)))

    def _overdue(self, unit: Unit) -> None:
        now = self._kernel.now
        goes_on = self._goes_on(now)
        if goes_on > now:
            # nobody looks at the time while the task stands still
            heappush(self._kernel.heap, (goes_on, next(self._kernel.ids), self._wake, unit))
        else:
            self._look(unit)

    def _wake(self, unit: Unit) -> None:
        """What has come meanwhile is heard first, so this goes behind it."""
        self._kernel.after(0.0, self._look, unit)

    def _look(self, unit: Unit) -> None:
        if not unit.done:
            self.twice += 1
            self.measured_twice += unit.issued >= self._since
            self._issue(unit)

    def _hear(self, flight: Flight) -> None:
        self.flying -= 1
        unit = flight.unit
        if unit.done:
            return
        unit.done = True
        self.open -= 1
        now = self._kernel.now
        if unit.issued >= self._since:
            self.latencies.append(now - unit.issued)
        if self._learns:
            self.replay.observe(1, now - unit.issued, now)


def _keys(spec: Spout, kernel: Kernel, name: str) -> Callable[[], int]:
    if spec.keys == 1:
        return lambda: 0
    draw = drawing(Uniform(), kernel.stream(f"{name}/keys"))
    if spec.zipf == 0.0:
        return lambda: int(draw() * spec.keys)
    below = Zipf(spec.zipf, spec.keys, 1.0).chances().cumsum().tolist()
    return lambda: min(bisect_right(below, draw()), spec.keys - 1)

"""Machines: cores, a speed, and what gets in their way.

A pause stops everything on a machine, as a collection of garbage or a neighbour on the same
hardware does. Pauses are drawn ahead, so that whoever starts work knows when it will be done.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.sim.draws import Draws, Exponential, drawing
from taut.sim.kernel import Kernel

if TYPE_CHECKING:
    from taut.sim.cluster.station import Computing


@dataclass(frozen=True, slots=True)
class Pauses:
    """Every so often everything stops for a while."""

    every: float
    """Seconds from the end of one to the beginning of the next, exponential, on average."""
    length: Draws

    def __post_init__(self) -> None:
        if not self.every > 0.0:
            raise ValueError(f"every={self.every} s: must be above 0; for no pauses, none at all")

    @property
    def share(self) -> float:
        """Of the time that is lost."""
        return self.length.mean / (self.every + self.length.mean)


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to compute with.

    Parameters
    ----------
    cores
        Tasks that compute at the same time; None where tasks wait instead of computing, so that
        any number fits.
    speed
        Work is this many times as fast as its service time says. A competing process that takes
        half of the machine makes it 0.5.
    pauses
        None for none.
    """

    cores: int | None = None
    speed: float = 1.0
    pauses: Pauses | None = None

    def __post_init__(self) -> None:
        if self.cores is not None and self.cores < 1:
            raise ValueError(f"cores={self.cores}: at least 1 is needed")
        if not self.speed > 0.0:
            raise ValueError(f"speed={self.speed}: must be above 0")

    def build(self, kernel: Kernel, name: str) -> Running:
        """A machine at work."""
        return Running(self, kernel, name)


class Running:
    """A machine at work: who computes, who waits for a core, and when it pauses."""

    def __init__(self, spec: Machine, kernel: Kernel, name: str) -> None:
        self.spec = spec
        self.name = name
        self.free = math.inf if spec.cores is None else spec.cores
        """Cores that nobody computes on."""
        self.waiting: deque[Computing] = deque()
        """Tasks that have a tuple and no core, in the order they asked."""
        self.pace = 1.0 / spec.speed
        self.calm = [-math.inf, math.inf]
        """A stretch without pauses, the last that was looked at. The list stays the same one."""
        self._kernel = kernel
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._next_pause: Callable[[], None] | None = None
        if spec.pauses is not None:
            self._draw_ahead(spec.pauses)

    def done(self, start: float, work: float) -> float:
        """When work of so many seconds that starts then is done. Starts may be in the future."""
        end = start + work * self.pace
        since, until = self.calm
        return end if since <= start and end <= until else self.through(start, end)

    def check(self) -> None:
        """Assert what holds between events."""
        cores = self.spec.cores
        assert cores is None or 0 <= self.free <= cores
        assert not self.waiting or self.free == 0
        assert all(a < b for a, b in zip(self._starts, self._ends, strict=True))
        assert all(b <= a for b, a in zip(self._ends, self._starts[1:], strict=False))

    def through(self, start: float, end: float) -> float:
        """Push an end back by the pauses on the way, and note the calm that it lies in."""
        while self._next_pause is not None and self._starts[-1] <= end:
            self._next_pause()
        n = bisect_right(self._ends, start)  # the first pause that is not over by then
        if n < len(self._starts) and self._starts[n] <= start:
            end += self._ends[n] - start
            n += 1
        while n < len(self._starts) and self._starts[n] < end:
            end += self._ends[n] - self._starts[n]
            n += 1
            while self._next_pause is not None and self._starts[-1] <= end:
                self._next_pause()
        self.calm[:] = (
            self._ends[n - 1] if n else -math.inf,
            self._starts[n] if n < len(self._starts) else math.inf,
        )
        self._forget()
        return end

    def _forget(self) -> None:
        """Drop pauses that are over for everyone; now and then."""
        if len(self._ends) > 64 and self._ends[32] < self._kernel.now:
            del self._starts[:32], self._ends[:32]

    def _draw_ahead(self, pauses: Pauses) -> None:
        random = self._kernel.stream(f"{self.name}/pauses")
        gap = drawing(Exponential(pauses.every), random, together=64)
        length = drawing(pauses.length, random, together=64)
        last = 0.0

        def more() -> None:
            nonlocal last
            start = last + gap()
            last = start + max(length(), 1e-9)
            self._starts.append(start)
            self._ends.append(last)

        more()
        self._next_pause = more
        self.calm[:] = 0.0, self._starts[0]

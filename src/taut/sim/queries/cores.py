"""Cores that are shared evenly by whoever works: processor sharing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from taut.sim.kernel import Kernel


class Cores:
    """Each piece of work has a core while there are enough, else an even part of them.

    >>> kernel = Kernel()
    >>> cores, ends = Cores(kernel, 1), []
    >>> cores.work(2.0, lambda: ends.append(kernel.now))
    >>> kernel.after(1.0, lambda _: cores.work(0.5, lambda: ends.append(kernel.now)))
    >>> kernel.run() > 0, ends
    (True, [2.0, 2.5])
    """

    def __init__(self, kernel: Kernel, cores: float) -> None:
        if not cores > 0.0:
            raise ValueError(f"cores={cores}: more than 0 are needed")
        self._kernel = kernel
        self._cores = cores
        self._left: dict[int, float] = {}
        self._ended: dict[int, Callable[[], None]] = {}
        self._next = 0
        self._version = 0
        self._at = 0.0
        self.used = 0.0
        """Core seconds."""

    def work(self, seconds: float, ended: Callable[[], None]) -> None:
        """Work that takes so long on a core of its own. O(pieces at work)."""
        self._advance()
        self._left[self._next] = seconds
        self._ended[self._next] = ended
        self._next += 1
        self._plan()

    def check(self) -> None:
        """Assert what holds between events."""
        assert self._left.keys() == self._ended.keys()
        assert all(left >= -1e-9 for left in self._left.values())

    def _pace(self) -> float:
        return min(1.0, self._cores / len(self._left)) if self._left else 0.0

    def _advance(self) -> None:
        now = self._kernel.now
        done = (now - self._at) * self._pace()
        self._at = now
        self.used += done * len(self._left)
        for n in self._left:
            self._left[n] -= done

    def _plan(self) -> None:
        """Look again when the first is done; what was planned before does not count any more."""
        self._version += 1
        if self._left:
            first = max(0.0, min(self._left.values()))
            self._kernel.after(first / self._pace(), self._look, self._version)

    def _look(self, version: int) -> None:
        if version != self._version:
            return
        self._advance()
        # what rounding leaves is done too, or it would be planned for ever
        over = [n for n, left in self._left.items() if left <= 1e-12 * max(1.0, self._kernel.now)]
        calls = [self._ended.pop(n) for n in over]
        for n in over:
            del self._left[n]
        self._plan()
        for call in calls:
            call()


class Together:
    """Pieces of work that begin together and share cores evenly, for a while at most.

    Whoever is still at work has had as much of a core as all others that are: the level.

    >>> shared = Together([1.0, 2.0, 3.0], cores=2.0, since=0.0, until=3.0)
    >>> shared.when(1.0), shared.when(2.0), shared.level
    (1.5, 2.5, 2.5)
    """

    def __init__(self, pieces: Sequence[float], cores: float, since: float, until: float) -> None:
        levels, times = [0.0], [since]
        for n, seconds in enumerate(sorted(pieces)):
            pace = min(1.0, cores / (len(pieces) - n))
            level = min(seconds, levels[-1] + (until - times[-1]) * pace)
            if level > levels[-1]:
                times.append(times[-1] + (level - levels[-1]) / pace)
                levels.append(level)
        self._levels, self._times = levels, times

    @property
    def level(self) -> float:
        """Seconds of a core that those with most to do have had at the end."""
        return self._levels[-1]

    def when(self, level: float) -> float:
        """The time at which those still at work have had so much of a core. O(log pieces)."""
        levels, times = self._levels, self._times
        n = min(max(1, bisect_left(levels, level)), len(levels) - 1)
        if n == 0:
            return times[0]
        part = (level - levels[n - 1]) / (levels[n] - levels[n - 1])
        return times[n - 1] + min(1.0, part) * (times[n] - times[n - 1])

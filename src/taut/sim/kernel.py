"""One heap of events, a virtual clock, and a stream of randomness for every component.

An event is a time, an action and one argument for it. Events of the same time happen in the order
in which they were asked for, so that a run is the same every time. Components draw from streams of
their own, by name: one that is added, or draws more, leaves the others' draws as they were.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from numpy.random import PCG64, Generator, SeedSequence

Action = Callable[[Any], object]
"""What happens, to whom: called with the argument that it was put down with."""


class _Stopped(Exception):
    """The end of a run was reached."""


def _stop(_: object) -> None:
    raise _Stopped


class Kernel:
    """Events in the order of their times.

    Examples
    --------
    >>> kernel = Kernel(seed=1)
    >>> kernel.after(2.0, print, "second")
    >>> kernel.after(1.0, print, "first")
    >>> kernel.run()
    first
    second
    2
    >>> kernel.now
    2.0
    """

    def __init__(self, seed: int = 0) -> None:
        if seed < 0:
            raise ValueError(f"seed={seed}: must not be negative")
        self.now = 0.0
        self.seed = seed
        self.heap: list[tuple[float, float, Action, Any]] = []
        self.ids = count()
        """Of events; the hot paths push onto the heap themselves, and take their ids from here."""
        self._streams: dict[str, Generator] = {}

    def at(self, time: float, action: Action, argument: object = None) -> None:
        """Let something happen at a time, which must not be over. O(log n)."""
        if not time >= self.now:
            raise ValueError(f"an event at {time}: it is {self.now} already")
        heappush(self.heap, (time, next(self.ids), action, argument))

    def after(self, delay: float, action: Action, argument: object = None) -> None:
        """Let something happen so many seconds from now."""
        self.at(self.now + delay, action, argument)

    def run(self, until: float = math.inf) -> int:
        """Let happen what is due by then, and return how many events that were.

        The clock stands at the last event afterwards, or at ``until`` if that is finite.
        """
        if not until >= self.now:
            raise ValueError(f"until={until}: it is {self.now} already")
        heap, pop = self.heap, heappop
        waiting, first = len(heap), next(self.ids)
        # behind all that is due by then, so that no event needs to be compared with the end
        end = (until, math.inf, _stop, None)
        if until < math.inf:
            heappush(heap, end)
        collecting = gc.isenabled()
        # millions of small objects come and go and hardly any in a circle: looking for those is
        # a tenth of a run
        gc.disable()
        try:
            while heap:
                self.now, _, action, argument = pop(heap)
                action(argument)
        except _Stopped:
            pass
        except BaseException:
            if end in heap:
                heap.remove(end)
                heapify(heap)
            raise
        finally:
            if collecting:
                gc.enable()
        return waiting + (next(self.ids) - first - 1) - len(heap)

    def stream(self, name: str) -> Generator:
        """The randomness of a component; always the same for the same seed and name."""
        if name not in self._streams:
            digest = blake2b(name.encode(), digest_size=16).digest()
            entropy = SeedSequence([self.seed, int.from_bytes(digest)])
            self._streams[name] = Generator(PCG64(entropy))
        return self._streams[name]

    def check(self) -> None:
        """Assert what holds between events."""
        heap = self.heap
        assert all(heap[(n - 1) // 2][:2] <= heap[n][:2] for n in range(1, len(heap)))
        assert not heap or heap[0][0] >= self.now

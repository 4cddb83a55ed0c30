"""How fast the machine is meanwhile: one that others use as well is not always the same."""

from __future__ import annotations

import threading
import time
from statistics import median

_EVERY_S = 0.5
_LOOPS = 100_000
"""Some milliseconds of a core, twice a second."""


class Pace:
    """Times a loop that is always the same, over and over, for as long as it is entered.

    What others do on the same core is in it, as a core that two threads share is slower for both.
    Time that it waits, for a core or for Python's lock, is not.
    """

    def __init__(self, every: float = _EVERY_S, loops: int = _LOOPS) -> None:
        self._every = every
        self._loops = loops
        self._took: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="taut-pace", daemon=True)

    def __enter__(self) -> Pace:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()

    def took(self, since: float, until: float) -> float | None:
        """Seconds that the loop took, the median from one moment of ``monotonic`` to another."""
        found = [took for at, took in list(self._took) if since <= at <= until]
        return median(found) if found else None

    def _run(self) -> None:
        while not self._over.wait(self._every):
            self._took.append((time.monotonic(), _loop(self._loops)))


def _loop(loops: int) -> float:
    began, total = time.thread_time(), 0
    for number in range(loops):
        total += number * number
    return time.thread_time() - began

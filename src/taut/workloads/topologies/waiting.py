"""Work that is waiting."""

from __future__ import annotations

import time

_MOST_OVERSLEPT = 0.01
_overslept = [0.0]


def wait(seconds: float) -> None:
    """Wait so long; what a process waits too long is taken off its next waits.

    A sleep ends late by 0.1 to 0.3 ms on a virtual machine: as much as an operator takes.
    """
    begun = time.perf_counter()
    wanted = seconds - _overslept[0]
    if wanted > 0.0:
        time.sleep(wanted)
    _overslept[0] = min(_MOST_OVERSLEPT, time.perf_counter() - begun - wanted)

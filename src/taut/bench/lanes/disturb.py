"""A process that pauses lanes: SIGSTOP, and SIGCONT a little later, as a busy machine would.

``python -m taut.bench.lanes.disturb FOLDER START LANES SEED EVERY MEAN`` reads from the notes in
FOLDER which process a lane is at the moment. It ends when its standard input does, so also when
whoever started it dies, and lets go on whom it has paused, whatever it ends of.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from taut.bench.lanes.notes import last_by
from taut.bench.lanes.pauses import Pauses
from taut.bench.record import BenchError

_RECENT_S = 10.0
"""A process that has noted nothing for so long is not paused: it may be a lane no more."""
_END_WITHIN_S = 10.0


class Disturbed:
    """The process that disturbs, if there is one, and once it is over how often it did."""

    def __init__(self) -> None:
        self.process: int | None = None
        self.pauses: int | None = None


@contextlib.contextmanager
def disturbing(
    folder: Path, pauses: Pauses | None, lanes: int, start: float, seed: int
) -> Iterator[Disturbed]:
    """Have lanes paused from ``start`` (epoch seconds) on; afterwards none of them is."""
    told = Disturbed()
    if pauses is None:
        yield told
        return
    if not hasattr(signal, "pidfd_send_signal"):
        raise BenchError("pauses need Linux: only there can a lane be stopped without a mistake")
    words = (folder, start, lanes, seed, pauses.every_s, pauses.mean_s)
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the keyboard is not for it
    )
    told.process = process.pid
    try:
        yield told
    finally:
        try:
            count, _ = process.communicate(timeout=_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            count = b""
        if process.returncode:
            _resume(folder)
    if process.returncode:
        raise BenchError(f"the process that pauses lanes ended with {process.returncode}")
    told.pauses = int(count)


def _resume(folder: Path) -> None:
    """Let every process go on that has noted something."""
    for process in last_by(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def disturb(
    folder: Path, pauses: Pauses, lanes: int, start: float, seed: int, wait: Callable[[float], bool]
) -> int:
    """Pause lanes until ``wait(seconds)`` says that it is over; how often one was paused."""
    paused: list[tuple[float, int]] = []  # until when, and a handle of the process
    count = 0

    def go_on(upto: float) -> bool:
        """Let those go on whose time has come until then; whether there is more to do."""
        while paused and paused[0][0] <= upto:
            if not wait(start + paused[0][0] - time.time()):
                return False
            _send(paused[0][1], signal.SIGCONT)
            os.close(heapq.heappop(paused)[1])
        return wait(start + upto - time.time())

    try:
        for pause in pauses.of(lanes, seed):
            if not go_on(pause.begin):
                break
            handle = _process_of(folder, pause.lane)
            if handle is not None:
                heapq.heappush(paused, (pause.end, handle))
                _send(handle, signal.SIGSTOP)
                count += 1
    finally:
        for _, handle in paused:
            _send(handle, signal.SIGCONT)
    return count


def _process_of(folder: Path, lane: int) -> int | None:
    """A handle of the process that was last heard of as a lane.

    A handle, not a number: a number may by now be another process's.
    """
    notes = {process: note for process, note in last_by(folder).items() if note.lane == lane}
    process = max(notes, key=lambda process: notes[process].at, default=None)
    if process is None or time.time() - notes[process].at > _RECENT_S:
        return None
    try:
        return os.pidfd_open(process)
    except ProcessLookupError:
        return None


def _send(handle: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, what)


def _wait_or_end(seconds: float) -> bool:
    """Wait; False at once when standard input ends."""
    readable, _, _ = select.select([sys.stdin], [], [], max(0.0, seconds))
    return not readable


def main(folder: str, start: str, lanes: str, seed: str, every: str, mean: str) -> None:
    """Disturb, and tell how often."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    pauses = Pauses(float(every), float(mean))
    print(disturb(Path(folder), pauses, int(lanes), float(start), int(seed), _wait_or_end))


if __name__ == "__main__":
    main(*sys.argv[1:])

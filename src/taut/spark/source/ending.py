"""A source's process ends in good order.

Spark ends it with SIGTERM, as soon as the query has ended and before anything is read to its end:
Python would die there and then, with lanes not cut off and the last second not heard by those who
watch. Here a thread that the kernel wakes lets the reader part instead, and then ends the process.
The main thread is not interrupted: an exception raised in it by the signal could fall into the very
``stop`` that Spark calls at the same moment, for it closes the source's socket as well.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

log = logging.getLogger("taut")

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_WITHIN = 60.0
"""Seconds after which the kernel ends the process, whatever it waits for: longer than all that a
reader does to part may take. Nobody waits for it."""


class Ending:
    """What a source does before its process ends: once, whoever comes first, and to its end.

    Parameters
    ----------
    part
        What is to be done. The main thread may be at anything meanwhile.
    """

    def __init__(self, part: Callable[[], None]) -> None:
        self._part = part
        self._lock = threading.Lock()
        self._parted = self._signalled = False

    def run(self) -> None:
        """Part, or wait until another thread has; does not return if the process is to end."""
        try:
            with self._lock:
                if not self._parted:
                    self._parted = True
                    self._part()
        except Exception as error:
            # Spark reads no more of it
            log.warning("source: it did not end in order: %r", error)
            raise
        finally:
            if self._signalled:
                _leave()

    def on_signal(self, runner: str = _RUNNER) -> None:
        """From now on also when the process is told to end, if it is that of a source."""
        main = getattr(sys.modules["__main__"], "__spec__", None)
        if (
            getattr(main, "name", None) == runner
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        ):
            # told by the kernel, also while the main thread is in a call that no signal ends
            come, go = os.pipe()
            os.set_blocking(go, False)
            signal.set_wakeup_fd(go, warn_on_full_buffer=False)
            signal.signal(signal.SIGTERM, self._told)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            threading.Thread(
                target=self._wait, args=(come,), name="taut-ending", daemon=True
            ).start()

    def _told(self, number: int, frame: FrameType | None) -> None:
        # in the main thread, which may be about to part before the other one wakes
        self._signalled = True

    def _wait(self, come: int) -> None:
        while os.read(come, 1) != bytes([signal.SIGTERM]):
            pass
        signal.setitimer(signal.ITIMER_REAL, _WITHIN)
        self._signalled = True
        self.run()


def _leave() -> None:
    """Spark reads no more of this process, not even an error."""
    for stream in (sys.stdout, sys.stderr):
        # nobody may be there to read it
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)

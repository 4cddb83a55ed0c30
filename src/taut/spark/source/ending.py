"""A source's process ends in good order.

Spark ends it with SIGTERM, as soon as the query has ended and before anything is read to its end:
Python would die there and then, with lanes not told, files not closed and the last second not heard
by those who watch. Here the signal unwinds the main thread instead, as ``sys.exit`` does, and the
reader's ``stop`` is called as Spark means it to be. It may also come while that is under way, for
Spark closes the socket of a query that it interrupts: then it waits.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

log = logging.getLogger("taut")

_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_WITHIN = 30.0
"""Seconds after which the process is killed, whatever it waits for: longer than all that a reader
does to stop may take. Nobody waits for it."""
_stopping = _stopped = _signalled = False


def end_in_order(runner: str = _RUNNER) -> None:
    """From now on, if this is the process of a source."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    if (
        getattr(main, "name", None) == runner
        and threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    ):
        signal.signal(signal.SIGTERM, _end)
        # told by the kernel, also while the main thread is in a call that no signal ends
        come, go = os.pipe()
        os.set_blocking(go, False)
        signal.set_wakeup_fd(go, warn_on_full_buffer=False)
        threading.Thread(target=_kill, args=(come,), name="taut-ending", daemon=True).start()


@contextlib.contextmanager
def to_the_end() -> Iterator[None]:
    """What is done here is not interrupted, and is the last that a process does that is to end."""
    global _stopping, _stopped  # noqa: PLW0603 -- a process ends once
    _stopping = True
    try:
        yield
    except Exception as error:
        # Spark reads no more of it
        log.warning("source: it did not end in order: %r", error)
        raise
    finally:
        _stopped = True
        if _signalled:
            _leave()


def _leave() -> None:
    """Spark reads no more of this process, not even an error."""
    for stream in (sys.stdout, sys.stderr):
        # nobody may be there to read it, or this is in the middle of a flush
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stream.flush()
    os._exit(0)


def _kill(come: int) -> None:
    """Some time after the signal, if the process is still there."""
    while os.read(come, 1) != bytes([signal.SIGTERM]):
        pass
    time.sleep(_WITHIN)
    os.kill(os.getpid(), signal.SIGKILL)


def _end(number: int, frame: FrameType | None) -> None:
    global _signalled  # noqa: PLW0603 -- a process ends once
    _signalled = True
    # Spark sends it twice
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if _stopped:
        _leave()
    if not _stopping:
        raise SystemExit

"""How far a log has come while its query is held or at work: asked for those who watch.

A look at a log may take long, a broker away or a folder of very many files. It is therefore made in
a thread of its own: neither the query nor the thread that hears when it may go on waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable

from taut.spark.source.logs.base import Offsets

log = logging.getLogger("taut")

_PATIENCE = 0.05
"""Seconds that a look may take for its answer to be the newest one."""
_IDLE = 4.0
"""Times as long as a look took until the next: no more than a fifth of the time goes into it."""
_LONGEST_IDLE = 10.0


class Lookout:
    """Looks at a log whenever it is asked to, one look at a time.

    Parameters
    ----------
    look
        Gives the latest offsets.
    close
        Called in the thread of the looks when there will be no more.
    """

    def __init__(self, look: Callable[[], Offsets], close: Callable[[], None]) -> None:
        self._look = look
        self._close = close
        self._latest: Offsets = {}
        self._asked = threading.Event()
        self._answered = threading.Event()
        self._stopped = threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name="taut-lookout", daemon=True)
        self._thread.start()

    def latest(self, patience: float = _PATIENCE) -> Offsets:
        """The latest offsets, none if they cannot be had.

        Those of the look before where this one takes longer.
        """
        self._answered.clear()
        self._asked.set()
        self._answered.wait(patience)
        return self._latest

    def hush(self) -> None:
        """Say no more of looks that fail: the query ends, and its log may be closed already."""
        self._failed = True

    def stop(self, timeout: float = 0.0) -> None:
        """Look no more; waits so long at most for a look that is under way."""
        self._stopped.set()
        self._asked.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._stopped.is_set():
                break
            begun = time.monotonic()
            try:
                self._latest = self._look()
            except Exception as error:  # the query finds out by itself what is wrong with its log
                self._fail(error)
            self._answered.set()
            self._stopped.wait(min(_LONGEST_IDLE, _IDLE * (time.monotonic() - begun)))
        with contextlib.suppress(Exception):
            self._close()

    def _fail(self, error: Exception) -> None:
        self._latest = {}
        if not self._failed:
            self._failed = True
            log.warning("source: how many rows wait in its log cannot be told: %r", error)

"""One snapshot a second for everybody who looks, and none while nobody does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator

from taut.watch.snapshot import Snapshot, encode

log = logging.getLogger("taut")

FAILED = b'event: failed\ndata: {"why": "the runtime could not tell how its queries stand"}\n\n'


class Feed:
    """Takes snapshots and hands the newest to its listeners. For one event loop, not for threads.

    A listener waits for the newest frame, and nothing is kept for it: one that is slow misses the
    frames in between, and costs no memory.

    Parameters
    ----------
    snapshot
        Called in the loop, at most once every ``every`` seconds. When it raises there is one
        warning in the log, and :meth:`look` has nothing to show.
    """

    def __init__(self, snapshot: Callable[[], Snapshot], every: float) -> None:
        self._snapshot = snapshot
        self._every = every
        self._listeners = 0
        self._closed = False
        self._warned = False
        self._taken = -float("inf")
        self._seen: tuple[Snapshot, bytes] | None = None
        self._fresh = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return self._listeners

    def look(self) -> tuple[Snapshot, bytes] | None:
        """A snapshot and its JSON, not older than ``every``; None while there is none to be had."""
        if time.monotonic() - self._taken >= self._every:
            self._take()
        return self._seen

    def frame(self) -> bytes:
        """The newest look, as a server-sent event."""
        seen = self.look()
        return FAILED if seen is None else b"data: " + seen[1] + b"\n\n"

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Be counted as a listener: snapshots are taken while there are any."""
        self._listeners += 1
        if self._ticker is None:
            self._ticker = asyncio.get_running_loop().create_task(self._tick())
        try:
            yield
        finally:
            self._listeners -= 1
            if self._listeners == 0 and self._ticker is not None:
                self._ticker.cancel()
                self._ticker = None

    async def next(self) -> bytes | None:
        """The next frame, when there is one; None once the feed is closed."""
        if not self._closed:
            await self._fresh.wait()
        return None if self._closed else self.frame()

    def close(self) -> None:
        """Let go of everybody who waits for a frame."""
        self._closed = True
        self._fresh.set()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._taken + self._every - time.monotonic()))
            self._take()
            was, self._fresh = self._fresh, asyncio.Event()
            was.set()

    def _take(self) -> None:
        self._taken = time.monotonic()
        try:
            snapshot = self._snapshot()
            self._seen = snapshot, encode(snapshot)
        except Exception as error:  # who watches must not end what is watched
            self._seen = None
            if not self._warned:
                self._warned = True
                log.warning("watch: no snapshot to show, the page is stale: %r", error)

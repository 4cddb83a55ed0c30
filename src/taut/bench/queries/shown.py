"""The page of a demo: one address for all its runs, taken before anything is started."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

import msgspec

from taut.watch.server import Server
from taut.watch.snapshot import Snapshot

if TYPE_CHECKING:
    import taut

WARMING = "Warming up: what is late now is not counted."
COUNTING = "Counted from when the warm-up was over, as in the table at the end."
OVER = "This run is over."


class Shown:
    """Shows one runtime after the other, and records what is counted of each.

    Raises
    ------
    WatchError
        The port is in use, or not allowed; nothing has been started then.
    """

    def __init__(self, port: int) -> None:
        now = time.time()
        self._runtime: taut.Runtime | None = None
        self._last = Snapshot(at=now, run="", policy="Spark starts", concurrency=0, started=now)
        self.recorded: list[Path] = []
        """The folders of the runs, for a report."""
        self._server = Server(self._look, port=port)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    def warming_up(self, runtime: taut.Runtime) -> None:
        """Show this one from here on."""
        runtime._watching.note = WARMING
        runtime.snapshot()
        self._runtime = runtime

    def counting(self, runtime: taut.Runtime) -> None:
        """Its warm-up is over: count anew, and record it."""
        runtime._watching.begin_anew(None)
        runtime._watching.note = COUNTING
        if runtime.trace is not None:
            self.recorded.append(runtime.trace)

    def over(self) -> None:
        """Keep how the run stands, for its runtime is about to stop."""
        try:
            if self._runtime is not None:
                last = self._runtime.snapshot()
                self._last = msgspec.structs.replace(last, notes=(OVER,))
        finally:
            self._runtime = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _look(self) -> Snapshot:
        runtime = self._runtime
        if runtime is None:
            return self._last
        try:
            return runtime.snapshot()
        except Exception:
            if self._runtime is runtime:
                raise  # and the page says that it is stale
            return self._last

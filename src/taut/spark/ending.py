"""Stopping queries: what runs may finish, and nothing keeps the others from ending."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Protocol

log = logging.getLogger("taut")

_END_BOUND = 5.0
"""Seconds that stopping may take past its timeout, when a sink cannot be interrupted."""


class Ending(Protocol):
    """A query that can be stopped."""

    name: str

    def drain(self) -> None:
        """Let what is written commit, and run no further batch."""
        ...

    def end(self, deadline: float) -> bool:
        """Stop once the running batch has committed; False if it had to be interrupted."""
        ...


def end_all(queries: Sequence[Ending], deadline: float, timeout: float) -> None:
    """Let running batches finish and stop all queries, each in a thread of its own.

    One that raises or never returns does not keep the others from ending: what is not over some
    seconds after the deadline is named in a warning and left to the process's end.
    """
    interrupted: list[str] = []
    failed: dict[str, str] = {}
    for query in queries:
        try:
            query.drain()
        except Exception as error:
            failed[query.name] = repr(error)

    def end(query: Ending) -> None:
        try:
            if not query.end(deadline):
                interrupted.append(query.name)
        except Exception as error:
            failed[query.name] = repr(error)

    threads = {
        q.name: threading.Thread(target=end, args=(q,), name=f"taut-end-{q.name}", daemon=True)
        for q in queries
    }
    for thread in threads.values():
        thread.start()
    for thread in threads.values():
        thread.join(max(0.0, deadline + _END_BOUND - time.monotonic()))
    stuck = [name for name, thread in threads.items() if thread.is_alive()]
    if interrupted:
        log.warning(
            "stop(timeout=%s): interrupted in the middle of a batch: %s", timeout, interrupted
        )
    if failed:
        log.warning("stop: could not be stopped: %s", failed)
    if stuck:
        log.warning(
            "stop(timeout=%s): %s still run: their sinks wait for something and cannot be "
            "interrupted; a restart from their checkpoints runs the batch again",
            timeout,
            stuck,
        )

"""Where records of this process meet those who want them: sources, reduces and plans tell here.

Nobody listens, nothing is made: a teller asks :func:`heard` before it puts a record together.
Several runtimes may listen in one process: each owns the names of the queries that it has started.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable

from taut.watch.records import Record

log = logging.getLogger("taut")

Listener = Callable[[Record], None]

_lock = threading.Lock()
_listeners: list[Listener] = []
_owners: dict[str, str] = {}


def heard() -> bool:
    """Whether anybody listens."""
    return bool(_listeners)


def tell(record: Record) -> None:
    """Hand a record to all who listen; one that fails is left out from then on, with a warning."""
    for listener in tuple(_listeners):
        try:
            listener(record)
        except Exception as error:  # who watches must not end what is watched
            unsubscribe(listener)
            log.warning("watch: a listener failed and hears no more: %r", error)


def subscribe(listener: Listener) -> None:
    """Hear every record from now on, in the thread that tells it: return at once."""
    with _lock:
        _listeners.append(listener)


def unsubscribe(listener: Listener) -> None:
    """Hear no more; again is harmless."""
    with _lock, contextlib.suppress(ValueError):
        _listeners.remove(listener)


def own(query: str, run: str) -> None:
    """Records of this query are for the listeners of this run, until another starts it too."""
    with _lock:
        _owners[query] = run


def disown(run: str) -> None:
    """The run is over: nothing is its own any more."""
    with _lock:
        for query in [query for query, owner in _owners.items() if owner == run]:
            del _owners[query]


def is_for(query: str, run: str) -> bool:
    """Whether a run wants records of this query: its own, and those that no run has started."""
    return _owners.get(query, run) == run

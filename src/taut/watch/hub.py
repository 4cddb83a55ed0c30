"""Where records of this process meet those who want them: sources, reduces and plans tell here.

Nobody listens, nothing is made: a teller asks :func:`heard` before it puts a record together.
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

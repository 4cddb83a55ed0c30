"""Where records of this process meet those who want them: sources, reduces and plans tell here.

Nobody listens, nothing is made: a teller asks :func:`heard` before it puts a record together.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from taut.watch.records import Record

log = logging.getLogger("taut")

Listener = Callable[[Record], None]

_lock = threading.Lock()
_listeners: tuple[Listener, ...] = ()


def heard() -> bool:
    """Whether anybody listens."""
    return bool(_listeners)


def tell(record: Record) -> None:
    """Hand a record to all who listen; one that fails is left out from then on, with a warning."""
    for listener in _listeners:
        try:
            listener(record)
        except Exception as error:  # who watches must not end what is watched
            unsubscribe(listener)
            log.warning("watch: a listener failed and hears no more: %r", error)


def subscribe(listener: Listener) -> None:
    """Hear every record from now on, in the thread that tells it: return at once."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)


def unsubscribe(listener: Listener) -> None:
    """Hear no more; again is harmless."""
    global _listeners
    with _lock:
        _listeners = tuple(other for other in _listeners if other != listener)

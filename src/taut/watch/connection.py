"""A client's connection, cut where it would hold on to something for nothing."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

log = logging.getLogger("taut")

STALLED = 10.0
"""Seconds that a client may leave what was sent to it unread."""
SILENT = 10.0
"""Seconds in which a client has to ask for something, at first and after each answer."""


class Connection(H11Protocol):
    """As uvicorn's, but a client that does not read, or does not ask, is cut off.

    What waits for it is bounded all the same: by the transport's buffer and one frame.

    Parameters
    ----------
    logger
        For what uvicorn has to say; see :func:`once`.
    """

    _cut: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, logger: logging.Logger, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.logger = logger
        self.access_log = False  # its lines would show the token

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._settle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._settle()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._settle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._spare()
        self._settle()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._spare()
        self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._spare()
        super().connection_lost(exc)

    def _settle(self) -> None:
        # A time that runs goes on: else a byte now and then, of a request that never ends, would
        # hold the connection for ever.
        if self.flow.write_paused:
            self._cut_after(STALLED)
        elif self.cycle is None or self.cycle.response_complete:
            self._cut_after(SILENT)
        else:
            self._spare()

    def _cut_after(self, seconds: float) -> None:
        if self._cut is None:
            self._cut = self.loop.call_later(seconds, self.transport.abort)

    def _spare(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None


def once() -> logging.Logger:
    """A logger that tells Taut's own each thing once: clients can make uvicorn repeat itself."""
    logger = logging.Logger("taut.watch.uvicorn", logging.WARNING)
    logger.addHandler(_Once())
    return logger


class _Once(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self._told: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg not in self._told:
            self._told.add(record.msg)
            said = record.getMessage().strip()
            log.log(record.levelno, "watch: told once: %s", said, exc_info=record.exc_info)

"""A client's connection, cut where it would hold on to something for nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

STALLED = 10.0
"""Seconds that a client may leave what was sent to it unread."""
SILENT = 10.0
"""Seconds in which a new client has to ask for something."""


class Connection(H11Protocol):
    """As uvicorn's, but a client that does not read, or never asks, is cut off.

    What waits for it is bounded all the same: by the transport's buffer and one frame.
    """

    _cut: asyncio.TimerHandle | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False  # its lines would show the token

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._cut_after(SILENT)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is not None and not self.flow.write_paused:
            self._spare()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cut_after(STALLED)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._spare()

    def connection_lost(self, exc: Exception | None) -> None:
        self._spare()
        super().connection_lost(exc)

    def _cut_after(self, seconds: float) -> None:
        self._spare()
        self._cut = self.loop.call_later(seconds, self.transport.abort)

    def _spare(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None

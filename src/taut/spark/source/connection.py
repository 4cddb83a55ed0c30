"""Where a lane finds its distributor, and how it asks there."""

from __future__ import annotations

import time
from dataclasses import dataclass

import msgspec

from taut.spark.source.frames import Client
from taut.spark.source.protocol import Reply, Request

_TRIES = 6
_REPLY = msgspec.msgpack.Decoder(Reply)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a batch is dealt out, and how often a lane must be heard there.

    ``replays``: whether chunks may be issued twice, so that a lane has to hear who was first.
    """

    address: tuple[str, int]
    token: str
    batch: str
    beat: float = 1.0
    replays: bool = False


class Connection:
    """Asks the distributor; opens a new connection and asks again when one breaks."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._client: Client | None = None

    def ask(self, message: Request) -> Reply:
        """The reply to a message; a message may reach the distributor more than once."""
        tries = _TRIES
        for tried in range(tries):
            try:
                if self._client is None:
                    self._client = Client(self._place.address, self._place.token)
                reply: Reply = self._client.ask(message, _REPLY.decode)
            except OSError as error:
                self.close()
                if tried == tries - 1:
                    host, port = self._place.address
                    raise ConnectionError(
                        f"the distributor at {host}:{port} does not answer: {error}; its query has "
                        "ended, or executors cannot reach the driver's machine (option host)"
                    ) from error
                time.sleep(0.05 * 2**tried)
            else:
                return reply
        raise AssertionError("the last try returns or raises")

    def close(self) -> None:
        """Close it; again is harmless."""
        if self._client is not None:
            self._client.close()
            self._client = None

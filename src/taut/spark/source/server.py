"""The distributor's server: a listener in the process of the source, and one lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TypeVar

from taut.policy.sharing import Range
from taut.spark.source.dealt import Batch
from taut.spark.source.distributor import Distributor
from taut.spark.source.listener import Listener
from taut.spark.source.protocol import Beat, Heard, Reply, Report, Request

_LOOK_EVERY = 0.25
_LONGEST_WAIT = 0.5
_REQUESTS = 65_536
"""Bytes of the largest request; all are small."""

T = TypeVar("T")


class Server:
    """Answers the lanes of one query; :attr:`address` and :attr:`token` are what they need.

    Parameters
    ----------
    host
        Where to listen: loopback, or an address that executors reach.
    clock
        Seconds that only grow.
    """

    def __init__(
        self, host: str = "127.0.0.1", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.distributor = Distributor()
        self._clock = clock
        self._lock = threading.Lock()
        self._listener = Listener("taut-distributor", host, Request, self._answer, _REQUESTS)
        self._listener.every(_LOOK_EVERY, self._look)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self._listener.address

    @property
    def token(self) -> str:
        """What lanes must show."""
        return self._listener.token

    @property
    def refused(self) -> int:
        """Connections that were cut off."""
        return self._listener.refused

    def do(self, change: Callable[[Distributor], T]) -> T:
        """Change the distributor's state while no lane is being answered."""
        with self._lock:
            return change(self.distributor)

    def wake(self, most: int | None = None) -> None:
        """There may be rows for lanes that wait, or for so many of them; from any thread."""
        self._listener.ring(most)

    def close(self) -> None:
        """Stop listening and cut all lanes off."""
        self._listener.close()

    def add(self, batch: Batch, ranges: Sequence[Range]) -> None:
        """More rows for a batch, and lanes that wait for them."""
        with self._lock:
            batch.add(ranges, self._clock())
        # no more lanes than there are rows, where any lane will do
        self.wake(sum(r.size for r in ranges) if batch.for_everyone else None)

    def _look(self) -> None:
        with self._lock:
            self.distributor.look(self._clock())
            alarm = self.distributor.alarm
        self.wake()
        self._set(alarm)

    def _ring(self) -> None:
        """A chunk may be overdue: those that wait can take it."""
        with self._lock:
            self.distributor.ring(self._clock())
            rang, alarm = self.distributor.rang, self.distributor.alarm
        if rang:
            self.wake()
        self._set(alarm)

    def _set(self, alarm: float | None) -> None:
        if alarm is not None:
            self._listener.at(time.monotonic() + alarm - self._clock(), self._ring)

    def _answer(self, request: Request) -> Reply | Coroutine[None, None, Reply]:
        if isinstance(request, Report) and not request.done and self._waits(request):
            return self._later(request)
        if isinstance(request, Beat) and not self._news(request):
            return self._hear(request)
        return self._now(request)

    def _now(self, request: Request) -> Reply:
        with self._lock:
            reply = self.distributor.answer(request, self._clock())
            batch = self.distributor.get(request.batch)
            over = batch is not None and batch.over
            alarm = None if batch is None else batch.alarm
            losers = [] if batch is None else batch.losers
            rang = batch is not None and batch.rang
        for lane in losers:
            self._listener.ring(of=(request.batch, lane))
        if rang or (over and isinstance(request, Report) and request.done):
            self.wake()  # those that stayed to take over what others lose or are too long about
        self._set(alarm)
        return reply

    async def _later(self, request: Report) -> Reply:
        """Let a lane with nothing to do wait here, instead of asking again and again."""
        limit = time.monotonic() + _LONGEST_WAIT
        while (left := limit - time.monotonic()) > 0 and self._waits(request):
            await self._listener.news(left)
        return self._now(request)

    async def _hear(self, request: Beat) -> Reply:
        """Answer a lane's pulse when there is news for it, or when it is time."""
        with self._lock:
            reply = self.distributor.answer(request, self._clock())
            batch = self.distributor.get(request.batch)
        if batch is None or not isinstance(reply, Heard):
            return reply
        if not self._news(request):
            await self._listener.news(batch.patience, of=(request.batch, request.lane))
        return self._now(request)

    def _news(self, request: Beat) -> bool:
        with self._lock:
            batch = self.distributor.get(request.batch)
            return batch is None or batch.news(request)

    def _waits(self, request: Report) -> bool:
        with self._lock:
            batch = self.distributor.get(request.batch)
            waits = batch is not None and batch.waits(request.lane, self._clock())
            rang = batch is not None and batch.rang
        if rang:
            self.wake()  # it may be for another lane
        return waits

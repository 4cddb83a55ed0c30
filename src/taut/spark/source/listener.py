"""A listener: answers frames on a port of its own, from a thread of its own.

Who does not show the token, or sends what is no frame and no request, is cut off without a word,
and nobody else is disturbed. Each kind of fault is logged once: a peer that errs can err a
thousand times.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable
from itertools import islice
from typing import Any

import msgspec

from taut.spark.source.frames import (
    HELLO_FRAME,
    MAX_FRAME,
    FrameError,
    Frames,
    Hello,
    encode,
    knows,
)

log = logging.getLogger("taut")

_HELLO_S = 30.0
_BACKLOG = 1_024
"""Connections that may wait to be taken: all lanes of a batch connect in the same moment."""

Answer = Callable[[Any], object]


class Listener:
    """Serves one kind of request; :attr:`address` and :attr:`token` are what clients need.

    Parameters
    ----------
    name
        Of the thread, and in the log.
    host
        Where to listen: loopback, or an address that other machines reach.
    requests
        The type of a request, for msgspec.
    answer
        Gives the answer to a request, or a coroutine that will, in the listener's own event loop.
    largest
        Bytes of the largest request.
    """

    def __init__(
        self, name: str, host: str, requests: Any, answer: Answer, largest: int = MAX_FRAME
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        self.refused = 0
        self._name = name
        self._answer = answer
        self._largest = largest
        self._hello = msgspec.msgpack.Decoder(Hello)
        self._request = msgspec.msgpack.Decoder(requests)
        self._told: set[str] = set()
        self._waiting: dict[Hashable, dict[asyncio.Future[None], None]] = defaultdict(dict)
        self._alarm: asyncio.TimerHandle | None = None
        self._stopping = False
        self._peers: set[_Peer] = set()
        self._repeating: list[asyncio.Task[None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        made = asyncio.run_coroutine_threadsafe(self._listen(host), self._loop)
        try:
            self.address: tuple[str, int] = made.result(timeout=30)
        except BaseException:
            self.close()
            raise

    def every(self, seconds: float, do: Callable[[], None]) -> None:
        """Call ``do`` again and again, in the event loop."""
        asyncio.run_coroutine_threadsafe(self._again(seconds, do), self._loop).result(timeout=30)

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Call ``do`` at a time of ``time.monotonic``, in the event loop, from which it is called.

        There is one such call to come: another time takes the place of a later one.
        """
        if self._alarm is None or self._alarm.cancelled() or when < self._alarm.when():
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(when, self._at, do)

    def ring(self, most: int | None = None, of: Hashable = None) -> None:
        """There is news of a thing for those who wait, or for so many of them; from any thread."""
        with contextlib.suppress(RuntimeError):  # closed: nobody waits
            self._loop.call_soon_threadsafe(self._ring, most, of)

    async def news(self, timeout: float, of: Hashable = None) -> None:
        """Wait for :meth:`ring` of the same thing, so long at most.

        Whoever changes something and then rings is heard by all that looked before the change:
        between their look and this call nothing else runs in the loop.
        """
        change = self._loop.create_future()
        late = self._loop.call_later(max(0.0, timeout), _wake, change)
        self._waiting[of][change] = None
        try:
            await change
        finally:
            late.cancel()
            self._waiting[of].pop(change, None)
            if of is not None and not self._waiting[of]:
                del self._waiting[of]

    @property
    def waiting(self) -> int:
        """How many wait for news of nothing in particular."""
        return len(self._waiting[None])

    def close(self) -> None:
        """Listen no longer and cut all connections; again is harmless."""
        with contextlib.suppress(RuntimeError):  # closed already
            self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(timeout=10)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds that its thread has used."""
        ident, clock_of = self._thread.ident, getattr(time, "pthread_getcpuclockid", None)
        # macOS has no such clock
        if ident is None or clock_of is None or not self._thread.is_alive():
            return 0.0
        return time.clock_gettime(clock_of(ident))

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks))
            # what was cut off takes a turn of the loop to go
            self._loop.run_until_complete(asyncio.sleep(0))
        finally:
            self._loop.close()

    def _stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if hasattr(self, "_server"):
            self._server.close()
        for peer in list(self._peers):
            peer.end()
        self._loop.stop()

    async def _listen(self, host: str) -> tuple[str, int]:
        self._server = await self._loop.create_server(
            lambda: _Peer(self), host, 0, backlog=_BACKLOG
        )
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def _again(self, seconds: float, do: Callable[[], None]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    do()
                except Exception:  # it must be done again: dead lanes are found here
                    log.exception("%s: what it does every %s s failed", self._name, seconds)

        self._repeating.append(asyncio.create_task(repeat()))

    def _at(self, do: Callable[[], None]) -> None:
        self._alarm = None
        do()

    def _ring(self, most: int | None, of: Hashable) -> None:
        waiting = self._waiting.get(of, {})
        # those that have waited longest first; they are gone from here before they look
        for change in [*islice(waiting, most)]:
            del waiting[change]
            _wake(change)

    def _cut(self, kind: str, what: object) -> None:
        self.refused += 1
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s cut a connection off: %s (said once)", self._name, what)


def _wake(change: asyncio.Future[None]) -> None:
    if not change.done():
        change.set_result(None)


class _Peer(asyncio.Protocol):
    """One connection: a greeting, then requests, answered one after the other.

    A protocol and not a stream: an answer that is at hand is written where the request is read,
    without a task in between, in half the time.
    """

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._frames = Frames()
        self._greeted = False
        self._answering: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._listener._peers.add(self)
        loop = asyncio.get_running_loop()
        self._patience = loop.call_later(_HELLO_S, self._cut, "silence", "no token in time")

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener._peers.discard(self)
        self._patience.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        self._frames.add(data)
        self._go_on()

    def eof_received(self) -> None:
        if self._frames.partial and self._answering is None:
            self._cut("frame", "cut off in the middle of a frame")

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def end(self) -> None:
        """The listener closes."""
        self._transport.abort()

    def _go_on(self) -> None:
        """Answer what is there, until an answer takes its time."""
        try:
            while self._answering is None and not self._transport.is_closing():
                body = self._frames.next(self._listener._largest if self._greeted else HELLO_FRAME)
                if body is None:
                    return
                if self._greeted:
                    self._answer(self._listener._request.decode(body))
                else:
                    self._greet(self._listener._hello.decode(body))
        except FrameError as error:
            self._cut("frame", error)
        except msgspec.MsgspecError as error:
            self._cut("message", error)
        except Exception as error:  # one connection must not take the others with it
            self._cut("request", repr(error))

    def _greet(self, hello: Hello) -> None:
        self._patience.cancel()
        self._greeted = knows(hello, self._listener.token)
        if not self._greeted:
            self._cut("token", "a wrong token or version")

    def _answer(self, request: Any) -> None:
        answer = self._listener._answer(request)
        if inspect.iscoroutine(answer):
            self._answering = asyncio.create_task(self._later(answer))
        else:
            self._transport.write(encode(answer))

    async def _later(self, answer: Awaitable[object]) -> None:
        try:
            self._transport.write(encode(await answer))
        except Exception as error:  # as above
            self._cut("request", repr(error))
        self._answering = None
        self._go_on()

    def _cut(self, kind: str, what: object) -> None:
        if not self._transport.is_closing():
            self._listener._cut(kind, what)
        self._transport.abort()

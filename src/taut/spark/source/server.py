"""The distributor's server: a thread in the process of the source, an event loop, one lock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from taut.spark.source.distributor import Distributor
from taut.spark.source.frames import (
    HELLO_FRAME,
    FrameError,
    Hello,
    encode,
    knows,
    read_frame,
)
from taut.spark.source.protocol import Reply, Report, Request

log = logging.getLogger("taut")

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
        self.token = secrets.token_urlsafe(32)
        self.distributor = Distributor()
        self.refused = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._hello = msgspec.msgpack.Decoder(Hello)
        self._request = msgspec.msgpack.Decoder(Request)
        self._told: set[str] = set()
        self._waiting: list[asyncio.Future[None]] = []
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="taut-distributor", daemon=True)
        self._thread.start()
        made = asyncio.run_coroutine_threadsafe(self._listen(host), self._loop)
        try:
            self.address: tuple[str, int] = made.result(timeout=30)
        except BaseException:
            self.close()
            raise

    def do(self, change: Callable[[Distributor], T]) -> T:
        """Change the distributor's state while no lane is being answered."""
        with self._lock:
            return change(self.distributor)

    def wake(self) -> None:
        """There may be rows for lanes that wait; from any thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._wake)

    def close(self) -> None:
        """Stop listening and cut all lanes off."""
        if self._loop.is_running():
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop)
            self._thread.join(timeout=10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _listen(self, host: str) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._serve, host, 0)
        self._looking = asyncio.create_task(self._look())
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def _stop(self) -> None:
        self._looking.cancel()
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(self._looking, *self._connections, return_exceptions=True)
        self._loop.stop()

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY)
            with self._lock:
                self.distributor.look(self._clock())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if await self._greet(reader):
                await self._answer_all(reader, writer)
        except (FrameError, msgspec.DecodeError) as error:
            self._refuse(str(error))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def _greet(self, reader: asyncio.StreamReader) -> bool:
        body = await read_frame(reader, HELLO_FRAME)
        if body is None:
            return False
        if not knows(self._hello.decode(body), self.token):
            self._refuse("a wrong token or version")
            return False
        return True

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while (body := await read_frame(reader, _REQUESTS)) is not None:
            request = self._request.decode(body)
            if isinstance(request, Report) and request.done is None:
                await self._until_fed(request.batch)
            writer.write(encode(self._answer(request)))
            await writer.drain()

    async def _until_fed(self, key: str) -> None:
        """Let a lane of a resident batch wait here for rows, instead of asking again and again."""
        limit = self._loop.time() + _LONGEST_WAIT
        while (left := limit - self._loop.time()) > 0:
            with self._lock:
                batch = self.distributor.get(key)
                if batch is None or not batch.idle:
                    return
            fed = self._loop.create_future()
            self._waiting.append(fed)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(fed, left)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for fed in waiting:
            if not fed.done():
                fed.set_result(None)

    def _answer(self, request: Request) -> Reply:
        with self._lock:
            return self.distributor.answer(request, self._clock())

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        if reason not in self._told and len(self._told) < 100:
            self._told.add(reason)
            log.warning("distributor: refused a connection: %s (said once)", reason)

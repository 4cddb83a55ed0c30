"""The live page's server: read-only, on a thread of its own, for this machine unless told else.

``/`` is the page, ``/events`` its stream of snapshots, ``/snapshot.json`` one of them, ``/metrics``
the same for Prometheus.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import re
import secrets
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from uvicorn import Config
from uvicorn.server import ServerState

from taut.errors import WatchError
from taut.watch.connection import Connection, once
from taut.watch.feed import Feed
from taut.watch.site import Guard, site
from taut.watch.snapshot import Snapshot

log = logging.getLogger("taut")

EVERY = 1.0
"""Seconds between two snapshots."""
CONNECTIONS = 100
"""Open at once; more are answered 503."""
PATIENCE = 1.0
"""Seconds that answers under way have to end when the server is closed."""
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,256}")


class Server:
    """Serves snapshots, from its construction until :meth:`close`.

    Parameters
    ----------
    snapshot
        Called on the server's thread about once a second while somebody looks, else not at all.
    host, port
        Where to listen. Port 0 takes any that is free.
    token
        What a client has to know. None: nothing on a loopback address, a new random one elsewhere.

    Raises
    ------
    WatchError
        The address cannot be listened on, or the token is none. Nothing has been started then.
    """

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        token: str | None = None,
    ) -> None:
        if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
            raise WatchError(
                "token: 16 to 256 letters, digits and . _ ~ - are needed; leave it out to get a "
                "random one on every address but this machine's own"
            )
        self._socket = _listen(host, port)
        self._address, self.port = self._socket.getsockname()[:2]
        loopback = ipaddress.ip_address(self._address.partition("%")[0]).is_loopback
        self.token = token if token is not None or loopback else secrets.token_urlsafe(24)
        self.host = host
        self._snapshot = snapshot
        self._stop: Callable[[], object] | None = None
        self._running = threading.Event()
        self._thread = threading.Thread(target=self._run, name="taut-page", daemon=True)
        self._thread.start()
        self._running.wait()

    @property
    def url(self) -> str:
        """The page's address, with the token where one is needed."""
        host = self.host
        if host in ("", "0.0.0.0", "::"):
            host = socket.gethostname()
        query = "" if self.token is None else f"?token={self.token}"
        return f"http://{_written(host)}:{self.port}/{query}"

    def close(self) -> None:
        """Stop serving and free the port; again is harmless."""
        if self._stop is not None:
            stop, self._stop = self._stop, None
            with contextlib.suppress(RuntimeError):  # its loop has ended by itself
                stop()
        if threading.current_thread() is not self._thread:
            self._thread.join(PATIENCE + 5)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Server({f'http://{self.host}:{self.port}/'!r})"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except Exception:  # who watches must not end what is watched
            log.exception("watch: the live page has stopped")
        finally:
            self._socket.close()
            self._running.set()

    async def _serve(self) -> None:
        # uvicorn's own Server would do, but it wakes ten times a second and logs as it comes and
        # goes: a library's guest should do neither.
        loop = asyncio.get_running_loop()
        asked = asyncio.Event()
        feed = Feed(self._snapshot, EVERY)
        names = (_written(self.host), _written(self._address))
        app = Guard(site(feed), token=self.token, port=self.port, names=names)
        config = Config(
            app,
            interface="asgi3",
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            proxy_headers=False,
            limit_concurrency=CONNECTIONS,
        )
        config.load()
        state = ServerState()
        logger = once()

        def accepted() -> Connection:
            return Connection(config=config, server_state=state, app_state={}, logger=logger)

        listener = await loop.create_server(accepted, sock=self._socket)
        self._stop = lambda: loop.call_soon_threadsafe(asked.set)
        self._running.set()
        await asked.wait()
        listener.close()
        feed.close()
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                while state.connections:
                    await asyncio.sleep(0.01)
        for connection in list(state.connections):
            assert isinstance(connection, Connection)
            connection.transport.abort()
        if state.tasks:
            await asyncio.wait(state.tasks, timeout=PATIENCE)


def _written(host: str) -> str:
    """As it stands in an address."""
    return f"[{host}]" if ":" in host else host


def _listen(host: str, port: int) -> socket.socket:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
        raise WatchError(f"port={port!r}: a port is a whole number, 0 (any free one) to 65535")
    if not isinstance(host, str):
        raise WatchError(f"host={host!r}: a name or an address of this machine, as text")
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise WatchError(f"host={host!r} is no address of this machine: {error}") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a restart finds it free
        listening.bind(address)
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise WatchError(_why(host, port, error)) from None
    return listening


def _why(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"port={port} is in use on {host!r}: another runtime's page, maybe. Choose another, or "
            "port=0 for any that is free"
        )
    if error.errno == errno.EACCES:
        return f"port={port} may not be used by this user: choose one from 1024, or port=0"
    return f"cannot listen on host={host!r}, port={port}: {error}"

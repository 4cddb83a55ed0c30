"""What the server answers, and whom: routes, the page's files, and a guard before them."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from taut.watch.feed import Feed
from taut.watch.metrics import exposition

LISTENERS = 32
"""Pages that may be open at once."""

ASSETS = {
    "style.css": "text/css",
    "main.js": "text/javascript",
    "live.js": "text/javascript",
    "dom.js": "text/javascript",
    "format.js": "text/javascript",
    "chart.js": "text/javascript",
    "timeline.js": "text/javascript",
    "verdict.js": "text/javascript",
    "queries.js": "text/javascript",
    "detail.js": "text/javascript",
    "source.js": "text/javascript",
    "reduce.js": "text/javascript",
    "plan.js": "text/javascript",
    "icon.svg": "image/svg+xml",
    "uPlot.iife.min.js": "text/javascript",
    "uPlot.min.css": "text/css",
}
"""The page's own files, all that is served: no path leads anywhere else."""

_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_NO_SNAPSHOT = PlainTextResponse("there is no snapshot to show; see the log of the driver\n", 503)
_HANG_UP = {"connection": "close"}  # who may not look does not hold a connection either
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "[::1]"})


def site(feed: Feed) -> Starlette:
    """The routes."""

    # Coroutines, though nothing waits in them: starlette runs plain functions in other threads.
    async def snapshot(request: Request) -> Response:
        seen = feed.look()
        return _NO_SNAPSHOT if seen is None else Response(seen[1], media_type="application/json")

    async def metrics(request: Request) -> Response:
        seen = feed.look()
        if seen is None:
            return _NO_SNAPSHOT
        body, media_type = exposition(seen[0], request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media_type})

    return Starlette(
        routes=[
            Route("/", _page),
            Route("/assets/{name}", _asset),
            Route("/events", Events(feed), methods=["GET"]),
            Route("/snapshot.json", snapshot),
            Route("/metrics", metrics),
        ]
    )


@cache
def _file(name: str) -> tuple[bytes, str]:
    body = files("taut.watch").joinpath("page", name).read_bytes()
    return body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'


def _answer(request: Request, name: str, media_type: str) -> Response:
    body, tag = _file(name)
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=media_type, headers=headers)


async def _page(request: Request) -> Response:
    return _answer(request, "index.html", "text/html")


async def _asset(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        return PlainTextResponse("not found\n", 404)
    return _answer(request, name, ASSETS[name])


class Events:
    """The stream: the newest frame at once, then each one that follows."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._feed.listeners >= LISTENERS and scope["method"] == "GET":
            full = PlainTextResponse(f"{LISTENERS} pages are open already\n", 503)
            await full(scope, receive, send)
            return
        headers = MutableHeaders({"content-type": "text/event-stream", "cache-control": "no-store"})
        headers["x-accel-buffering"] = "no"  # asks a proxy to pass frames on as they come
        await send({"type": "http.response.start", "status": 200, "headers": headers.raw})
        if scope["method"] == "GET":
            await self._stream(receive, send)
        await send({"type": "http.response.body"})

    async def _stream(self, receive: Receive, send: Send) -> None:
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            with self._feed.listening():
                frame: bytes | None = self._feed.frame()
                while frame is not None and not gone.done():
                    await send({"type": "http.response.body", "body": frame, "more_body": True})
                    frame = await self._feed.next()
        finally:
            gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Guard:
    """Lets in who may look: by GET or HEAD, with the token, or by a name of this machine.

    Without a token the address is a loopback one, and then the name in the Host header must be
    one too, or one of ``names``: else any web page could have its own name point here and read
    what it likes. With a token that cannot happen, since the cookie is not sent to another name.
    """

    def __init__(
        self, app: ASGIApp, *, token: str | None, port: int, names: Iterable[str] = ()
    ) -> None:
        self._app = app
        self._names = _LOOPBACK.union(name.lower() for name in names if name)
        self._token = token
        self._cookie = f"taut-{port}"  # two pages on this host must not share one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        given = self._given(scope)
        keep = self._token is not None and given is not None and _same(given, self._token)

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer = MutableHeaders(scope=message)
                answer.update(_HEADERS)
                answer.setdefault("cache-control", "no-store")
                if keep:
                    answer.append(
                        "set-cookie",
                        f"{self._cookie}={self._token}; HttpOnly; SameSite=Strict; Path=/",
                    )
            await send(message)

        refused = None if keep else self._refuse(headers)
        if refused is None and scope["method"] not in ("GET", "HEAD"):
            refused = PlainTextResponse("read only\n", 405, headers={"allow": "GET, HEAD"})
        await (refused or self._app)(scope, receive, sealed)

    def _refuse(self, headers: Headers) -> Response | None:
        if self._token is None:
            host = headers.get("host", "")
            name = host if host.endswith("]") else host.rpartition(":")[0] or host
            if name.lower() in self._names:
                return None
            return PlainTextResponse(
                "421: open page.url, of page = runtime.watch(...); with a token, any name does\n",
                421,
                headers=_HANG_UP,
            )
        bearer = headers.get("authorization", "")
        if bearer[:7].lower() == "bearer " and _same(bearer[7:].strip(), self._token):
            return None
        if any(_same(value, self._token) for value in self._kept(headers)):
            return None
        return PlainTextResponse(
            "401: open page.url, of page = runtime.watch(...): it has the token\n",
            401,
            headers={"www-authenticate": "Bearer", **_HANG_UP},
        )

    def _kept(self, headers: Headers) -> Iterator[str]:
        # Cookies know no ports: those of everything else on this host come along, and a parser
        # gives up on all of them at the first that keeps no rules.
        for pair in ";".join(headers.getlist("cookie")).split(";"):
            name, _, value = pair.strip().partition("=")
            if name == self._cookie:
                yield value

    def _given(self, scope: Scope) -> str | None:
        found = parse_qs(scope["query_string"].decode("latin-1"))
        return found["token"][0] if "token" in found else None


def _same(given: str, token: str) -> bool:
    return secrets.compare_digest(given.encode(), token.encode())

"""The live page's server: who may look, what is answered, and that it holds nothing up."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.conftest import wait_until
from tests.watch.scenes import Scene

import taut.watch.connection
import taut.watch.server
from taut.errors import TautError, WatchError
from taut.watch import site
from taut.watch.feed import Feed
from taut.watch.server import Server
from taut.watch.snapshot import Snapshot, decode

START = 1_794_900_000.0
TOKEN = "a-token-of-sixteen-or-more"
PAGE = Path(site.__file__).parent / "page"


class Run:
    """A runtime as the server sees it; counts how often it was looked at."""

    def __init__(self, queries: int = 4) -> None:
        self.scene = Scene(START, queries=queries, lanes=2)
        self.looks = 0
        self.broken = False
        self.threads: set[str] = set()

    def __call__(self) -> Snapshot:
        self.looks += 1
        self.threads.add(threading.current_thread().name)
        if self.broken:
            raise RuntimeError("no board")
        return self.scene.at(START + 4000 + self.looks)


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def server(run: Run) -> Iterator[Server]:
    with Server(run) as serving:
        yield serving


@contextmanager
def asking(server: Server, request: str = "GET /events HTTP/1.1") -> Iterator[socket.socket]:
    """A client by hand, that may then read or not."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(f"{request}\r\nHost: localhost\r\n\r\n".encode())
        yield connection


def events(server: Server, many: int) -> list[Snapshot]:
    seen = []
    with httpx.stream("GET", f"{server.url}events", timeout=10) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for line in answer.iter_lines():
            if line.startswith("data: "):
                seen.append(decode(line.removeprefix("data: ")))
                if len(seen) == many:
                    break
    return seen


def test_the_page_and_its_files(server: Server) -> None:
    page = httpx.get(server.url)
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for name in re.findall(r'(?:src|href)="(assets/[^"]+)"', page.text):
        assert httpx.get(f"{server.url}{name}").status_code == 200, name


def test_every_file_of_the_page_is_served_and_no_other() -> None:
    there = {file.name for file in PAGE.iterdir()}
    assert there == {*site.ASSETS, "index.html", "uPlot.LICENSE"}


def test_the_page_is_small() -> None:
    assert sum(file.stat().st_size for file in PAGE.iterdir()) < 150_000


def test_a_file_that_has_not_changed_is_not_sent_again(server: Server) -> None:
    first = httpx.get(f"{server.url}assets/main.js")
    tag = {"if-none-match": first.headers["etag"]}
    again = httpx.get(f"{server.url}assets/main.js", headers=tag)
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../server.py",
        "/assets/..%2fserver.py",
        "/assets/%2e%2e/server.py",
        "/assets//etc/passwd",
        "/assets/index.html",
        "/assets/",
        "/server.py",
        "/docs",
    ],
)
def test_no_path_leads_elsewhere(server: Server, path: str) -> None:
    with asking(server, f"GET {path} HTTP/1.1") as client:
        assert client.recv(12) in (b"HTTP/1.1 404", b"HTTP/1.1 307")


def test_snapshot(server: Server) -> None:
    answer = httpx.get(f"{server.url}snapshot.json")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    assert len(decode(answer.content).queries) == 4


def test_metrics_for_prometheus_and_for_openmetrics(server: Server) -> None:
    plain = httpx.get(f"{server.url}metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "taut_query_objective_seconds{" in plain.text
    accept = {"accept": "application/openmetrics-text; version=1.0.0"}
    assert httpx.get(f"{server.url}metrics", headers=accept).text.endswith("# EOF\n")


def test_events_come_as_snapshots_change(server: Server) -> None:
    first, second, third = events(server, 3)
    assert first.at < second.at < third.at


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["", "events", "snapshot.json", "assets/main.js"])
def test_read_only(server: Server, method: str, path: str) -> None:
    answer = httpx.request(method, f"{server.url}{path}")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["", "events", "snapshot.json", "metrics", "assets/main.js"])
def test_head_has_no_body(server: Server, path: str) -> None:
    answer = httpx.head(f"{server.url}{path}")
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize("path", ["", "nowhere", "snapshot.json"])
def test_security_headers(server: Server, path: str) -> None:
    headers = httpx.get(f"{server.url}{path}").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


def test_the_page_has_no_script_of_its_own_inside() -> None:
    text = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]* src=)|<style| style=| on\w+=", text)
    for file in PAGE.glob("*.js"):
        if not file.name.startswith("uPlot"):
            assert not re.search("innerHTML|outerHTML|insertAdjacentHTML|eval", file.read_text())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1", 200),
        ("localhost:1", 200),
        ("LOCALHOST", 200),
        ("[::1]:80", 200),
        ("evil.example", 421),
        ("evil.example:80", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost@evil.example", 421),
        ("", 421),
    ],
)
def test_a_name_that_is_not_this_machine_is_refused(server: Server, host: str, status: int) -> None:
    assert httpx.get(server.url, headers={"host": host}).status_code == status


@pytest.mark.parametrize(("host", "named"), [("127.0.1.1", ""), ("Driver.example", "127.0.1.1")])
def test_the_address_it_prints_is_answered(
    run: Run, monkeypatch: pytest.MonkeyPatch, host: str, named: str
) -> None:
    """As where a machine's own name is 127.0.1.1: a loopback address, and not localhost's."""
    found = socket.getaddrinfo

    def resolve(name: str, *args: Any, **more: Any) -> Any:
        return found(named if named and name == host else name, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", resolve)
        server = Server(run, host=host)
    with server:
        assert server.token is None
        assert server.url == f"http://{host}:{server.port}/"
        base = f"http://127.0.1.1:{server.port}/"
        for name, status in {
            f"{host}:{server.port}": 200,
            host.lower(): 200,
            f"127.0.1.1:{server.port}": 200,
            "evil.example": 421,
            "": 421,
        }.items():
            assert httpx.get(base, headers={"host": name}).status_code == status, name


def test_this_machine_alone_by_default_and_without_a_token(server: Server) -> None:
    assert server.token is None
    assert server.url == f"http://127.0.0.1:{server.port}/"


@pytest.mark.parametrize("path", ["", "events", "metrics", "assets/main.js", "nowhere"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_the_token_there_is_nothing(run: Run, path: str, method: str) -> None:
    with Server(run, token=TOKEN) as server:
        base = f"http://127.0.0.1:{server.port}/{path}"
        for headers in (
            {},
            {"authorization": f"Bearer {TOKEN}x"},
            {"authorization": TOKEN},
            {"authorization": "Bearer é"},
            {"cookie": f"taut-{server.port}={TOKEN[:-1]}"},
            {"cookie": f"other={TOKEN}"},
        ):
            raw = {name: value.encode() for name, value in headers.items()}
            answer = httpx.request(method, base, headers=raw)
            assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)
            assert answer.text.startswith("401")
        assert httpx.request(method, f"{base}?token={TOKEN[:-1]}").status_code == 401
        assert run.looks == 0


def test_the_token_is_given_once_and_then_kept_as_a_cookie(run: Run) -> None:
    with Server(run, token=TOKEN) as server, httpx.Client() as browser:
        first = browser.get(server.url)
        assert first.status_code == 200
        cookie = first.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert browser.get(f"http://127.0.0.1:{server.port}/snapshot.json").status_code == 200
        bearer = {"authorization": f"Bearer {TOKEN}"}
        metrics = httpx.get(f"http://127.0.0.1:{server.port}/metrics", headers=bearer)
        assert metrics.status_code == 200
        assert "set-cookie" not in metrics.headers


@pytest.mark.parametrize("other", ["flag", 'foo={"a":1,"b":"x y"}', "a[b]=1", "=", "b=é"])
def test_cookies_of_others_on_the_same_host_do_no_harm(run: Run, other: str) -> None:
    with Server(run, token=TOKEN) as server:
        own = f"taut-{server.port}={TOKEN}"
        base = f"http://127.0.0.1:{server.port}/"
        for kept in (f"{other}; {own}", f"{own}; {other}", f"{own}x;{own}"):
            assert httpx.get(base, headers={"cookie": kept.encode()}).status_code == 200, kept
        headers = {"cookie": f"{other}; {own}x".encode()}
        assert httpx.get(base, headers=headers).status_code == 401


def test_any_other_address_gets_a_token(run: Run) -> None:
    with Server(run, host="0.0.0.0") as server, Server(run, host="0.0.0.0") as other:
        assert server.token is not None
        assert len(server.token) >= 32
        assert server.token != other.token
        assert server.url.endswith(f":{server.port}/?token={server.token}")
        assert server.token not in repr(server)
        base = f"http://127.0.0.1:{server.port}/"
        assert httpx.get(base).status_code == 401
        assert httpx.get(base, params={"token": server.token}).status_code == 200
        # A name of its own is no danger behind a token.
        params, headers = {"token": server.token}, {"host": "driver.example"}
        assert httpx.get(base, params=params, headers=headers).status_code == 200


@pytest.mark.parametrize("token", ["", "short", "with a space in the middle", "é" * 20, "a;b" * 9])
def test_a_token_that_is_none(run: Run, token: str) -> None:
    with pytest.raises(WatchError, match="16 to 256"):
        Server(run, token=token)


def test_a_port_in_use(server: Server, run: Run) -> None:
    threads = threading.active_count()
    with pytest.raises(TautError, match=rf"port={server.port} is in use.*port=0"):
        Server(run, port=server.port)
    assert threading.active_count() == threads


def test_an_address_that_is_not_here(run: Run) -> None:
    with pytest.raises(WatchError, match=r"host='198\.51\.100\.7'"):
        Server(run, host="198.51.100.7")
    with pytest.raises(WatchError, match="no address of this machine"):
        Server(run, host="no.such.name.invalid")
    wrong: Any
    for wrong in (70000, -1, "abc", 80.5, True, None):
        with pytest.raises(WatchError, match=f"port={wrong!r}: a port is a whole number"):
            Server(run, port=wrong)
    wrong = 80
    with pytest.raises(WatchError, match="host=80"):
        Server(run, host=wrong)
    with pytest.raises(WatchError, match="16 to 256"):
        Server(run, token=wrong)


def test_the_same_port_again_at_once(run: Run) -> None:
    with Server(run) as first, asking(first) as client:
        assert client.recv(100)
        port = first.port
        first.close()
        with Server(run, port=port) as second:
            assert httpx.get(second.url).status_code == 200


def test_close_ends_streams_and_its_thread(run: Run) -> None:
    server = Server(run)
    with asking(server) as client:
        assert client.recv(100)
        began = time.monotonic()
        server.close()
        server.close()
        assert time.monotonic() - began < 5  # generous: nothing waits for the client
        while client.recv(65536):
            pass
    assert not any(thread.name == "taut-page" for thread in threading.enumerate())


def test_one_look_for_all_and_none_before_anybody_listens(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taut.watch.server, "EVERY", 0.1)

    with Server(run) as server:
        httpx.get(server.url)
        assert run.looks == 0
        with asking(server) as one, asking(server) as two, asking(server) as three:
            wait_until(lambda: run.looks >= 2, within=10)
            before, began = run.looks, time.monotonic()
            wait_until(lambda: run.looks >= before + 10, within=10)
            took = time.monotonic() - began
            assert run.looks - before <= took / 0.1 + 1  # one each would be thrice that
            assert all(client.recv(100) for client in (one, two, three))
        assert run.threads == {"taut-page"}


def test_nothing_is_left_that_could_look_when_the_last_listener_has_gone(run: Run) -> None:
    async def listen_and_leave() -> int:
        feed = Feed(run, every=0.01)
        with feed.listening(), feed.listening():
            assert await feed.next() is not None
        await asyncio.sleep(0)  # the loop's turn, in which what was cancelled ends
        return len(asyncio.all_tasks() - {asyncio.current_task()})

    assert asyncio.run(listen_and_leave()) == 0
    assert run.looks > 0


def test_a_client_that_never_reads_is_dropped_and_holds_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(taut.watch.connection, "STALLED", 0.5)
    monkeypatch.setattr(taut.watch.server, "EVERY", 0.02)
    run = Run(queries=60)
    with Server(run) as server, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", server.port))
        deaf.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        wait_until(lambda: run.looks >= 2, within=10)
        assert len(events(server, 2)) == 2  # another is served meanwhile
        wait_until(lambda: _cut_off(deaf), within=60)


def _cut_off(client: socket.socket, sent: bytes = b"\r\n") -> bool:
    """Whether the other side has ended the connection, without reading what it sent."""
    try:
        client.send(sent)
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False


def test_a_client_that_never_asks_is_dropped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taut.watch.connection, "SILENT", 0.2)
    with (
        Server(run) as server,
        socket.create_connection(("127.0.0.1", server.port), timeout=10) as client,
    ):
        assert client.recv(1) == b""


def test_a_client_that_begins_to_ask_again_and_stops_is_dropped(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taut.watch.connection, "SILENT", 0.3)
    with Server(run) as server, asking(server, "GET /nowhere HTTP/1.1") as client:
        assert client.recv(12) == b"HTTP/1.1 404"
        client.sendall(b"G")  # with which uvicorn's own time for a next request no longer runs
        while client.recv(65536):
            pass


def test_a_client_that_asks_a_byte_at_a_time_is_dropped(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(taut.watch.connection, "SILENT", 0.3)
    with Server(run) as server, asking(server, "GET /nowhere HTTP/1.1") as client:
        assert client.recv(12) == b"HTTP/1.1 404"
        wait_until(lambda: _cut_off(client, b"G"), within=10)


def test_a_client_that_asks_again_in_time_is_not(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taut.watch.connection, "SILENT", 1.0)
    monkeypatch.setattr(taut.watch.server, "EVERY", 0.1)
    with Server(run) as server, asking(server, "HEAD / HTTP/1.1") as client:
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /events HTTP/1.1\r\n")
        client.sendall(b"Host: localhost\r\n\r\n")
        began = time.monotonic()
        while time.monotonic() - began < 1.5:  # a stream asks for nothing more, and goes on
            assert client.recv(65536)


def test_strangers_lock_nobody_out(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taut.watch.server, "CONNECTIONS", 4)
    with Server(run, token=TOKEN) as server, ExitStack() as strangers:
        for _ in range(3):
            client = strangers.enter_context(asking(server, "GET / HTTP/1.1"))
            answer = client.recv(65536)
            assert answer.startswith(b"HTTP/1.1 401")
            assert b"connection: close" in answer
            with suppress(OSError):  # cut off by now
                client.sendall(b"G")
        assert httpx.get(server.url).status_code == 200


def test_the_log_is_told_once_however_many_are_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(taut.watch.server, "CONNECTIONS", 1)
    with Server(run) as server:
        for _ in range(3):
            assert httpx.get(server.url).status_code == 503
    told = [(one.name, one.getMessage()) for one in caplog.records if one.name != "httpx"]
    assert told == [("taut", "watch: told once: Exceeded concurrency limit.")]


def test_an_answer_that_fails_is_told_with_its_trace(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(site, "_file", lambda name: {}[name])
    for _ in range(2):
        assert httpx.get(server.url).status_code == 500
    (told,) = [one for one in caplog.records if one.name not in ("httpx", "asyncio")]
    assert (told.name, told.levelno) == ("taut", logging.ERROR)
    assert told.exc_info is not None
    assert isinstance(told.exc_info[1], KeyError)


def test_not_more_pages_than_it_can_serve(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "LISTENERS", 1)
    with asking(server) as first:
        assert first.recv(12) == b"HTTP/1.1 200"
        with asking(server) as second:
            assert second.recv(12) == b"HTTP/1.1 503"


def test_a_runtime_that_cannot_tell(
    server: Server, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.broken = True
    with httpx.stream("GET", f"{server.url}events", timeout=10) as answer:
        lines = answer.iter_lines()
        assert next(lines) == "event: failed"
        assert "why" in json.loads(next(lines).removeprefix("data: "))
        wait_until(lambda: run.looks >= 3, within=10)
        assert httpx.get(f"{server.url}snapshot.json").status_code == 503
        assert httpx.get(f"{server.url}metrics").status_code == 503
        run.broken = False
        assert any(line.startswith('data: {"at"') for line in lines)  # and it goes on
    assert [record.message for record in caplog.records if record.name == "taut"] == [
        "watch: no snapshot to show, the page is stale: RuntimeError('no board')"
    ]


def test_signals_and_logging_are_left_alone(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    def state() -> list[object]:
        loggers = [logging.getLogger(name) for name in ("", "uvicorn", "uvicorn.error")]
        loggers.append(logging.getLogger("uvicorn.access"))
        kept: list[object] = [
            (one.level, tuple(one.handlers), one.propagate, tuple(one.filters)) for one in loggers
        ]
        return [*kept, signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)]

    with caplog.at_level(logging.INFO):
        before = state()
        with Server(run, token=TOKEN) as server:
            assert httpx.get(server.url).status_code == 200
            assert state() == before
        assert state() == before
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
    assert not [one for one in caplog.records if one.name != "httpx" and TOKEN in one.getMessage()]

"""Being watched, as a policy to measure: least slack with a trace on and ten pages open."""

from __future__ import annotations

import contextlib
import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from taut.bench.record import BenchError

if TYPE_CHECKING:
    import taut

WATCHED = "watched"
PAGES = 10
_OPEN_S = 20.0


@contextlib.contextmanager
def watched(runtime: taut.Runtime, pages: int = PAGES) -> Iterator[None]:
    """Open so many pages of a runtime, in a process of their own, until the end of the block."""
    page = runtime.watch()
    command = [sys.executable, "-m", __name__, page.url, str(pages)]
    visitors = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    try:
        assert visitors.stdout is not None
        if visitors.stdout.readline().strip() != "open":
            raise BenchError(f"no page could be opened at {page.url}")
        yield
        if visitors.poll() is not None:
            raise BenchError("the pages were closed before the run had ended")
    finally:
        # they end when their input does
        visitors.communicate(timeout=_OPEN_S)


def trace_of(policy: str, folder: Path) -> Path | bool:
    """Where a run is recorded; only the one that is about that is."""
    return folder / "trace" if policy == WATCHED else False


def _visit(url: str, pages: int) -> None:
    """Read the events of so many pages, as fast as they come, until nothing is on the input."""
    where = urlsplit(url)
    opened = []
    for _ in range(pages):
        connection = http.client.HTTPConnection(where.netloc, timeout=_OPEN_S)
        connection.request("GET", f"/events?{where.query}")
        answer = connection.getresponse()
        if answer.status != http.client.OK:
            raise SystemExit(f"{url}: {answer.status}")
        opened.append(answer)
    for answer in opened:
        threading.Thread(target=_read, args=(answer,), daemon=True).start()
    print("open", flush=True)
    sys.stdin.read()


def _read(answer: http.client.HTTPResponse) -> None:
    with contextlib.suppress(OSError, http.client.HTTPException):
        while answer.read1(65_536):
            pass


if __name__ == "__main__":
    _visit(sys.argv[1], int(sys.argv[2]))

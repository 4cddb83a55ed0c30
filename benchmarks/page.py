"""What the live page costs a browser, and its snapshots the driver: 60 queries and 64 lanes.

Script, style and layout are the browser's own counts over the updates (by its Performance domain),
so they have everything in them that an update causes; "handler" is what the page measures of
itself. Paint is the first contentful one, from a cold cache.

    python -m benchmarks.page
    python -m benchmarks.page --queries 16 --lanes 8 --seconds 30
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import click
from playwright.sync_api import Browser
from rich.console import Console
from rich.table import Table
from tests.watch.browser import chromium, found, until
from tests.watch.scenes import Scene

from taut.watch import site
from taut.watch.board import Board
from taut.watch.metrics import exposition
from taut.watch.records import Batch, Run, Started
from taut.watch.server import Server
from taut.watch.snapshot import encode

COUNTS = {"script": "ScriptDuration", "style": "RecalcStyleDuration", "layout": "LayoutDuration",
          "all tasks": "TaskDuration"}  # fmt: skip


def measure(browser: Browser, server: Server, view: str, seconds: float) -> dict[str, float]:
    """Milliseconds an update in one view, and until the first paint."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.goto(f"{server.url}#{view}")
    until(page, "() => globalThis.taut?.updates >= 3")
    devtools = context.new_cdp_session(page)
    devtools.send("Performance.enable")

    def counts() -> dict[str, float]:
        got = {
            one["name"]: one["value"] for one in devtools.send("Performance.getMetrics")["metrics"]
        }
        return {name: got[of] for name, of in COUNTS.items()}

    before, first = counts(), page.evaluate("() => taut.updates")
    handler = []
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        page.wait_for_timeout(1000)
        handler.append(page.evaluate("() => taut.took"))
    after, last = counts(), page.evaluate("() => taut.updates")
    paint = page.evaluate(
        "() => performance.getEntriesByName('first-contentful-paint')[0].startTime"
    )
    context.close()
    each = {name: 1000 * (after[name] - before[name]) / (last - first) for name in COUNTS}
    return {"first paint": paint, "handler": statistics.median(handler), **each}


def look(queries: int) -> float:
    """Milliseconds of the processor for one snapshot of a real board, the least of three.

    Two minutes of a batch a second for each query, without windows.
    """
    board = Board()
    board.observe(Run(0.0, "r1", "least-slack", 2, 60.0))
    for i in range(queries):
        board.observe(Started(0.0, f"q{i}", "p99 <= 1 s", 1.0, 0.99))
    took = []
    for n in range(123):
        t = 1000.0 + n
        for i in range(queries):
            board.observe(Batch(f"q{i}", n, t, t, t + 0.05, t + 0.1, t + 0.3, input=1.0))
        if n >= 120:
            began = time.thread_time()
            board.snapshot(t + 0.5)
            took.append(time.thread_time() - began)
    return min(took) * 1000


@click.command()
@click.option("--queries", default=60, show_default=True)
@click.option("--lanes", default=64, show_default=True)
@click.option("--every", default=4.0, show_default=True, help="Seconds between windows.")
@click.option("--seconds", default=10.0, show_default=True, help="To look at each view.")
def main(queries: int, lanes: int, every: float, seconds: float) -> None:
    """Measure every view, and what a snapshot costs the driver."""
    path = found()
    if path is None:
        raise click.ClickException("no Chromium found")
    scene = Scene(time.time() - 4000, queries=queries, lanes=lanes, every=every)
    page = Path(site.__file__).parent / "page"
    console = Console()
    console.print(f"page: {sum(f.stat().st_size for f in page.iterdir()):,} bytes")
    console.print(f"snapshot: {look(queries):.1f} ms")
    seen = scene.at(time.time())
    for name, make in {
        "JSON": lambda: encode(seen),
        "metrics": lambda: exposition(seen)[0],
    }.items():
        began = time.thread_time()
        for _ in range(20):
            body = make()
        took = (time.thread_time() - began) / 20
        console.print(f"{name}: {len(body):,} bytes in {took * 1000:.1f} ms")
    table = Table("view", "first paint", "handler", *COUNTS, title="ms an update")
    with Server(lambda: scene.at(time.time())) as server, chromium(path) as browser:
        for view in ("queries", "source", "reduce", "plan"):
            got = measure(browser, server, view, seconds)
            table.add_row(
                view, f"{got.pop('first paint'):.0f}", *(f"{v:.1f}" for v in got.values())
            )
    console.print(table)


if __name__ == "__main__":
    main()

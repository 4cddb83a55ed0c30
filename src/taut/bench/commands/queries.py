"""``taut bench queries``, and ``taut demo``, which is a short one."""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.bench.commands.options import (
    FILE,
    WIDE,
    Names,
    Seconds,
    json_option,
    rounds_option,
    seconds_option,
    wide_console,
    write,
)

if TYPE_CHECKING:
    from rich.console import Console

    from taut.bench.queries.figures import Run
    from taut.bench.queries.run import Spec
    from taut.bench.record import Record

POLICIES = (
    "least-slack",
    "fcfs",
    "round-robin",
    "highest-rate",
    "streambox",
    "spark-default",
    "spark-fair",
    "spark-trigger",
    "watched",
)
"""The last one is least slack with a trace on and ten pages open: what it costs to be watched."""
WORKLOADS = ("ads", "linear-road", "taxi", "mixed")


@click.command()
@click.option("--workload", type=click.Choice(WORKLOADS), default="ads", show_default=True)
@click.option("--queries", type=click.IntRange(1), default=16, show_default=True)
@click.option("--window", type=Seconds(), default="12s", show_default=True, help="Window length.")
@seconds_option()
@click.option(
    "--policies",
    type=Names(POLICIES),
    default="spark-default,least-slack",
    show_default=True,
    help=f"Out of {', '.join(POLICIES)} (least-slack with a trace on and ten pages open).",
)
@rounds_option
@click.option("--rate", type=click.IntRange(1), help="Rows a second and query.")
@click.option("--concurrency", type=click.IntRange(1), help="Turns that run side by side.")
@click.option("--slo", default="p99 <= 1 s", show_default=True)
@click.option(
    "--grace",
    type=Seconds(),
    help="How long a due window may still come.  [default: the larger of 60 s and 5 windows]",
)
@json_option
@click.option("--latencies", type=FILE, help="Write every window's latency here, as CSV.")
@click.option("--picture", "picture_file", type=FILE, help="Draw the latencies here, as PNG.")
def queries(
    workload: str,
    queries: int,
    window: float,
    measured: float,
    policies: tuple[str, ...],
    rounds: int,
    rate: int | None,
    concurrency: int | None,
    slo: str,
    grace: float | None,
    json_file: Path | None,
    latencies: Path | None,
    picture_file: Path | None,
) -> None:  # fmt: skip
    """Many windowed queries on one Spark: how late does each window come out?

    Latency of a window is the time from its end to its first row in the sink. Arrivals follow the
    schedule of the load. All policies run in one JVM, in its default (FIFO) pool; spark-fair gives
    each query a pool of its own.
    """
    from taut.bench.queries.measure import bench as measure
    from taut.bench.queries.measure import write_latencies
    from taut.bench.queries.run import Spec
    from taut.bench.queries.show import live

    console = wide_console()
    spec = Spec(workload, queries, window, measured, rate, concurrency, slo, grace_s=grace)
    with live(console) as watch:
        record, runs = measure(spec, policies, rounds, watch)
    _tell(console, spec, runs, record)
    write(console, json_file, record)
    if latencies:
        write_latencies(latencies, runs)
        console.print(f"latencies: {latencies}", highlight=False, soft_wrap=True)
    if picture_file:
        _draw(console, picture_file, spec, runs)


@click.command()
@json_option
@click.option("--picture", "picture_file", type=FILE, default="taut-demo.png", show_default=True)
@click.option("--watch", "page", is_flag=True, help="Open a page to look at meanwhile.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8099,
    show_default=True,
    help="Of that page; 0 takes any that is free.",
)
def demo(json_file: Path | None, picture_file: Path, page: bool, port: int) -> None:
    """Twelve windowed queries on this machine: stock Spark, then Taut. Under four minutes."""
    from taut.bench.queries.measure import bench as measure
    from taut.bench.queries.run import Spec
    from taut.bench.queries.show import live

    console = wide_console()
    console.print(
        "12 queries count ad views per campaign in 12 s windows, on one Spark.\n"
        "How long after its end is each window's result out?\n",
        highlight=False,
    )
    spec = Spec(queries=12, seconds=24.0, warm_up_bound_s=18.0, grace_s=20.0)
    with contextlib.ExitStack() as end:
        if page:
            from taut.bench.queries.shown import Shown

            shown = end.enter_context(Shown(port))
            spec = replace(spec, shown=shown)
            console.print(f"Look at {shown.url} meanwhile.\n", highlight=False)
        watch = end.enter_context(live(console))
        record, runs = measure(spec, ("spark-default", "least-slack"), 1, watch, warm_with=4)
    _tell(console, spec, runs, record)
    _draw(console, picture_file, spec, runs)
    write(console, json_file, record)
    if spec.shown is not None and spec.shown.recorded:
        folders = " ".join(shlex.quote(str(folder)) for folder in spec.shown.recorded)
        console.print(f"To see why: taut report {folders}", highlight=False, soft_wrap=True)


def _tell(console: Console, spec: Spec, runs: list[Run], record: Record) -> None:
    from taut.bench.queries.figures import remarks
    from taut.bench.queries.show import results

    title = f"{spec.workload}: {spec.queries} queries, {spec.window_s:g} s windows"
    warm_up_s: dict[str, list[float]] = record.options["warm_up_s"]
    console.print()
    narrow = console.width < WIDE
    console.print(results(spec.workload, spec.queries, runs, title, narrow=narrow))
    if "spark-default" in warm_up_s and len(warm_up_s) > 1:
        console.print("x: stock Spark's latency over the policy's.", highlight=False)
    console.print(f"late: not out within the objective, {spec.slo}.", highlight=False)
    cut = ", ".join(f"{policy} {max(each):.0f} s" for policy, each in warm_up_s.items())
    console.print(f"Warm-up cut from each run, at most: {cut}.", highlight=False)
    for remark in remarks(runs):
        console.print(remark, highlight=False, soft_wrap=True)


def _draw(console: Console, path: Path, spec: Spec, runs: list[Run]) -> None:
    from taut.bench.queries.picture import picture

    picture(path, runs, f"{spec.queries} {spec.workload} queries, {spec.window_s:g} s windows")
    console.print(f"picture: {path}", highlight=False, soft_wrap=True)

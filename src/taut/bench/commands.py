"""``taut bench`` and ``taut demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.duration import seconds

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
)
WORKLOADS = ("ads", "linear-road", "taxi", "mixed")
TOPOLOGIES = ("exclamation", "queue")
DISPATCH = "dispatch"
VARIANTS = ("default", "shared", "executor")
_WIDE = 124
_FILE = click.Path(path_type=Path, dir_okay=False)


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them, each one of those known."""

    name = "a,b,c"

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Read the names."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(",") if name.strip())
        unknown = [name for name in names if name not in self._known]
        if unknown or not names or len(set(names)) != len(names):
            self.fail(f"{value!r}: name each once, out of {', '.join(self._known)}", param, ctx)
        return names


class Seconds(click.ParamType[float]):
    """A duration: ``12s``, ``500 ms``, or a plain number of seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the duration."""
        text = str(value)
        try:
            read = float(text) if text.replace(".", "", 1).isdigit() else seconds(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if read <= 0:
            self.fail(f"{text!r}: must be above zero", param, ctx)
        return read


# what all benchmarks take
_measured = click.option(
    "--seconds",
    "measured",
    type=Seconds(),
    default="60",
    show_default=True,
    help="How long to measure in each run.",
)
_rounds = click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Each one runs so often; the median counts.",
)
_json = click.option("--json", "json_file", type=_FILE, help="Write the figures here.")


@click.group()
def bench() -> None:
    """Measure stock Spark and Taut in one command, alternating."""


@bench.command()
@click.option("--workload", type=click.Choice(WORKLOADS), default="ads", show_default=True)
@click.option("--queries", type=click.IntRange(1), default=16, show_default=True)
@click.option("--window", type=Seconds(), default="12s", show_default=True, help="Window length.")
@_measured
@click.option(
    "--policies",
    type=Names(POLICIES),
    default="spark-default,least-slack",
    show_default=True,
    help=f"Out of {', '.join(POLICIES)}.",
)
@_rounds
@click.option("--rate", type=click.IntRange(1), help="Rows a second and query.")
@click.option("--concurrency", type=click.IntRange(1), help="Turns that run side by side.")
@click.option("--slo", default="p99 <= 1 s", show_default=True)
@click.option(
    "--grace",
    type=Seconds(),
    help="How long a due window may still come.  [default: the larger of 60 s and 5 windows]",
)
@_json
@click.option("--latencies", type=_FILE, help="Write every window's latency here, as CSV.")
@click.option("--picture", "picture_file", type=_FILE, help="Draw the latencies here, as PNG.")
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

    console = _console()
    spec = Spec(workload, queries, window, measured, rate, concurrency, slo, grace_s=grace)
    with live(console) as watch:
        record, runs = measure(spec, policies, rounds, watch)
    _tell(console, spec, runs, record)
    _write(console, json_file, record)
    if latencies:
        write_latencies(latencies, runs)
        console.print(f"latencies: {latencies}", highlight=False, soft_wrap=True)
    if picture_file:
        _draw(console, picture_file, spec, runs)


@bench.command()
@click.option(
    "--topology",
    type=click.Choice((*TOPOLOGIES, DISPATCH)),
    default="queue",
    show_default=True,
    help="exclamation: three operators in a line; queue: one, with slow lanes and heavy tuples; "
    "dispatch: what dealing out itself costs.",
)
@click.option(
    "--timing", type=click.Choice(("batch", "resident")), default="batch", show_default=True
)
@click.option("--lanes", type=click.IntRange(1), help="[default: 8; 1 for dispatch]")
@click.option("--rate", type=click.IntRange(1), help="Tuples a second.  [default: the topology's]")
@_measured
@click.option(
    "--variants",
    type=Names(VARIANTS),
    default="default,shared",
    show_default=True,
    help="Out of default (what Spark does), shared (one queue), executor.",
)
@_rounds
@click.option(
    "--batch",
    type=click.IntRange(1),
    help="Tuples of every batch; else a batch takes what has arrived.",
)
@click.option(
    "--warm-up", type=Seconds(), default="10", show_default=True, help="Cut from each run."
)
@click.option("--heavy", type=click.FloatRange(0, 1), help="Share of tuples 50x as expensive.")
@click.option("--slow", type=click.FloatRange(0, 1), help="Share of lanes 3x as slow.")
@_json
def lanes(
    topology: str,
    timing: str,
    lanes: int | None,
    rate: int | None,
    measured: float,
    variants: tuple[str, ...],
    rounds: int,
    batch: int | None,
    warm_up: float,
    heavy: float | None,
    slow: float | None,
    json_file: Path | None,
) -> None:  # fmt: skip
    """Single tuples through operators in lanes: how long does each one take?

    Latency of a tuple is the time from its arrival, by the schedule of the load, until it is
    written. Operators wait instead of computing, so that many lanes fit on few cores. The topology
    dispatch measures what dealing out itself costs; it takes --lanes and --rounds only.
    """
    if topology == DISPATCH:
        _dispatch(lanes or 1, rounds, json_file)
        return
    from taut.bench.lanes.figures import remarks
    from taut.bench.lanes.measure import bench as measure
    from taut.bench.lanes.run import Spec
    from taut.bench.lanes.show import live, results

    console = _console()
    spec = Spec(topology, timing, lanes or 8, rate, measured, batch, heavy, slow, warm_up)
    with live(console) as watch:
        record, runs = measure(spec, variants, rounds, watch)
    console.print(results(spec, runs))
    legend = (
        "A tuple's latency is from arrival until it is written, the wait for its batch included. "
        "default: fixed ranges, as Spark cuts them; twice: written once more; lost: never written; "
        f"x: default over the variant. Warm-up cut from each run: {spec.warm_up_s:g} s."
    )
    console.print(legend, highlight=False, soft_wrap=True)
    for remark in remarks(runs):
        console.print(remark, highlight=False, soft_wrap=True)
    if timing == "resident" and not any(run.pauses for run in runs):
        console.print("No batch ended in the measured time: no pause is in these figures.")
    _write(console, json_file, record)


def _dispatch(lanes: int, rounds: int, json_file: Path | None) -> None:
    from taut.bench.lanes.dispatch import bench as measure
    from taut.bench.lines import Lines

    console = _console()
    lines = Lines(console)
    record = measure(lanes, rounds, lambda case, round_: lines.tell(
        (case, round_), [f"round {round_}" if round_ else "warm-up", case]
    ))  # fmt: skip
    for name, value in record.figures.items():
        console.print(f"{name:32}{value:>14,}", highlight=False)
    _write(console, json_file, record)


@click.command()
@_json
@click.option("--picture", "picture_file", type=_FILE, default="taut-demo.png", show_default=True)
def demo(json_file: Path | None, picture_file: Path) -> None:
    """Twelve windowed queries on this machine: stock Spark, then Taut. Under four minutes."""
    from taut.bench.queries.measure import bench as measure
    from taut.bench.queries.run import Spec
    from taut.bench.queries.show import live

    console = _console()
    console.print(
        "12 queries count ad views per campaign in 12 s windows, on one Spark.\n"
        "How long after its end is each window's result out?\n",
        highlight=False,
    )
    spec = Spec(queries=12, seconds=24.0, warm_up_bound_s=18.0, grace_s=20.0)
    with live(console) as watch:
        record, runs = measure(spec, ("spark-default", "least-slack"), 1, watch, warm_with=4)
    _tell(console, spec, runs, record)
    _draw(console, picture_file, spec, runs)
    _write(console, json_file, record)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    # Outside a terminal there is no edge to keep to.
    return console if console.is_terminal else Console(width=max(console.width, _WIDE))


def _write(console: Console, path: Path | None, record: Record) -> None:
    if path is not None:
        record.write(path)
        console.print(f"figures: {path}", highlight=False, soft_wrap=True)


def _tell(console: Console, spec: Spec, runs: list[Run], record: Record) -> None:
    from taut.bench.queries.figures import remarks
    from taut.bench.queries.show import results

    title = f"{spec.workload}: {spec.queries} queries, {spec.window_s:g} s windows"
    warm_up_s: dict[str, list[float]] = record.options["warm_up_s"]
    console.print()
    narrow = console.width < _WIDE
    console.print(results(spec.workload, spec.queries, runs, title, narrow=narrow))
    if "spark-default" in warm_up_s and len(warm_up_s) > 1:
        console.print("x: stock Spark's latency over the policy's.", highlight=False)
    cut = ", ".join(f"{policy} {max(each):.0f} s" for policy, each in warm_up_s.items())
    console.print(f"Warm-up cut from each run, at most: {cut}.", highlight=False)
    for remark in remarks(runs):
        console.print(remark, highlight=False, soft_wrap=True)


def _draw(console: Console, path: Path, spec: Spec, runs: list[Run]) -> None:
    from taut.bench.queries.picture import picture

    picture(path, runs, f"{spec.queries} {spec.workload} queries, {spec.window_s:g} s windows")
    console.print(f"picture: {path}", highlight=False, soft_wrap=True)

"""``taut bench reduce``."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from taut.bench.commands.options import (
    Names,
    json_option,
    rounds_option,
    seconds_option,
    wide_console,
    write,
)
from taut.errors import SloError
from taut.slo import Slo

WORKLOADS = ("words", "windowed-words", "sessions", "speed")
VARIANTS = ("fifo", "edf", "cost-aware", "dover")


class Numbers(click.ParamType[tuple[float, ...]]):
    """Numbers above 0 with commas between them."""

    name = "x,y,z"

    def __init__(self, most: float | None = None) -> None:
        self._most = most

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[float, ...]:
        """Read the numbers."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(float(each) for each in str(value).split(","))
        except ValueError:
            self.fail(f"{value!r}: numbers such as 1.0,0.5", param, ctx)
        wrong = [n for n in numbers if not 0 < n <= (self._most or float("inf"))]
        if wrong or len(set(numbers)) != len(numbers):
            bound = "" if self._most is None else f" and at most {self._most:g}"
            self.fail(f"{value!r}: each once, above 0{bound}", param, ctx)
        return numbers


def _objective(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return Slo(value).seconds
    except SloError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.option("--workload", type=click.Choice(WORKLOADS), default="words", show_default=True)
@click.option(
    "--memory",
    type=Numbers(most=1.0),
    default="1.0,0.5,0.25",
    show_default=True,
    help="Shares of the states' bytes that reducers may keep in memory.",
)
@click.option(
    "--load",
    type=Numbers(),
    default="1.0,1.36,1.8",
    show_default=True,
    help="Times the rate that is sustained with all states in memory.",
)
@click.option(
    "--variants",
    type=Names(VARIANTS),
    default=",".join(VARIANTS),
    show_default=True,
    help="Ways to choose rows.",
)
@click.option(
    "--slo", "objective", default="p99 <= 8 s", callback=_objective, show_default=True,
    help="What a row has from its arrival until its results are out.",
)  # fmt: skip
@seconds_option("20", "How long the rows that are measured arrive, in each run.")
@rounds_option
@click.option(
    "--keys",
    type=click.IntRange(1),
    default=20_000,
    show_default=True,
    help="Different keys; the n-th comes 1/n as often as the first.",
)
@click.option(
    "--work",
    "work_us",
    type=click.FloatRange(0.0),
    default=20.0,
    show_default=True,
    help="Microseconds that each update computes for.",
)
@click.option(
    "--rate", type=click.IntRange(1), help="Rows a second at load 1, instead of measuring it."
)
@json_option
def reduce(
    workload: str,
    memory: tuple[float, ...],
    load: tuple[float, ...],
    variants: tuple[str, ...],
    objective: float,
    measured: float,
    rounds: int,
    keys: int,
    work_us: float,
    rate: int | None,
    json_file: Path | None,
) -> None:
    """More rows than can be on time, or less memory than states: how many are on time?

    Every variant at every memory with every load, each about a minute a round: all of it takes
    hours, and --memory 0.5 --load 1 --rounds 1 some six minutes. ``--workload speed`` measures
    words a second on one core instead, and what deciding costs a row: in the policy's tree and
    grouped form, and in a reducer.
    """
    from taut.bench.reduce.show import legend, live, results, speeds, speeds_legend

    console = wide_console()
    if workload == "speed":
        from taut.bench.reduce import speed

        with live(console) as watch:
            record = speed.bench(measured, rounds, watch)
        console.print(speeds(record.figures))
        console.print(speeds_legend(record.options["cores"]), highlight=False, soft_wrap=True)
    else:
        from taut.bench.reduce.figures import Point
        from taut.bench.reduce.measure import bench as measure
        from taut.bench.reduce.run import Spec

        spec = Spec(workload, objective, measured, keys=keys, work_us=work_us)
        points = [Point(m, x) for m, x in itertools.product(memory, load)]
        with live(console) as watch:
            record, runs = measure(spec, points, variants, rounds, watch, rate)
        console.print(results(spec, runs, record.options["rate_at_load_1"]))
        console.print(legend(spec), highlight=False, soft_wrap=True)
    write(console, json_file, record)

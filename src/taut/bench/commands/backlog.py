"""``taut bench backlog``."""

from __future__ import annotations

from pathlib import Path

import click

from taut.bench.commands.options import (
    FILE,
    Names,
    Seconds,
    json_option,
    rounds_option,
    seconds_option,
    wide_console,
    write,
)

VARIANTS = ("proportional", "round-robin", "largest-backlog")


@click.command()
@click.option("--partitions", type=click.IntRange(1), default=10, show_default=True)
@click.option(
    "--skew",
    type=click.FloatRange(1, 1_000_000),
    default=10,
    show_default=True,
    help="Rows that the first partition gets for each one of another.",
)
@seconds_option("30", "How long rows arrive in each run.")
@click.option(
    "--variants",
    type=Names(VARIANTS),
    default=",".join(VARIANTS),
    show_default=True,
    help="Out of proportional (what Spark does), round-robin, largest-backlog.",
)
@rounds_option
@click.option(
    "--rate", type=click.IntRange(1), default=4_000, show_default=True, help="Rows a second."
)
@click.option(
    "--trigger", type=Seconds(), default="1", show_default=True, help="From batch to batch."
)
@json_option
@click.option("--picture", "picture_file", type=FILE, help="Draw the backlogs here, as PNG.")
def backlog(
    partitions: int,
    skew: float,
    measured: float,
    variants: tuple[str, ...],
    rounds: int,
    rate: int,
    trigger: float,
    json_file: Path | None,
    picture_file: Path | None,
) -> None:
    """More arrives than batches may take: how far behind does the worst partition fall?

    A batch may take 80 % of the rows that arrive until the next one. The variants are ways to
    choose from which partitions. When arrivals are over, what is left is worked off.
    """
    from taut.bench.backlog.figures import remarks
    from taut.bench.backlog.measure import FIRST_S
    from taut.bench.backlog.measure import bench as measure
    from taut.bench.backlog.run import Spec
    from taut.bench.backlog.show import legend, live, results, title

    console = wide_console()
    spec = Spec(partitions, skew, measured, rate, trigger_s=trigger)
    with live(console) as watch:
        record, runs = measure(spec, variants, rounds, watch)
    console.print(results(spec, runs))
    console.print(legend(spec, min(FIRST_S, measured)), highlight=False, soft_wrap=True)
    for remark in remarks(runs):
        console.print(remark, highlight=False, soft_wrap=True)
    write(console, json_file, record)
    if picture_file:
        from taut.bench.backlog.picture import picture

        picture(picture_file, runs, title(spec), spec.seconds)
        console.print(f"picture: {picture_file}", highlight=False, soft_wrap=True)

"""``taut bench plan``."""

from __future__ import annotations

from pathlib import Path

import click

from taut.bench.commands.options import (
    FILE,
    Seconds,
    json_option,
    seconds_option,
    wide_console,
    write,
)
from taut.errors import SloError
from taut.slo import Slo

WORKLOADS = ("words", "windowed-words", "sessions")


def objective(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """One whose measure is among those that runs tell."""
    try:
        slo = Slo(value)
    except SloError as error:
        raise click.BadParameter(str(error)) from None
    if slo.quantile not in (None, 0.5, 0.9, 0.99):
        raise click.BadParameter(
            f"{value!r}: mean, p50, p90 or p99 is measured, such as 'p99 <= 1 s'"
        )
    return str(slo)


@click.command()
@click.option("--workload", type=click.Choice(WORKLOADS), default="words", show_default=True)
@click.option("--slo", default="p99 <= 1 s", callback=objective, show_default=True)
@click.option(
    "--points",
    type=click.IntRange(0),
    default=12,
    show_default=True,
    help="Settings and rates that are predicted and measured.",
)
@seconds_option("25", "How long to measure in each run.")
@click.option(
    "--hold",
    type=Seconds(),
    default="180",
    show_default=True,
    help="How long the plan has to hold at its rate.",
)
@click.option("--search/--no-search", default=True, help="Try rules of thumb and all settings.")
@click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="How often the highest rates of the best are found, by turns.",
)
@click.option("--picture", "picture_file", type=FILE, help="Draw predicted against measured here.")
@click.option("--profile", "profile_file", type=FILE, help="Write the profile here.")
@json_option
def plan(
    workload: str,
    slo: str,
    points: int,
    measured: float,
    hold: float,
    search: bool,
    rounds: int,
    picture_file: Path | None,
    profile_file: Path | None,
    json_file: Path | None,
) -> None:
    """Is latency as predicted, and is the planned setting the best?

    The job is profiled and planned for the highest rate under the objective. Then settings and
    rates are predicted and measured, the plan has to hold, and what is planned from that too. Rules
    of thumb and all other settings are tried at the plan's rate, and the best by turns with the
    plan's at higher ones.
    """
    from taut.bench.plan.measure import Spec, bench
    from taut.bench.plan.show import live, of_settings, picture, rates_told

    console = wide_console()
    keep = None if profile_file is None else str(profile_file)
    spec = Spec(
        workload, slo, points, measured, hold_s=hold, search=search, rounds=rounds, keep=keep
    )
    with live(console) as watch:
        record, compared, rates, found = bench(spec, watch)
    if found is None:
        console.print(record.options["infeasible"], highlight=False, soft_wrap=True)
    else:
        console.print(found.explain(), highlight=False, soft_wrap=True)
    if compared:
        console.print(of_settings(workload, compared))
    for line in rates_told(rates):
        console.print(line, highlight=False, soft_wrap=True)
    if picture_file is not None and compared:
        picture(picture_file, workload, compared)
    write(console, json_file, record)

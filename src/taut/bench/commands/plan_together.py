"""``taut bench plan-together``."""

from __future__ import annotations

from pathlib import Path

import click

from taut.bench.commands.options import json_option, seconds_option, wide_console, write
from taut.bench.commands.plan import objective


@click.command("plan-together")
@click.option("--slo", default="p99 <= 4 s", callback=objective, show_default=True)
@click.option(
    "--rate",
    type=click.IntRange(1),
    default=30_000,
    show_default=True,
    help="Rows a second of the load that each query is profiled with.",
)
@seconds_option("60", "How long to measure in each run.")
@json_option
def plan_together(slo: str, rate: int, measured: float, json_file: Path | None) -> None:
    """Are queries that were planned together as late as their plans say?

    Word count, windowed word count and sessions are profiled alone, then planned and run together
    at 30, 60 and 90 % of the rates that they can have at most.
    """
    from taut.bench.plan.show import live, table
    from taut.bench.plan.together import Spec, bench

    console = wide_console()
    with live(console) as watch:
        record, ran = bench(Spec(slo, seconds=measured, rate=rate), watch)
    for name, said in record.options.items():
        if name.startswith("infeasible"):
            console.print(said, highlight=False, soft_wrap=True)
    for one in ran:
        console.print(one.plan.explain(), highlight=False, soft_wrap=True)
    if ran:
        title = "predicted and measured, of each query and per cent of what they can have at most"
        console.print(table(title, [each for one in ran for each in one.compared]))
    write(console, json_file, record)

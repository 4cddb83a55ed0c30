"""``taut bench lanes``."""

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

TOPOLOGIES = (
    "exclamation", "page-load", "processing", "queue", "sink", "balance-a", "balance-b", "balance-c"
)  # fmt: skip
DISPATCH = "dispatch"
VARIANTS = (
    "default", "timeout", "shared", "executor", "balance", "two-choices", "replicate-20",
    "replicate-50", "replicate-100", "shared+timeout", "balance+timeout", "egress-buffered",
    "egress", "egress-round-robin", "speculation",
)  # fmt: skip


@click.command()
@click.option(
    "--topology",
    type=click.Choice((*TOPOLOGIES, DISPATCH)),
    default="queue",
    show_default=True,
    help="exclamation, page-load: operators in a line; processing: two branches; queue: one "
    "operator, with slow lanes and heavy tuples; sink: lanes that write to one database; "
    "balance: real arithmetic on unequal machines; "
    "dispatch: what dealing out itself costs.",
)
@click.option(
    "--timing",
    type=click.Choice(("batch", "resident")),
    help="[default: batch; resident for balance and sink]",
)
@click.option(
    "--lanes",
    type=click.IntRange(1),
    help="[default: 8; 14, 5, 5 for balance; 4 for sink; 1 for dispatch]",
)
@click.option("--rate", type=click.IntRange(1), help="Tuples a second.  [default: the topology's]")
@seconds_option()
@click.option(
    "--variants",
    type=Names(VARIANTS),
    default="default,shared",
    show_default=True,
    help=f"Out of {', '.join(VARIANTS)}; default is what Spark does.",
)
@rounds_option
@click.option(
    "--batch",
    type=click.IntRange(1),
    help="Tuples of every batch; else a batch takes what has arrived.",
)
@click.option(
    "--warm-up", type=Seconds(), help="Cut from each run.  [default: 10 s; 60 s for balance]"
)
@click.option("--heavy", type=click.FloatRange(0, 1), help="Share of tuples 50x as expensive.")
@click.option("--slow", type=click.FloatRange(0, 1), help="Share of lanes 3x as slow.")
@click.option("--service", type=Seconds(), help="Time that a tuple takes in all operators.")
@click.option(
    "--utilisation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Sets the rate so that lanes are busy for this share of the time, with exponential "
    "service times, no slow lanes and no heavy tuples.",
)
@click.option(
    "--pauses",
    metavar="EVERY,MEAN",
    help="Stop each lane's process about every so often for so long; 0 for never.  [default: "
    "3.5s,60ms for resident exclamation, page-load and processing]",
)
@click.option("--horizon", type=Seconds(), help="Length of resident batches.")
@click.option(
    "--balance-every",
    type=Seconds(),
    default="5s",
    show_default=True,
    help="How often the variants that balance adjust themselves.",
)
@json_option
@click.option("--picture", "picture_file", type=FILE, help="Draw the latencies here, as PNG.")
def lanes(
    topology: str,
    timing: str | None,
    lanes: int | None,
    rate: int | None,
    measured: float,
    variants: tuple[str, ...],
    rounds: int,
    batch: int | None,
    warm_up: float | None,
    heavy: float | None,
    slow: float | None,
    service: float | None,
    utilisation: float | None,
    pauses: str | None,
    horizon: float | None,
    balance_every: float,
    json_file: Path | None,
    picture_file: Path | None,
) -> None:  # fmt: skip
    """Single tuples through operators in lanes: how long does each one take?

    Latency of a tuple is the time from its arrival, by the schedule of the load, until its last
    output is written. Except in balance, operators wait instead of computing, so that many lanes
    fit on few cores. The topology dispatch measures what dealing out itself costs; it takes --lanes
    and --rounds only.
    """
    if topology == DISPATCH:
        _dispatch(lanes or 1, rounds, json_file)
        return
    from taut.bench.lanes.measure import bench as measure
    from taut.bench.lanes.pauses import Pauses
    from taut.bench.lanes.show import legend, live, results
    from taut.bench.lanes.spec import Spec

    console = wide_console()
    spec = Spec.of(
        topology, timing=timing, lanes=lanes, rate=rate, seconds=measured, batch=batch,
        warm_up_s=warm_up, heavy=heavy, slow=slow, service_s=service, utilisation=utilisation,
        # given as 0 it is not None, which would be the topology's own
        pauses=None if pauses is None else Pauses.parse(pauses) or 0,
        horizon_s=horizon, balance_every_s=balance_every,
    )  # fmt: skip
    with live(console) as watch:
        record, runs = measure(spec, variants, rounds, watch, console.print)
    console.print(results(spec, record))
    for told in legend(spec, runs):
        console.print(told, highlight=False, soft_wrap=True)
    write(console, json_file, record)
    if picture_file:
        from taut.bench.lanes.picture import pictures

        for path in pictures(picture_file, spec, runs, record.figures):
            console.print(f"picture: {path}", highlight=False, soft_wrap=True)


def _dispatch(lanes: int, rounds: int, json_file: Path | None) -> None:
    from taut.bench.lanes.dispatch import bench as measure
    from taut.bench.lines import Lines

    console = wide_console()
    lines = Lines(console)
    record = measure(lanes, rounds, lambda case, round_: lines.tell(
        (case, round_), [f"round {round_}" if round_ else "warm-up", case]
    ))  # fmt: skip
    for name, value in record.figures.items():
        console.print(f"{name:32}{value:>14,}", highlight=False)
    write(console, json_file, record)

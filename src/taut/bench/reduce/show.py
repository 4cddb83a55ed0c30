"""What a person sees of ``bench reduce``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from taut.bench.lines import live as shown
from taut.bench.reduce.figures import Run, figures
from taut.bench.reduce.run import Progress, Spec, Watcher
from taut.bench.reduce.sustained import FILLED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def live(console: Console) -> AbstractContextManager[Watcher]:
    """One line that keeps itself current on a terminal, plain lines elsewhere."""
    return shown(console, _words)


def _words(now: Progress) -> list[str]:
    told = [f"{now.rows:,} rows"] if now.rows else []
    if now.on_time is not None:
        told.append(f"{100 * now.on_time:.0f} % on time lately")
    return [*told, f"{now.left_s:.0f} s left"] if now.left_s > 0 else told


def results(spec: Spec, runs: Sequence[Run], rate: float) -> Table:
    """Points down, variants across: the share on time, and how much was worked on at all."""
    from rich import box
    from rich.table import Table

    told = figures(spec.workload, runs)
    variants = list(dict.fromkeys(run.variant for run in runs))
    made = Table(
        title=f"{spec.workload}: rows out within {spec.objective:g} s of their arrival; load 1 is "
        f"{rate:,.0f} rows/s",
        title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    for head in ("memory", "load", *variants):
        made.add_column(head, justify="right", no_wrap=True)
    for point in dict.fromkeys(run.point for run in runs):
        cells = []
        for variant in variants:
            name = f"{spec.workload}.{variant}.{point.name}"
            on_time, processed = told.get(f"{name}.on_time"), told.get(f"{name}.processed")
            cells.append(_cell(on_time, processed))
        made.add_row(f"{point.memory:g}", f"{point.load:g}", *cells)
    return made


def _cell(on_time: float | None, processed: float | None) -> str:
    if on_time is None or processed is None:
        return ""
    return f"{100 * on_time:.1f} % ({100 * processed:.1f} %)"


def legend(spec: Spec) -> str:
    """What the table's words mean."""
    return (
        "On time, of the rows that arrived in the measured time, and in brackets worked on at all; "
        "what is left was put aside or still waited in the source. A row is on time if the results "
        "of its batch were written by its deadline. memory: the share of the states' bytes that a "
        "reducer may keep in its worker. Load 1 is the rate at which batches in arrival order, "
        f"with all states in memory, take {FILLED:g} of the objective, from the times that batches "
        f"of two sizes took. {spec.warm_up_s:g} s of warm-up are cut from each run."
    )


def speeds(told: Mapping[str, float]) -> Table:
    """Figures of ``--workload speed``."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column("figure", no_wrap=True)
    made.add_column("", justify="right", no_wrap=True)
    for name, value in told.items():
        made.add_row(name, f"{value:,.0f}" if value >= 100 else f"{value:.3g}")
    return made


def speeds_legend(cores: int | None) -> str:
    """What these figures are of."""
    held = {None: "on a system that does not hold processes to cores", 1: "on one core"}
    return (
        "speed: words a second from a backlog through map and reduce, with Spark and its Python "
        f"worker {held.get(cores, f'on {cores} cores')}. scheduling: microseconds a row. grouped "
        "and tree are the structures of the policy that serves rows one after the other, counts of "
        "rows that are alike and a tree of single rows: the simulator runs them, and no row on "
        "Spark passes them. reducer is what a row on Spark passes: the choice among all rows of a "
        "reducer's batch, with the look for their states, in batches of 10,000 rows."
    )

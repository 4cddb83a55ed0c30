"""What a person sees of ``bench backlog``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from taut.bench.backlog.figures import Run, figures
from taut.bench.backlog.run import Progress, Spec, Watcher
from taut.bench.lines import live as shown
from taut.bench.table import table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS = {
    "max backlog": ("{own}.max_backlog", 0),
    "x": ("ratio.{variant}.max_backlog", 2),
    "mean delay ms": ("{own}.mean_delay_ms", 0),
    "p99 delay ms": ("{own}.p99_delay_ms", 0),
    "rows": ("{own}.rows", 0),
    "rows/s": ("{own}.rows_per_s", 0),
    "lost": ("{own}.lost", 0),
}


def live(console: Console) -> AbstractContextManager[Watcher]:
    """One line that keeps itself current on a terminal, plain lines elsewhere."""
    return shown(console, _words)


def _words(now: Progress) -> list[str]:
    written = [f"{now.written:,} of {now.total:,} rows written"] if now.written else []
    return [*written, f"at most {now.left_s:.0f} s left"] if now.left_s > 0 else written


def title(spec: Spec) -> str:
    """The setting, in one line."""
    return (
        f"{spec.partitions} partitions, the first gets {spec.skew:g} times as much; "
        f"{spec.rate:,} rows/s arrive, {spec.budget / spec.trigger_s:,.0f} are taken"
    )


def results(spec: Spec, runs: Sequence[Run]) -> Table:
    """The figures as a table: medians over the rounds."""
    return table(
        title(spec), list(dict.fromkeys(run.variant for run in runs)), figures(runs), _COLUMNS
    )


def legend(spec: Spec, warm_up_s: float) -> str:
    """What the table's words mean."""
    return (
        "max backlog: rows of one partition that have arrived and that no batch has taken yet, at "
        "the worst moment; a batch takes its rows at its trigger. x: proportional's over the "
        "variant's. A row's delay is from its arrival until its batch is written. Arrivals last "
        f"{spec.seconds:g} s, then what is left is worked off; nothing is cut. Before the first "
        f"round one run of {warm_up_s:g} s warms up the JVM and counts for nothing."
    )

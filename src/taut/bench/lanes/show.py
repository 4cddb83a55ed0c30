"""What a person sees of ``bench lanes``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from taut.bench.lanes.figures import Run, figures
from taut.bench.lanes.run import Progress, Spec, Watcher
from taut.bench.lines import Lines

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS = {
    "mean ms": ("{own}.mean_ms", 1),
    "p50 ms": ("{own}.p50_ms", 1),
    "p90 ms": ("{own}.p90_ms", 1),
    "p99 ms": ("{own}.p99_ms", 1),
    "p99.9 ms": ("{own}.p999_ms", 1),
    "tuples": ("{own}.tuples", 0),
    "twice": ("{own}.duplicates", 0),
    "lost": ("{own}.lost", 0),
    "batch ms": ("{own}.batch_ms", 0),
    "pause ms": ("{own}.pause_ms", 0),
    "x p99": ("ratio.{variant}.p99", 2),
    "x batch": ("ratio.{variant}.batch", 2),
}


@contextmanager
def live(console: Console) -> Iterator[Watcher]:
    """One line that keeps itself current on a terminal, plain lines elsewhere."""
    if not console.is_terminal or console.is_dumb_terminal:
        lines = Lines(console)
        yield lambda now: lines.tell((now.round, now.variant, now.phase), _words(now))
        return
    with console.status("starting Spark") as status:
        yield lambda now: status.update(", ".join(_words(now)))


def _words(now: Progress) -> list[str]:
    words = [f"round {now.round}" if now.round else "warm-up", f"{now.variant}: {now.phase}"]
    if now.written:
        words.append(f"{now.written:,} tuples written")
    if now.left_s > 0:
        words.append(f"at most {now.left_s:.0f} s left")
    return words


def results(spec: Spec, runs: Sequence[Run]) -> Table:
    """The figures as a table: medians over the rounds; columns without any are left out."""
    from rich import box
    from rich.table import Table

    told = figures(spec.topology, runs)
    variants = list(dict.fromkeys(run.variant for run in runs))
    title = f"{spec.topology}, {spec.timing}: {spec.lanes} lanes, {spec.what.rate:,} tuples/s"
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("variant", no_wrap=True)
    rows: list[list[str]] = [[variant] for variant in variants]
    for head, (figure, digits) in _COLUMNS.items():
        cells = [
            told.get(figure.format(own=f"{spec.topology}.{variant}", variant=variant))
            for variant in variants
        ]
        if any(cell is not None for cell in cells):
            table.add_column(head, justify="right", no_wrap=True)
            for row, cell in zip(rows, cells, strict=True):
                row.append("" if cell is None else f"{cell:,.{digits}f}")
    for row in rows:
        table.add_row(*row)
    return table

"""What a person sees: live while the runs go on, a table when they are done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from taut.bench.lines import Lines
from taut.bench.queries.figures import Run, figures
from taut.bench.queries.run import Progress, Watcher
from taut.bench.rounds import quantile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@contextmanager
def live(console: Console) -> Iterator[Watcher]:
    """A table that keeps itself current on a terminal, plain lines elsewhere."""
    if not console.is_terminal or console.is_dumb_terminal:
        lines = Lines(console)
        yield lambda now: lines.tell((now.round, now.policy, now.phase), _words(now))
        return
    from rich.live import Live

    board: dict[tuple[int, str], Progress] = {}
    with Live(_board(board), console=console, refresh_per_second=4) as screen:

        def watch(now: Progress) -> None:
            key = (now.round, now.policy)
            before = board.get(key)
            if now.phase == "stopping" and before is not None:
                # Stopping has no figures of its own: keep those of the run.
                now = Progress(now.policy, now.round, now.phase, 0.0, before.due, before.latencies)
            board[key] = now
            screen.update(_board(board))

        yield watch


def _words(now: Progress) -> list[str]:
    words = [f"round {now.round}" if now.round else "warm-up", f"{now.policy}: {now.phase}"]
    if now.due:
        words.append(f"{len(now.latencies)} of {now.due} windows out")
    if now.latencies:
        mean, p99 = _so_far(now.latencies)
        words.append(f"mean {mean:.2f} s, p99 {p99:.2f} s")
    if now.left_s > 0:
        words.append(f"at most {now.left_s:.0f} s left")
    return words


def _board(board: dict[tuple[int, str], Progress]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("round", "policy", "now"):
        table.add_column(name)
    for name in ("windows out", "due", "mean s", "p99 s", "left s"):
        table.add_column(name, justify="right", min_width=6)
    for (round_, policy), now in board.items():
        mean, p99 = _so_far(now.latencies) if now.latencies else (None, None)
        table.add_row(
            str(round_ or "-"),
            policy,
            now.phase,
            str(len(now.latencies)),
            str(now.due),
            "" if mean is None else f"{mean:.2f}",
            "" if p99 is None else f"{p99:.2f}",
            f"{now.left_s:.0f}" if now.left_s > 0 else "",
        )
    return table


def _so_far(latencies: tuple[float, ...]) -> tuple[float, float]:
    return fmean(latencies), quantile(sorted(latencies), 0.99)


def results(
    workload: str, queries: int, runs: Sequence[Run], title: str, *, narrow: bool = False
) -> Table:
    """The figures as a table: medians over the rounds. ``narrow`` fits 80 columns."""
    from rich import box
    from rich.table import Table

    told = figures(workload, queries, runs)
    table = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("policy", no_wrap=True)
    columns = [column for column in _COLUMNS if not (narrow and column.wide)]
    for column in columns:
        table.add_column(column.head, justify="right", no_wrap=True)
    for policy in dict.fromkeys(run.policy for run in runs):
        own = f"{workload}.{queries}.{policy}"
        cells = [column.text(told, own, policy) for column in columns]
        table.add_row(policy, *cells, style="bold" if policy == "least-slack" else None)
    return table


class _Column(NamedTuple):
    head: str
    figure: str
    digits: int = 0
    unit: str = ""
    scale: float = 1.0
    wide: bool = False

    def text(self, told: dict[str, float], own: str, policy: str) -> str:
        value = told.get(self.figure.format(own=own, policy=policy))
        return "" if value is None else f"{value * self.scale:,.{self.digits}f}{self.unit}"


_COLUMNS = (
    _Column("mean s", "{own}.mean_s", 2),
    _Column("p50 s", "{own}.p50_s", 2),
    _Column("p90 s", "{own}.p90_s", 2),
    _Column("p99 s", "{own}.p99_s", 2),
    _Column("max s", "{own}.max_s", 2, wide=True),
    _Column("windows", "{own}.windows", wide=True),
    _Column("late", "{own}.late", 0, " %", 100.0),
    _Column("never out", "{own}.missed", wide=True),
    _Column("rows/s", "{own}.rows_per_s", wide=True),
    _Column("batches", "{own}.batches", wide=True),
    _Column("x mean", "ratio.{policy}.mean", 1, "x"),
    _Column("x p99", "ratio.{policy}.p99", 1, "x"),
    _Column("overhead", "overhead.{policy}", 2, " %", 100.0, wide=True),
)

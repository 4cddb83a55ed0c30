"""``taut replay``: a recorded run under other policies."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from taut.sim.replay.run import Figures, Outcome, Replay, check_policies, known_policies, replay
from taut.watch.recorded import load, newest

if TYPE_CHECKING:
    from rich.console import Console


@click.command
@click.argument("run", type=click.Path(path_type=Path), required=False)
@click.option(
    "--policies",
    default=None,
    metavar="A,B,...",
    help=f"What to replay it under: {', '.join(known_policies())}. All, if not given.",
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), help="Turns at a time, if not as recorded."
)
@click.option(
    "--after",
    type=click.FloatRange(min=0.0),
    default=0.0,
    metavar="SECONDS",
    help="Leave what ended earlier than so far into the run out of the figures, such as its start.",
)
@click.option("--by-query", is_flag=True, help="Show every query's figures as well.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Write the figures there as well; - prints them and no tables.",
)
def command(
    run: Path | None,
    policies: str | None,
    concurrency: int | None,
    after: float,
    by_query: bool,
    json_file: Path | None,
) -> None:
    """What RUN would have been under other policies: the folder of a recorded run, or a file.

    Without one, the newest run in the default folder.

    Rows arrive when they did and batches cost what they did; the policies are those that decide
    on Spark. The policy that was recorded is replayed as well: how far that comes from what was
    recorded says how far the others are to be believed.
    """
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=100)
    names = known_policies() if policies is None else _named(policies)
    check_policies(names)
    recorded = load(run or newest())
    if recorded.run.policy in known_policies() and recorded.run.policy not in names:
        names = [recorded.run.policy, *names]
    printed = str(json_file) == "-"
    lines = printed or not console.is_terminal
    with contextlib.nullcontext() if printed else console.status("reading") as status:

        def told(policy: str) -> None:
            if status is not None:
                status.update(f"replaying {policy}")
            if lines:
                click.echo(f"replaying {policy}", err=True)

        found = replay(recorded, names, concurrency=concurrency, after=after, told=told)
    if printed:
        click.echo(_json(found), nl=False)
        return
    show(console, found, by_query)
    if json_file:
        try:
            json_file.parent.mkdir(parents=True, exist_ok=True)
            json_file.write_bytes(_json(found))
        except OSError as error:
            raise click.ClickException(f"--json {json_file}: cannot be written: {error}") from None
        console.print(f"figures: {json_file}", highlight=False, markup=False, soft_wrap=True)


def _json(found: Replay) -> bytes:
    return msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n"


def show(console: Console, found: Replay, by_query: bool = False) -> None:
    """Print what was recorded and what would have been."""
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    def table(title: str, rows: list[tuple[str, Figures | None, int | None]]) -> None:
        it = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        it.add_column("policy", no_wrap=True)
        for column in ("results", "on time", "mean", "p50", "p90", "p99", "max"):
            it.add_column(column, justify="right")
        if rows[0][2] is not None:
            it.add_column("batches", justify="right")
        for name, figures, batches in rows:
            cells = ["-"] * 7 if figures is None else _cells(figures)
            it.add_row(escape(name), *cells, *([] if batches is None else [f"{batches:,}"]))
        console.print(it)

    def named(each: Outcome) -> str:
        return f"recorded: {each.policy}" if each is found.recorded else each.policy

    them = [found.recorded, *found.outcomes]
    table(
        f"{found.run or 'the run'}, {found.concurrency} at a time; latencies in seconds",
        [(named(each), each.all, each.batches) for each in them],
    )
    for query in found.recorded.queries if by_query else ():
        table(query, [(named(each), each.queries.get(query), None) for each in them])
    accuracy = believed(found)
    for line in ([] if accuracy is None else [accuracy]) + list(found.notes):
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def believed(found: Replay) -> str | None:
    """How near the replay of the recorded policy comes, in words."""
    again = found.outcome(found.policy)
    if again is None or again.all is None or found.recorded.all is None:
        return None
    was, got = found.recorded.all, again.all
    if not (was.mean > 0.0 and was.p99 > 0.0):
        return None
    return (
        f"{found.policy} replayed: mean {got.mean / was.mean - 1.0:+.0%}, "
        f"p99 {got.p99 / was.p99 - 1.0:+.0%} against what was recorded"
    )


def _named(policies: str) -> list[str]:
    return [name.strip() for name in policies.split(",") if name.strip()]


def _cells(figures: Figures) -> list[str]:
    share = figures.share
    missing = f" ({figures.missing} not out)" if figures.missing else ""
    return [
        f"{figures.results:,}{missing}",
        "-" if share is None else f"{100.0 * share:.1f} %",
        *(
            f"{value:.2f}"
            for value in (figures.mean, figures.p50, figures.p90, figures.p99, figures.max)
        ),
    ]

"""``taut report``: a recorded run as one page, or two compared."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from taut.watch.recorded import Recorded, load, newest
from taut.watch.report import compare, figures, report
from taut.watch.report.figures import RunFigures
from taut.watch.report.page import summary


@click.command
@click.argument("runs", nargs=-1, metavar="[RUN [OTHER]]", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="Where to write the page.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Write the figures there as well; - prints them and writes no page.",
)
def command(runs: tuple[Path, ...], output: Path, json_file: Path | None) -> None:
    """Write what became of RUN as one page that can be mailed; of two, what differs.

    RUN is the folder of a recorded run, or a file of it; without one, the newest run in the
    default folder.
    """
    if len(runs) > 2:
        raise click.UsageError(f"{len(runs)} runs are given: one is reported, two are compared")
    if str(json_file) == "-":
        click.echo(_json([figures(load(path)) for path in runs or (newest(),)]), nl=False)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console()
    with console.status("reading") as status:

        def tell(what: str) -> None:
            status.update(Text(what))
            if not console.is_terminal:
                click.echo(what, err=True)

        recorded: list[Recorded] = []
        found: list[RunFigures] = []
        for path in runs or (newest(),):
            tell(f"reading {path}")
            recorded.append(load(path))
            tell(f"judging {sum(map(len, recorded[-1].batches.values())):,} batches")
            found.append(figures(recorded[-1]))
        tell("drawing")
        if len(found) == 2:
            page = compare((recorded[0], recorded[1]), (found[0], found[1]))
        else:
            page = report(recorded[0], found[0])
    _write(output, page.encode())
    for each in found:
        click.echo(f"{each.run or 'the run'}: {summary(each)}")
    click.echo(f"report: {output} ({len(page.encode()) / 1024:,.0f} KB)")
    if json_file:
        _write(json_file, _json(found))
        click.echo(f"figures: {json_file}")


def _write(path: Path, told: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(told)
    except OSError as error:
        why = error.strerror or str(error)
        raise click.ClickException(f"{path} cannot be written: {why}") from None


def _json(found: list[RunFigures]) -> bytes:
    """One run's figures, or a list of two."""
    encoded = msgspec.json.encode(found[0] if len(found) == 1 else found)
    return msgspec.json.format(encoded, indent=1) + b"\n"

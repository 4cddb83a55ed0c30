"""What the commands of ``taut bench`` share: types of options, options, a console."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from taut.duration import seconds

if TYPE_CHECKING:
    from rich.console import Console

    from taut.bench.record import Record

Command = TypeVar("Command", bound=Callable[..., Any])
WIDE = 136
FILE = click.Path(path_type=Path, dir_okay=False)


class Names(click.ParamType[tuple[str, ...]]):
    """Names with commas between them, each one of those known."""

    name = "a,b,c"

    def __init__(self, known: tuple[str, ...]) -> None:
        self._known = known

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Read the names."""
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in str(value).split(",") if name.strip())
        unknown = [name for name in names if name not in self._known]
        if unknown or not names or len(set(names)) != len(names):
            self.fail(f"{value!r}: name each once, out of {', '.join(self._known)}", param, ctx)
        return names


class Seconds(click.ParamType[float]):
    """A duration: ``12s``, ``500 ms``, or a plain number of seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the duration."""
        text = str(value)
        try:
            read = float(text) if text.replace(".", "", 1).isdigit() else seconds(text)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if read <= 0:
            self.fail(f"{text!r}: must be above zero", param, ctx)
        return read


def seconds_option(
    default: str = "60", what: str = "How long to measure in each run."
) -> Callable[[Command], Command]:
    """``--seconds``, as ``measured``."""
    return click.option(
        "--seconds",
        "measured",
        type=Seconds(),
        default=default,
        show_default=True,
        help=what,
    )


rounds_option = click.option(
    "--rounds",
    type=click.IntRange(1),
    default=3,
    show_default=True,
    help="Each one runs so often; the median counts.",
)
json_option = click.option("--json", "json_file", type=FILE, help="Write the figures here.")


def wide_console() -> Console:
    """Where results are told."""
    from rich.console import Console

    own = Console()
    # Outside a terminal there is no edge to keep to.
    return own if own.is_terminal else Console(width=max(own.width, WIDE))


def write(console: Console, path: Path | None, record: Record) -> None:
    """Write the record, if a file was named."""
    if path is not None:
        record.write(path)
        console.print(f"figures: {path}", highlight=False, soft_wrap=True)

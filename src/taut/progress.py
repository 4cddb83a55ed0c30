"""How far a command is: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

Tell = Callable[[int, int, str], None]
"""Of so many steps so many are done, and what is at hand."""


@contextmanager
def bar(console: Console) -> Iterator[Tell]:
    """Something to tell how far it is; where there is no terminal each text is a line, once."""
    if not console.is_terminal or console.is_dumb_terminal:
        said: list[str] = []

        def line(done: int, of: int, what: str) -> None:
            if what not in said:
                said.append(what)
                text = f"{done} of {of}: {what}"
                console.print(text, highlight=False, markup=False, soft_wrap=True)

        yield line
        return
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TimeElapsedColumn(), BarColumn(24), MofNCompleteColumn()
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("", total=None)

        def update(done: int, of: int, what: str) -> None:
            progress.update(task, completed=done, total=of, description=escape(what))

        yield update

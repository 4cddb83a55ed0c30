"""Figures as a table, a line for each variant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

Columns = Mapping[str, tuple[str, int]]
"""By head: a figure and its digits. In the name ``{own}`` is a variant with its prefix, and
``{variant}`` is it without."""


def table(
    title: str,
    variants: Sequence[str],
    told: Mapping[str, float],
    columns: Columns,
    prefix: str = "",
) -> Table:
    """The figures; columns without any are left out. A variant's own names begin with a prefix."""
    from rich import box
    from rich.table import Table

    made = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    made.add_column("variant", no_wrap=True)
    rows: list[list[str]] = [[variant] for variant in variants]
    for head, (figure, digits) in columns.items():
        cells = [
            told.get(figure.format(variant=variant, own=f"{prefix}{variant}"))
            for variant in variants
        ]
        if any(cell is not None for cell in cells):
            made.add_column(head, justify="right", no_wrap=True)
            for row, cell in zip(rows, cells, strict=True):
                row.append("" if cell is None else f"{cell:,.{digits}f}")
    for row in rows:
        made.add_row(*row)
    return made

"""How all pictures look: a white sheet with a title, a quiet grid, a legend beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, MUTED, GRID = "#1f2933", "#7b8794", "#e4e7eb"
_TAUT = "#0072B2"
# Okabe and Ito's palette: told apart by colour-blind readers too.
COLOURS = ("#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8c6d31")


@contextmanager
def sheet(path: Path, title: str) -> Iterator[Axes]:
    """Axes to draw on; what was drawn is written as a PNG at the end."""
    with panels(path, title, 1) as (axes,):
        yield axes


@contextmanager
def panels(path: Path, title: str, count: int) -> Iterator[list[Axes]]:
    """So many axes below each other, with one x axis and the legend of the first."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context({"font.size": 11, "font.family": "sans-serif", "axes.edgecolor": MUTED}):
        size = (9, 5.2 if count == 1 else 3.2 * count)
        figure, grid = plt.subplots(count, sharex=True, squeeze=False, figsize=size, dpi=160)
        drawn: list[Axes] = list(grid[:, 0])
        try:
            yield drawn
            drawn[0].set_title(title, loc="left", color=INK, fontsize=13, pad=14)
            for axes in drawn:
                _plain(axes)
            if drawn[0].get_legend_handles_labels()[1]:
                drawn[0].legend(
                    frameon=False, labelcolor=INK, loc="upper left", bbox_to_anchor=(1.01, 1.0)
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, bbox_inches="tight", facecolor="white")
        finally:
            plt.close(figure)


def _plain(axes: Axes) -> None:
    axes.xaxis.label.set_color(INK)
    axes.yaxis.label.set_color(INK)
    axes.grid(which="major", color=GRID, lw=1)
    axes.set_axisbelow(True)
    axes.tick_params(which="both", colors=MUTED, labelcolor=INK, length=3)
    axes.spines[["top", "right"]].set_visible(False)


def looks(names: list[str], *, stock: str, taut: str) -> dict[str, tuple[str, float]]:
    """The colour and the width of each one's line: grey for what is stock, bold for Taut's own.

    >>> looks(["spark", "fcfs", "taut"], stock="spark", taut="taut")
    {'spark': ('#7b8794', 2.4), 'fcfs': ('#E69F00', 1.8), 'taut': ('#0072B2', 3.0)}
    """
    others = [name for name in names if name not in (stock, taut)]
    told = {name: (COLOURS[i % len(COLOURS)], 1.8) for i, name in enumerate(others)}
    told |= {stock: (MUTED, 2.4), taut: (_TAUT, 3.0)}
    return {name: told[name] for name in names}

"""The picture: the largest backlog of any partition, over time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taut.bench.backlog.figures import STOCK, Run, middle
from taut.bench.picture_style import INK, MUTED, looks, sheet

_TAUT = "largest-backlog"


def picture(path: Path, runs: Sequence[Run], title: str, over_s: float) -> None:
    """Draw one line per variant, of its round in the middle, and write a PNG.

    ``over_s`` is when arrivals were over.
    """
    variants = list(dict.fromkeys(run.variant for run in runs))
    with sheet(path, title) as axes:
        for variant, (colour, width) in looks(variants, stock=STOCK, taut=_TAUT).items():
            run = middle([run for run in runs if run.variant == variant])
            times = [0.0, *(level.at for level in run.levels)]
            rows = [0, *(level.rows for level in run.levels)]
            axes.plot(times, rows, color=colour, lw=width, label=variant)
        axes.axvline(over_s, color=MUTED, lw=1, ls=":")
        axes.annotate(
            "arrivals end", (over_s, 1.0), (4, -4), xycoords=("data", "axes fraction"),
            textcoords="offset points", va="top", color=INK, fontsize=9,
        )  # fmt: skip
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(_rows)
        axes.set_xlabel("seconds since the first arrival")
        axes.set_ylabel("rows waiting in the partition with most")


def _rows(value: float, _: float) -> str:
    return f"{value:,.0f}"

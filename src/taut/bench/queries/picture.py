"""The picture: what share of the windows was still not out so long after its end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

from taut.bench.queries.figures import STOCK, Run

_INK, _MUTED, _GRID = "#1f2933", "#7b8794", "#e4e7eb"
_TAUT = "least-slack"
# Okabe and Ito's palette: told apart by colour-blind readers too.
_COLOURS = ("#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8c6d31")


def picture(path: Path, runs: Sequence[Run], title: str) -> None:
    """Draw one line per policy, over the windows of all rounds together, and write a PNG.

    The share is of all windows that were due: one that never came keeps its line up for good.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import LogLocator, NullFormatter

    with mpl.rc_context({"font.size": 11, "font.family": "sans-serif", "axes.edgecolor": _MUTED}):
        figure, axes = plt.subplots(figsize=(9, 5.2), dpi=160)
        lowest = 1.0
        spare = cycle(_COLOURS)
        for policy in dict.fromkeys(run.policy for run in runs):
            lines = curve([run for run in runs if run.policy == policy])
            if lines is None:
                continue
            latencies, shares, missed = lines
            lowest = min(lowest, *(share for share in shares if share > 0))
            colour, width = _look(policy, spare)
            label = policy if not missed else f"{policy} ({missed} never came)"
            axes.step(latencies, shares, where="post", color=colour, lw=width, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(lowest / 1.5, 1.3)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(_seconds)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(_percent)
        axes.set_xlabel("time after the window's end", color=_INK)
        axes.set_ylabel("windows not yet out", color=_INK)
        axes.set_title(title, loc="left", color=_INK, fontsize=13, pad=14)
        axes.grid(which="major", color=_GRID, lw=1)
        axes.grid(which="minor", axis="x", color=_GRID, lw=0.5)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", colors=_MUTED, labelcolor=_INK, length=3)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(
                frameon=False, labelcolor=_INK, loc="upper left", bbox_to_anchor=(1.01, 1.0)
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, bbox_inches="tight", facecolor="white")
        plt.close(figure)


def curve(runs: Sequence[Run]) -> tuple[list[float], list[float], int] | None:
    """Latencies, the share of due windows later than each, and how many never came.

    Examples
    --------
    >>> from taut.bench.queries.figures import Sample
    >>> curve([Run("a", 1, (Sample(0, 0, 2.0), Sample(0, 1, 1.0), Sample(0, 2, None)), 1.0)])
    ([1.0, 1.0, 2.0], [1.0, 0.6666666666666666, 0.3333333333333333], 1)
    """
    late = sorted(latency for run in runs for latency in run.latencies)
    due = sum(len(run.samples) for run in runs)
    if not late:
        return None
    # A logarithmic axis has no zero: a result out at once is shown as out after a millisecond.
    x = [max(latency, 0.001) for latency in (late[0], *late)]
    return x, [(due - out) / due for out in range(len(late) + 1)], due - len(late)


def _look(policy: str, spare: Iterator[str]) -> tuple[str, float]:
    if policy == STOCK:
        return _MUTED, 2.4
    if policy == _TAUT:
        return "#0072B2", 3.0
    return next(spare), 1.8


def _seconds(value: float, _: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1_000:g} ms"


def _percent(value: float, _: float) -> str:
    return f"{value * 100:g} %"

"""The picture: what share of the windows was still not out so long after its end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from taut.bench.picture_style import GRID, looks, sheet
from taut.bench.queries.figures import STOCK, Run

_TAUT = "least-slack"


def picture(path: Path, runs: Sequence[Run], title: str) -> None:
    """Draw one line per policy, over the windows of all rounds together, and write a PNG.

    The share is of all windows that were due: one that never came keeps its line up for good.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    policies = list(dict.fromkeys(run.policy for run in runs))
    with sheet(path, title) as axes:
        lowest = 1.0
        for policy, (colour, width) in looks(policies, stock=STOCK, taut=_TAUT).items():
            lines = curve([run for run in runs if run.policy == policy])
            if lines is None:
                continue
            latencies, shares, missed = lines
            lowest = min(lowest, *(share for share in shares if share > 0))
            label = policy if not missed else f"{policy} ({missed} never came)"
            axes.step(latencies, shares, where="post", color=colour, lw=width, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(lowest / 1.5, 1.3)
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(_seconds)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(_percent)
        axes.set_xlabel("time after the window's end")
        axes.set_ylabel("windows not yet out")
        axes.grid(which="minor", axis="x", color=GRID, lw=0.5)


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


def _seconds(value: float, _: float) -> str:
    return f"{value:g} s" if value >= 1 else f"{value * 1_000:g} ms"


def _percent(value: float, _: float) -> str:
    return f"{value * 100:g} %"

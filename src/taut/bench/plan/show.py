"""What a person sees of ``bench plan``: a line while it runs, tables, a picture."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from taut.bench.lines import live as shown
from taut.bench.plan.figures import MEAN_WITHIN, P99_WITHIN, Compared, Rates, ratio
from taut.bench.plan.run import Progress, Watcher
from taut.slo import Slo

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def live(console: Console) -> AbstractContextManager[Watcher]:
    """One line that keeps itself current on a terminal, plain lines elsewhere."""
    return shown(console, _words)


def _words(now: Progress) -> list[str]:
    told = [f"{now.rows:,} rows"] if now.rows else []
    return [*told, f"{now.left_s:.0f} s left"] if now.left_s > 0 else told


def of_settings(workload: str, compared: Sequence[Compared]) -> Table:
    """Of settings of one job."""
    title = (
        f"{workload}: predicted and measured; l lanes, r reducers, t trigger in ms, then per "
        "cent of what that sustains; machine: how fast it was then, as when it was profiled"
    )
    return table(title, compared)


def table(title: str, compared: Sequence[Compared]) -> Table:
    """Each point: rate, latency predicted and measured."""
    from rich import box
    from rich.table import Table

    made = Table(
        title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False,
    )  # fmt: skip
    made.add_column("settings", no_wrap=True)
    timed = any(point.speed is not None for point in compared)
    heads = ("rows/s", "mean s", "predicted", "off", "p99 s", "predicted", "off")
    for head in (*heads, "machine") if timed else heads:
        made.add_column(head, justify="right", no_wrap=True)
    for point in compared:
        made.add_row(
            point.name,
            f"{point.rate:,}",
            f"{point.measured.mean:.3f}",
            f"{point.mean:.3f}",
            _off(point.mean_off, MEAN_WITHIN),
            f"{point.measured.p99:.3f}",
            f"{point.p99:.3f}",
            _off(point.p99_off, P99_WITHIN),
            *([] if point.speed is None else [f"{point.speed:.2f}"]),
        )
    return made


def rates_told(rates: Rates) -> list[str]:
    """The plan against the others."""
    told = []
    for name, each in (("plan", rates.plan), ("planned again after that", rates.replanned)):
        if each is not None:
            held = "held" if each.met else "did not hold"
            p99 = f"p99 {each.measured.p99:.3f} s"
            told.append(f"{name}: {each.rate:,.0f} rows/s, {held}, {p99} ({each.settings})")
    if rates.not_replanned is not None:
        told.append(f"not planned again: {rates.not_replanned}")
    rules = {settings: name for name, settings in rates.rules.items()}
    mine = rates.of_mine()
    for one in rates.reached:
        names = [rules[one.settings]] if one.settings in rules else []
        if one.settings == rates.mine:
            names.append("the plan's settings")
        elif mine is not None and isfinite(ratio(mine, one)):
            names.append(f"the plan's reach {ratio(mine, one):.2f} times that")
        if len(one.rates) > 1:
            names.append("in each round " + ", ".join(f"{rate:,.0f}" for rate in one.rates))
        what = f"{one.settings} ({'; '.join(names)})" if names else str(one.settings)
        on_time = f"on time at up to {one.rate:,.0f} rows/s" if one.rate else "never on time"
        told.append(f"{on_time}: {what}")
    for each_one in rates.screened:
        took = f"{each_one.took.seconds:.3f} s{' or more' * each_one.took.ended}"
        told.append(f"at the plan's rate: {Slo(rates.slo).measure} {took}, {each_one.settings}")
    return told


def picture(path: Path, workload: str, compared: Sequence[Compared]) -> None:
    """Predicted against measured, with the bounds that are aimed at."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    values = (
        ("mean", MEAN_WITHIN, [(p.measured.mean, p.mean) for p in compared]),
        ("p99", P99_WITHIN, [(p.measured.p99, p.p99) for p in compared]),
    )
    for axis, (name, within, pairs) in zip(axes, values, strict=True):
        most = 1.1 * max(max(pair) for pair in pairs)
        axis.fill_between([0, most], [0, most * (1 - within)], [0, most * (1 + within)], alpha=0.15)
        axis.plot([0, most], [0, most], linewidth=0.8)
        axis.plot(*zip(*pairs, strict=True), "o", markersize=4)
        axis.set(
            title=f"{workload}: {name}, band {within:.0%}", xlabel="measured, s",
            ylabel="predicted, s", xlim=(0, most), ylim=(0, most),
        )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)


def _off(share: float, within: float) -> str:
    return f"{100 * share:+.0f} %{'' if abs(share) <= within else ' !'}"

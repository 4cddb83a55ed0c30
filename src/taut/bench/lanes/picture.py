"""The pictures: how many tuples are later than so long, what it costs, and how lanes fare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from taut.bench.lanes.figures import STOCK, Run
from taut.bench.lanes.judge import Written
from taut.bench.lanes.machines import machines, names
from taut.bench.lanes.spec import BALANCING, Spec
from taut.bench.picture_style import COLOURS, GRID, INK, MUTED, looks, panels, sheet

_FIRST_OF = ("balance", "timeout", "shared")
"""The variant whose line is bold: the first of these that ran."""
_POINTS = 1_000
_BUCKET_S = 2.0
_ISSUED_TWICE = ("timeout", "replicate", "speculation")


def pictures(path: Path, spec: Spec, runs: Sequence[Run], told: Mapping[str, float]) -> list[Path]:
    """Draw all that these runs can show; ``told`` are their figures. The files written."""
    title = f"{spec.topology}, {spec.timing}: {spec.lanes} lanes, {spec.what.rate:,} tuples/s"
    latencies(path, runs, title)
    drawn = [path]
    variants = list(dict.fromkeys(run.variant for run in runs))
    if any(name in variant for variant in variants for name in _ISSUED_TWICE):
        drawn.append(path.with_stem(f"{path.stem}-cost"))
        cost(drawn[-1], spec.topology, variants, told, title)
    for variant in BALANCING:
        last = [run for run in runs if run.variant == variant and run.by_lane][-1:]
        if last:
            more = "" if variant == "balance" else f"-{variant}"
            drawn.append(path.with_stem(f"{path.stem}-lanes{more}"))
            used = machines(spec.topology, spec.lanes, several=False) or ()
            named = dict(enumerate(names(used)))
            lanes(drawn[-1], last[0].by_lane, named, spec.warm_up_s, f"{title}\n{variant}")
    return drawn


def latencies(path: Path, runs: Sequence[Run], title: str) -> None:
    """One line per variant, over the tuples of all rounds together.

    The share is of all tuples that were due: those that never came keep their line up for good.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    variants = list(dict.fromkeys(run.variant for run in runs))
    with sheet(path, title) as axes:
        lowest = 1.0
        for variant, (colour, width) in _looks(variants).items():
            mine = [run for run in runs if run.variant == variant]
            drawn = curve(mine)
            if drawn is None:
                continue
            x, shares = drawn
            lowest = min(lowest, *(share for share in shares if share > 0))
            lost = sum(run.lost for run in mine)
            label = variant if not lost else f"{variant} ({lost} never came)"
            axes.step(x, shares, where="post", color=colour, lw=width, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(lowest / 1.5, 1.3)
        low, high = axes.get_xlim()
        axes.xaxis.set_major_locator(
            LogLocator(subs=(1.0, 2.0, 5.0) if high < 500 * low else (1.0,))
        )
        axes.xaxis.set_major_formatter(_time)
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
        axes.set_xlabel("time after the tuple's arrival")
        axes.set_ylabel("tuples not yet out")
        axes.grid(which="minor", axis="x", color=GRID, lw=0.5)


def curve(runs: Sequence[Run]) -> tuple[list[float], list[float]] | None:
    """Latencies in ms, and the share of due tuples later than each; None when none came.

    Of many tuples only some are points of it: all of the last, ever fewer towards the first.

    >>> curve([Run("a", 1, (0.001, 0.002, 0.004), lost=1)])
    ([1.0, 1.0, 2.0, 4.0], [1.0, 0.75, 0.5, 0.25])
    """
    late = sorted(latency for run in runs for latency in run.latencies)
    due = len(late) + sum(run.lost for run in runs)
    if not late:
        return None
    ranks = sorted({max(1, len(late) - from_end(i)) for i in range(_POINTS)} | {1})
    # a logarithmic axis has no zero: a result out at once is shown as out after a microsecond
    x = [1e3 * max(late[rank - 1], 1e-6) for rank in (1, *ranks)]
    return x, [1.0, *((due - rank) / due for rank in ranks)]


def from_end(point: int) -> int:
    """How far from the last a point is: one by one at first, then ever further.

    >>> [from_end(point) for point in (0, 1, 199, 200, 300, 999)]
    [0, 1, 199, 200, 543, 570101]
    """
    return point if point < 200 else int(199 * 1.01 ** (point - 199))


def cost(
    path: Path, topology: str, variants: Sequence[str], told: Mapping[str, float], title: str
) -> None:
    """What each variant worked on again, against the p99 that it got for it."""
    with sheet(path, title) as axes:
        for variant, (colour, _) in _looks(variants).items():
            paid, got = (told.get(f"{topology}.{variant}.{name}") for name in ("cost", "p99_ms"))
            if paid is None or got is None:
                continue
            axes.plot([100 * paid], [got], "o", ms=9, color=colour)
            axes.annotate(
                variant, (100 * paid, got), xytext=(8, 6), textcoords="offset points", color=INK
            )
        axes.set_ylim(bottom=0)
        axes.margins(x=0.15)
        axes.set_xlabel("tuples worked on once more, of 100")
        axes.set_ylabel("p99, ms")


def lanes(
    path: Path,
    written: Sequence[Written],
    named: Mapping[int, str],
    warm_up_s: float,
    title: str,
) -> None:
    """Load and mean latency of each lane over time, in the colour of its machine."""
    at = {each.lane: each.machine for each in written}
    series = over_time(written)
    with panels(path, title, 2) as (load, late):
        for lane in sorted(series, key=lambda lane: (at[lane], lane)):
            colour = COLOURS[max(0, at[lane]) % len(COLOURS)]
            label = named.get(at[lane], "")
            x, rates, means = zip(*series[lane], strict=True)
            first = label not in load.get_legend_handles_labels()[1]
            load.plot(x, rates, color=colour, lw=1.6, label=label if first else "")
            late.plot(x, [1e3 * mean for mean in means], color=colour, lw=1.6)
        for axes in (load, late):
            axes.axvline(warm_up_s, color=MUTED, lw=1, ls=":")
        load.set_ylim(bottom=0)
        late.set_yscale("log")
        late.yaxis.set_major_formatter(_time)
        load.set_ylabel("tuples/s of a lane")
        late.set_ylabel("mean latency of a lane")
        late.set_xlabel("seconds after the load began; measured from the dotted line on")


def over_time(
    written: Sequence[Written], bucket_s: float = _BUCKET_S
) -> dict[int, list[tuple[float, float, float]]]:
    """By lane: the middle of each stretch of time, outputs a second and mean latency in it.

    A lane's last stretch is left out: it may be cut short. One without outputs has no line.

    >>> rows = [Written(0, 0, at, late) for at, late in ((0.5, 0.1), (1.5, 0.3), (2.5, 0.9))]
    >>> over_time(rows, bucket_s=2.0)
    {0: [(1.0, 1.0, 0.2)]}
    """
    latencies: dict[tuple[int, int], list[float]] = {}
    for lane, _, at, latency in written:
        latencies.setdefault((lane, int(at // bucket_s)), []).append(latency)
    told: dict[int, list[tuple[float, float, float]]] = {}
    last = max((bucket for _, bucket in latencies), default=0)
    for (lane, bucket), found in sorted(latencies.items()):
        if bucket < last:
            row = ((bucket + 0.5) * bucket_s, len(found) / bucket_s, round(fmean(found), 9))
            told.setdefault(lane, []).append(row)
    return told


def _time(ms: float, _: float) -> str:
    return f"{ms / 1_000:g} s" if ms >= 1_000 else f"{ms:g} ms"


def _looks(variants: Sequence[str]) -> dict[str, tuple[str, float]]:
    bold = next((variant for variant in _FIRST_OF if variant in variants), "")
    return looks(list(variants), stock=STOCK, taut=bold)

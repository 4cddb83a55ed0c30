"""When which technique: timeout against shared queues, and against balance, as load grows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

from taut.sim.cluster import Outcome, Topology
from taut.sim.papers import storm as cluster
from taut.sim.papers.calibrate import fits, unseen
from taut.sim.papers.experiment import Axes, Effort, Experiment, Found
from taut.sim.papers.storm import Fit
from taut.sim.papers.tails import SETTLING, SOURCE

_UTILISATION = (0.05, 0.1, 0.2, 0.35, 0.5, 0.58, 0.65, 0.72, 0.78, 0.85)
_MEASURED_AT = 0.35 / 0.45
"""The utilisation at which queues were measured, and the fit was made."""
_LOADS = (3.0, 10.0, 16.0, 23.0, 29.0, 36.0, 42.0, 49.0, 52.0)
"""Percent of all cores."""
_CORES = 9
_CHANCE = 0.6
"""Of scenario (c), at which the fit was made."""
_WORSE = -100.0
"""Percent by which p99 is lower where it has doubled."""


_Line = tuple[list[float], list[float]]
_Run = Callable[[int], Outcome]
"""With a seed."""


def _gains(
    points: Mapping[str, tuple[float, Mapping[str, _Run]]],
    second: str,
    x: str,
    seeds: Sequence[int],
) -> tuple[dict[str, dict[str, float]], dict[str, _Line], str]:
    """By how much each technique lowers p99 at every point, and from where on the second wins.

    Medians over seeds; and in words, where the lines of single seeds cross.
    """
    figures: dict[str, dict[str, float]] = {}
    lines: dict[str, _Line] = {}
    single: dict[str, list[list[float]]] = {}
    for label, (place, runs) in points.items():
        default = [runs["default"](seed).quantile(0.99) for seed in seeds]
        for variant, run in runs.items():
            if variant == "default":
                continue
            each = [
                100.0 * (1.0 - run(seed).quantile(0.99) / base)
                for seed, base in zip(seeds, default, strict=True)
            ]
            figures[f"{label}/{variant}"] = {"p99_lower_percent": median(each)}
            line = lines.setdefault(variant, ([], []))
            line[0].append(place)
            line[1].append(median(each))
            single.setdefault(variant, []).append(each)
    xs, timeout = lines["timeout"]
    at = crossing(xs, timeout, lines[second][1])
    if at is not None:
        figures["crossing"] = {x: at}
    crossed = []
    for n in range(len(seeds)):
        first, other = ([each[n] for each in single[name]] for name in ("timeout", second))
        where = crossing(xs, first, other)
        crossed.append("nowhere" if where is None else f"{where:.3g}")
    return figures, lines, ", ".join(crossed)


def crossing(x: Sequence[float], first: Sequence[float], second: Sequence[float]) -> float | None:
    """Where the second line goes above the first for good, in between two points.

    None if it is above from the first point on, or below at the last.

    >>> crossing([0.0, 1.0, 2.0], [4.0, 4.0, 4.0], [0.0, 2.0, 6.0])
    1.5
    >>> crossing([0.0, 1.0], [4.0, 4.0], [5.0, 5.0]), crossing([0.0, 1.0], [4.0, 4.0], [5.0, 3.0])
    (None, None)
    """
    ahead = [b - a for a, b in zip(first, second, strict=True)]
    if ahead[-1] <= 0.0:
        return None
    for n in range(len(ahead) - 1, 0, -1):
        if ahead[n - 1] <= 0.0:
            part = -ahead[n - 1] / (ahead[n] - ahead[n - 1])
            return x[n - 1] + part * (x[n] - x[n - 1])
    return None


def lines_told(
    x: Sequence[float], timeout: Sequence[float], other: Sequence[float], second: str, unit: str
) -> list[str]:
    """What the lines show, in words.

    >>> for told in lines_told([20.0, 50.0], [9.0, -200.0], [12.0, 30.0], "balance", "% of CPU"):
    ...     print(told)
    No crossing: balance is ahead of the timeout at every point, from 20 to 50 % of CPU.
    The timeout gains less at the last point than at the first, balance more.
    From 50 % of CPU on p99 with the timeout, which has no budget as published, is at least double.
    """

    def at(place: float) -> str:
        return f"{place:.3g}"

    told = []
    where = crossing(x, timeout, other)
    if where is not None:
        told.append(f"{second} is ahead of the timeout from {at(where)} {unit} on.")
    elif other[-1] > timeout[-1]:
        told.append(
            f"No crossing: {second} is ahead of the timeout at every point, from {at(x[0])} to "
            f"{at(x[-1])} {unit}."
        )
    else:
        told.append(f"No crossing: {second} is not ahead at the last point, {at(x[-1])} {unit}.")

    def more(line: Sequence[float]) -> str:
        return "more" if line[-1] > line[0] else "less"

    told.append(
        f"The timeout gains {more(timeout)} at the last point than at the first, {second} "
        f"{more(other)}."
    )
    doubled = [place for place, gain in zip(x, timeout, strict=True) if gain <= _WORSE]
    if doubled and all(
        gain <= _WORSE for p, gain in zip(x, timeout, strict=True) if p >= doubled[0]
    ):
        told.append(
            f"From {at(doubled[0])} {unit} on p99 with the timeout, which has no budget as "
            "published, is at least double."
        )
    return told


def _fitted_at(point: str, seeds: Sequence[int], crossed: str) -> str:
    return (
        f"The fit is of the default variant at {point}; everything else is predicted, default at "
        f"other loads too. Medians of seeds {', '.join(map(str, seeds))}, with which no fit was "
        f"made; lines of single seeds cross at: {crossed}."
    )


def _by_utilisation(effort: Effort) -> Found:
    """What the timeout and the shared queue gain at p99 as queues fill."""
    fit = fits()["micro/queue"]

    def at(rho: float) -> dict[str, _Run]:
        chance = rho * 0.45
        made: dict[str, Topology] = {
            "default": cluster.queue(fit, chance=chance),
            "timeout": cluster.queue(fit, chance=chance, replay=cluster.replaying("timeout")),
            "shared": cluster.queue(fit, shared=True, chance=chance),
        }
        # as many tuples at every point
        seconds = 10.0 * effort.scale / rho
        return {name: _later(topology, seconds, 2.0, effort) for name, topology in made.items()}

    points = {f"rho-{rho:g}": (rho, at(rho)) for rho in _UTILISATION}
    seeds = unseen(effort)
    figures, lines, crossed = _gains(points, "shared", "utilisation", seeds)
    x, timeout = lines["timeout"]
    notes = [
        _fitted_at(f"{100.0 * _MEASURED_AT:.0f} % utilisation", seeds, crossed),
        *lines_told(x, timeout, lines["shared"][1], "shared", "utilisation"),
        _pausing(fit),
    ]
    return Found(figures, lines, tuple(notes))


def _pausing(fit: Fit) -> str:
    """How many tuples a pause meets: of a spout, its machine, that of the bolt, of the acker."""
    machine, spout = (every / (every + fit.length) for every in (fit.every, fit.spout_every))
    met = 100.0 * (1.0 - machine**3 * spout)
    rest = (
        ", so that p99 is a matter of queues, which a replay does not shorten."
        if met < 1.0
        else ", so that p99 is one of those a replay may help."
    )
    return f"By the fit {met:.1f} % of the tuples come while something on their way pauses{rest}"


def _by_load(effort: Effort) -> Found:
    """What the timeout and balance gain at p99 on unequal machines as load grows."""
    fit = fits()["micro/balance-c"]
    replay = cluster.replaying("timeout")
    # percent of all cores that bolts and ackers take, if every spout emits each millisecond
    full = 100.0 * cluster.MACHINES / cluster.TICK * (3.0 * fit.service + fit.acker) / _CORES

    def at(chance: float) -> dict[str, _Run]:
        seconds = 40.0 * effort.scale / chance * _CHANCE
        build = cluster.balance_c
        return {
            "default": _later(build(fit, chance=chance), seconds, 5.0, effort),
            "timeout": _later(build(fit, chance=chance, replay=replay), seconds, 5.0, effort),
            "balance": _later(build(fit, "balance", chance=chance), seconds, SETTLING, effort),
        }

    points = {f"cpu-{cpu:g}": (cpu, at(cpu / full)) for cpu in _LOADS if cpu < full}
    seeds = unseen(effort)
    figures, lines, crossed = _gains(points, "balance", "cpu_percent", seeds)
    x, timeout = lines["timeout"]
    most = 100.0 * cluster.MACHINES / _CORES
    notes = [
        _fitted_at(f"{_CHANCE * full:.0f} % of CPU", seeds, crossed),
        *lines_told(x, timeout, lines["balance"][1], "balance", "% of CPU"),
        f"With an even split the machine with one core has all that it can do at {most:.0f} %.",
    ]
    if lines["balance"][1][0] > 0.0:
        notes.append(
            "Its pauses are as long at every load as in the fit, so that there is something to "
            "gain by avoiding it at little load too."
        )
    return Found(figures, lines, tuple(notes))


def _later(topology: Topology, seconds: float, warm_up: float, effort: Effort) -> _Run:
    return lambda seed: topology.run(seconds, warm_up * min(1.0, effort.scale), seed)


EXPERIMENTS = (
    Experiment(
        "conditions-utilisation",
        f"{SOURCE}, figure 4",
        "Timeout and shared queue, by the utilisation of a task's queue",
        _by_utilisation,
        {"crossing": {"utilisation": 0.58}},
        axes=Axes("utilisation of a task's queue", "p99 lower by, percent", low_y=-100.0),
    ),
    Experiment(
        "conditions-load",
        f"{SOURCE}, figure 5",
        "Timeout and balance on unequal machines, by load",
        _by_load,
        {"crossing": {"cpu_percent": 49.0}},
        axes=Axes("CPU utilisation, percent", "p99 lower by, percent", low_y=-100.0),
    ),
)

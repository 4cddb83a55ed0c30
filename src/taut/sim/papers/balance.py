"""Latency balance: its three scenarios, with load and latency of the tasks over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean

from taut.sim.cluster import Outcome, Topology
from taut.sim.papers import storm as cluster
from taut.sim.papers.calibrate import fits, unseen
from taut.sim.papers.experiment import Axes, Curve, Effort, Experiment, Found, Picture, Reason
from taut.sim.papers.measured import tasks_over_time
from taut.sim.papers.tails import FITTED, LATENCY, NEAR, SETTLING, SOURCE
from taut.sim.papers.variants import curves, published, quantiles, runs, simulated, spread

_EVERY = 3.0
"""Seconds between looks, as in the work."""
_LAST = 10
"""Looks at the end of a run that shares are taken from."""
_SWINGS = "c"
"""The scenario in which the better of two is shown as well."""


def _balance(letter: str, build: Callable[..., Topology]) -> Callable[[Effort], Found]:
    """Default and balance."""

    def run(effort: Effort) -> Found:
        fit, seeds = fits()[f"micro/balance-{letter}"], unseen(effort)
        seconds = max(4 * _EVERY, 200.0 * effort.scale)
        settling = SETTLING * min(1.0, effort.scale)
        ran = {
            "default": runs(build(fit), seconds, 5.0, seeds, _EVERY),
            "balance": runs(build(fit, "balance"), seconds, settling, seeds, _EVERY),
        }
        notes = [FITTED, spread(ran, seeds), f"Shares had {settling:g} s to settle."]
        if letter == _SWINGS:
            # it never settles, so one run shows what it does
            ran["two-choices"] = runs(build(fit, "two-choices"), seconds, 5.0, seeds[:1], _EVERY)
        figures = simulated(ran, more=lambda outcome: {"swing_points": swing(_loads(outcome))})
        if letter == _SWINGS:
            notes.append(_swings({name: told["swing_points"] for name, told in figures.items()}))
        if letter == "a":
            notes.append(_kept(ran["balance"][0]))
        over_time = _over_time(ran["balance"][0], letter)
        return Found(figures, curves(f"micro/balance-{letter}", ran), tuple(notes), over_time)

    return run


def _loads(outcome: Outcome) -> list[list[int]]:
    """Tuples of the tasks of the middle bolt, look by look; without the last, cut short."""
    return [noted.tuples for noted in outcome.series["two"][:-1]]


def swing(loads: Sequence[Sequence[float]]) -> float:
    """By how many points of the load a task's share changes from one look to the next, on average.

    >>> swing([[10, 10], [10, 10]]), swing([[20, 0], [0, 20], [20, 0]])
    (0.0, 100.0)
    """
    shares = [[100.0 * load / sum(look) for load in look] for look in loads if sum(look)]
    changes = [
        abs(b - a) for one, other in pairwise(shares) for a, b in zip(one, other, strict=True)
    ]
    return fmean(changes) if changes else 0.0


def _swings(points: dict[str, float]) -> str:
    told = ", ".join(f"{variant} {by:.1f}" for variant, by in points.items())
    which = "more" if points["two-choices"] > 2.0 * points["balance"] else "no more"
    return (
        f"The better of two by what is a period old swings {which} than twice as much as balance: "
        f"points of the load by which a task's share changes in {_EVERY:g} s: {told}. It is not in "
        "the table of the work, and simulated with the first seed only."
    )


def least(loads: Sequence[Sequence[float]]) -> float:
    """What the task with the least has, of an even share.

    >>> least([[2, 3, 3], [1, 2, 1]])
    0.75
    """
    each = [float(sum(task)) for task in zip(*loads, strict=True)]
    return min(each) * len(each) / sum(each)


def _kept(outcome: Outcome) -> str:
    """Beside what was measured in scenario (a)."""
    measured = [
        values[-_LAST:]
        for (series, _), (_, values) in tasks_over_time().items()
        if series == "load_tuples_per_3s"
    ]
    theirs = least(list(zip(*measured, strict=True)))
    ours = least(_loads(outcome)[-_LAST:])
    return (
        f"In the end the task with the least has {100.0 * ours:.0f} % of an even share; measured, "
        f"{100.0 * theirs:.0f} %."
    )


def _over_time(outcome: Outcome, letter: str) -> dict[str, Picture]:
    """Load and latency of the tasks of the middle bolt, from when balance begins."""
    load: dict[str, Curve] = {}
    latency: dict[str, Curve] = {}
    # in scenario (a) the authors published the same of theirs
    for (series, task), (times, values) in tasks_over_time().items() if letter == "a" else ():
        drawn = load if series == "load_tuples_per_3s" else latency
        drawn[f"measured task {task}"] = times, values
    noted = outcome.series["two"]
    # tasks in the order of what they have in the end, for those measured are in no known place
    places = sorted(
        range(len(noted[0].tuples)), key=lambda n: sum(each.tuples[n] for each in noted[-11:-1])
    )
    for rank, n in enumerate(places):
        times = [each.at for each in noted]
        load[f"task {rank}"] = times, [float(each.tuples[n]) for each in noted]
        latency[f"task {rank}"] = times, [1e3 * each.stayed[n] for each in noted]
    return {
        "load": Picture(Axes("seconds", "tuples in 3 s"), load),
        "latency": Picture(Axes("seconds", "mean ms at the task", log_y=True), latency),
    }


_REASONS = (
    Reason(
        "what holds up a tuple in ten or twenty by some milliseconds is not in the model.",
        below=("*.p90_ms", "*.p95_ms"),
        above=("*.p90_lower_percent",),
    ),
)


EXPERIMENTS = tuple(
    Experiment(
        f"balance-{letter}",
        f"{SOURCE}, table 3, thesis figures 5.4 and 5.5, and what the authors measured",
        f"Latency balance, scenario ({letter})",
        _balance(letter, build),
        published(
            f"micro/balance-{letter}",
            ("default", "balance"),
            quantiles({"default": default, "balance": balanced}),
        ),
        axes=LATENCY,
        near=NEAR,
        reasons=_REASONS,
    )
    for letter, build, default, balanced in (
        ("a", cluster.balance_a, (11.15, 29.9, 104.5), (10.9, 23.5, 57.1)),
        ("b", cluster.balance_b, (21.05, 92.9, 204.3), (9.16, 36.4, 153.1)),
        ("c", cluster.balance_c, (9.3, 127.8, 598.6), (7.67, 62.4, 162.0)),
    )
)

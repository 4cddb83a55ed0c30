"""Latency balance: its three scenarios, with load and latency of the tasks over time."""

from __future__ import annotations

from collections.abc import Callable

from taut.sim.cluster import Outcome, Topology
from taut.sim.papers import storm as cluster
from taut.sim.papers.calibrate import fits
from taut.sim.papers.experiment import Axes, Curve, Effort, Experiment, Found, Picture
from taut.sim.papers.measured import tasks_over_time
from taut.sim.papers.tails import (
    FITTED,
    LATENCY,
    SETTLING,
    SOURCE,
    above,
    lower,
    measured,
    published,
    told,
)

_NOTES = {
    "a": (
        "The slow machine ends with the least share that a task keeps; measured, it kept two "
        "thirds of an even one. Here it stays slower than the others by more than the ratio that "
        "balance looks at, however little it gets.",
    ),
    "c": (
        "p99 under balance is a quarter below what was measured, p99.9 within a few percent. With "
        "and without balance, p90 and p95 are a fifth below: something that holds up every tenth "
        "tuple by ten or twenty milliseconds is not in the model, and is more of the tail once the "
        "slow machine is not.",
    ),
}
_EVERY = 3.0
"""Seconds between looks, as in the work."""


def _balance(letter: str, build: Callable[..., Topology]) -> Callable[[Effort], Found]:
    """Default and balance."""

    def run(effort: Effort) -> Found:
        fit = fits()[f"micro/balance-{letter}"]
        seconds = max(4 * _EVERY, 300.0 * effort.scale)
        settling = SETTLING * min(1.0, effort.scale)
        default = build(fit).run(seconds, 5.0, effort.seed, every=_EVERY)
        balance = build(fit, "balance").run(seconds, settling, effort.seed, every=_EVERY)
        figures = {
            "default": told(default),
            "balance": told(balance) | lower(default, balance),
        }
        curves = {"default": above(default), "balance": above(balance)}
        curves |= measured(f"micro/balance-{letter}", ("default", "balance"))
        notes = (FITTED, f"Shares had {settling:g} s to settle.", *_NOTES.get(letter, ()))
        return Found(figures, curves, notes, _over_time(balance, letter))

    return run


def _over_time(outcome: Outcome, letter: str) -> dict[str, Picture]:
    """Load and latency of the tasks of the middle bolt, from when balance begins."""
    load: dict[str, Curve] = {}
    latency: dict[str, Curve] = {}
    # in scenario (a) the authors published the same of theirs
    for (series, task), (times, values) in tasks_over_time().items() if letter == "a" else ():
        curves = load if series == "load_tuples_per_3s" else latency
        curves[f"measured task {task}"] = times, values
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


EXPERIMENTS = tuple(
    Experiment(
        f"balance-{letter}",
        f"{SOURCE}, table 3, thesis figures 5.4 and 5.5",
        f"Latency balance, scenario ({letter})",
        _balance(letter, build),
        published({"default": default, "balance": balanced}),
        axes=LATENCY,
    )
    for letter, build, default, balanced in (
        ("a", cluster.balance_a, (11.15, 29.9, 104.5), (10.9, 23.5, 57.1)),
        ("b", cluster.balance_b, (21.05, 92.9, 204.3), (9.16, 36.4, 153.1)),
        ("c", cluster.balance_c, (9.3, 127.8, 598.6), (7.67, 62.4, 162.0)),
    )
)

"""Variants on the fitted cluster, each with several seeds, beside what was measured of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import numpy as np

from taut.sim.cluster import Outcome, Topology
from taut.sim.papers.experiment import Curve, Figures
from taut.sim.papers.measured import histograms

QUANTILES = {"p90_ms": 0.9, "p95_ms": 0.95, "p99_ms": 0.99, "p999_ms": 0.999}
MEASURED = {
    "timeout": "adaptive-timeout",
    "shared": "shared-queue",
    "balance": "latency-balance",
}
"""What variants are called in the histograms, where that is not the same."""
Runs = Mapping[str, Sequence[Outcome]]
"""By variant: an outcome for every seed."""


def runs(
    topology: Topology,
    seconds: float,
    warm_up: float,
    seeds: Sequence[int],
    every: float | None = None,
) -> list[Outcome]:
    """One for every seed."""
    return [topology.run(seconds, warm_up, seed, every=every) for seed in seeds]


def told(outcome: Outcome, *, cost: bool = False) -> dict[str, float]:
    """The figures of a run."""
    figures = {name: 1e3 * outcome.quantile(share) for name, share in QUANTILES.items()}
    figures["mean_ms"] = 1e3 * outcome.mean
    return figures | ({"cost": outcome.cost} if cost else {})


def lower(default: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """By how many percent a technique lowers the quantiles.

    >>> lower({"p90_ms": 10.0, "p99_ms": 40.0, "p999_ms": 80.0}, {"p99_ms": 30.0})
    {'p99_lower_percent': 25.0}
    """
    return {
        name.replace("_ms", "_lower_percent"): 100.0 * (1.0 - other[name] / default[name])
        for name in ("p90_ms", "p99_ms", "p999_ms")
        if name in other
    }


def medians(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of the same figures of several runs.

    >>> medians([{"p99_ms": 3.0}, {"p99_ms": 9.0}, {"p99_ms": 4.0}])
    {'p99_ms': 4.0}
    """
    return {name: median(figures[name] for figures in each) for name in each[0]}


def simulated(
    ran: Runs,
    *,
    cost: bool = False,
    more: Callable[[Outcome], Mapping[str, float]] = lambda _: {},
) -> dict[str, dict[str, float]]:
    """The medians over seeds; what techniques gain is taken seed by seed."""
    default = [told(outcome) for outcome in ran["default"]]
    figures = {}
    for variant, outcomes in ran.items():
        each = [told(outcome, cost=cost) | dict(more(outcome)) for outcome in outcomes]
        if variant != "default":
            each = [own | lower(base, own) for base, own in zip(default, each, strict=False)]
        figures[variant] = medians(each)
    return figures


def spread(ran: Runs, seeds: Sequence[int]) -> str:
    """Which seeds, and how far apart they are."""
    ranges = []
    for variant, outcomes in ran.items():
        ms = sorted(1e3 * outcome.quantile(0.99) for outcome in outcomes)
        if len(ms) > 1:
            ranges.append(f"{variant} {ms[0]:.1f} to {ms[-1]:.1f}")
    return (
        f"Medians of seeds {', '.join(map(str, seeds))}, with which no fit was made; p99 in ms by "
        f"seed: {', '.join(ranges)}."
    )


def above(outcomes: Sequence[Outcome]) -> Curve:
    """The share of tuples that took longer, down to the last ten; of all seeds together."""
    ordered = np.sort(np.concatenate([outcome.latencies for outcome in outcomes]))
    shares = np.geomspace(1.0, 10.0 / len(ordered), 200)
    places = np.clip(((1.0 - shares) * len(ordered)).astype(int), 0, len(ordered) - 1)
    return (1e3 * ordered[places]).tolist(), shares.tolist()


def curves(experiment: str | None, ran: Runs) -> dict[str, Curve]:
    """Simulated and, where there is a histogram, measured."""
    made = {variant: above(outcomes) for variant, outcomes in ran.items()}
    for variant in ran:
        found = histograms().get((experiment or "", MEASURED.get(variant, variant)))
        if found is not None:
            x, share = found.above()
            keep = share > 0.0
            made[f"measured {variant}"] = (1e3 * x[keep]).tolist(), share[keep].tolist()
    return made


def published(
    experiment: str | None, variants: Sequence[str], texts: Figures | None = None
) -> dict[str, dict[str, float]]:
    """What the texts say, and what else the histograms of these variants do."""
    measured = {}
    for variant in variants:
        found = histograms().get((experiment or "", MEASURED.get(variant, variant)))
        if found is not None:
            measured[variant] = {
                name: 1e3 * found.quantile(share) for name, share in QUANTILES.items()
            } | {"mean_ms": 1e3 * found.mean}
    made: dict[str, dict[str, float]] = {}
    for variant in variants:
        figures = dict(measured.get(variant, {}))
        if figures and variant != "default":
            figures |= lower(measured["default"], figures)
        figures |= (texts or {}).get(variant, {})
        if figures:
            made[variant] = figures
    return made


def quantiles(
    texts: Mapping[str, tuple[float | None, float, float]],
) -> dict[str, dict[str, float]]:
    """p90, p99 and p99.9 in ms by variant, as tables of the work have them."""
    names = ("p90_ms", "p99_ms", "p999_ms")
    return {
        variant: {n: ms for n, ms in zip(names, figures, strict=True) if ms is not None}
        for variant, figures in texts.items()
    }

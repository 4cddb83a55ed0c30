"""From the runs of ``bench lanes`` to its figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from taut.bench.rounds import quantile

STOCK = "default"
_QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
_RATIOS = {"p99": "p99_ms", "p999": "p999_ms", "batch": "batch_ms"}


@dataclass(frozen=True, slots=True)
class Run:
    """One variant, once.

    Attributes
    ----------
    latencies
        Seconds from arrival to first written, of the tuples that arrived in the measured time and
        were written, sorted.
    duplicates
        Tuples written once more than they should be.
    lost
        Tuples that were never written.
    extra
        Tuples that lanes worked on once more than they had to.
    batches
        Seconds of each batch, from its plan to its commit.
    pauses
        Seconds between two resident batches.
    """

    variant: str
    round: int
    latencies: Sequence[float]
    duplicates: int = 0
    lost: int = 0
    extra: int = 0
    batches: Sequence[float] = ()
    pauses: Sequence[float] = ()


def judge(
    written: Iterable[tuple[int, float]],
    worked: Iterable[int],
    arrivals: Mapping[int, float],
) -> dict[str, object]:
    """What became of the tuples of the measured time: when each was first written, and how often.

    Parameters
    ----------
    written
        Number and time of each tuple written, in any order.
    worked
        The number of a tuple, each time that a lane began with it.
    arrivals
        The tuples that count, by number.

    Examples
    --------
    >>> judge([(1, 5.0), (1, 4.5), (7, 9.0)], [1, 1, 7], {1: 4.0, 2: 4.2})
    {'latencies': (0.5,), 'duplicates': 1, 'lost': 1, 'extra': 1}
    """
    first: dict[int, float] = {}
    count = 0
    for n, at in written:
        if n in arrivals:
            count += 1
            first[n] = min(at, first.get(n, at))
    begun = [n for n in worked if n in arrivals]
    return {
        "latencies": tuple(sorted(at - arrivals[n] for n, at in first.items())),
        "duplicates": count - len(first),
        "lost": len(arrivals) - len(first),
        "extra": len(begun) - len(set(begun)),
    }


def pauses(
    ends: Sequence[float], written: Iterable[tuple[int, float]], arrivals: Mapping[int, float]
) -> tuple[float, ...]:
    """How long after each end of a batch the first tuple that arrived since was written.

    >>> pauses([10.0], [(1, 10.2), (2, 10.5), (3, 10.4)], {1: 9.9, 2: 10.1, 3: 10.2})
    (0.4,)
    """
    seen = [(arrivals[n], at) for n, at in written if n in arrivals]
    firsts = [min((at for came, at in seen if came >= end), default=None) for end in ends]
    return tuple(
        round(first - end, 6) for end, first in zip(ends, firsts, strict=True) if first is not None
    )


def summary(run: Run) -> dict[str, float]:
    """The figures of one run; those of latency are left out when nothing was written."""
    told: dict[str, float] = {}
    if run.latencies:
        told["mean_ms"] = 1e3 * fmean(run.latencies)
        # a tuple that was lost is later than all others
        ranked = [*run.latencies, *[math.inf] * run.lost]
        for name, share in _QUANTILES.items():
            if math.isfinite(value := quantile(ranked, share)):
                told[name] = 1e3 * value
        told["cost"] = run.extra / len(run.latencies)
    if run.batches:
        told["batch_ms"] = 1e3 * median(run.batches)
    if run.pauses:
        told["pause_ms"] = 1e3 * max(run.pauses)
    return told | {"tuples": len(run.latencies), "duplicates": run.duplicates, "lost": run.lost}


def figures(topology: str, runs: Sequence[Run]) -> dict[str, float]:
    """Medians over the rounds, and ratios to the default, round by round."""
    told: dict[str, float] = {}
    summaries = {(run.round, run.variant): summary(run) for run in runs}
    for variant in dict.fromkeys(run.variant for run in runs):
        mine = {round_: each for (round_, v), each in summaries.items() if v == variant}
        for name in dict.fromkeys(name for each in mine.values() for name in each):
            values = [each[name] for each in mine.values() if name in each]
            told[f"{topology}.{variant}.{name}"] = round(median(values), 4)
        for ratio, name in _RATIOS.items():
            values = [
                stock[name] / each[name]
                for round_, each in mine.items()
                if variant != STOCK
                and each.get(name)
                and name in (stock := summaries.get((round_, STOCK), {}))
            ]
            if values:
                told[f"ratio.{variant}.{ratio}"] = round(median(values), 4)
    return told


def remarks(runs: Iterable[Run]) -> list[str]:
    """What a reader of the figures has to know."""
    return [
        f"{run.variant}, round {run.round}: {run.lost} of {run.lost + len(run.latencies)} tuples "
        "were not written in time to be counted; they are in `lost`, later than all others in the "
        "quantiles, and not in the mean."
        for run in runs
        if run.lost
    ]

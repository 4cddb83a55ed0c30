"""From the runs of ``bench lanes`` to its figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from taut.bench.lanes.judge import Written
from taut.bench.rounds import medians, quantile

STOCK = "default"
_QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}
_RATIOS = {
    "mean": "mean_ms",
    "p90": "p90_ms",
    "p99": "p99_ms",
    "p999": "p999_ms",
    "batch": "batch_ms",
    "queue": "queue_ms",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One variant, once.

    Attributes
    ----------
    latencies
        Seconds from arrival until the last output was first written, of the tuples that arrived in
        the measured time and were written, sorted. Tuples without any output are not due.
    duplicates
        Outputs written once more than they should be.
    lost
        Tuples of which an output was never written.
    arrived
        Tuples that arrived in the measured time, with those that have no output.
    extra
        Tuples that lanes worked on once more than they had to.
    queued_s
        Mean seconds from arrival until a lane first began with a tuple.
    batches
        Seconds of each batch, from its plan to its commit.
    pauses
        Seconds between two resident batches.
    disturbed
        How often a lane was paused from outside; None when none was to be.
    by_lane
        What each lane wrote, if it was asked for.
    """

    variant: str
    round: int
    latencies: Sequence[float]
    duplicates: int = 0
    lost: int = 0
    arrived: int = 0
    extra: int = 0
    queued_s: float | None = None
    batches: Sequence[float] = ()
    pauses: Sequence[float] = ()
    disturbed: int | None = None
    by_lane: Sequence[Written] = ()


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
        told["cost"] = run.extra / max(run.arrived, len(run.latencies))
    if run.queued_s is not None:
        told["queue_ms"] = 1e3 * run.queued_s
    if run.batches:
        told["batch_ms"] = 1e3 * median(run.batches)
    if run.pauses:
        told["pause_ms"] = 1e3 * max(run.pauses)
    return told | {"tuples": len(run.latencies), "duplicates": run.duplicates, "lost": run.lost}


def figures(
    topology: str, runs: Sequence[Run], theory: Mapping[str, float] | None = None
) -> dict[str, float]:
    """Medians over the rounds, and ratios to the default, round by round.

    ``theory`` are the seconds that tuples should wait by it, for the variants that it knows.
    """
    summaries = {(run.round, run.variant): summary(run) for run in runs}
    told = medians(summaries, STOCK, _RATIOS, f"{topology}.")
    ran = {run.variant for run in runs}
    waits = {variant: wait for variant, wait in (theory or {}).items() if variant in ran}
    return told | {
        f"{topology}.{variant}.theory_queue_ms": round(1e3 * wait, 4)
        for variant, wait in waits.items()
    }


def remarks(runs: Iterable[Run]) -> list[str]:
    """What a reader of the figures has to know."""
    told = []
    for run in runs:
        which = f"{run.variant}, round {run.round}"
        if run.lost:
            told.append(
                f"{which}: {run.lost} of {run.lost + len(run.latencies)} tuples were not written "
                "in time to be counted; they are in `lost`, later than all others in the "
                "quantiles, and not in the mean."
            )
        if run.disturbed == 0:
            told.append(f"{which}: no lane was paused, though they were to be.")
    return told

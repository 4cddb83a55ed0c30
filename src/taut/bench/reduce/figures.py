"""From the runs of ``bench reduce`` to its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from taut.spark.reduce.outcome import BatchStats


@dataclass(frozen=True, slots=True)
class Point:
    """A setting: the share of the states that fits into memory, and the load."""

    memory: float
    load: float

    @property
    def name(self) -> str:
        """In the names of figures.

        >>> Point(0.5, 1.36).name
        'm0.5.l1.36'
        """
        return f"m{self.memory:g}.l{self.load:g}"


@dataclass(frozen=True, slots=True)
class Run:
    """One variant at one point, once.

    Attributes
    ----------
    on_time, processed, shed
        Shares of the rows that arrived in the measured time: out by their deadline; worked on by
        the end of the run, late or not; put aside. The rest still waits in the source.
    rows_per_s
        Rows worked on in a second of the measured time.
    batches
        How many were written in it.
    """

    variant: str
    point: Point
    round: int
    on_time: float
    processed: float
    shed: float
    rows_per_s: float
    batches: int


def judged(
    variant: str,
    point: Point,
    round_: int,
    batches: Iterable[BatchStats],
    objective: float,
    begin: float,
    end: float,
    rows: int,
) -> Run:
    """What became of the rows that arrived from ``begin`` to ``end``, ``rows`` by the schedule.

    A row's arrival is its deadline less the objective, and known to a hundredth of that, rounded
    down; so rows at the edges are shared out.
    """
    step = objective / 100.0
    on_time = processed = shed = worked = 0.0
    written = 0
    for batch in batches:
        for deadline, count in batch.deadlines:
            share = _inside(deadline - objective, step, begin, end) * count
            processed += share
            on_time += share if deadline >= batch.written else 0.0
        for deadline, count in batch.shed_deadlines:
            shed += _inside(deadline - objective, step, begin, end) * count
        if begin <= batch.written < end:
            written += 1
            worked += batch.processed
    total = max(1, rows)
    return Run(
        variant,
        point,
        round_,
        min(1.0, on_time / total),
        min(1.0, processed / total),
        min(1.0, shed / total),
        worked / (end - begin),
        written,
    )


def _inside(at: float, step: float, begin: float, end: float) -> float:
    """The share of [at, at + step) that lies in [begin, end)."""
    return max(0.0, min(at + step, end) - max(at, begin)) / step


def figures(workload: str, runs: Sequence[Run]) -> dict[str, float]:
    """Medians over the rounds."""
    told: dict[str, float] = {}
    for variant, point in dict.fromkeys((run.variant, run.point) for run in runs):
        mine = [run for run in runs if (run.variant, run.point) == (variant, point)]
        name = f"{workload}.{variant}.{point.name}"
        for figure in ("on_time", "processed", "shed", "rows_per_s"):
            told[f"{name}.{figure}"] = round(median(getattr(run, figure) for run in mine), 4)
    return told

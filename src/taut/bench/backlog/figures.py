"""From the runs of ``bench backlog`` to its figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from taut.bench.rounds import medians, quantile

STOCK = "proportional"
"""What Spark's own sources do."""


class Admission(NamedTuple):
    """A batch was planned: when, and up to where it takes each partition."""

    at: float
    upto: Mapping[str, int]


class Written(NamedTuple):
    """A batch was written: when, and the numbers of its rows."""

    at: float
    numbers: npt.NDArray[np.int64]


class Level(NamedTuple):
    """The largest backlog of any partition at a time."""

    at: float
    rows: int


@dataclass(frozen=True, slots=True)
class Run:
    """One variant, once.

    Attributes
    ----------
    levels
        The largest backlog over time, in seconds since the first arrival.
    delays
        Seconds from a row's arrival until its batch was written, sorted.
    lost
        Rows that were never written.
    seconds
        From the first arrival until the last row was written.
    missed
        Triggers at which no batch began though rows waited.
    """

    variant: str
    round: int
    levels: Sequence[Level]
    delays: Sequence[float]
    lost: int = 0
    seconds: float = 0.0
    missed: int = 0


def levels(
    arrived: Callable[[float], Mapping[str, int]], admissions: Iterable[Admission], over: float
) -> list[Level]:
    """The largest backlog just before each batch was planned, and when arrivals were over.

    Between two such moments a backlog only grows, so that none is larger than these. What the last
    batch has left is told as well.

    Parameters
    ----------
    arrived
        How many rows of each partition have arrived by a time.
    admissions
        The batches, in their order.
    over
        When arrivals were over.

    Examples
    --------
    >>> batches = [Admission(1.0, {"a": 10, "b": 10}), Admission(2.0, {"a": 30, "b": 15})]
    >>> levels(lambda at: {"a": round(at * 30), "b": round(at * 10)}, batches, 3.0)
    [Level(at=1.0, rows=30), Level(at=2.0, rows=50), Level(at=3.0, rows=60)]
    """
    told = []
    before: Mapping[str, int] = {}
    end, ended = over, False
    for at, upto in admissions:
        if at >= over and not ended:
            told.append(Level(over, _largest(arrived(over), before)))
            ended = True
        told.append(Level(at, _largest(arrived(at), before)))
        before, end = upto, max(at, over)
    told.append(Level(end, _largest(arrived(end), before)))
    return told


def _largest(arrived: Mapping[str, int], taken: Mapping[str, int]) -> int:
    return max(rows - taken.get(partition, 0) for partition, rows in arrived.items())


def delays(written: Iterable[Written], arrivals: npt.NDArray[np.float64]) -> tuple[float, ...]:
    """How long each row that was written took, sorted; ``arrivals`` by number.

    >>> delays([Written(9.0, np.array([0, 2]))], np.array([5.0, 6.0, 8.0]))
    (1.0, 4.0)
    """
    first = np.full(len(arrivals), np.inf)
    for at, numbers in written:
        first[numbers] = np.minimum(first[numbers], at)
    late = first - arrivals
    return tuple(np.sort(late[np.isfinite(late)]).tolist())


def missed(admissions: Sequence[Admission], start: float, trigger_s: float) -> int:
    """Triggers without a batch, from the first after ``start`` to the last that had one.

    >>> missed([Admission(11.0, {}), Admission(14.0, {})], 10.0, 1.0)
    2
    """
    if not admissions:
        return 0
    due = round((admissions[-1].at - start) / trigger_s)
    # a trigger at the start itself may have found a row as well
    return max(0, due - sum(each.at > start + trigger_s / 2 for each in admissions))


def summary(run: Run) -> dict[str, float]:
    """The figures of one run; those of delay are left out when nothing was written."""
    told: dict[str, float] = {}
    if run.levels:
        told["max_backlog"] = max(level.rows for level in run.levels)
    if run.delays:
        told["mean_delay_ms"] = 1e3 * fmean(run.delays)
        # a row that was lost is later than all others
        p99 = quantile([*run.delays, *[math.inf] * run.lost], 0.99)
        if math.isfinite(p99):
            told["p99_delay_ms"] = 1e3 * p99
    told |= {"rows": len(run.delays), "lost": run.lost}
    if run.seconds > 0:
        told["rows_per_s"] = len(run.delays) / run.seconds
    return told


def figures(runs: Sequence[Run]) -> dict[str, float]:
    """Medians over the rounds, and how many times proportional's backlog is each, by round."""
    summaries = {(run.round, run.variant): summary(run) for run in runs}
    return medians(summaries, STOCK, {"max_backlog": "max_backlog"})


def middle(runs: Sequence[Run]) -> Run:
    """Of one variant's runs the one that has the median of the largest backlogs.

    Of an even number the lower one in the middle.
    """
    ranked = sorted(runs, key=lambda run: max((level.rows for level in run.levels), default=0))
    return ranked[(len(ranked) - 1) // 2]


def remarks(runs: Iterable[Run]) -> list[str]:
    """What a reader of the figures has to know."""
    told = []
    for run in runs:
        which = f"{run.variant}, round {run.round}"
        if run.lost:
            told.append(
                f"{which}: {run.lost:,} of {run.lost + len(run.delays):,} rows were not written in "
                "time to be counted; they are in `lost`, later than all others in the p99, and not "
                "in the mean."
            )
        if run.missed:
            told.append(
                f"{which}: triggers without a batch: {run.missed}, as others took too long. "
                "Less was taken than stated; a lower --rate or a longer --trigger helps."
            )
    return told

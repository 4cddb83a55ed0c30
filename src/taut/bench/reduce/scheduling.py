"""What it costs to decide about a row, without the work on it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from taut.bench.reduce.choosing import reducer_us
from taut.policy.deadline import Alike, CostAware, GroupedCostAware, Job

_LOADS = (1.0, 1.36, 1.8)
_EVERY = 0.1
"""Seconds from shuffle batch to shuffle batch, and from a rounded deadline to the next."""
_CONSTRAINT = 1.0
_COLD = 0.2
"""Share of the rows that cost ten times as much as the others."""
_AT_ONCE = 100
"""Rows of a group that are worked on before the schedule is asked again."""


@dataclass(frozen=True, slots=True)
class _Batch:
    at: float
    deadlines: NDArray[np.float64]
    costs: NDArray[np.float64]


def scheduling_us(
    seed: int = 1, rounds: int = 5, *, batches: int = 50, rows: int = 1_000
) -> dict[str, float]:
    """Microseconds a row: in the policy's two structures, and in a reducer.

    The mean over loads of 1.0, 1.36 and 1.8 with two costs, and the median of the rounds. The tree
    and the grouped form serve rows one after the other, from release until next or given up, and
    are what the simulator runs; no row on Spark passes them. Rows of the tree have deadlines of
    their own, which is the worst for it; counting rows that are alike is part of the grouped form.
    A reducer on Spark chooses once among all rows of a batch, which are out together.

    Parameters
    ----------
    batches, rows
        Shuffle batches, and rows in each; a reducer's batch has ten of them.
    """
    told: dict[str, list[float]] = {"grouped": [], "tree": [], "reducer": []}
    for round_ in range(rounds):
        random = np.random.default_rng([seed, round_])
        drawn = [list(_batches(random, load, batches, rows)) for load in _LOADS]
        told["tree"].append(fmean(tree_us(some) for some in drawn))
        told["grouped"].append(fmean(grouped_us(some) for some in drawn))
        many = max(1, batches // 10)
        told["reducer"].append(fmean(reducer_us(random, load, many, 10 * rows) for load in _LOADS))
    return {f"scheduling.{name}_us": median(each) for name, each in told.items()}


def tree_us(batches: Sequence[_Batch]) -> float:
    """Microseconds a row, one by one."""
    schedule, now, rows, given = CostAware(), 0.0, 0, []
    for batch in batches:
        values = zip(batch.deadlines.tolist(), batch.costs.tolist(), strict=True)
        given.append([Job(rows + n, *value) for n, value in enumerate(values)])
        rows += len(batch.costs)
    begun = time.thread_time()
    for batch, jobs in zip(batches, given, strict=True):
        while now < batch.at and (job := schedule.next(now)) is not None:
            now += job.cost
            schedule.given_up()
        now = max(now, batch.at)
        schedule.release(jobs, now)
        schedule.given_up()
    while (job := schedule.next(now)) is not None:
        now += job.cost
        schedule.given_up()
    return 1e6 * (time.thread_time() - begun) / rows


def grouped_us(batches: Sequence[_Batch]) -> float:
    """Microseconds a row, by count."""
    schedule, now = GroupedCostAware(), 0.0
    begun = time.thread_time()
    for batch in batches:
        while now < batch.at and (some := schedule.next(now, _AT_ONCE)) is not None:
            now += some.cost * some.rows
            schedule.given_up()
        now = max(now, batch.at)
        schedule.release(_alike(batch), now)
        schedule.given_up()
    while (some := schedule.next(now, _AT_ONCE)) is not None:
        now += some.cost * some.rows
        schedule.given_up()
    return 1e6 * (time.thread_time() - begun) / sum(len(batch.costs) for batch in batches)


def _alike(batch: _Batch) -> list[Alike]:
    """Rows by cost and by deadline, rounded down so that none is late by it."""
    groups = []
    for cost in np.unique(batch.costs).tolist():
        steps = (batch.deadlines[batch.costs == cost] / _EVERY).astype(np.int64)
        first = int(steps.min())
        counts = np.bincount(steps - first).tolist()
        groups += [Alike((first + n) * _EVERY, cost, rows) for n, rows in enumerate(counts) if rows]
    return groups


def _batches(random: np.random.Generator, load: float, batches: int, rows: int) -> Iterator[_Batch]:
    cheap = load * _EVERY / rows / (1.0 + 9.0 * _COLD)
    for n in range(batches):
        arrivals = np.sort((n + random.random(rows)) * _EVERY)
        costs = np.where(random.random(rows) < _COLD, 10.0 * cheap, cheap)
        yield _Batch((n + 1) * _EVERY, arrivals + _CONSTRAINT, costs)

"""What the authors of the first work measured: histograms of latencies, published with it.

From the repository ``gdu3/experiment_data`` on GitHub. A tuple counts for the whole millisecond
that its latency lies in.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from taut.sim.draws import Array


@dataclass(frozen=True, slots=True)
class Histogram:
    """Tuples by milliseconds."""

    ms: tuple[int, ...]
    tuples: tuple[int, ...]

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the tuples ended, in between two milliseconds too.

        >>> Histogram((1, 3), (50, 50)).quantile(0.75)
        0.0035
        """
        total = sum(self.tuples)
        wanted, below = share * total, 0
        for ms, tuples in zip(self.ms, self.tuples, strict=True):
            if below + tuples >= wanted:
                return (ms + (wanted - below) / tuples) / 1_000
            below += tuples
        return (self.ms[-1] + 1) / 1_000

    @property
    def mean(self) -> float:
        """Seconds on average, each tuple in the middle of its millisecond.

        >>> Histogram((1, 3), (50, 50)).mean
        0.0025
        """
        counted = sum(ms * tuples for ms, tuples in zip(self.ms, self.tuples, strict=True))
        return (counted / sum(self.tuples) + 0.5) / 1_000

    def above(self) -> tuple[Array, Array]:
        """Seconds, and the share of the tuples that took longer."""
        counts = np.array(self.tuples, float)
        return (np.array(self.ms) + 1) / 1_000, 1.0 - counts.cumsum() / counts.sum()


@cache
def tasks_over_time() -> Mapping[tuple[str, str], tuple[list[float], list[float]]]:
    """Of scenario (a) under balance: by series and task, seconds and values."""
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for row in _rows("storm_balance_scenario_a_tasks.csv"):
        # the first point counts all that came before the measurement
        if float(row["time_s"]) > 0.0:
            times, values = found.setdefault((row["series"], row["task"]), ([], []))
            times.append(float(row["time_s"]))
            values.append(float(row["value"]))
    return found


@cache
def queue_over_time(variant: str) -> tuple[list[float], list[float]]:
    """Of the micro-benchmark of queues: seconds, and mean milliseconds in them."""
    rows = [row for row in _rows(f"storm_queue_delay_{variant}.csv") if float(row["time_s"]) > 0.0]
    return [float(r["time_s"]) for r in rows], [float(r["queue_delay_ms"]) for r in rows]


@cache
def histograms() -> Mapping[tuple[str, str], Histogram]:
    """By experiment and variant."""
    rows: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for row in _rows("storm_latency_histograms.csv"):
        key = row["experiment"], row["variant"]
        rows.setdefault(key, []).append((int(row["latency_ms"]), int(row["tuples"])))
    return {key: Histogram(*zip(*sorted(found), strict=True)) for key, found in rows.items()}


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (files("taut.sim") / "data" / name).open(encoding="utf-8") as lines:
        yield from csv.DictReader(lines)

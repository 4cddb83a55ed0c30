"""A reducer with hot keys in memory and cold ones on disk, under more load than it can bear.

Rows come in shuffle batches. Each has a deadline, and costs little if the state of its key is in
memory, more if it has to be fetched. A schedule (:mod:`taut.policy.deadline`) says which row is
next, and which are given up.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from taut.policy.deadline import Job, Schedule
from taut.sim.draws import NOTHING, Array, Draws, Zipf, drawing
from taut.sim.kernel import Kernel


@dataclass(frozen=True, slots=True)
class Reducer:
    """One reducer and what comes to it.

    Attributes
    ----------
    rate
        Rows a second.
    batch_s
        From shuffle batch to shuffle batch.
    keys, zipf
        Keys there are, and how unevenly rows fall on them.
    memory
        Share of the keys whose state fits into memory: those that come most often.
    hot_cost, cold_cost
        Seconds of a row whose state is in memory, or is not.
    constraint
        Seconds after its arrival by which a row must be done.
    lag
        From the end of a batch until the reducer has it.
    stamp_s
        Rows that come within so many seconds count as come together, as those of an input batch
        do; 0 for each at its own time.
    """

    rate: float
    batch_s: float = 0.1
    keys: int = 10_000
    zipf: float = 1.0
    memory: float = 1.0
    hot_cost: float = 2e-6
    cold_cost: float = 50e-6
    constraint: float = 1.0
    lag: Draws = NOTHING
    stamp_s: float = 0.0

    def __post_init__(self) -> None:
        if not 0.0 <= self.memory <= 1.0:
            raise ValueError(f"memory={self.memory}: a share from 0 to 1")
        if not self.rate > 0.0 or not self.batch_s > 0.0:
            raise ValueError(f"rate={self.rate}, batch_s={self.batch_s}: both above 0")
        for name in ("hot_cost", "cold_cost", "constraint"):
            if not getattr(self, name) > 0.0:
                raise ValueError(f"{name}={getattr(self, name)}: must be above 0")
        if self.keys < 1 or not self.zipf >= 0.0 or not self.stamp_s >= 0.0:
            raise ValueError(
                f"keys={self.keys}, zipf={self.zipf}, stamp_s={self.stamp_s}: at least 1 key, the "
                "others not negative"
            )

    @property
    def load(self) -> float:
        """Seconds of work that come in a second."""
        return self.rate * (self.hot_share * self.hot_cost + self.cold_share * self.cold_cost)

    @property
    def hot_share(self) -> float:
        """Of the rows."""
        weights = self._weights()
        return float(weights[: self._hot()].sum())

    @property
    def cold_share(self) -> float:
        """The rest of them."""
        return 1.0 - self.hot_share

    def run(self, schedule: Schedule, seconds: float, seed: int = 0) -> Outcome:
        """Let rows come for so long, and work on until all are done or given up."""
        now, on_time, late, up, released = 0.0, 0, 0, 0, 0
        batches = deque(self._batches(seconds, seed))
        while True:
            while batches and batches[0][0] <= now:
                _, batch = batches.popleft()
                released += len(batch)
                schedule.release(batch, now)
            job = schedule.next(now)
            up += len(schedule.given_up())
            if job is not None:
                now += job.cost
                if now <= job.deadline:
                    on_time += 1
                else:
                    late += 1
            elif batches:
                now = batches[0][0]
            else:
                break
        assert on_time + late + up == released, "every row is done or given up"
        assert len(schedule) == 0
        return Outcome(on_time, late, up)

    def _hot(self) -> int:
        return round(self.memory * self.keys)

    def _weights(self) -> Array:
        return Zipf(self.zipf, self.keys, 1.0).chances()

    def _batches(self, seconds: float, seed: int) -> Iterator[tuple[float, list[Job]]]:
        """When each batch reaches the reducer, and its rows, in that order."""
        kernel = Kernel(seed)
        random, lag = kernel.stream("rows"), drawing(self.lag, kernel.stream("lag"))
        below = np.cumsum(self._weights())
        hot, n, reached = self._hot(), 0, 0.0
        for batch in range(math.ceil(seconds / self.batch_s)):
            begin = batch * self.batch_s
            rows = int(random.poisson(self.rate * self.batch_s))
            arrivals = np.sort(begin + random.random(rows) * self.batch_s)
            cold = np.searchsorted(below, random.random(rows)) >= hot
            costs = np.where(cold, self.cold_cost, self.hot_cost)
            reached = max(reached, begin + self.batch_s + lag())
            if self.stamp_s > 0.0:
                arrivals = np.floor(arrivals / self.stamp_s) * self.stamp_s
            deadlines = arrivals + self.constraint
            yield (
                reached,
                [
                    Job(n + i, deadline, cost)
                    for i, (deadline, cost) in enumerate(
                        zip(deadlines.tolist(), costs.tolist(), strict=True)
                    )
                ],
            )
            n += rows


@dataclass(frozen=True, slots=True)
class Outcome:
    """Rows that were on time, that were late, and that were given up."""

    on_time: int
    late: int
    given_up: int

    @property
    def share(self) -> float:
        """Of all rows that were on time."""
        return self.on_time / max(1, self.on_time + self.late + self.given_up)

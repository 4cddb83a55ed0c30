"""A reducer with hot keys in memory and cold ones on disk, under more load than it can bear.

Rows come in shuffle batches. Each has a deadline, and costs little if the state of its key is in
memory, more if it has to be fetched. A schedule (:mod:`taut.policy.deadline`) says which row is
next, and which are given up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from taut.policy.deadline import Alike, Choice, CostAware, Job, Schedule
from taut.policy.deadline.together import ends_at
from taut.sim.draws import Array, Zipf
from taut.sim.kernel import Kernel

_DIGITS = 1e-9
"""The last digit of a sum makes no row late."""


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

    def run(
        self,
        schedule: Schedule,
        seconds: float,
        seed: int = 0,
        *,
        warm_up: float = 0.0,
        after: float = 0.0,
    ) -> Outcome:
        """Let rows come for so long, and work on until all are done or given up.

        Rows also come during a warm-up before and for a while after, and are worked on as all
        others, but do not count.
        """
        batches = self._batches(warm_up + seconds + after, seed)
        return work(schedule, batches, *self.due(warm_up, seconds))

    def due(self, warm_up: float, seconds: float) -> tuple[float, float]:
        """From when, and until before when, rows are due that come in so many seconds."""
        since = warm_up + self.constraint - _DIGITS
        return since, since + seconds

    def _hot(self) -> int:
        return round(self.memory * self.keys)

    def _weights(self) -> Array:
        return Zipf(self.zipf, self.keys, 1.0).chances()

    def rows(self, seconds: float, seed: int) -> Iterator[tuple[float, Array, Array]]:
        """When each batch reaches the reducer; when its rows arrived, in order; what they cost."""
        kernel = Kernel(seed)
        random = kernel.stream("rows")
        below = np.cumsum(self._weights())
        hot = self._hot()
        for batch in range(math.ceil(seconds / self.batch_s)):
            begin = batch * self.batch_s
            rows = int(random.poisson(self.rate * self.batch_s))
            arrivals = np.sort(begin + random.random(rows) * self.batch_s)
            cold = np.searchsorted(below, random.random(rows)) >= hot
            costs = np.where(cold, self.cold_cost, self.hot_cost)
            if self.stamp_s > 0.0:
                arrivals = np.floor(arrivals / self.stamp_s) * self.stamp_s
            yield begin + self.batch_s, arrivals, costs
        kernel.check()

    def _batches(self, seconds: float, seed: int) -> Iterator[tuple[float, list[Job]]]:
        n = 0
        for reached, arrivals, costs in self.rows(seconds, seed):
            deadlines = (arrivals + self.constraint).tolist()
            values = enumerate(zip(deadlines, costs.tolist(), strict=True), n)
            yield reached, [Job(i, deadline, cost) for i, (deadline, cost) in values]
            n += len(deadlines)


def work(
    schedule: Schedule,
    batches: Iterable[tuple[float, Sequence[Job]]],
    since: float = -math.inf,
    until: float = math.inf,
) -> Outcome:
    """Work on batches from when they come, until all rows are done or given up.

    Rows that are due from one moment on, and before another, count.
    """
    now, released, done, gone = 0.0, 0, 0, 0
    on_time, late, up = 0, 0, 0
    coming = iter(batches)
    following = next(coming, None)
    while True:
        fresh = False
        while following is not None and following[0] <= now:
            schedule.release(following[1], now)
            released += len(following[1])
            following, fresh = next(coming, None), True
        job = schedule.next(now)
        for left in schedule.given_up():
            gone += 1
            up += since <= left.deadline < until
        if fresh:
            assert len(schedule) == released - done - gone - (job is not None), "none is lost"
            if following is None:  # as full as it will be
                _check(schedule)
        if job is not None:
            now += job.cost
            done += 1
            if since <= job.deadline < until:
                on_time += now <= job.deadline
                late += now > job.deadline
        elif following is not None:
            now = following[0]
        else:
            break
    assert done + gone == released, "every row is done or given up"
    assert len(schedule) == 0
    _check(schedule)
    return Outcome(on_time, late, up)


def _check(schedule: Schedule) -> None:
    """What a schedule knows of its rows is what they make it."""
    if isinstance(schedule, CostAware):
        schedule.tree.check()


@dataclass(frozen=True, slots=True)
class Microbatches:
    """A reducer that works in micro-batches: all rows of one are out when it is written.

    A batch takes the rows that arrived until the one before was written; those that are not worked
    on are given up.

    Attributes
    ----------
    reducer
        The rows that come, and what they cost.
    lead
        From the begin of a batch until the reducer has its rows.
    after
        From the end of the reducer's work until the batch is written.
    step_s
        Deadlines are told apart in such steps; the earliest of a step counts for all rows of it, so
        that nothing is left out while all can be on time.
    """

    reducer: Reducer
    lead: float = 0.05
    after: float = 0.05
    step_s: float = 0.05

    def __post_init__(self) -> None:
        if not self.lead >= 0.0 or not self.after >= 0.0 or not self.step_s > 0.0:
            raise ValueError(
                f"lead={self.lead}, after={self.after}, step_s={self.step_s}: the first two not "
                "negative, the last above 0"
            )

    def run(
        self,
        choice: Choice,
        seconds: float,
        seed: int = 0,
        *,
        warm_up: float = 0.0,
        after: float = 0.0,
    ) -> Outcome:
        """Let rows come for so long, and run batches until all are done or given up.

        Rows before and after those, as for :meth:`Reducer.run`, do not count.
        """
        drawn = list(self.reducer.rows(warm_up + seconds + after, seed))
        arrivals = np.concatenate([came for _, came, _ in drawn])
        costs = np.concatenate([cost for _, _, cost in drawn])
        shuffled = np.repeat(np.arange(float(len(drawn))), [len(came) for _, came, _ in drawn])
        deadlines = arrivals + self.reducer.constraint
        since, until = self.reducer.due(warm_up, seconds)
        on_time, late, up, taken, now = 0, 0, 0, 0, 0.0
        while taken < len(arrivals):
            now = max(now, float(arrivals[taken]))
            batch = slice(taken, int(np.searchsorted(arrivals, now, side="right")))
            groups, members = _alike(deadlines[batch], costs[batch], shuffled[batch], self.step_s)
            assert sum(group.rows for group in groups) == batch.stop - taken, "none is lost"
            kept = choice(groups, now + self.lead, self.after)
            now = ends_at(groups, kept, now + self.lead, self.after)
            for due, rows in zip(members, kept, strict=True):
                assert 0 <= rows <= len(due), "no more rows of a group than there are"
                counted = (since <= due) & (due < until)
                # those with the most time of a group are worked on
                worked = counted & (np.arange(len(due)) >= len(due) - rows)
                done = int((worked & (due >= now - _DIGITS)).sum())
                on_time += done
                late += int(worked.sum()) - done
                up += int((counted & ~worked).sum())
            taken = batch.stop
        assert on_time + late + up == ((since <= deadlines) & (deadlines < until)).sum()
        return Outcome(on_time, late, up)


def _alike(
    deadlines: Array, costs: Array, shuffled: Array, step: float
) -> tuple[list[Alike], list[Array]]:
    """Groups of rows, and the deadlines of the rows of each, in order."""
    steps = np.floor(deadlines / step + 1e-6)
    order = np.lexsort((deadlines, costs, steps, shuffled))
    keys = np.stack([shuffled, steps, costs])[:, order]
    new = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
    members = np.split(deadlines[order], new)
    first = keys[:, np.concatenate([[0], new])].T.tolist()
    return [
        Alike(float(due[0]), cost, len(due), int(batch))
        for (batch, _, cost), due in zip(first, members, strict=True)
    ], members


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

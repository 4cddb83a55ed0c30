"""Ways to choose rows when not all can be on time.

``fifo`` works on everything in the order it came. ``edf`` takes the batch whose deadline is first,
and leaves out batches that are late already. ``dover`` (Koren and Shasha) takes the row whose
deadline is first of those that can still be on time. ``cost-aware`` keeps a largest set of rows
that can all be on time: where the rows up to a deadline are too many, the most expensive of them
go, so that two cheap rows are not late for one that is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import count

from taut.policy.deadline.jobs import Job, Schedule
from taut.policy.deadline.tree import DeadlineTree


class _GivingUp:
    """Keeps what was given up until it is asked for."""

    def __init__(self) -> None:
        self._up: list[Job] = []

    def given_up(self) -> list[Job]:
        """Rows that would not be on time, since the last call."""
        told, self._up = self._up, []
        return told


class Fifo(_GivingUp):
    """Everything in the order it came, late or not."""

    def __init__(self) -> None:
        super().__init__()
        self._queue: deque[Job] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def release(self, batch: Sequence[Job], now: float) -> None:
        """Behind all others. O(1) a row."""
        self._queue.extend(batch)

    def next(self, now: float) -> Job | None:
        """The first that came."""
        return self._queue.popleft() if self._queue else None


class Edf(_GivingUp):
    """Batch by batch, the earliest deadline first; a batch's deadline is the first of its rows'.

    Rows of a batch are worked on in the order they came, without a look at what each costs; those
    whose deadline is over go.
    """

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[tuple[float, int, deque[Job]]] = []
        self._ids = count()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def release(self, batch: Sequence[Job], now: float) -> None:
        """O(log batches)."""
        if batch:
            first = min(job.deadline for job in batch)
            heappush(self._batches, (first, next(self._ids), deque(batch)))
            self._size += len(batch)

    def next(self, now: float) -> Job | None:
        """The next row of the batch that is due first."""
        while self._batches:
            rows = self._batches[0][2]
            while rows:
                job = rows.popleft()
                self._size -= 1
                if job.deadline > now:
                    return job
                self._up.append(job)
            heappop(self._batches)
        return None


class Dover(_GivingUp):
    """Row by row, the earliest deadline first; one that can no longer be on time goes.

    With rows that are all worth the same, that is all that is left of D-over: a row that must begin
    now or never is never worth more than the one at work, so none is preferred for its value.
    """

    def __init__(self) -> None:
        super().__init__()
        self._queue: list[tuple[float, int, Job]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def release(self, batch: Sequence[Job], now: float) -> None:
        """O(log m) a row."""
        for job in batch:
            heappush(self._queue, (job.deadline, job.id, job))

    def next(self, now: float) -> Job | None:
        """The first deadline that can be made."""
        while self._queue:
            _, _, job = heappop(self._queue)
            if now + job.cost <= job.deadline:
                return job
            self._up.append(job)
        return None


class CostAware(_GivingUp):
    """A largest set of rows that can all be on time, by deadline.

    Examples
    --------
    >>> schedule = CostAware()
    >>> schedule.release([Job(1, 10.0, 8.0), Job(2, 10.0, 4.0), Job(3, 12.0, 5.0)], now=0.0)
    >>> [job.id for job in schedule.given_up()], schedule.next(0.0).id, schedule.next(4.0).id
    ([1], 2, 3)
    """

    def __init__(self) -> None:
        super().__init__()
        self.tree = DeadlineTree()

    def __len__(self) -> int:
        return len(self.tree)

    def release(self, batch: Sequence[Job], now: float) -> None:
        """Take rows in, and give up as few as must be. O(log m) a row."""
        self.tree.insert(batch)
        self._fit(now)

    def next(self, now: float) -> Job | None:
        """A row of the earliest deadline; those that took longer than expected cost others."""
        self._fit(now)
        return self.tree.first()

    def _fit(self, now: float) -> None:
        while not self.tree.schedulable(now):
            late = self.tree.first_late(now)
            if late is None:
                return  # the sums differ in their last digit only
            self._up += self.tree.drop_most_expensive(*late)


SCHEDULES: Mapping[str, Callable[[], Schedule]] = {
    "fifo": Fifo,
    "edf": Edf,
    "cost-aware": CostAware,
    "dover": Dover,
}
"""By name; each value builds a fresh one."""

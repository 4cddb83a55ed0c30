"""A recorded query, at work once more: its rows arrive when they did, and cost what they did."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from taut.policy.view import Delay, Operator, Stream
from taut.sim.queries.microbatch import QueryAtWork
from taut.sim.replay.costs import STARTING, Cost

_DRIFT = 3.0
"""Batches by which the order of those recorded may be off the clock."""
_MICRO = 1e-6
"""Window ends are whole microseconds: what lies nearer is the same."""


@dataclass(frozen=True, slots=True)
class Result:
    """A window, or a row of a query without windows: its end, its limit, and when it was out.

    ``limit`` is the last moment at which it is on time, infinity without an objective.
    """

    end: float
    limit: float
    out: float


class Front:
    """How far event time had come: the watermark that rows read up to a moment lead to.

    Parameters
    ----------
    reads
        (moment, watermark) of every batch that the next one's watermark is known of.
    gaps
        (from, to) in which nothing arrived.

    Examples
    --------
    >>> front = Front([(10.0, 8.0), (12.0, 11.0)], [])
    >>> front.at(11.0), front.at(13.0), front.at(9.0)
    (9.5, 12.0, 7.0)
    """

    def __init__(
        self, reads: Sequence[tuple[float, float]], gaps: Sequence[tuple[float, float]]
    ) -> None:
        self._times: list[float] = []
        self._marks: list[float] = []
        self._gaps = [gap for gap in gaps if gap[1] > gap[0]]
        for time, mark in reads:
            if self._times and time <= self._times[-1]:
                continue
            gap = self._gap(time)
            if self._times and gap is not None and gap[0] >= self._times[-1]:
                # what came after the gap had not come before its end
                self._put(math.nextafter(time, -math.inf), self._marks[-1])
            self._put(time, mark)

    def at(self, time: float) -> float:
        """The watermark after a read at this moment; a second more each second past the ends."""
        times, marks = self._times, self._marks
        if not times:
            return -math.inf
        n = bisect_right(times, time)
        if n == 0:
            return marks[0] - (times[0] - time)
        if n == len(times):
            return marks[-1] + (time - times[-1])
        part = (time - times[n - 1]) / (times[n] - times[n - 1])
        return marks[n - 1] + part * (marks[n] - marks[n - 1])

    def next_data(self, time: float) -> float:
        """When something arrives that is not read yet: now, but in a gap at its end."""
        n = bisect_right(self._gaps, (time, math.inf)) - 1
        return self._gaps[n][1] if n >= 0 and self._gaps[n][0] < time < self._gaps[n][1] else time

    def _gap(self, time: float) -> tuple[float, float] | None:
        return next((gap for gap in self._gaps if gap[0] < time <= gap[1]), None)

    def _put(self, time: float, mark: float) -> None:
        if self._times and time <= self._times[-1]:
            return
        self._times.append(time)
        self._marks.append(max(mark, self._marks[-1] if self._marks else mark))


@dataclass(frozen=True, slots=True)
class Past:
    """What was recorded of one query, on the replay's clock.

    Attributes
    ----------
    slide
        Seconds from one window end to the next; None for a query without windows.
    results
        Windows that came out, or a row each second where there are no windows.
    times
        When each batch of ``cost`` began.
    begins, ends
        When it planned its first batch, and when it had ended, if it had.
    """

    name: str
    objective: float
    slide: float | None
    results: tuple[Result, ...]
    begins: float
    ends: float | None
    front: Front
    cost: Cost
    times: tuple[float, ...]


class Replayed(QueryAtWork):
    """A recorded query at work."""

    def __init__(self, past: Past) -> None:
        super().__init__(past.name, past.objective, past.begins)
        self.past_record = past
        self.batches_a_turn = 2 if past.slide is not None else 1
        self._ran_with = -math.inf
        self._input = 0.0
        self._catching_up = False
        gaps = [after - before for before, after in pairwise(past.times)]
        self._far = _DRIFT * median(gaps) if gaps else math.inf
        self._drawn = -1
        self._noise = 1.0
        self._next = 0
        """Of the results that were recorded."""

    # -- what a batch costs ------------------------------------------------------------------

    def lead(self, now: float) -> float:
        n = self._like(now)
        self._noise = self.past_record.cost.noise[n]
        return self.past_record.cost.leads[n]

    def _like(self, now: float) -> int:
        """The recorded batch that this one is like: the one after that of the last.

        Where that lies too far from this moment, the nearest: a slow stretch of the machine slows
        down whoever is at work then.
        """
        times = self.past_record.times
        n = self._drawn + 1
        if n >= len(times) or abs(times[n] - now) > self._far:
            n = self._nearest(now)
        self._drawn = n
        return n

    def _nearest(self, now: float) -> int:
        """Only the first are like the first ones; what lasts longer than the record goes round."""
        times = self.past_record.times
        first = STARTING if self.batches >= STARTING and len(times) > 2 * STARTING else 0
        if now > times[-1] > times[first]:
            now = times[first] + (now - times[first]) % (times[-1] - times[first])
        n = bisect_left(times, now, lo=first, hi=len(times) - 1)
        return n - 1 if n > first and now - times[n - 1] < times[n] - now else n

    def ingest(self, now: float) -> float:
        self._learn_delay()
        self._input = now - self.read
        self.read = now
        return self.past_record.cost.predict(self._input) * self._noise

    def next_data(self, now: float) -> float:
        if self.past_record.slide is not None and self.watermark > self._ran_with:
            return now  # a watermark that has moved on takes a batch, also without rows
        return self.past_record.front.next_data(now)

    def over(self, now: float) -> bool:
        ends = self.past_record.ends
        return ends is not None and now >= ends and self._next == len(self.past_record.results)

    # -- what comes out of it ----------------------------------------------------------------

    def emit(self, watermark: float, now: float) -> None:
        reached = self.read if self.past_record.slide is None else watermark + _MICRO
        results = self.past_record.results
        while self._next < len(results) and results[self._next].end <= reached:
            self.out.append((results[self._next].end, now))
            self._next += 1

    def passed(self) -> float:
        return self.past_record.front.at(self.read)

    def past(self, end: float) -> bool:
        return self._next == len(self.past_record.results)

    # -- as a policy sees it -----------------------------------------------------------------

    def streams(self, now: float) -> tuple[Stream, ...]:
        end = self._next_end()
        if end is None:
            return ()
        if self._catching_up:
            return (Stream(end, Delay(min(0.0, now - end), 0.0)),)
        return (Stream(end, self.history.estimate()),)

    def operators(self, waiting: float) -> tuple[Operator, ...]:
        # rows are not recorded, seconds of input are
        return (Operator(waiting, 1.0, max(self.cost.per_second, 1e-9)),)

    def _next_end(self) -> float | None:
        slide, results = self.past_record.slide, self.past_record.results
        if slide is None or not results or self._ran_with == -math.inf:
            return None
        first = results[0].end
        return first + slide * (math.floor((self._ran_with + _MICRO - first) / slide) + 1)

    def _learn_delay(self) -> None:
        """As on Spark: the watermark of this batch came with the rows of the last."""
        before, self._ran_with = self._ran_with, max(self._ran_with, self.watermark)
        if self.watermark <= before or before == -math.inf:
            return
        slide = self.past_record.slide or 0.0
        self._catching_up = self.watermark - before > 1.5 * self._input + max(1.0, slide)
        if self._catching_up:
            return
        delay = self.read - self.watermark
        self.history.observe(delay)
        if self._swept(before, self.watermark):
            self.history.close(delay)

    def _swept(self, after: float, upto: float) -> bool:
        slide, results = self.past_record.slide, self.past_record.results
        if slide is None or not results:
            return False
        after, upto = (math.floor((t + _MICRO - results[0].end) / slide) for t in (after, upto))
        return upto > after

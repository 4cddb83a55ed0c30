"""Least slack: run the query that can least afford to wait.

The *sweeping watermark* of a window is the first watermark that passes its end. Its arrival
is its event time plus a delay, and the delay is learned per epoch (the stretch between two
sweeping watermarks). A query's slack is the time until that arrival, less what it costs to
bring everything queued to the output.

The published estimator is followed with its errata applied (see ``docs/least-slack.md``):
the probability is conditioned on the arrival being still to come, standardised with the
standard deviation, and the deviation is that of *one* arrival, not of a mean over epochs.
"""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

from taut.policy.view import Decision, Delay, QueryView, Slack, Stream

_NORMAL = NormalDist()
_MAX_STEPS = 256
"""Steps of the slack sum; a wider interval is cut in coarser steps to bound the cost."""


def _phi(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


_NANO = 1_000_000_000
"""Delays are summed in whole nanoseconds: exact, whatever their size and however many passed."""


@dataclass(slots=True)
class _Epoch:
    count: int = 0
    total: int = 0
    squares: int = 0


class DelayHistory:
    """Delays of the last epochs, as a predictive normal for the next arrival.

    ``observe`` takes delays seen in the running epoch, O(1); ``close`` ends the epoch with
    the delay of its sweeping watermark, O(log h); ``estimate`` is O(1).

    The deviation has the variance within an epoch, between epochs, and of the mean itself.
    Once enough arrivals were predicted it is scaled so that the interval of ``confidence``
    has held that share of them: delays need not be normal for the interval to be right. When
    arrivals keep falling outside on one side, the stream has changed and the past is forgotten.
    """

    CALIBRATE_AFTER = 40
    FORGET_AFTER = 8
    """Arrivals in a row outside the interval, on one side, after which the past is forgotten."""

    def __init__(
        self,
        epochs: int = 400,
        confidence: float = 0.95,
        prior: Delay = Delay(0.0, 0.05),  # noqa: B008 -- frozen value
    ) -> None:
        if epochs < 1:
            raise ValueError(f"epochs={epochs}: at least 1 is needed")
        if not 0.0 < confidence < 1.0:
            raise ValueError(f"confidence={confidence}: must lie between 0 and 1, such as 0.95")
        self.confidence = confidence
        self._prior = prior
        self._limit = epochs
        self._moments: deque[tuple[int, int]] = deque()
        self._sum_mean = 0
        self._sum_mean2 = 0
        self._sum_within = 0
        self._epoch = _Epoch()
        self._misses: deque[float] = deque()
        self._sorted: list[float] = []
        self._outside = 0
        self._bar = (0.0, 0.0)
        self._estimate: Delay | None = None

    def observe(self, delay: float) -> None:
        """Take one delay of the running epoch."""
        nanos = round(delay * _NANO)
        self._epoch.count += 1
        self._epoch.total += nanos
        self._epoch.squares += nanos * nanos

    def close(self, arrival: float) -> None:
        """End the epoch; ``arrival`` is the delay with which its sweeping watermark came."""
        self._score(arrival)
        if abs(self._outside) >= self.FORGET_AFTER:
            self._forget()
        if not self._epoch.count:
            self.observe(arrival)
        n, total, squares = self._epoch.count, self._epoch.total, self._epoch.squares
        self._push(round(total / n), (n * squares - total * total) // (n * n))
        self._epoch = _Epoch()
        self._estimate = None

    @property
    def epochs(self) -> int:
        """Closed epochs in the history."""
        return len(self._moments)

    def estimate(self) -> Delay:
        """Mean and predictive deviation of the next arrival's delay."""
        if self._estimate is None:
            mean, deviation = self._raw()
            self._estimate = Delay(mean, deviation * self._scale())
        return self._estimate

    def check(self) -> None:
        """Assert the invariants: the running sums equal the epochs they stand for."""
        assert len(self._moments) <= self._limit
        assert len(self._sorted) == len(self._misses) <= self._limit
        assert self._sorted == sorted(self._misses)
        assert self._sum_mean == sum(m for m, _ in self._moments)
        assert self._sum_mean2 == sum(m * m for m, _ in self._moments)
        assert self._sum_within == sum(v for _, v in self._moments)
        assert abs(self._outside) < self.FORGET_AFTER
        mean, deviation = self._raw()
        assert self._estimate in (None, Delay(mean, deviation * self._scale()))

    def _forget(self) -> None:
        self._moments.clear()
        self._misses.clear()
        self._sorted.clear()
        self._sum_mean = self._sum_mean2 = self._sum_within = 0
        self._outside = 0

    def _push(self, mean: int, within: int) -> None:
        if len(self._moments) == self._limit:
            old_mean, old_within = self._moments.popleft()
            self._sum_mean -= old_mean
            self._sum_mean2 -= old_mean * old_mean
            self._sum_within -= old_within
        self._moments.append((mean, within))
        self._sum_mean += mean
        self._sum_mean2 += mean * mean
        self._sum_within += within

    def _raw(self) -> tuple[float, float]:
        n = len(self._moments)
        if n == 0:
            return self._prior.mean, self._prior.deviation
        mean = self._sum_mean / n / _NANO
        within = self._sum_within / n
        if n == 1:
            return mean, max(math.sqrt(within) / _NANO, self._prior.deviation)
        between = (n * self._sum_mean2 - self._sum_mean * self._sum_mean) / (n * n)
        return mean, math.sqrt(within + between + between / (n - 1)) / _NANO

    def _score(self, arrival: float) -> None:
        if len(self._moments) < 2:
            return
        mean, deviation = self._raw()
        half = _quantile(self.confidence) * deviation * self._scale() + 1.0 / _NANO
        # a run outside is judged by the interval it began with: its own arrivals widen it
        side = _side(arrival, *self._bar) if self._outside else 0
        if side * self._outside > 0:
            self._outside += side
        else:
            self._bar = mean, half
            self._outside = _side(arrival, mean, half)
        miss = abs(arrival - mean) / deviation if deviation > 0 else 0.0
        if len(self._misses) == self._limit:
            old = self._misses.popleft()
            del self._sorted[bisect.bisect_left(self._sorted, old)]
        self._misses.append(miss)
        bisect.insort(self._sorted, miss)

    def _scale(self) -> float:
        n = len(self._sorted)
        if n < self.CALIBRATE_AFTER:
            return 1.0
        # the conformal rank: covers the stated share for any exchangeable delays
        rank = min(n, math.ceil((n + 1) * self.confidence))
        return self._sorted[rank - 1] / _quantile(self.confidence)


def _side(arrival: float, centre: float, half: float) -> int:
    return 0 if abs(arrival - centre) <= half else 1 if arrival > centre else -1


@lru_cache(maxsize=64)
def _quantile(confidence: float) -> float:
    return _NORMAL.inv_cdf(0.5 + confidence / 2.0)


def interval(stream: Stream, confidence: float) -> tuple[float, float]:
    """When the stream's sweeping watermark arrives, with probability ``confidence``."""
    due = stream.sweep + stream.delay.mean
    half = _quantile(confidence) * stream.delay.deviation
    return due - half, due + half


def expected_slack(
    now: float, stream: Stream, cost: float, *, cycle: float = 0.12, confidence: float = 0.95
) -> Slack:
    """Slack of one stream: the expectation over its arrival interval in steps of ``cycle``.

    With w the arrival, the sum over x = max(now, earliest), x + cycle, ... <= latest of
    P(x <= w <= x + cycle | now <= w, w in the interval) * ((x + cycle - now) - cost).
    Past the interval the watermark counts as arrived when expected.
    """
    due = stream.sweep + stream.delay.mean
    earliest, latest = interval(stream, confidence)
    sigma = stream.delay.deviation
    if sigma <= 0.0 or now >= latest:
        return Slack((due - now) - cost, due, earliest, latest, cost)
    if now <= earliest:
        # the usual case: nothing of the interval has passed, and its mean is always the same
        beyond = _mean_from(sigma, cycle, confidence)
    else:
        beyond = _mean_beyond(now - due, latest - due, sigma, cycle)
    return Slack(due - now + beyond - cost, due, earliest, latest, cost)


@lru_cache(maxsize=4096)
def _mean_from(sigma: float, cycle: float, confidence: float) -> float:
    half = _quantile(confidence) * sigma
    return _mean_beyond(-half, half, sigma, cycle)


def _mean_beyond(start: float, end: float, sigma: float, cycle: float) -> float:
    """Expectation of a normal around 0 given that it lies in (start, end), in steps of a cycle."""
    steps = math.floor((end - start) / cycle) + 1
    step = cycle
    if steps > _MAX_STEPS:
        steps = _MAX_STEPS
        step = (end - start) / steps
    lower = _phi(start / sigma)
    mass = 0.0
    total = 0.0
    for i in range(1, steps + 1):
        x = start + i * step
        upper = _phi(x / sigma)
        mass += upper - lower
        total += (upper - lower) * x
        lower = upper
    return total / mass if mass > 0.0 else 0.0


@lru_cache(maxsize=1024)
def _patience(ratio: float) -> float:
    """z at which waiting a moment longer costs as much as the chance of a wasted batch.

    Granting at g wastes a batch of cost b when the arrival is later (probability 1 - F(g))
    and delays the result by g - w otherwise: the sum is least where F(g) = b f(g), that is
    pdf(z) / cdf(z) = sigma / b.
    """
    low, high = -3.0, 3.0
    for _ in range(30):
        z = (low + high) / 2.0
        if _NORMAL.pdf(z) > ratio * _phi(z):
            low = z
        else:
            high = z
    return low


def grant_time(stream: Stream, batch_cost: float, confidence: float = 0.95) -> float:
    """The best moment to start a turn for the stream's next window."""
    due = stream.sweep + stream.delay.mean
    sigma = stream.delay.deviation
    if sigma <= 0.0:
        return due
    ratio = round(sigma / max(batch_cost, 1e-3), 2)
    limit = _quantile(confidence)
    return due + sigma * min(limit, max(-limit, _patience(ratio)))


@dataclass(frozen=True, slots=True)
class LeastSlack:
    """Run, of the queries whose output is due, the one with the least slack.

    A query that is not due is left alone, because on Spark its input waits in the source for
    nothing and a larger batch is cheaper than two small ones. It is run early only when what
    waits would otherwise keep it from its objective, when that costs more than two batches do,
    and when running it delays nobody.

    Where waiting makes nothing cheaper, as in an engine that works row by row, ``patient=False``
    runs the query with the least slack at all times, as published.
    """

    cycle: float = 0.12
    confidence: float = 0.95
    patient: bool = True

    def __post_init__(self) -> None:
        if not self.cycle > 0.0:
            raise ValueError(f"cycle={self.cycle}: must be above 0 seconds, such as 0.12")
        if not 0.0 < self.confidence < 1.0:
            raise ValueError(f"confidence={self.confidence}: must lie between 0 and 1")

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Choose the due query with the least slack, else useful early work, else wait."""
        if not self.patient and queries:
            return self._least(now, queries)
        grants = {q.name: self._grant(now, q) for q in queries}
        due = [q for q in queries if grants[q.name] <= now]
        if due:
            return self._least(now, due)
        again = min(grants.values(), default=None)
        early = self._early(now, queries, again)
        if early:
            return replace(self._least(now, early), until="batch")
        return Decision(None, again=again)

    def _least(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Run the one with the least slack; only those that could run are worth the sum."""
        slacks = {q.name: self.slack(now, q) for q in queries}
        chosen = min(queries, key=lambda q: (slacks[q.name].value, q.name))
        return Decision(chosen.name, "swept" if chosen.streams else "batch", None, slacks)

    def slack(self, now: float, query: QueryView) -> Slack:
        """The query's slack with its parts: over its inputs, the least counts."""
        if not query.streams:
            due = query.oldest + query.objective
            return Slack(due - now - query.cost, due, due, due, query.cost)
        least = min(
            (
                expected_slack(now, s, query.cost, cycle=self.cycle, confidence=self.confidence)
                for s in query.streams
            ),
            key=lambda s: s.value,
        )
        return Slack(
            least.value + query.objective, least.due, least.earliest, least.latest, least.cost
        )

    def _grant(self, now: float, query: QueryView) -> float:
        if not query.streams:
            # half of the objective is left for what else is due at the same time
            return query.oldest + max(0.0, 0.5 * query.objective - query.cost)
        # a window is swept when the last of its inputs has passed it
        return max(grant_time(s, query.batch_cost, self.confidence) for s in query.streams)

    def _early(
        self, now: float, queries: Sequence[QueryView], next_due: float | None
    ) -> list[QueryView]:
        return [
            q
            for q in queries
            if q.streams
            and q.cost > q.objective
            and q.queued_cost > 2.0 * q.batch_cost
            and (next_due is None or now + q.batch_cost + q.queued_cost <= next_due)
        ]

"""When a unit that is under way is issued once more, on another lane.

Where the tail of the latencies is long, a unit that takes long is worth a second try; where it is
not, a second try only adds load. So each period sets the timeout anew, from the latencies of the
units that have finished in it. What this is compared with: no second try at all, and a second
instance of every so manieth unit from the start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol


class Replay(Protocol):
    """Which units are issued a second time, and when."""

    eager: bool
    """Whether second instances go before rows that nobody has taken yet."""

    def due(self, size: int, now: float) -> float | None:
        """When a unit of ``size`` rows that is issued now is issued once more; None for never.

        Only if it has not finished by then.
        """
        ...

    def observe(self, size: int, seconds: float, now: float) -> None:
        """A unit has finished, so long after it was first issued."""
        ...

    def adjust(self, now: float) -> None:
        """Time passes, also while nothing is issued and nothing finishes. Call it often."""
        ...

    @property
    def timeout(self) -> float | None:
        """Seconds a row; None while there is none."""
        ...


class NoReplay:
    """No unit is issued twice."""

    eager = False
    timeout = None

    def due(self, size: int, now: float) -> float | None:
        """Never."""
        return None

    def observe(self, size: int, seconds: float, now: float) -> None:
        """Nothing to learn."""

    def adjust(self, now: float) -> None:
        """Nothing to adjust."""


class AdaptiveTimeout:
    """A timeout that follows the latencies of the period before.

    A unit of many rows may take longer than one of few, so latencies and the timeout are seconds
    a row. Before the first period is over there is no timeout.

    Parameters
    ----------
    period
        Seconds from one adjustment to the next.
    fewest
        Samples that an adjustment needs. A period that has fewer at its end goes on until it has
        them: the 99.9th percentile of a few samples is noise, and a slow stream, were its samples
        forgotten every time, would never have a timeout at all.
    budget
        Share of the units that may be issued twice. No more than that were slower, in the period
        it comes from, than the timeout. Units that were, in the period that had it, count against
        the budget of the next, for a timeout that is too low hides that it is: second instances
        shorten the latencies that would raise it. Less than a unit or two of a period's cannot be
        kept to: the slowest of a period is not the slowest of all. 1.0 is the published rule.

    Examples
    --------
    >>> replay = AdaptiveTimeout(period=1.0, fewest=4, budget=1.0)
    >>> for seconds in (0.25, 0.5, 0.25, 0.25):
    ...     replay.observe(1, seconds, now=10.0)
    >>> replay.due(1, now=10.5) is None, replay.due(1, now=11.0), replay.due(100, now=11.0)
    (True, 11.5, 61.0)
    """

    eager = False

    def __init__(self, period: float = 1.0, fewest: int = 100, budget: float = 0.03) -> None:
        if not period > 0.0:
            raise ValueError(f"period={period} s: must be above 0")
        if fewest < 1:
            raise ValueError(f"fewest={fewest} samples: at least 1 is needed")
        self.period = period
        self.fewest = fewest
        if not 0.0 < budget <= 1.0:
            raise ValueError(f"budget={budget}: above 0, at most 1; for none at all, no replay")
        self.budget = budget
        self._samples: list[float] = []
        self._over: float | None = None
        self._timeout: float | None = None
        self._overspent = 0.0

    @property
    def timeout(self) -> float | None:
        """Seconds a row; None while there is none."""
        return self._timeout

    def due(self, size: int, now: float) -> float | None:
        """The timeout for so many rows from now."""
        self.adjust(now)
        return None if self._timeout is None else now + self._timeout * size

    def observe(self, size: int, seconds: float, now: float) -> None:
        """Keep a sample for the end of the period; one that a clock set back has spoilt is not."""
        if size < 1:
            raise ValueError(f"a unit of {size} rows: at least 1 is needed")
        self.adjust(now)
        if seconds >= 0.0:
            self._samples.append(seconds / size)

    def adjust(self, now: float) -> None:
        """Set the timeout anew, if a period is over and has samples enough."""
        if self._over is None:
            self._over = now + self.period
        if now < self._over or len(self._samples) < self.fewest:
            return
        # latencies that the clock cannot tell from none: a timeout of 0 would replay every unit
        self._timeout = timeout_for(self._samples, self._left()) or None
        self._samples = []
        self._over = now + self.period

    def _left(self) -> float:
        """The budget for the next period, once the one just over has paid for its second units."""
        units = len(self._samples)
        limit = math.inf if self._timeout is None else self._timeout
        twice = sum(sample > limit for sample in self._samples)
        self._overspent = max(0.0, self._overspent + twice - self.budget * units)
        return max(0.0, self.budget - self._overspent / units)

    def check(self) -> None:
        """Assert what holds at all times."""
        assert self._timeout is None or self._timeout > 0.0
        assert self._overspent >= 0.0
        assert all(sample >= 0.0 for sample in self._samples)


class Replication:
    """A share of the units is issued twice at once, evenly spread: the fifth, the tenth, ...

    >>> replay = Replication(0.4)
    >>> [replay.due(1, now=7.0) for _ in range(5)]
    [None, None, 7.0, None, 7.0]
    """

    eager = True
    timeout = None

    def __init__(self, share: float) -> None:
        if not 0.0 < share <= 1.0:
            raise ValueError(f"share={share}: above 0, at most 1")
        self.share = share
        self._units = 0
        self._twice = 0

    def due(self, size: int, now: float) -> float | None:
        """Now, whenever the share of the units so far has come to one more."""
        self._units += 1
        # a count and not a sum of shares, which would drift; 10 times 0.1 is 1 all the same
        if int(self._units * self.share + 1e-9) <= self._twice:
            return None
        self._twice += 1
        return now

    def observe(self, size: int, seconds: float, now: float) -> None:
        """Nothing to learn."""

    def adjust(self, now: float) -> None:
        """Nothing to adjust."""


def timeout_for(latencies: Sequence[float], budget: float = 1.0) -> float:
    """The timeout that these latencies suggest for the next period.

    p90 where the tail is long (p99 above twice that), p95 where only its end is (p99.9 above
    twice that), else p99.9. No more than the share ``budget`` of the latencies is above it.

    >>> calm = [1.0] * 900 + [1.5] * 100
    >>> end = [1.0] * 960 + [1.2] * 35 + [9.0] * 5
    >>> tail = [1.0] * 900 + [2.0] * 75 + [9.0] * 25
    >>> [timeout_for(latencies) for latencies in (calm, end, tail)]
    [1.5, 1.0, 1.0]
    >>> [timeout_for(latencies, budget=0.03) for latencies in (calm, end, tail)]
    [1.5, 1.2, 2.0]
    """
    if not latencies:
        raise ValueError("no latencies: at least 1 is needed for a timeout")
    if not 0.0 <= budget <= 1.0:
        raise ValueError(f"budget={budget}: from 0 to 1")
    ordered = sorted(latencies)
    p90, p95, p99, p999 = (percentile(ordered, share) for share in (0.9, 0.95, 0.99, 0.999))
    if p99 > 2.0 * p90:
        timeout = p90
    elif p999 > 2.0 * p95:
        timeout = p95
    else:
        timeout = p999
    return max(timeout, percentile(ordered, 1.0 - budget))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least of the sorted values that ``share`` of them do not exceed.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0, 3.0, 4.0], 0.99)
    (2.0, 4.0)
    """
    # 0.7 * 10 is a little above 7, and yet the seventh value is meant
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


REPLAYS: dict[str, Callable[[], Replay]] = {
    "none": NoReplay,
    "adaptive": AdaptiveTimeout,
    "replicate-20": lambda: Replication(0.2),
    "replicate-50": lambda: Replication(0.5),
    "replicate-100": lambda: Replication(1.0),
}
"""The ways of issuing units twice by name; each value builds a fresh one."""

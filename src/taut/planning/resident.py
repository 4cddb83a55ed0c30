"""Resident lanes: how many, how large their chunks, how long their batches, for an objective.

A resident source works on rows as they arrive, so that their latency is that of a queue before so
many servers, and not of batches. Between two batches its lanes pause: rows that come meanwhile wait
for the rest of it, and behind each other until lanes have caught up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

import msgspec
import numpy as np

from taut.duration import duration
from taut.errors import PlanError, ProfileError
from taut.planning import files
from taut.planning.plan import Expected, Infeasible, check_rate, measured, rounded
from taut.planning.profile import check_taken
from taut.planning.quantile import Floats, Spans
from taut.planning.queueing import Moments, gg_wait
from taut.planning.search import HIGHEST
from taut.planning.settings import Settings, whole
from taut.policy.chunking import CLAIMS_PER_SECOND
from taut.policy.waiting import erlang_c
from taut.slo import Slo

FORMAT = 1
HORIZONS = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)
"""Seconds that batches may last; after a crash as much is worked on once more."""
ASKING_S = 5e-4
"""From the end of a chunk until a lane has the next: what it takes to ask for it."""
LEAST_ROWS, LEAST_PAUSES = 50, 2
_EDGES = np.concatenate([np.linspace(0.0, 0.9, 49), 1.0 - np.geomspace(0.1, 1e-5, 47)[1:], [1.0]])
_AT, _WEIGHT = (_EDGES[1:] + _EDGES[:-1]) / 2.0, np.diff(_EDGES)
"""Shares at which times are taken, closer together towards the tail, and how much each counts."""
_SURE = 0.2
"""By how much what rows and pauses take may differ from what was measured."""
_RATES = 4_096


class Served(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured of a resident job where its rows arrive.

    Attributes
    ----------
    lanes
        That it ran with.
    rows
        Seconds that a lane had a row, one by one where chunks had one; else their mean.
    pauses
        Seconds between two batches.
    taken
        When, in epoch seconds.
    """

    app: str
    spark: str
    lanes: int
    rows: list[float]
    pauses: list[float]
    taken: float = 0.0
    format: int = FORMAT

    @property
    def work(self) -> Moments:
        """What a row takes of a lane's time."""
        times = np.array(self.rows)
        return Moments(float(times.mean()) + ASKING_S, float(times.var()))

    def save(self, path: str | Path) -> None:
        """Write it, all of it or nothing."""
        files.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Served:
        """Read one; what is damaged, or was written by another Taut, is refused."""
        return files.load(cls, path, "profile", FORMAT, ProfileError)

    def check(self, *, spark: str | None = None, now: float | None = None) -> None:
        """Refuse one that a plan cannot be made from."""
        for what, found, least in (
            ("rows", self.rows, LEAST_ROWS),
            ("pauses", self.pauses, LEAST_PAUSES),
        ):
            if len(found) < least:
                raise ProfileError(
                    f"profile of {self.app!r} has {len(found)} {what}: at least {least} are needed"
                )
            if not all(0.0 <= seconds < math.inf for seconds in found):
                raise ProfileError(
                    f"profile of {self.app!r}: {what} of {min(found)} to {max(found)} s cannot "
                    "have been measured"
                )
        check_taken(self.app, self.spark, self.taken, spark, now)


@dataclass(frozen=True, slots=True)
class Lanes:
    """So many lanes at a rate: chunks of so many rows, and batches of so many seconds."""

    served: Served
    many: int
    horizon: float
    rate: float
    scale: float = 1.0
    """Times what rows and pauses took when they were measured."""

    @property
    def pause(self) -> float:
        """Seconds."""
        return self.scale * fmean(self.served.pauses)

    @property
    def work(self) -> Moments:
        """What a row takes of a lane's time."""
        mean, variance = self.served.work
        return Moments(self.scale * mean, self.scale**2 * variance)

    @property
    def load(self) -> float:
        """Of their time, what lanes would work without pauses."""
        return self.rate * self.work.mean / self.many

    @property
    def busy(self) -> float:
        """Of their time between pauses, what lanes work: a batch begins as the pause does."""
        free = self.horizon - self.pause
        return self.load * self.horizon / free if free > 0.0 else math.inf

    @property
    def chunk(self) -> int:
        """Rows: one, unless lanes would ask more often than a distributor answers."""
        return chunk_for(self.rate)

    @property
    def paused(self) -> float:
        """The share of rows that come in a pause, or while lanes catch up after it."""
        return min(1.0, self.pause / (1.0 - self.load) / self.horizon)

    def wait(self) -> Floats:
        """In the queue, without pauses, at each of the shares."""
        between = 1.0 / self.rate
        waits = gg_wait(Moments(between, between**2), self.work, self.many)
        waiting = erlang_c(self.many, self.rate * self.work.mean)
        if waiting <= 0.0:
            return np.zeros_like(_AT)
        # of those that wait, exponentially
        found: Floats = -np.log(np.minimum(1.0, (1.0 - _AT) / waiting)) * waits.mean / waiting
        return found

    def latency(self) -> Spans | None:
        """From arrival until a row is out; None if lanes cannot keep up."""
        if self.busy > HIGHEST:
            return None
        times = self.scale * np.array(self.served.rows)
        work = np.quantile(times, _AT)
        # rows of a chunk are out together
        together = ASKING_S + (self.chunk - 1) * float(times.mean())
        low = np.add.outer(self.wait(), work + together).ravel()
        many = np.outer(_WEIGHT, _WEIGHT).ravel()
        return Spans(
            np.concatenate([low, low]),
            np.concatenate([np.zeros_like(low), np.full_like(low, self.pause)]),
            np.concatenate([(1.0 - self.paused) * many, self.paused * many]),
        )

    def meets(self, slo: Slo) -> bool:
        """Whether the objective is met."""
        found = self.latency()
        return found is not None and _of(found, slo.quantile) <= slo.seconds

    def phases(self) -> dict[str, float]:
        """Where the time of a row goes, on average."""
        mean = fmean(self.served.rows) * self.scale
        return {
            "pause": self.paused * self.pause / 2.0,
            "queue": float((self.wait() * _WEIGHT).sum()),
            "asking": ASKING_S,
            "work": self.chunk * mean,
        }


def chunk_for(rate: float) -> int:
    """Rows of a chunk at a rate.

    >>> chunk_for(50.0), chunk_for(4_000.0), chunk_for(10_000.0)
    (1, 1, 3)
    """
    return max(1, math.ceil(rate / CLAIMS_PER_SECOND))


class ResidentPlan(msgspec.Struct, frozen=True):
    """Settings of a resident source, and what to expect of them.

    Attributes
    ----------
    settings
        Lanes, chunk and horizon; ``settings.source()`` has them as options of ``taut.read``.
    rate, most
        Rows a second that it is for, and at which it would just meet the objective.
    expected
        Latency at ``rate``: mean, p50, p90, p99, and what the objective bounds.
    phases
        Where the time of a row goes, on average, in seconds.
    """

    app: str
    slo: str
    settings: Settings
    rate: float
    most: float
    expected: dict[str, Expected]
    phases: dict[str, float]
    busy: float
    profile: Served
    warnings: list[str] = []
    format: int = FORMAT

    def save(self, path: str | Path) -> None:
        """Write it as JSON, with the profile that it was made from."""
        files.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> ResidentPlan:
        """Read one back; what is damaged, or was written by another Taut, is refused."""
        return files.load(cls, path, "plan", FORMAT, PlanError)

    def explain(self) -> str:
        """For a person: what to set, what to expect, where the time goes."""
        total = sum(self.phases.values())
        horizon = duration(self.settings.horizon or 0.0)
        lines = [
            f"{self.app}: {self.slo} at {self.rate:,.0f} rows a second, resident",
            f"  lanes={self.settings.lanes}, chunk={self.settings.chunk}, horizon={horizon}; "
            f"lanes work {self.busy:.0%} of the time",
            *(f"  {name:<5} {each}" for name, each in self.expected.items()),
            "  where the time goes:",
            *(
                f"    {name:<24} {duration(rounded(seconds)):>9}  {seconds / total:4.0%}"
                for name, seconds in self.phases.items()
            ),
            f"  the objective holds up to {self.most:,.0f} rows a second",
            *(f"  beware: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)


def make_resident(
    served: Served, slo: Slo, rate: float | None, lanes: int, *, spark: str | None = None
) -> ResidentPlan:
    """The fewest of so many lanes for a rate, then the shortest horizon.

    Without a rate, the highest that all lanes sustain. :class:`Infeasible` if there is none.
    """
    served.check(spark=spark)
    check_asked(slo, rate, lanes)
    most = highest(served, slo, lanes)
    wanted = most if rate is None else rate
    tried = (
        Lanes(served, many, horizon, wanted) for many in range(1, lanes + 1) for horizon in HORIZONS
    )
    best = next((each for each in tried if each.meets(slo)), None) if wanted else None
    if best is None:
        raise _infeasible(served, slo, rate, most, lanes)
    settings = Settings(lanes=best.many, chunk=best.chunk, horizon=best.horizon)
    return ResidentPlan(
        served.app,
        str(slo),
        settings,
        wanted,
        max(wanted, highest(served, slo, best.many, best.horizon)),
        _expected(best, slo),
        best.phases(),
        best.busy,
        served,
        _warnings(best),
    )


def check_asked(slo: Slo, rate: float | None, lanes: int | None) -> None:
    """Refuse what cannot be planned, before anything is profiled."""
    if slo.quantile is not None and slo.quantile >= 1.0:
        raise PlanError(f"{slo}: waits in a queue have no longest, take such as 'p99.9 <= 1 s'")
    check_rate(rate)
    if lanes is not None:
        whole("lanes", lanes)


def highest(served: Served, slo: Slo, lanes: int, horizon: float | None = None) -> float:
    """The highest rate at which so many lanes meet the objective, at the best horizon or one."""
    horizons = HORIZONS if horizon is None else (horizon,)
    ceiling = lanes / served.work.mean
    low, high = 0, _RATES
    while high - low > 1:
        middle = (low + high) // 2
        rate = ceiling * middle / _RATES
        if any(Lanes(served, lanes, each, rate).meets(slo) for each in reversed(horizons)):
            low = middle
        else:
            high = middle
    return ceiling * low / _RATES


def _expected(lanes: Lanes, slo: Slo) -> dict[str, Expected]:
    middle, low, *higher = (
        replace(lanes, scale=scale).latency()
        for scale in (1.0, 1.0 - _SURE, *np.linspace(1.0 + _SURE, 1.0, 5).tolist())
    )
    assert middle is not None
    assert low is not None
    # what would not keep up is told from just before that
    high = next(found for found in higher if found is not None)
    return measured(slo, middle, low, high)


def _warnings(lanes: Lanes) -> list[str]:
    told = []
    if lanes.many > lanes.served.lanes:
        told.append(
            f"profiled with {lanes.served.lanes} lanes, planned for {lanes.many}: rows may take "
            "longer beside more of them"
        )
    if (1.0 + _SURE) * lanes.busy > HIGHEST:
        told.append(
            f"lanes work {lanes.busy:.0%} of the time: if rows take a fifth longer than measured, "
            "they do not keep up, and latency grows without end"
        )
    longest, usual = max(lanes.served.pauses), median(lanes.served.pauses)
    if longest > 2.0 * usual:
        told.append(
            f"pauses took {duration(rounded(usual))} as a rule and up to "
            f"{duration(rounded(longest))}"
        )
    return told


def _infeasible(
    served: Served, slo: Slo, rate: float | None, most: float, lanes: int
) -> Infeasible:
    asked = rate or 0.0
    nearest = _nearest(served, slo, asked or 0.01 * lanes / served.work.mean, lanes)
    if most <= 0.0:
        reason = (
            f"{slo} cannot be met at any rate: a row takes "
            f"{duration(rounded(served.work.mean))} on average and up to "
            f"{duration(rounded(max(served.rows)))}, and batches pause for "
            f"{duration(rounded(fmean(served.pauses)))}"
        )
    else:
        reason = (
            f"{slo} cannot be met at {asked:,.0f} rows a second with {lanes} lanes: up to "
            f"{most:,.0f} can"
        )
    if nearest is not None:
        reason += f"; {nearest} is the best that can be had"
    return Infeasible(reason, nearest, most)


def _nearest(served: Served, slo: Slo, rate: float, lanes: int) -> Slo | None:
    found = [
        _of(spans, slo.quantile)
        for each in HORIZONS
        if (spans := Lanes(served, lanes, each, rate).latency()) is not None
    ]
    return Slo(f"{slo.measure} <= {math.ceil(1005 * min(found))} ms") if found else None


def _of(spans: Spans, share: float | None) -> float:
    return spans.mean if share is None else spans.quantile(share)


def rows_of(chunks: Sequence[tuple[int, float]], most: int = 2_000) -> list[float]:
    """Seconds of single rows, from chunks as (rows, seconds); of many, evenly spread ones.

    Where no chunk has a single row, all are taken to be alike.

    >>> rows_of([(1, 0.2), (2, 0.2), (1, 0.3)]), rows_of([(2, 0.2), (4, 0.4)])
    ([0.2, 0.3], [0.1, 0.1])
    """
    single = [seconds for rows, seconds in chunks if rows == 1]
    found = single if len(single) >= min(LEAST_ROWS, len(chunks) / 2) else [
        seconds / rows for rows, seconds in chunks if rows
    ]  # fmt: skip
    return found[:: max(1, math.ceil(len(found) / most))]


def corrected(rows: Sequence[float], *worked: tuple[int, float]) -> list[float]:
    """So that rows take what lanes worked in all, told as (rows, seconds).

    Short chunks are handed out several at a time, and each is told with the time of all of them.

    >>> corrected([0.2, 0.4], (10, 1.5))
    [0.1, 0.2]
    """
    many, seconds = (sum(column) for column in zip(*worked, strict=True)) if worked else (0, 0.0)
    if not many or not seconds or not rows:
        return list(rows)
    factor = min(1.0, seconds / many / fmean(rows))
    return [round(factor * each, 9) for each in rows]

"""The plan: settings, what to expect of them and why; or a plain no, with what can be had."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from taut.duration import duration
from taut.errors import PlanError
from taut.planning import files
from taut.planning.latency import Latency, predict
from taut.planning.phases import Costs, Line, fit
from taut.planning.profile import Profile
from taut.planning.search import HIGHEST, Choice, Search
from taut.planning.settings import SPARE, Cluster, Settings
from taut.slo import Slo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from taut.spark.planning.app import App
    from taut.spark.planning.running import Planned

FORMAT = 2
_MEASURES = {"mean": None, "p50": 0.5, "p90": 0.9, "p99": 0.99}
_SURE, _LEAST_SPREAD = 2.0, 0.25
"""Errors of the fit, up and down, that the interval of a prediction spans; and what batches are
taken to cost more or less at least. Chosen after forty settings that were measured: of their means
38 were inside, of their p99 35 (docs/plan-measured.md)."""
_SETTLING = 0.05
"""By how much batches may have become faster while they were profiled."""
_DOUBLINGS = 10
"""Of an objective that cannot be met, until it is given up."""
_NO_MORE = 1.01
"""Times what batches cost, that is told as nothing to spare."""
_LEAST_RATE = 1e-3
_ROOM = 1.5
"""Times the largest batch expected, that a batch may take at most."""


class Infeasible(PlanError):
    """No settings meet the objective at the rate.

    Attributes
    ----------
    nearest_slo
        The shortest objective of that kind that can be met at the rate; None if none can.
    nearest_rate
        The highest rate under the objective asked for; 0 if there is none.
    """

    def __init__(self, reason: str, nearest_slo: Slo | None, nearest_rate: float) -> None:
        super().__init__(reason)
        self.nearest_slo = nearest_slo
        self.nearest_rate = nearest_rate


class Expected(msgspec.Struct, frozen=True):
    """A latency that is expected, and between what it should be (seconds)."""

    seconds: float
    low: float
    high: float

    def __str__(self) -> str:
        low, high = duration(rounded(self.low)), duration(rounded(self.high))
        return f"{duration(rounded(self.seconds))} ({low} to {high})"


class Plan(msgspec.Struct, frozen=True):
    """A configuration and what to expect of it.

    Attributes
    ----------
    rate, most
        Rows a second that it is for, and at which it would just meet the objective.
    expected
        Latency at ``rate``: mean, p50, p90, p99, and what the objective bounds.
    phases
        Where the time of a result goes, on average, in seconds.
    limit
        What keeps the rate from being higher.
    shape
        How quantiles were had: as measured, normal, or by Cantelli's bound.
    warnings
        Why not to trust it, where there is a reason.
    spare
        What batches were taken to cost more than fitted, at least, as a share.
    """

    app: str
    slo: str
    cluster: Cluster
    settings: Settings
    rate: float
    most: float
    expected: dict[str, Expected]
    phases: dict[str, float]
    limit: str
    shape: str
    profile: Profile
    warnings: list[str] = []
    spare: float = SPARE
    format: int = FORMAT

    def conf(self) -> dict[str, str]:
        """Spark's settings, for ``spark-submit`` or a session."""
        cluster = {
            "spark.executor.instances": str(self.cluster.executors),
            "spark.executor.cores": str(self.cluster.cores),
            "spark.cores.max": str(self.cluster.slots),
        }
        return cluster | self.settings.conf()

    def apply(self, spark: SparkSession, app: App, checkpoint: str | Path) -> Planned:
        """Start the job with these settings, and watch whether latency is as expected."""
        from taut.spark.planning.running import Planned

        return Planned(self, spark, app, checkpoint)

    def save(self, path: str | Path) -> None:
        """Write it as JSON, with the profile that it was made from."""
        files.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read one back; what is damaged, or was written by another Taut, is refused."""
        return files.load(cls, path, "plan", FORMAT, PlanError)

    def explain(self) -> str:
        """For a person: what to set, what to expect, where the time goes, what limits it."""
        total = sum(self.phases.values())
        lines = [
            f"{self.app}: {self.slo} at {self.rate:,.0f} rows a second",
            f"  on {self.cluster}: {self.settings}",
            *(f"  {name:<5} {each}" for name, each in self.expected.items()),
            f"  quantiles: {_SHAPES[self.shape]}",
            "  where the time goes:",
            *(
                f"    {name:<24} {duration(rounded(seconds)):>9}  {seconds / total:4.0%}"
                for name, seconds in self.phases.items()
            ),
            f"  the objective holds up to {self.most:,.0f} rows a second; {self.limit}",
            *(f"  beware: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)


_SHAPES = {
    "measured": "from the times that batches took, as measured",
    "normal": "as if latencies were normal; too low for a heavy tail",
    "cantelli": "Cantelli's bound, for there are too few batches to know the shape",
}


def make(
    profile: Profile,
    slo: Slo,
    rate: float | None,
    clusters: Sequence[Cluster],
    *,
    margin: float = 1.0,
    spare: float = SPARE,
    spark: str | None = None,
) -> Plan:
    """Search, and say what was found; :class:`Infeasible` if nothing was."""
    profile.check(spark=spark)
    check_rate(rate)
    check_spare(spare)
    if not clusters:
        raise PlanError("cluster: none was given")
    costs = fit(profile)
    search = Search(costs, slo, margin, spare=spare)
    if rate is None:
        best = [found for cluster in clusters if (found := search.best(cluster))]
        chosen = max(best, key=lambda found: found.rate, default=None)
    else:
        chosen = search.smallest(clusters, rate)
    if chosen is None:
        raise infeasible(search, clusters, rate)
    at = chosen.rate if rate is None else rate
    settings = capped(search, chosen.settings, chosen.cluster, chosen.rate)
    return describe(
        profile, search, Choice(chosen.cluster, settings, chosen.rate, chosen.latency), at
    )


def check_rate(rate: float | None) -> None:
    """Refuse what is no rate."""
    if rate is not None and not 0.0 < rate < math.inf:
        raise PlanError(f"rate={rate!r}: rows a second, above zero")


def check_spare(spare: float) -> None:
    """Refuse what is no share to be left."""
    if not 0.0 <= spare < math.inf:
        raise PlanError(f"spare={spare!r}: a share of what batches cost, such as 0.05")


def describe(profile: Profile, search: Search, choice: Choice, rate: float) -> Plan:
    """The plan for these settings at this rate."""
    latency = _at(search, choice, rate, 1.0)
    return Plan(
        app=profile.app,
        slo=str(search.slo),
        cluster=choice.cluster,
        settings=choice.settings,
        rate=rate,
        most=choice.rate,
        expected=expected(search, choice, rate),
        phases=latency.phases,
        limit=limit_of(search.costs, choice),
        shape=latency.shape,
        profile=profile,
        warnings=[*warnings_of(profile, search.costs, choice, latency), *_near(search, latency)],
        spare=search.spare,
    )


def _near(search: Search, latency: Latency) -> list[str]:
    """How much dearer batches may not be, if that may well be."""
    bound = _bearable(latency)
    if spread(search.costs)[1] <= bound:
        return []
    return [piling_up(bound)]


def piling_up(bound: float) -> str:
    """That a plan does not bear it if batches cost so many times what the fit says."""
    more = "any" if bound < _NO_MORE else f"{bound - 1.0:.0%}"
    return (
        f"if batches cost {more} more than fitted, which may be, they would not keep "
        "up, and latency would grow without end: what is told as the most is from just before that"
    )


def expected(search: Search, choice: Choice, rate: float) -> dict[str, Expected]:
    """Latency at a rate, with its interval: batches may cost more or less than the fit says."""
    low, high = spread(search.costs)
    middle = _at(search, choice, rate, 1.0)
    bound = _bearable(middle)
    # the cap is for when something stood still, and has nothing to say here
    free = replace(choice, settings=choice.settings.but(cap=None))
    return measured(
        search.slo, middle, *(_at(search, free, rate, min(bound, each)) for each in (low, high))
    )


def _bearable(latency: Latency) -> float:
    """Times what batches cost, up to which they do not grow without end."""
    return HIGHEST / latency.utilisation if latency.utilisation else math.inf


def spread(costs: Costs) -> tuple[float, float]:
    """Between what batches cost, as multiples of what the fit says."""
    off = max(_LEAST_SPREAD, _SURE * costs.error)
    return 1.0 / (1.0 + off), 1.0 + off


class Shaped(Protocol):
    """What has a mean and quantiles."""

    @property
    def mean(self) -> float:
        """The mean."""
        ...

    def quantile(self, share: float) -> float:
        """What this share does not exceed."""
        ...


def measured(slo: Slo, middle: Shaped, low: Shaped, high: Shaped) -> dict[str, Expected]:
    """Mean, p50, p90, p99, and what the objective bounds."""
    told = {}
    for name, share in (_MEASURES | {slo.measure: slo.quantile}).items():
        each = [one.mean if share is None else one.quantile(share) for one in (middle, low, high)]
        # windows and intervals both go by the clock: dearer batches may see more of them in time
        told[name] = Expected(each[0], min(each), max(each))
    return told


def capped(search: Search, settings: Settings, cluster: Cluster, rate: float) -> Settings:
    """With a cap on the rows of a batch: well above what is expected, so that it only acts in need.

    After a standstill all that has arrived would be one batch, and memory may not hold that.
    """
    return settings.but(cap=cap_of(search.latency(settings, cluster, rate)))


def cap_of(latency: Latency) -> int:
    """Of rows in a batch."""
    return max(1, math.ceil(_ROOM * latency.largest))


def infeasible(search: Search, clusters: Sequence[Cluster], rate: float | None) -> Infeasible:
    """Why not, and what can be had instead."""
    slo, least = search.slo, math.inf
    highest = 0.0
    asked = rate or 0.0
    loose = _loosened(search, clusters, asked)
    for cluster in clusters:
        found = search.best(cluster)
        highest = max(highest, found.rate if found else 0.0)
        for settings in loose.candidates(cluster):
            least = min(least, loose.latency(settings, cluster, asked).of(slo))
    nearest: Slo | None = None
    if least < math.inf:
        # a little more than the least, for rates are searched in steps
        nearest = Slo(f"{slo.measure} <= {math.ceil(1005 * least)} ms")
    if highest == 0.0:
        alone = _empty(search, clusters)
        reason = (
            f"{slo} cannot be met at any rate: a batch without rows takes "
            f"{duration(rounded(alone))}, and a result waits for one and is in the next"
        )
        if (windows := search.costs.windows) and windows.delay:
            reason += f", after the watermark's delay of {duration(rounded(windows.delay))}"
    else:
        reason = (
            f"{slo} cannot be met at {asked:,.0f} rows a second on {clusters[-1]}: "
            f"up to {highest:,.0f} can"
        )
    if nearest is not None:
        reason += f"; at {asked:,.0f} rows a second {nearest} is the best that can be had"
    elif asked:
        reason += f"; at {asked:,.0f} rows a second batches would grow without end"
    return Infeasible(reason, nearest, highest)


def _loosened(search: Search, clusters: Sequence[Cluster], rate: float) -> Search:
    """With an objective long enough to be met: which settings are best depends on it."""
    slo = search.slo
    for _ in range(_DOUBLINGS):
        longer = Slo(f"{slo.measure} <= {math.ceil(2000 * search.slo.seconds)} ms")
        search = replace(search, slo=longer)
        if search.smallest(clusters, max(rate, _LEAST_RATE)) is not None:
            break
    return search


def _empty(search: Search, clusters: Sequence[Cluster]) -> float:
    costs = search.costs
    return min(
        sum(costs.lines(settings, cluster).values(), Line()).fixed * float(costs.factors.mean())
        for cluster in clusters
        for settings in search.candidates(cluster)
    )


def _at(search: Search, choice: Choice, rate: float, scale: float) -> Latency:
    return predict(search.costs, choice.settings, choice.cluster, rate, scale=scale)


def limit_of(costs: Costs, choice: Choice) -> str:
    """What keeps the rate from being higher."""
    lines = costs.lines(choice.settings, choice.cluster)
    fixed = sum(line.fixed for line in lines.values())
    ratio = 0.0 if costs.windows else costs.ratio()
    each = {phase: line.bearing(ratio).steepest for phase, line in lines.items()}
    most = max(each, key=lambda phase: each[phase])
    rows = choice.rate * sum(each.values())
    share = each[most] / sum(each.values())
    told = f"{most} is {share:.0%} of what a row costs"
    if rows < 0.5:
        return (
            f"what limits it is the fixed cost of a batch, {duration(rounded(fixed))}: rows keep "
            f"it busy for {rows:.0%} of the time; {told}"
        )
    return (
        f"what limits it are the rows, which keep it busy for {rows:.0%} of the time: {told}; a "
        f"batch without rows takes {duration(rounded(fixed))}"
    )


def warnings_of(profile: Profile, costs: Costs, choice: Choice, latency: Latency) -> list[str]:
    """Why not to trust a plan, where there is a reason."""
    told = []
    if choice.cluster != profile.cluster:
        told.append(f"profiled on {profile.cluster}, planned for {choice.cluster}: extrapolated")
    if latency.rows > 2.0 * costs.largest:
        told.append(
            f"batches of {latency.rows:,.0f} rows are expected, the profile has up to "
            f"{costs.largest:,}"
        )
    elif choice.latency.rows > 2.0 * costs.largest:
        told.append(
            f"the highest rate is extrapolated: its batches would have {choice.latency.rows:,.0f} "
            f"rows, the profile has up to {costs.largest:,}"
        )
    if profile.dry:
        told.append(
            f"the source ran out of rows while {profile.dry} of the queries were profiled, so that "
            "batches are fewer or smaller than they should be: profile it while it has more"
        )
    if costs.error > 0.15:
        told.append(f"the fit is off by {costs.error:.0%} from one kind of batch to the next")
    if costs.faster > _SETTLING:
        told.append(
            f"batches became {costs.faster:.0%} faster while they were profiled, as a JVM does for "
            "minutes after its start: expect lower latency, or profile again in the same session"
        )
    return told


def rounded(seconds: float) -> float:
    """Seconds with three digits, for a person; what is less than a microsecond is nothing.

    >>> rounded(1.23456), rounded(4e-17)
    (1.23, 0.0)
    """
    if not math.isfinite(seconds) or seconds < 1e-6:
        return 0.0
    digits = 2 - math.floor(math.log10(seconds))
    return round(seconds, digits)

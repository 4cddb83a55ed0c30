"""The plan of several queries that share a cluster; or a plain no, with what can be had."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from taut.errors import PlanError
from taut.planning import files
from taut.planning.latency import Latency
from taut.planning.phases import fit
from taut.planning.plan import (
    Infeasible,
    Plan,
    cap_of,
    check_spare,
    limit_of,
    measured,
    piling_up,
    spread,
    warnings_of,
)
from taut.planning.profile import Profile
from taut.planning.runner import Member, rhythms
from taut.planning.search import Choice
from taut.planning.settings import SPARE, Cluster
from taut.planning.together import Arrangement, Together
from taut.policy.intervals import Intervals
from taut.slo import Slo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from taut.spark.planning.app import App
    from taut.spark.runtime import Runtime

FORMAT = 1
_LOOSEST = 64.0
"""Times its objective, up to which a query that is not on time is looked for one that can be."""
_FINE = 1.02


@dataclass(frozen=True, slots=True)
class Wanted:
    """One of the queries: a profile of it, its objective, and its rows a second."""

    profile: Profile
    slo: Slo
    rate: float


class SharedPlan(msgspec.Struct, frozen=True):
    """How several queries run on one cluster, and what to expect of each.

    Attributes
    ----------
    concurrency
        Batches that run at once: what :class:`taut.Runtime` takes.
    plans
        One for each query; ``settings.trigger`` is the interval at which it starts batches, and
        the phase ``turn`` how long its rows wait because others have theirs.
    growth
        Times the rates that it is for, up to which all objectives hold.
    busy
        Of all turns, the share that is taken.
    """

    cluster: Cluster
    concurrency: int
    plans: list[Plan]
    growth: float
    busy: float
    format: int = FORMAT

    def __getitem__(self, name: str) -> Plan:
        for plan in self.plans:
            if plan.app == name:
                return plan
        raise KeyError(f"{name!r}: the plan has {', '.join(plan.app for plan in self.plans)}")

    def conf(self) -> dict[str, str]:
        """Spark's settings, for ``spark-submit`` or a session; reducers are for each query."""
        reducers = self.plans[0].settings.conf()
        return {
            name: set_to for name, set_to in self.plans[0].conf().items() if name not in reducers
        }

    def policy(self) -> Intervals:
        """What a :class:`taut.Runtime` is to grant turns by: each query at its interval.

        Batches of different queries are due at different moments, as far as intervals allow.
        """
        names = [plan.app for plan in self.plans]
        return Intervals(rhythms(names, [plan.settings for plan in self.plans]))

    def apply(
        self, spark: SparkSession, apps: Mapping[str, App], checkpoint: str | Path
    ) -> Runtime:
        """Start all of them under a runtime with this concurrency, at these intervals.

        Parameters
        ----------
        apps
            By the names that the plans have.
        checkpoint
            A folder; each query has one with its name there.
        """
        from taut.spark.planning.sharing import start

        return start(self, spark, apps, checkpoint)

    def save(self, path: str | Path) -> None:
        """Write it as JSON, with the profiles that it was made from."""
        files.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> SharedPlan:
        """Read one back; what is damaged, or was written by another Taut, is refused."""
        return files.load(cls, path, "shared plan", FORMAT, PlanError)

    def explain(self) -> str:
        """For a person: how many run at once, and the plan of each."""
        many = len(self.plans)
        lines = [
            f"{many} {'query' if many == 1 else 'queries'} on {self.cluster}: "
            f"{self.concurrency} at a time, turns taken for {self.busy:.0%} of the time",
            f"all objectives hold up to {self.growth:.2f} times these rates",
            *(plan.explain() for plan in self.plans),
        ]
        return "\n".join(lines)


def make_together(
    wanted: Sequence[Wanted],
    cluster: Cluster | None = None,
    *,
    margin: float = 1.0,
    spare: float = SPARE,
    spark: str | None = None,
) -> SharedPlan:
    """Search, and say what was found; :class:`Infeasible` if nothing was.

    Parameters
    ----------
    cluster
        By default where all of them were profiled.
    """
    if not wanted:
        raise PlanError("queries: none was given")
    check_spare(spare)
    for each in wanted:
        each.profile.check(spark=spark)
    refuse_twice([each.profile.app for each in wanted])
    cluster = cluster or _where(wanted)
    members = [Member(each.profile.app, fit(each.profile), each.slo, each.rate) for each in wanted]
    together = Together(members, cluster, margin=margin, spare=spare)
    best = together.best()
    if best is None or best.growth < 1.0:
        raise infeasible(together, best)
    return _describe(wanted, together, best)


def refuse_twice(names: Sequence[str]) -> None:
    """Each query needs a name of its own."""
    for name, times in Counter(names).items():
        if times > 1:
            raise PlanError(f"name={name!r}: is that of {times} queries; each needs its own")


def infeasible(together: Together, best: Arrangement | None) -> Infeasible:
    """Which query cannot, and what can be had instead."""
    blocked = together.blocked(best)
    member = together.members[blocked.member]
    others = len(together.members) - 1
    beside = f"beside {others} other{'s' * (others > 1)}" if others else "alone"
    where = f"{member.rate:,.0f} rows a second {beside} on {together.cluster}"
    highest = best.growth * member.rate if best else 0.0
    if best is None:
        reason = f"{member.name}: {member.slo} cannot be met {beside} at any rate that was tried"
    elif blocked.full:
        reason = (
            f"{member.name}: all turns would be taken all the time at {where}, most by this query: "
            f"up to {best.growth:.2f} times all rates can be had, {highest:,.0f} rows a second here"
        )
    else:
        reason = (
            f"{member.name}: {member.slo} cannot be met at {where}: up to {best.growth:.2f} times "
            f"all rates can, {highest:,.0f} rows a second here"
        )
    nearest = _nearest(together, blocked.member, best)
    if nearest is not None:
        reason += f"; at these rates {nearest} is the best that can be had for {member.name}"
    else:
        reason += "; no longer objective for it alone would do"
    return Infeasible(reason, nearest, highest)


def _nearest(together: Together, nth: int, best: Arrangement | None) -> Slo | None:
    """The shortest objective of one of them with which all can be met; None if there is none."""
    slo = together.members[nth].slo
    turns = best.turns if best else None

    def longer(times: float) -> Slo:
        return Slo(f"{slo.measure} <= {math.ceil(1000 * times * slo.seconds)} ms")

    def enough(times: float) -> bool:
        return together.but(nth, longer(times)).feasible(turns)

    low, high = 1.0, 2.0
    while not enough(high):
        if high >= _LOOSEST:
            return None
        low, high = high, 2.0 * high
    while high / low > _FINE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return longer(high)


def _describe(wanted: Sequence[Wanted], together: Together, best: Arrangement) -> SharedPlan:
    low, high = zip(*(spread(member.costs) for member in together.members), strict=True)
    expected = together.latencies(best)
    least = together.latencies(best, scale=min(low))
    # beyond that they pile up, and latency is as long as one looks
    bounds = together.bearable(best)
    most = together.latencies(best, scale=min(*bounds, max(high)))
    at_most = together.latencies(best, growth=best.growth)
    plans = [
        _plan(each, together, best, nth, (expected[nth], least[nth], most[nth]), at_most[nth])
        for nth, each in enumerate(wanted)
    ]
    plans = [
        msgspec.structs.replace(plan, warnings=[*plan.warnings, piling_up(bound)])
        if max(high) > bound
        else plan
        for plan, bound in zip(plans, bounds, strict=True)
    ]
    return SharedPlan(together.cluster, best.turns, plans, best.growth, together.busy(best))


def _plan(
    wanted: Wanted,
    together: Together,
    best: Arrangement,
    nth: int,
    latencies: tuple[Latency, Latency, Latency],
    at_most: Latency,
) -> Plan:
    costs, latency = together.members[nth].costs, latencies[0]
    rate = best.growth * wanted.rate
    settings = best.settings[nth].but(cap=cap_of(at_most))
    part = Choice(best.way.part, settings, rate, at_most)
    return Plan(
        app=wanted.profile.app,
        slo=str(wanted.slo),
        cluster=together.cluster,
        settings=settings,
        rate=wanted.rate,
        most=rate,
        expected=measured(wanted.slo, *latencies),
        phases=latency.phases,
        limit=limit_of(costs, part),
        shape=latency.shape,
        profile=wanted.profile,
        warnings=warnings_of(
            wanted.profile, costs, Choice(together.cluster, settings, rate, at_most), latency
        ),
        spare=together.spare,
    )


def _where(wanted: Sequence[Wanted]) -> Cluster:
    clusters = {each.profile.cluster: each.profile.app for each in wanted}
    if len(clusters) > 1:
        told = ", ".join(f"{app} on {cluster}" for cluster, app in clusters.items())
        raise PlanError(f"cluster: is needed, for the profiles are of several: {told}")
    return next(iter(clusters))

"""``taut.plan`` and ``taut.plan_together``: profile jobs, and plan them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from taut.errors import PlanError
from taut.planning.plan import Plan, check_rate, check_spare, make
from taut.planning.profile import Profile
from taut.planning.settings import SPARE, Cluster
from taut.planning.shared import SharedPlan, Wanted, make_together, refuse_twice
from taut.planning.trials import LEAST_SECONDS, SECONDS
from taut.slo import Slo
from taut.spark.planning.app import App, load_app, name_of, session_of, version_of
from taut.spark.planning.profiling import Watcher, take

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def plan(
    app: App | str | Path | None = None,
    *,
    slo: str | Slo,
    rate: float | None = None,
    cluster: Cluster | Sequence[Cluster] | None = None,
    profile: Profile | str | Path | None = None,
    spark: SparkSession | None = None,
    name: str | None = None,
    seconds: float = SECONDS,
    spare: float = SPARE,
    watch: Watcher = lambda step: None,
) -> Plan:
    """From an objective to a configuration that meets it.

    Parameters
    ----------
    app
        A function ``app(spark, settings)`` that gives a streaming DataFrame and the sink of its
        batches, or a file that has one. It is run for a minute or two, unless ``profile`` is given.
    slo
        The objective, such as ``"p99 <= 1 s"``, for rows from their arrival until they are
        written; of a job with windows, for results from the end of their window.
    rate
        Rows a second. Without one, the plan is that with the highest rate.
    cluster
        Where it is to run; of several, the first that sustains the rate is taken, so that they
        should be given from small to large. By default where it was profiled.
    profile
        One taken before, or its file.
    spark
        Where to profile; by default the session that is active.
    seconds
        How long to profile: with less there is less to plan from.
    spare
        Batches are taken to cost so much more than they did, as a share, or what the fit is off by
        if that is more: higher for a machine that others use as well.

    Raises
    ------
    Infeasible
        No settings meet the objective; says why, and what can be had.
    """
    objective = Slo(slo)
    check_rate(rate)
    check_spare(spare)
    taken = profile is None
    profile = _profile(app, profile, objective, rate, spark, name, seconds, watch)
    version = None if taken else version_of(spark)
    clusters = [cluster] if isinstance(cluster, Cluster) else list(cluster or [profile.cluster])
    return make(profile, objective, rate, clusters, spare=spare, spark=version)


@dataclass(frozen=True)
class Demand:
    """What is asked of one of the queries that are planned together.

    Parameters
    ----------
    app, profile, name
        As :func:`taut.plan` takes them: an app that is profiled, or what is known of it.
    slo
        Its own objective, such as ``"p99 <= 1 s"``.
    rate
        Its rows a second.
    """

    app: App | str | Path | None = None
    _: KW_ONLY
    slo: str | Slo
    rate: float
    profile: Profile | str | Path | None = None
    name: str | None = None


def plan_together(
    demands: Sequence[Demand],
    *,
    cluster: Cluster | None = None,
    spark: SparkSession | None = None,
    seconds: float = SECONDS,
    spare: float = SPARE,
    watch: Watcher = lambda step: None,
) -> SharedPlan:
    """How several queries share a cluster so that each meets its own objective.

    How many run a batch at once, and for each its lanes, its reducers and the interval at which it
    starts one: those with which all rates could grow most.

    Parameters
    ----------
    demands
        One for each query. Those without a profile are profiled one after another, each alone.
    cluster
        Where they are to run; by default where they were profiled.
    spark
        Where to profile; by default the session that is active.
    seconds
        How long to profile each of them.
    spare
        As :func:`taut.plan` takes it.

    Raises
    ------
    Infeasible
        Not all objectives can be met; names a query that cannot, and says what can be had.

    Examples
    --------
    >>> plan = plan_together([                                       # doctest: +SKIP
    ...     Demand(clicks, slo="p99 <= 2 s", rate=20_000),
    ...     Demand(profile="orders.profile.json", slo="p99 <= 10 s", rate=5_000),
    ... ])
    """
    check_spare(spare)
    # before minutes of profiling
    for demand in demands:
        Slo(demand.slo)
        if demand.rate is None or not 0.0 < demand.rate < math.inf:
            raise PlanError(
                f"{demand.name or demand.app}: rate={demand.rate!r}: rows a second, above zero"
            )
    demands = [
        replace(each, profile=Profile.load(each.profile))
        if isinstance(each.profile, str | Path)
        else each
        for each in demands
    ]
    refuse_twice([name for demand in demands if (name := _name_of(demand)) is not None])
    wanted = []
    for demand in demands:
        objective = Slo(demand.slo)
        profile = _profile(
            demand.app, demand.profile, objective, demand.rate, spark, demand.name, seconds, watch
        )
        if demand.name is not None and profile.app != demand.name:
            profile = msgspec.structs.replace(profile, app=demand.name)
        wanted.append(Wanted(profile, objective, demand.rate))
    return make_together(wanted, cluster, spare=spare, spark=version_of(spark))


def _name_of(demand: Demand) -> str | None:
    """What its plan will be called; None where nothing says that."""
    if demand.name is not None:
        return demand.name
    if isinstance(demand.profile, Profile):
        return demand.profile.app
    if demand.app is None:
        return None
    return Path(demand.app).stem if isinstance(demand.app, str | Path) else name_of(demand.app)


def _profile(
    app: App | str | Path | None,
    profile: Profile | str | Path | None,
    objective: Slo,
    rate: float | None,
    spark: SparkSession | None,
    name: str | None,
    seconds: float,
    watch: Watcher,
) -> Profile:
    """The profile that is given, or taken of the app."""
    if not LEAST_SECONDS <= seconds < math.inf:
        raise PlanError(f"seconds={seconds!r}: at least {LEAST_SECONDS:g} to profile")
    if isinstance(profile, str | Path):
        return Profile.load(profile)
    if profile is not None:
        return profile
    if app is None:
        raise PlanError("app= or profile= is needed: there is nothing to plan")
    if isinstance(app, str | Path):
        stem, app = load_app(app)
        name = name or stem
    return take(
        session_of(spark),
        app,
        name or name_of(app),
        rate=rate,
        slo=objective,
        seconds=seconds,
        watch=watch,
    )

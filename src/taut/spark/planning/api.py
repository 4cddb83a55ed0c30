"""``taut.plan``: profile a job, and plan it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import PlanError
from taut.planning.plan import Plan, make
from taut.planning.profile import Profile
from taut.planning.settings import Cluster
from taut.slo import Slo
from taut.spark.planning.app import App, load_app
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

    Raises
    ------
    Infeasible
        No settings meet the objective; says why, and what can be had.
    """
    objective = Slo(slo)
    if isinstance(app, str | Path):
        name, app = load_app(app)
    if isinstance(profile, str | Path):
        profile = Profile.load(profile)
    version: str | None = None
    if profile is None:
        if app is None:
            raise PlanError("app= or profile= is needed: there is nothing to plan")
        profile = take(
            _session(spark),
            app,
            name or _name(app),
            rate=rate,
            objective=objective.seconds,
            watch=watch,
        )
    elif spark is not None:
        version = spark.version
    clusters = [cluster] if isinstance(cluster, Cluster) else list(cluster or [profile.cluster])
    return make(profile, objective, rate, clusters, spark=version)


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise PlanError(
            "spark= is needed to profile: no session is active; taut.session() makes one"
        )
    return found


def _name(app: App) -> str:
    return getattr(app, "__name__", "app")

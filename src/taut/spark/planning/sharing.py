"""Queries that were planned together, started under one runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import PlanError
from taut.planning.shared import SharedPlan
from taut.spark.planning.app import App, configured, made
from taut.spark.planning.running import tell
from taut.spark.runtime import Runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENCE = 4.0
"""Intervals for which a query may be held: its own policy does not hold it for longer than one."""
_LEAST_HOLD_S = 60.0


def start(
    plan: SharedPlan, spark: SparkSession, apps: Mapping[str, App], checkpoint: str | Path
) -> Runtime:
    """Start all of them; none is left running if one cannot be started."""
    names = [each.app for each in plan.plans]
    if sorted(names) != sorted(apps):
        raise PlanError(f"apps={sorted(apps)}: the plan is for {sorted(names)}")
    longest = max(each.settings.trigger for each in plan.plans)
    runtime = Runtime(
        spark,
        plan.policy(),
        concurrency=plan.concurrency,
        hold_limit=max(_LEAST_HOLD_S, _PATIENCE * longest),
    )
    try:
        for each in plan.plans:
            with configured(spark, each.settings):
                frame, sink = made(apps[each.app], spark, each.settings)
                runtime.start(
                    frame,
                    name=each.app,
                    sink=sink,
                    slo=each.slo,
                    checkpoint=f"{str(checkpoint).rstrip('/')}/{each.app}",
                )
            tell(each)
    except BaseException:
        runtime.stop()
        raise
    return runtime

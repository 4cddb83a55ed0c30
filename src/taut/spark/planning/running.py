"""A planned job that runs: what was expected is compared with what is seen."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.duration import duration
from taut.errors import PlanError
from taut.planning.plan import Plan, make
from taut.planning.profile import Windows
from taut.planning.quantile import Spans
from taut.slo import Slo
from taut.spark.planning.app import App, configured, made
from taut.spark.planning.meter import Batch, Meter, Stage
from taut.spark.sinks import refuse_old_results
from taut.spark.source.control import sources_of
from taut.watch import hub
from taut.watch.records import Expected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("taut")
_SETTLED = 5
"""Batches at the start that say nothing: what waited when it began is in them."""
_NEWEST = 100
"""Batches that are looked at: each costs calls into the JVM, beside the query."""
_LOOK_EVERY = 20
_LOOKS_WITHIN = 5.0
_AS_EXPECTED = (False, False, False)
"""Neither missed nor beyond what was expected, to either side."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What was expected of a measure and what was seen (seconds)."""

    measure: str
    expected: float
    low: float
    high: float
    observed: float
    rate: float
    batches: int
    objective: float = math.inf

    @property
    def beyond(self) -> bool:
        """Whether it lies outside of what was expected."""
        return not self.low <= self.observed <= self.high

    @property
    def missed(self) -> bool:
        """Whether the objective is not met, expected or not."""
        return self.observed > self.objective

    @property
    def state(self) -> tuple[bool, bool, bool]:
        """Whether it is missed, above what was expected, below that."""
        return self.missed, self.observed > self.high, self.observed < self.low

    def __str__(self) -> str:
        said = "beyond" if self.beyond else "within"
        seen, low, high = (
            duration(round(value, 4)) for value in (self.observed, self.low, self.high)
        )
        missed = f", missing the {duration(self.objective)} of its objective" if self.missed else ""
        return (
            f"{self.measure} {seen} at {self.rate:,.0f} rows a second, {said} the {low} to {high} "
            f"expected{missed}"
        )


class Planned:
    """A query that was started by a plan.

    Attributes
    ----------
    query
        Spark's own.
    """

    def __init__(self, plan: Plan, spark: SparkSession, app: App, checkpoint: str | Path) -> None:
        self.plan = plan
        self._said = _AS_EXPECTED
        self._looking = threading.Thread()
        trigger: Any = plan.settings.trigger_options()
        with configured(spark, plan.settings):
            frame, sink = made(app, spark, plan.settings)
            refuse_old_results(plan.app, sink, str(checkpoint), spark)
            sources_of(frame, plan.app).announce()
            self._meter = Meter(spark, sink, plan.settings, plan.profile.windows)
            writer = frame.writeStream.foreachBatch(self._write)
            writer = writer.option("checkpointLocation", str(checkpoint)).queryName(plan.app)
            self.query: StreamingQuery = writer.trigger(**trigger).start()
        tell(plan)

    def batches(self, stages: Sequence[Stage] | None = None) -> list[Batch]:
        """The newest that Spark still remembers, without the first few.

        ``stages``, where they are not needed: many are slow to read.
        """
        return self._meter.batches(self._progress(), stages)[_SETTLED:]

    def _progress(self) -> list[StreamingQueryProgress]:
        from pyspark.sql.streaming.listener import StreamingQueryProgress

        told = self.query._jsq.recentProgress()
        return [
            StreamingQueryProgress.fromJson(json.loads(told[index].json()))
            for index in range(max(0, len(told) - _NEWEST), len(told))
        ]

    def drift(self) -> Drift | None:
        """How the latency that was seen compares; None before there are batches enough.

        Rows are taken to have arrived evenly while the batch before theirs ran, and windows to be
        seen by the first batch after their end and the watermark's delay.
        """
        batches = self.batches(stages=())
        seen = observed(batches, self.plan.profile.windows)
        if seen is None:
            return None
        slo = Slo(self.plan.slo)
        expected = self.plan.expected[slo.measure]
        value = seen.moments().mean if slo.quantile is None else seen.quantile(slo.quantile)
        rows = sum(batch.sample.rows for batch in batches[1:])
        took = batches[-1].start - batches[0].start
        rate = rows / took if took > 0.0 else 0.0
        drift = Drift(
            slo.measure,
            expected.seconds,
            expected.low,
            expected.high,
            value,
            rate,
            len(batches),
            slo.seconds,
        )
        tell(self.plan, drift)
        return drift

    def replan(self, rate: float | None = None) -> Plan:
        """A new plan from the old profile and what was seen since; at the rate seen, or a given.

        Only where the job runs on the cluster that was profiled: what batches take on another one
        does not go with the rest of the profile.
        """
        if self.plan.cluster != self.plan.profile.cluster:
            raise PlanError(
                f"{self.plan.app}: profiled on {self.plan.profile.cluster} and runs on "
                f"{self.plan.cluster}, so that what was seen does not go with its profile: plan "
                "it anew from a profile that is taken here, taut.plan(app, ...)"
            )
        drift = self.drift()
        if drift is None:
            raise PlanError(f"{self.plan.app}: too few batches yet to plan from")
        profile = self.plan.profile.merged(batch.sample for batch in self.batches())
        slo, clusters = Slo(self.plan.slo), [self.plan.cluster]
        return make(profile, slo, rate or drift.rate, clusters, spare=self.plan.spare)

    def stop(self) -> None:
        """End it, after the batch that runs."""
        self._meter.stop(self.query)
        if self._looking.is_alive():
            self._looking.join(_LOOKS_WITHIN)

    def _write(self, df: DataFrame, batch_id: int) -> None:
        self._meter(df, batch_id)
        if batch_id and batch_id % _LOOK_EVERY == 0 and not self._looking.is_alive():
            # in a thread of its own: rows do not wait for it
            self._looking = threading.Thread(target=self._look, name="taut-drift", daemon=True)
            self._looking.start()

    def _look(self) -> None:
        try:
            # after a restart a batch may come before Spark has given the query
            drift = self.drift() if hasattr(self, "query") else None
        except Exception as error:  # who looks must not end what is looked at
            log.warning("%s: drift cannot be told: %r", self.plan.app, error)
            return
        if drift is not None and drift.state != self._said:
            self._said = drift.state
            log.warning("%s: %s%s", self.plan.app, drift, "; replan()" * any(drift.state))


def tell(plan: Plan, drift: Drift | None = None) -> None:
    """Tell those who watch what a plan expects, and what was seen."""
    if not hub.heard():
        return
    measure = Slo(plan.slo).measure
    expected = plan.expected[measure]
    hub.tell(
        Expected(
            at=time.time(),
            query=plan.app,
            measure=measure,
            seconds=expected.seconds,
            low=expected.low,
            high=expected.high,
            observed=None if drift is None else drift.observed,
            rate=0.0 if drift is None else drift.rate,
            planned_rate=plan.rate,
            phases=plan.phases,
        )
    )


def observed(batches: Sequence[Batch], windows: Windows | None) -> Spans | None:
    """Latencies of rows, or of windows, from when batches started and were written."""
    spans: list[tuple[float, float, float]] = []
    if windows is None:
        for before, batch in pairwise(batches):
            gathered = batch.start - before.start
            spans.append((batch.written - batch.start, gathered, float(batch.sample.rows)))
    else:
        for before, batch, after in zip(batches, batches[1:], batches[2:], strict=False):
            seen = (each.start - windows.delay for each in (before, batch))
            spans += [(after.written - end, 0.0, 1.0) for end in _ends(windows, *seen)]
    spans = [span for span in spans if span[2] > 0.0]
    if not spans:
        return None
    low, width, rows = (np.array(column) for column in zip(*spans, strict=True))
    return Spans(low, width, rows)


def _ends(windows: Windows, after: float, upto: float) -> Iterator[float]:
    """Of windows that end in (after, upto]."""
    every, phase = windows.every, windows.phase
    first, last = (math.floor((at - phase) / every) for at in (after, upto))
    for nth in range(first + 1, last + 1):
        yield nth * every + phase

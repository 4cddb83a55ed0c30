"""Profiling: the real job runs at a few settings and sizes of batches, for a minute or two."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import ProfileError
from taut.planning.profile import Profile, Sample
from taut.planning.settings import Cluster, Settings
from taut.spark.planning.app import App, cluster_of, configured, made, window_of
from taut.spark.planning.meter import Meter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.05
_CUT = 2
"""Batches at the start of a query that are not taken: it starts workers and opens state stores."""
_BATCHES = 12
_LEAST = _CUT + 4
_LEAST_RUNS = 4
"""Two settings with small and large batches: without them there is nothing to plan from."""
_PATIENCE_S = 120.0
_SHORTEST_S, _LONGEST_S = 0.4, 2.5
"""What the rows of a large batch should take."""
_SPREAD = 8
"""How many times the rows of a small batch a large one has."""


@dataclass(frozen=True, slots=True)
class Step:
    """How profiling stands, for whoever watches."""

    doing: str
    done: int
    of: int
    batches: int


Watcher = Callable[[Step], None]


def take(
    spark: SparkSession,
    app: App,
    name: str,
    *,
    rate: float | None = None,
    warm_up: float = 15.0,
    seconds: float = 75.0,
    watch: Watcher = lambda step: None,
) -> Profile:
    """Profile an app, in about ``seconds``; on a slow machine it takes longer.

    Parameters
    ----------
    rate
        Rows a second that it is planned for: the first batches are of a quarter of a second and of
        two. How many rows the others have follows from how long those took.
    warm_up
        Seconds of a first run that is not counted: a JVM is slow at first.
    seconds
        Stops after that, with fewer settings or batches if need be.
    """
    began = time.monotonic()
    cluster = cluster_of(spark)
    window = 0.0
    folder = Path(tempfile.mkdtemp(prefix="taut-profile-"))
    several = runs(cluster)
    samples: list[Sample] = []
    try:
        warm: list[Sample] = []
        for guess in _guesses(rate):
            watch(Step(f"warming up, {guess:,} rows a batch", 0, 2 * len(several), 0))
            settings = several[0].but(cap=guess)
            found, window = _run(spark, app, settings, folder, _silent, warm_up / 2, 10_000)
            warm += found[-3:]
        small, large = _sizes(warm)
        todo = [run.but(cap=size) for run in several for size in (large, small)]
        for done, settings in enumerate(todo):
            left = seconds - (time.monotonic() - began)
            if left <= 0.0 and done >= _LEAST_RUNS:
                break
            within = max(3.0, left / (len(todo) - done))

            def tell(many: int, at: int = done, of: Settings = settings) -> None:
                watch(Step(f"{of}", at, len(todo), many))

            found, _ = _run(spark, app, settings, folder, tell, within, _BATCHES)
            samples += found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Profile(
        app=name,
        spark=spark.version,
        executors=cluster.executors,
        cores=cluster.cores,
        samples=samples,
        window=window,
        taken=time.time(),
    )


def runs(cluster: Cluster) -> list[Settings]:
    """As many tasks as slots, and one; between them half as many, where that is another number.

    Map and reduce are fitted apart: nothing is learnt from one lane with many reducers.
    """
    slots = cluster.slots
    return [Settings(tasks, tasks) for tasks in dict.fromkeys((slots, 1, max(1, slots // 2)))]


def _guesses(rate: float | None) -> tuple[int, int]:
    """Rows of batches while it warms up: a quarter of a second of them, and two."""
    return (10_000, 80_000) if rate is None else (max(1, round(rate / 4)), max(2, round(2 * rate)))


def _sizes(warm: Sequence[Sample]) -> tuple[int, int]:
    """Of small and of large batches, so that the rows of a large one take longer than all else.

    >>> few = Sample(1, 1, 1_000, 0, 0, {"plan": 0.52})
    >>> many = Sample(1, 1, 11_000, 0, 0, {"plan": 0.72})
    >>> _sizes([few, few, many])
    (4687, 37500)
    """
    few, many = (pick(warm, key=lambda sample: sample.rows) for pick in (min, max))
    if many.rows < 2 * few.rows:
        # the source gives what it gives: take that
        return few.rows, _SPREAD * few.rows
    each = max(1e-9, (many.total - few.total) / (many.rows - few.rows))
    fixed = max(0.0, few.total - each * few.rows)
    large = min(_LONGEST_S, max(_SHORTEST_S, 1.5 * fixed)) / each
    # rows that seem to cost nothing, on a machine with other things to do, are no reason for more
    large = min(large, _SPREAD * many.rows)
    return max(1, int(large / _SPREAD)), max(_SPREAD, round(large))


def _silent(many: int) -> None:
    """Says nothing."""


def _run(
    spark: SparkSession,
    app: App,
    settings: Settings,
    folder: Path,
    tell: Callable[[int], None],
    within: float,
    batches: int,
) -> tuple[list[Sample], float]:
    """Let it run until there are so many batches, or for so long from the first one on.

    Also tells how long its windows are.
    """
    checkpoint = tempfile.mkdtemp(dir=folder)
    with configured(spark, settings):
        frame, sink = made(app, spark, settings)
        meter = Meter(spark, sink, settings)
        writer = frame.writeStream.foreachBatch(meter).option("checkpointLocation", checkpoint)
        query = writer.trigger(**settings.trigger_options()).start()
    try:
        limit = time.monotonic() + _PATIENCE_S
        begun: float | None = None
        while (seen := len(meter.written)) < batches + _CUT + 1:
            now = time.monotonic()
            if not query.isActive:
                raise ProfileError(f"the app failed: {query.exception()}")
            if now > limit:
                raise ProfileError(
                    f"the app wrote {seen} batches within {_PATIENCE_S:g} s, and {_LEAST} are "
                    "needed: does its source have rows?"
                )
            begun = now if begun is None and seen else begun
            if begun is not None and now > begun + within and seen >= _LEAST:
                break
            tell(seen)
            time.sleep(_LOOK_S)
        found = meter.batches(query.recentProgress)
    finally:
        # one that has written nothing has no batch to wait for
        meter.stop(query, within=30.0 if meter.written else 0.0)
    samples = [batch.sample for batch in found[_CUT:] if batch.sample.rows]
    return samples, window_of(frame, sink)

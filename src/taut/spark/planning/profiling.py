"""Profiling: the real job runs at a few settings and sizes of batches, for a minute or two."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import ProfileError
from taut.planning.profile import Profile, Sample, Windows
from taut.planning.settings import Settings
from taut.planning.trials import BATCHES, CUT, SECONDS, guesses, largest, mixtures, trials
from taut.spark.planning.app import App, cluster_of, configured, made, windows_of
from taut.spark.planning.meter import Meter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.05
_LEAST = CUT + 4
_LEAST_RUNS = 5
"""Two settings with small and large batches: without them there is nothing to plan from."""
_PATIENCE_S = 120.0


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
    objective: float | None = None,
    warm_up: float = 12.0,
    seconds: float = SECONDS,
    watch: Watcher = lambda step: None,
) -> Profile:
    """Profile an app, in about ``seconds``; on a slow machine it takes longer.

    Parameters
    ----------
    rate
        Rows a second that it is planned for: the first batches are of a quarter of a second and of
        two. How many rows the others have follows from how long those took.
    objective
        Seconds of the objective that it is planned for: large batches are those that just meet it.
    warm_up
        Seconds of a first run that is not counted: a JVM is slow at first.
    seconds
        Stops after that, with fewer settings or batches if need be.
    """
    began = time.monotonic()
    cluster = cluster_of(spark)
    windows: Windows | None = None
    folder = Path(tempfile.mkdtemp(prefix="taut-profile-"))
    samples: list[Sample] = []
    try:
        warm: list[Sample] = []
        for guess in guesses(rate):
            watch(Step(f"warming up, {guess:,} rows a batch", 0, len(trials(cluster, guess)), 0))
            settings = mixtures(cluster)[0].but(cap=guess)
            found, windows = _run(spark, app, settings, folder, _silent, warm_up / 2, 10_000)
            warm += found[-3:]
        if not warm:
            raise ProfileError(
                f"{name}: no batch had a row: does its source have rows, and does its sink write "
                "what it is given?"
            )
        todo = trials(cluster, largest(warm, objective, windowed=windows is not None))
        for done, settings in enumerate(todo):
            left = seconds - (time.monotonic() - began)
            if left <= 0.0 and done >= _LEAST_RUNS:
                break
            within = max(3.0, left / (len(todo) - done))

            def tell(many: int, at: int = done, of: Settings = settings) -> None:
                watch(Step(f"{of}", at, len(todo), many))

            found, _ = _run(spark, app, settings, folder, tell, within, BATCHES)
            samples += found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Profile(
        app=name,
        spark=spark.version,
        executors=cluster.executors,
        cores=cluster.cores,
        samples=samples,
        windows=windows,
        taken=time.time(),
    )


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
) -> tuple[list[Sample], Windows | None]:
    """Let it run until there are so many batches, or for so long from the first one on.

    Also tells when its windows end.
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
        while (seen := len(meter.written)) < batches + CUT + 1:
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
    samples = [batch.sample for batch in found[CUT:] if batch.sample.rows]
    return samples, windows_of(frame, sink)

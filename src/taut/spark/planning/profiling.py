"""Profiling: the real job runs at a few settings and sizes of batches, for a minute or two."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from taut.errors import ProfileError
from taut.planning.latency import SHAPE_FROM
from taut.planning.profile import Profile, Sample, Windows
from taut.planning.settings import Settings
from taut.planning.trials import (
    BATCHES,
    CLOSER,
    CLOSER_BATCHES,
    CUT,
    SECONDS,
    closer,
    mixtures,
    settled,
    sized,
    trials,
)
from taut.slo import Slo
from taut.spark.planning.app import App, cluster_of, configured, made, windows_of
from taut.spark.planning.meter import Meter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.05
_LEAST, _LEAST_WARM = CUT + 4, CUT + 3
"""Batches of a run, also if it takes longer than it should."""
_LEAST_RUNS = 4
"""Two settings with small and large batches: without them there is nothing to plan from."""
_PATIENCE_S = 120.0
_WARM_UPS = 13.0
"""Of the seconds of a profile, the most that one of the runs of its warm-up takes is a part."""


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
    slo: Slo | None = None,
    warm_up: float = 6.0,
    seconds: float = SECONDS,
    watch: Watcher = lambda step: None,
) -> Profile:
    """Profile an app, in about ``seconds``; on a slow machine it takes longer.

    Parameters
    ----------
    rate
        Rows a second that it is planned for: the first batches are of a quarter of a second and of
        two. How many rows the others have follows from how long those took.
    slo
        The objective that it is planned for: large batches are those that just meet it, and the
        last part of the time is for the settings that a plan would have.
    warm_up
        Seconds of each of the first runs, which are not counted: a JVM is slow at first, and how
        many rows large batches should have is found with them.
    seconds
        Stops after that, with fewer settings or batches if need be.
    """
    began = time.monotonic()
    warm_up = min(warm_up, seconds / _WARM_UPS)
    cluster = cluster_of(spark)
    windows: Windows | None = None
    folder = Path(tempfile.mkdtemp(prefix="taut-profile-"))
    samples: list[Sample] = []
    try:
        most = mixtures(cluster)[0]

        def warmed(rows: int) -> list[Sample]:
            nonlocal windows
            watch(Step(f"warming up, {rows:,} rows a batch", 0, len(trials(cluster, rows)), 0))
            found, windows = _run(
                spark,
                app,
                most.but(cap=rows),
                folder,
                _silent,
                warm_up,
                10_000,
                least=_LEAST_WARM,
            )
            return found[-3:]

        objective = slo.seconds if slo else None
        large = sized(warmed, rate, objective, lambda: windows is not None)
        if not large:
            raise ProfileError(
                f"{name}: no batch had a row: does its source have rows, and does its sink write "
                "what it is given?"
            )
        todo = trials(cluster, large)
        many = len(todo) + (slo is not None)
        first = seconds * (1.0 - CLOSER) if slo else seconds

        def tried(settings: Settings, done: int, within: float, batches: int) -> list[Sample]:
            def tell(seen: int) -> None:
                watch(Step(f"{settings}", done, many, seen))

            return _run(spark, app, settings, folder, tell, within, batches)[0]

        for done, settings in enumerate(todo):
            left = first - (time.monotonic() - began)
            if left <= 0.0 and done >= _LEAST_RUNS:
                break
            samples += tried(settings, done, left / (len(todo) - done), BATCHES)
        profile = Profile(
            app=name,
            spark=spark.version,
            executors=cluster.executors,
            cores=cluster.cores,
            samples=samples,
            windows=windows,
            taken=time.time(),
        )
        left = seconds - (time.monotonic() - began)
        few = len(samples) < SHAPE_FROM
        if (left > 0.0 or few) and (last := closer(profile, slo, rate)):
            found = tried(last, many - 1, left, CLOSER_BATCHES)
            profile = replace(profile, samples=settled(samples, found), taken=time.time())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return profile


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
    least: int = _LEAST,
) -> tuple[list[Sample], Windows | None]:
    """Let it run until there are so many batches, or for so long if there are at least a few.

    Also tells when its windows end.
    """
    began = time.monotonic()
    checkpoint = tempfile.mkdtemp(dir=folder)
    with configured(spark, settings):
        frame, sink = made(app, spark, settings)
        windows = windows_of(frame, sink)
        meter = Meter(spark, sink, settings, windows)
        writer = frame.writeStream.foreachBatch(meter).option("checkpointLocation", checkpoint)
        query = writer.trigger(**settings.trigger_options()).start()
    try:
        limit = time.monotonic() + _PATIENCE_S
        while (seen := len(meter.written)) < batches + CUT + 1:
            now = time.monotonic()
            if not query.isActive:
                raise ProfileError(f"the app failed: {query.exception()}")
            if now > limit:
                raise ProfileError(
                    f"the app wrote {seen} batches within {_PATIENCE_S:g} s, and {least} are "
                    "needed: does its source have rows? If it is batches of "
                    f"{settings.cap or 0:,} rows that take so long, a lower rate makes the first "
                    "ones smaller"
                )
            if now > began + within and seen >= least:
                break
            tell(seen)
            time.sleep(_LOOK_S)
        found = meter.batches(query.recentProgress)
    finally:
        # one that has written nothing has no batch to wait for
        meter.stop(query, within=30.0 if meter.written else 0.0)
    samples = [batch.sample for batch in found[CUT:] if batch.sample.rows]
    return samples, windows

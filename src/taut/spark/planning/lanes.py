"""``taut.plan_resident``: a resident job runs for a while where its rows arrive, and is planned."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.errors import PlanError, ProfileError
from taut.planning.resident import (
    LEAST_PAUSES,
    LEAST_ROWS,
    ResidentPlan,
    Served,
    check_asked,
    corrected,
    make_resident,
    rows_of,
)
from taut.planning.settings import Settings
from taut.planning.trials import RESIDENT_SECONDS
from taut.slo import Slo
from taut.spark.planning.app import (
    App,
    aside,
    load_app,
    made,
    name_of,
    session_of,
    version_of,
)
from taut.spark.source.control import sources_of
from taut.spark.source.resident import PAUSE
from taut.watch import hub
from taut.watch.records import Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from taut.spark.planning.profiling import Watcher

_HORIZON_S = 2.0
"""Of a batch while it is profiled: short, to see several pauses."""
_LOOK_S = 0.1
_PATIENCE_S = 90.0
_MICRO = 1e6


def plan_resident(
    app: App | str | Path | None = None,
    *,
    slo: str | Slo,
    rate: float | None = None,
    lanes: int | None = None,
    profile: Served | str | Path | None = None,
    spark: SparkSession | None = None,
    name: str | None = None,
    seconds: float = RESIDENT_SECONDS,
    watch: Watcher = lambda step: None,
) -> ResidentPlan:
    """How many lanes a resident source needs, of which chunks, and how long its batches last.

    Parameters
    ----------
    app
        A function ``app(spark, settings)`` that gives a stream of one resident ``taut.read``, with
        the options ``settings.source()``, and the sink of its batches. It runs for ``seconds``
        where its rows arrive, unless ``profile`` is given.
    slo
        The objective of rows, from their arrival until a lane has written them.
    rate
        Rows a second. Without one, the plan is that with the highest rate.
    lanes
        The most that there may be; by default as many as Spark runs tasks.

    Raises
    ------
    Infeasible
        No settings meet the objective; says why, and what can be had.
    """
    objective = Slo(slo)
    check_asked(objective, rate, lanes)
    taken = profile is None
    if isinstance(profile, str | Path):
        profile = Served.load(profile)
    if profile is None:
        if app is None:
            raise PlanError("app= or profile= is needed: there is nothing to plan")
        if isinstance(app, str | Path):
            stem, app = load_app(app)
            name = name or stem
        found = session_of(spark)
        profile = serve(found, app, name or name_of(app), seconds=seconds, watch=watch)
    most = profile.lanes if lanes is None else lanes
    version = None if taken else version_of(spark)
    return make_resident(profile, objective, rate, most, spark=version)


def serve(
    spark: SparkSession,
    app: App,
    name: str,
    *,
    seconds: float = RESIDENT_SECONDS,
    watch: Watcher = lambda step: None,
) -> Served:
    """Profile a resident app, with short batches, for about so long from its first rows on."""
    from taut.spark.planning.profiling import Step

    settings = Settings(spark.sparkContext.defaultParallelism, chunk=1, horizon=_HORIZON_S)
    chunks: list[tuple[int, float]] = []
    worked: dict[str, tuple[int, float]] = {}
    query_name = f"{name}-profile"

    def hear(record: object) -> None:
        if isinstance(record, Source) and record.query == query_name:
            chunks.extend((each.rows, each.done - each.claimed) for each in record.chunks)
            rows = sum(lane.rows for lane in record.lanes)
            worked[record.source] = rows, sum(lane.busy for lane in record.lanes)

    folder = Path(tempfile.mkdtemp(prefix="taut-profile-"))
    hub.subscribe(hear)
    try:
        frame, sink = made(app, spark, settings)
        sources = sources_of(frame, query_name)
        if not sources.resident:
            raise PlanError(
                f"{name} is not resident: its app is to read with taut.read(..., "
                "timing='resident', **settings.source())"
            )
        sources.announce()
        try:
            with aside(spark, sink) as write:
                writer = frame.writeStream.foreachBatch(write).queryName(query_name)
                query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
                try:
                    pauses = _seen(query, name, chunks, seconds, lambda left, many: watch(
                        Step(f"{left:.0f} s left", round(seconds - left), round(seconds), many)
                    ))  # fmt: skip
                finally:
                    query.stop()
            sources.hear_out()
        finally:
            sources.release()
    finally:
        hub.unsubscribe(hear)
        shutil.rmtree(folder, ignore_errors=True)
    rows = corrected(rows_of(chunks), *worked.values())
    return Served(name, spark.version, settings.lanes, rows, pauses, time.time())


def _seen(
    query: StreamingQuery,
    name: str,
    chunks: list[tuple[int, float]],
    seconds: float,
    tell: Any,
) -> list[float]:
    """The pauses, once there are rows and pauses enough and the time is over."""
    limit = time.monotonic() + _PATIENCE_S + seconds
    until: float | None = None
    while True:
        now = time.monotonic()
        if not query.isActive:
            raise ProfileError(f"the app failed: {query.exception()}")
        pauses = _pauses(query)
        if chunks and until is None:
            until = now + seconds
        rows = len(rows_of(chunks))
        enough = rows >= LEAST_ROWS and len(pauses) >= LEAST_PAUSES
        if enough and until is not None and now >= until:
            return pauses
        if now > limit:
            raise ProfileError(
                f"{name}: {rows} rows and {len(pauses)} pauses between batches within "
                f"{_PATIENCE_S + seconds:g} s, and {LEAST_ROWS} and {LEAST_PAUSES} are needed: do "
                "rows arrive? a backlog has to be worked off before the first batch can end, so "
                "profile with startingOffsets='latest'"
            )
        tell(max(0.0, (until or now + seconds) - now), rows)
        time.sleep(_LOOK_S)


def _pauses(query: StreamingQuery) -> list[float]:
    """Between the batches of a query, as its source has told them."""
    found: dict[int, float] = {}
    for progress in query.recentProgress:
        for source in progress["sources"]:
            end = source["endOffset"]
            told = json.loads(end) if isinstance(end, str) else end
            if isinstance(told, dict) and PAUSE in told:
                found[int(progress["batchId"])] = told[PAUSE] / _MICRO
    # a first batch that started workers is no measure of those that follow
    return [found[number] for number in sorted(found)][1:]

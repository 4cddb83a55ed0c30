"""Apps: what can be profiled and planned, as a function or a file."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import PlanError
from taut.planning.profile import Windows
from taut.planning.settings import Cluster, Settings
from taut.spark.reduce.outcome import ReduceSink
from taut.spark.sinks import SinkFunction, beside, delete, file_paths
from taut.spark.source.control import options_of
from taut.spark.source.logs import open_log
from taut.spark.window import inspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("taut")

App = Callable[["SparkSession", Settings], tuple["DataFrame", SinkFunction]]
"""Given a session and settings, a streaming DataFrame and the sink of its batches. It is to read
with ``settings.lanes`` tasks, and at most ``settings.cap`` rows a batch; the number of reducers is
set as Spark's shuffle partitions before it is called."""


def load_app(path: str | Path) -> tuple[str, App]:
    """The function ``app`` of a Python file, and what to call it."""
    path = Path(path)
    if not path.is_file():
        raise PlanError(f"{path}: no such file; a Python file with a function app(spark, settings)")
    # workers find what the file defines by its name
    sys.path.insert(0, str(path.parent.resolve()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    app = getattr(module, "app", None)
    if not callable(app):
        raise PlanError(
            f"{path} has no function app(spark, settings) that gives a streaming DataFrame and a "
            "sink"
        )
    return path.stem, app


def session_of(spark: SparkSession | None) -> SparkSession:
    """The session that is given, or the one that is active."""
    from pyspark.sql import SparkSession

    found = spark or SparkSession.getActiveSession()
    if found is None:
        raise PlanError(
            "spark= is needed to profile: no session is active; taut.session() makes one"
        )
    return found


def version_of(spark: SparkSession | None) -> str | None:
    """Of the Spark that is there; None where there is none, to plan without."""
    from pyspark.sql import SparkSession

    found = spark or SparkSession.getActiveSession()
    return None if found is None else found.version


def name_of(app: App) -> str:
    """What to call an app: as its function is."""
    return getattr(app, "__name__", "app")


@contextlib.contextmanager
def configured(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """The session as the settings have it, for as long as a query is made and started."""
    before = {name: spark.conf.get(name, None) for name in settings.conf()}
    for name, value in settings.conf().items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)


def made(app: App, spark: SparkSession, settings: Settings) -> tuple[DataFrame, SinkFunction]:
    """What the app gives, checked."""
    given = app(spark, settings)
    if not (isinstance(given, tuple) and len(given) == 2 and callable(given[1])):
        raise PlanError(
            f"app gave {given!r}: a streaming DataFrame and a sink are needed, such as "
            "return frame, taut.sink('parquet', path='out')"
        )
    frame, sink = given
    if not getattr(frame, "isStreaming", False):
        raise PlanError(f"app gave {frame!r}: a streaming DataFrame is needed")
    _refuse_bytes(frame, settings)
    return frame, sink


def _refuse_bytes(frame: DataFrame, settings: Settings) -> None:
    """A cap is of rows, and would be taken for bytes: batches would be very short."""
    try:
        found = options_of(frame)
    except Exception as error:
        # the plan is Spark's own: one that reads otherwise has a source that is not known
        log.warning("the sources of an app are not known: %r", error)
        return
    for options in found:
        if (
            options is not None
            and options.get("log") == "files"
            and options.get("maxoffsetspertrigger") == str(settings.cap)
            and (unit := open_log(options).unit) != "rows"
        ):
            raise PlanError(
                f"app reads with maxOffsetsPerTrigger={settings.cap}, and an offset of this source "
                f"is one of its {unit}, not a row: give it as many {unit} as settings.cap rows "
                "have, such as maxOffsetsPerTrigger=120 * settings.cap"
            )


@contextlib.contextmanager
def aside(spark: SparkSession, sink: SinkFunction) -> Iterator[SinkFunction]:
    """The sink of a profile: files go beside those of the job, and are removed afterwards.

    Results of a profile are nobody's, and its queries write at the same time.
    """
    own = beside(sink, f"profile-{uuid.uuid4().hex[:8]}")
    try:
        yield own
    finally:
        for path in sorted({*file_paths(own)} - {*file_paths(sink)}):
            try:
                delete(spark, path)
            except Exception as error:  # what was measured is worth more
                log.warning("profile: %s could not be removed: %r", path, error)


def cluster_of(spark: SparkSession) -> Cluster:
    """The executors that Spark has now, and the cores of each."""
    context = spark.sparkContext
    jsc = context._jsc.sc()
    executors = jsc.statusTracker().getExecutorInfos()
    # the driver is among them; on a local master it is the only one
    many = max(1, len(executors) - 1)
    return Cluster(many, max(1, context.defaultParallelism // many))


def windows_of(frame: DataFrame, sink: SinkFunction) -> Windows | None:
    """The windows whose results come out last; None if rows do."""
    shape = inspect(frame)
    window = sink.window if isinstance(sink, ReduceSink) else shape.window
    if window is None:
        return None
    apart = window.slide >= window.length
    return Windows(window.slide, window.phase, shape.delay, apart)

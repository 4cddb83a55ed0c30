"""Apps: what can be profiled and planned, as a function or a file."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import PlanError
from taut.planning.profile import Windows
from taut.planning.settings import Cluster, Settings
from taut.spark.reduce.outcome import ReduceSink
from taut.spark.sinks import SinkFunction
from taut.spark.window import inspect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
    return frame, sink


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

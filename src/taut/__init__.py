"""Taut keeps PySpark streams on time."""

from typing import TYPE_CHECKING, Any

from taut.errors import (
    Abandoned,
    DataLost,
    EnvironmentProblem,
    JobError,
    LogError,
    LogFull,
    RuntimeStopped,
    SloError,
    StartError,
    TautError,
)
from taut.slo import Slo
from taut.spark.query import Query, Status
from taut.spark.runtime import Runtime
from taut.spark.session import session
from taut.spark.sinks import sink
from taut.spark.window import Window

if TYPE_CHECKING:
    from taut.spark.reduce.api import Reduced, map_reduce
    from taut.spark.reduce.job import Job
    from taut.spark.reduce.outcome import ReduceStats
    from taut.spark.source.follower import Stats
    from taut.spark.source.logs.memory import MemoryLog
    from taut.spark.source.read import Read, read, register

__version__ = "0.1.0"

__all__ = [
    "Abandoned",
    "DataLost",
    "EnvironmentProblem",
    "Job",
    "JobError",
    "LogError",
    "LogFull",
    "MemoryLog",
    "Query",
    "Read",
    "ReduceStats",
    "Reduced",
    "Runtime",
    "RuntimeStopped",
    "Slo",
    "SloError",
    "StartError",
    "Stats",
    "Status",
    "TautError",
    "Window",
    "__version__",
    "map_reduce",
    "read",
    "register",
    "session",
    "sink",
]

_LATER = {
    "Job": "taut.spark.reduce.job",
    "MemoryLog": "taut.spark.source.logs.memory",
    "Read": "taut.spark.source.read",
    "ReduceStats": "taut.spark.reduce.outcome",
    "Reduced": "taut.spark.reduce.api",
    "Stats": "taut.spark.source.follower",
    "map_reduce": "taut.spark.reduce.api",
    "read": "taut.spark.source.read",
    "register": "taut.spark.source.read",
}


def __getattr__(name: str) -> Any:
    """What needs pyarrow, which takes long to import: only for those who use it."""
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)

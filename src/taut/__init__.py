"""Taut keeps PySpark streams on time."""

from taut.errors import EnvironmentProblem, RuntimeStopped, SloError, StartError, TautError
from taut.slo import Slo
from taut.spark.query import Query, Status
from taut.spark.runtime import Runtime
from taut.spark.session import session
from taut.spark.sinks import sink
from taut.spark.window import Window

__version__ = "0.1.0"

__all__ = [
    "EnvironmentProblem",
    "Query",
    "Runtime",
    "RuntimeStopped",
    "Slo",
    "SloError",
    "StartError",
    "Status",
    "TautError",
    "Window",
    "__version__",
    "session",
    "sink",
]

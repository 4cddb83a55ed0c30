"""Taut keeps PySpark streams on time."""

from typing import TYPE_CHECKING, Any

from taut.errors import (
    Abandoned,
    DataLost,
    EnvironmentProblem,
    JobError,
    LogError,
    LogFull,
    PlanError,
    ProfileError,
    RuntimeStopped,
    SloError,
    StartError,
    TautError,
    WatchError,
)
from taut.slo import Slo
from taut.spark.query import Query
from taut.spark.runtime import Runtime
from taut.spark.session import session
from taut.spark.sinks import sink
from taut.spark.started import Status
from taut.spark.window import Window

if TYPE_CHECKING:
    from taut.planning.plan import Infeasible, Plan
    from taut.planning.profile import Profile
    from taut.planning.resident import ResidentPlan
    from taut.planning.settings import Cluster, Settings
    from taut.planning.shared import SharedPlan
    from taut.spark.planning.api import Demand, plan, plan_together
    from taut.spark.planning.lanes import plan_resident
    from taut.spark.reduce.api import Reduced, map_reduce
    from taut.spark.reduce.job import Job
    from taut.spark.reduce.outcome import ReduceStats
    from taut.spark.source.follower import Stats
    from taut.spark.source.logs.memory import MemoryLog
    from taut.spark.source.read import Read, read, register

__version__ = "0.1.0"

__all__ = [
    "Abandoned",
    "Cluster",
    "DataLost",
    "Demand",
    "EnvironmentProblem",
    "Infeasible",
    "Job",
    "JobError",
    "LogError",
    "LogFull",
    "MemoryLog",
    "Plan",
    "PlanError",
    "Profile",
    "ProfileError",
    "Query",
    "Read",
    "ReduceStats",
    "Reduced",
    "ResidentPlan",
    "Runtime",
    "RuntimeStopped",
    "Settings",
    "SharedPlan",
    "Slo",
    "SloError",
    "StartError",
    "Stats",
    "Status",
    "TautError",
    "WatchError",
    "Window",
    "__version__",
    "map_reduce",
    "plan",
    "plan_resident",
    "plan_together",
    "read",
    "register",
    "session",
    "sink",
]

_LATER = {
    "Cluster": "taut.planning.settings",
    "Demand": "taut.spark.planning.api",
    "Infeasible": "taut.planning.plan",
    "Job": "taut.spark.reduce.job",
    "MemoryLog": "taut.spark.source.logs.memory",
    "Plan": "taut.planning.plan",
    "Profile": "taut.planning.profile",
    "Read": "taut.spark.source.read",
    "ReduceStats": "taut.spark.reduce.outcome",
    "Reduced": "taut.spark.reduce.api",
    "ResidentPlan": "taut.planning.resident",
    "Settings": "taut.planning.settings",
    "SharedPlan": "taut.planning.shared",
    "Stats": "taut.spark.source.follower",
    "map_reduce": "taut.spark.reduce.api",
    "plan": "taut.spark.planning.api",
    "plan_resident": "taut.spark.planning.lanes",
    "plan_together": "taut.spark.planning.api",
    "read": "taut.spark.source.read",
    "register": "taut.spark.source.read",
}


def __getattr__(name: str) -> Any:
    """What needs pyarrow, which takes long to import: only for those who use it."""
    from importlib import import_module

    if name not in _LATER:
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)

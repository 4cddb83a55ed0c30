"""Workloads: streams and queries to measure with, each checked against a plain computation."""

from taut.workloads.columns import Delay
from taut.workloads.generator import Load, Schedule
from taut.workloads.registry import WORKLOADS, Workload, workload
from taut.workloads.windows import Windowing, WorkloadError

__all__ = [
    "WORKLOADS",
    "Delay",
    "Load",
    "Schedule",
    "Windowing",
    "Workload",
    "WorkloadError",
    "workload",
]

"""Which rows are worked on, and in which order, when not all of them can be on time."""

from __future__ import annotations

from taut.policy.deadline.groups import Alike, GroupedCostAware
from taut.policy.deadline.jobs import Job, Schedule
from taut.policy.deadline.recent import Recent
from taut.policy.deadline.schedules import SCHEDULES, CostAware, Dover, Edf, Fifo
from taut.policy.deadline.together import CHOICES, Choice
from taut.policy.deadline.tree import DeadlineTree

__all__ = [
    "CHOICES",
    "SCHEDULES",
    "Alike",
    "Choice",
    "CostAware",
    "DeadlineTree",
    "Dover",
    "Edf",
    "Fifo",
    "GroupedCostAware",
    "Job",
    "Recent",
    "Schedule",
]

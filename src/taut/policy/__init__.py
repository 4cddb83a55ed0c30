"""Pure decisions: values in, a decision out. No Spark, no I/O, no clock."""

from __future__ import annotations

from collections.abc import Callable

from taut.policy.memory import MemoryManaged, MemoryManagement
from taut.policy.order import Fcfs, HighestRate, RoundRobin, StreamBox
from taut.policy.slack import LeastSlack
from taut.policy.view import Decision, Policy, QueryView, Slack

__all__ = [
    "POLICIES",
    "Decision",
    "Fcfs",
    "HighestRate",
    "LeastSlack",
    "MemoryManaged",
    "MemoryManagement",
    "Policy",
    "QueryView",
    "RoundRobin",
    "Slack",
    "StreamBox",
]

POLICIES: dict[str, Callable[[], Policy]] = {
    "least-slack": lambda: MemoryManagement().build(LeastSlack()),
    "fcfs": Fcfs,
    "round-robin": RoundRobin,
    "highest-rate": HighestRate,
    "streambox": StreamBox,
}
"""The policies by name; each value builds a fresh one."""

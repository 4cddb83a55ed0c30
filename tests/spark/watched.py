"""A runtime for those who watch, without Spark."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from taut.policy import Fcfs
from taut.policy.turns import Turns


class Owner:
    """As much of a runtime as is watched."""

    policy_name, concurrency = "fcfs", 2

    def __init__(self) -> None:
        context = SimpleNamespace(master="local[2]", defaultParallelism=2)
        self.spark: Any = SimpleNamespace(version="4.3", sparkContext=context)
        self._turns = Turns(Fcfs(), concurrency=2)
        self._lock = threading.RLock()
        self.queries: dict[str, Any] = {}

    def overhead(self) -> float:
        return 0.0

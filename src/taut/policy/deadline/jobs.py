"""What is to be worked on, and what a schedule of it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Job:
    """One row: worth as much as any other if it is done by its deadline, and nothing after.

    Attributes
    ----------
    id
        Told apart by it.
    deadline
        When it must be done.
    cost
        Seconds that it is expected to take.
    """

    id: int
    deadline: float
    cost: float

    def __post_init__(self) -> None:
        if not self.deadline > -inf or not 0.0 <= self.cost < inf:
            raise ValueError(f"{self}: a deadline, and a cost from 0 on that ends, are needed")


class Schedule(Protocol):
    """Which row is next, and which are given up."""

    def release(self, batch: Sequence[Job], now: float) -> None:
        """Rows that have come together."""
        ...

    def next(self, now: float) -> Job | None:
        """The row to work on from now until it is done; None when there is none."""
        ...

    def given_up(self) -> list[Job]:
        """Rows that would not be on time, since the last call."""
        ...

    def __len__(self) -> int:
        """Rows that are kept."""
        ...

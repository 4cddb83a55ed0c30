"""Intervals: every query at its own rhythm, and first come first served where they meet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from taut.policy.view import Decision, QueryView

_SAME = 1e-4
"""Of an interval, by which a turn may be ahead of the clock and still count as on time."""


class Rhythm(NamedTuple):
    """Seconds from one batch to the next; due ``offset`` after each multiple of that."""

    interval: float
    offset: float = 0.0

    def after(self, turn: float) -> float:
        """When the next batch is due, after one whose turn began then.

        >>> Rhythm(2.0, 0.5).after(10.6), Rhythm(2.0, 0.5).after(12.5)
        (12.5, 14.5)
        """
        passed = math.floor((turn - self.offset) / self.interval + _SAME)
        return self.offset + (passed + 1) * self.interval


@dataclass(frozen=True, slots=True)
class Intervals:
    """A batch of each query whenever its interval has passed, as triggers do, in turns.

    Of several that are due the one goes first that has been for longest. One without a rhythm is
    due as soon as it is held.
    """

    rhythms: Mapping[str, Rhythm] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rhythm in self.rhythms.items():
            if not 0.0 < rhythm.interval < math.inf:
                raise ValueError(f"{name}: interval={rhythm.interval}: must be above 0 seconds")

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Choose the one that is due for longest, else wait for the first."""
        due = {query.name: self._due(query) for query in queries}
        first = min(due, key=lambda name: (due[name], name), default=None)
        if first is None:
            return Decision(None)
        return Decision(first) if due[first] <= now else Decision(None, again=due[first])

    def _due(self, query: QueryView) -> float:
        rhythm = self.rhythms.get(query.name)
        if rhythm is None or query.last_turn == -math.inf:
            return query.held_since
        return rhythm.after(query.last_turn)

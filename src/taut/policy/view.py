"""What a policy sees, and what it answers.

Times are seconds on one clock (the driver's wall clock on Spark, virtual time in a
simulation); a policy never asks for the time itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

Until = Literal["batch", "swept"]


@dataclass(frozen=True, slots=True)
class Delay:
    """How long after its event time the row that sweeps a window arrives: a normal estimate."""

    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Stream:
    """One input of a query: the event time that sweeps the next window, and its delay."""

    sweep: float
    delay: Delay


@dataclass(frozen=True, slots=True)
class Operator:
    """A step of a query's pipeline: rows queued before it, rows out per row in, seconds a row."""

    queued: float
    selectivity: float
    row_cost: float


@dataclass(frozen=True, slots=True)
class QueryView:
    """One query that is held and could be given a turn.

    Attributes
    ----------
    held_since
        When it was last held.
    last_turn
        When its last turn began; minus infinity before the first.
    oldest
        Arrival of the oldest row that it has not read.
    batch_cost
        Seconds that a batch costs however few rows it has.
    queued_cost
        Seconds that the waiting rows add to that.
    batches
        Batches between a turn's start and its output (on Spark two: ingest, then emit).
    streams
        Its inputs with the next window to sweep; empty when it has no window.
    objective
        L of its latency objective, in seconds.
    """

    name: str
    held_since: float
    last_turn: float
    oldest: float
    batch_cost: float
    queued_cost: float
    batches: int = 1
    streams: tuple[Stream, ...] = ()
    objective: float = 0.0
    operators: tuple[Operator, ...] = ()

    @property
    def cost(self) -> float:
        """Seconds from the start of a turn to its output."""
        return self.batches * self.batch_cost + self.queued_cost


@dataclass(frozen=True, slots=True)
class Slack:
    """Seconds a query can still be left alone, with the parts it was made of.

    ``value`` is the expectation of (arrival of the sweeping watermark - now) - ``cost``,
    plus the objective; ``due`` is the expected arrival, ``earliest`` to ``latest`` the
    interval that holds the stated share of arrivals.
    """

    value: float
    due: float
    earliest: float
    latest: float
    cost: float


@dataclass(frozen=True, slots=True)
class Decision:
    """Which query takes the next turn, for how long, and when to ask again if none does.

    ``slacks`` has those that the policy looked at to decide.
    """

    run: str | None
    until: Until = "batch"
    again: float | None = None
    slacks: Mapping[str, Slack] = field(default_factory=dict)


class Policy(Protocol):
    """Decides which of the held queries runs next.

    ``decide`` is called with a lock held that every batch takes: it must return at once, never
    wait for anything.
    """

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Choose among ``queries``; an empty sequence gives ``Decision(None)``."""
        ...

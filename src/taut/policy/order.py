"""The schedulers that least slack is compared with. All keep the machine busy at all times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.policy.view import Decision, QueryView


@dataclass(frozen=True, slots=True)
class Fcfs:
    """First come, first served: the query whose oldest unread row came first."""

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Choose by arrival of the oldest unread row."""
        chosen = min(queries, key=lambda q: (q.oldest, q.name), default=None)
        return Decision(chosen.name if chosen else None)


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """One batch each, in turn."""

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Choose the query whose last turn lies furthest back."""
        chosen = min(queries, key=lambda q: (q.last_turn, q.name), default=None)
        return Decision(chosen.name if chosen else None)


@dataclass(frozen=True, slots=True)
class HighestRate:
    """The query that puts out most rows a second of its running.

    The published priority is selectivity / cost of a row along the path. A micro-batch has a
    fixed cost, so a row's cost is what the waiting rows cost together, divided by their number.
    """

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Choose by output rate, the longest-waiting first among equals."""
        chosen = min(queries, key=lambda q: (-self._rate(q), q.last_turn, q.name), default=None)
        return Decision(chosen.name if chosen else None)

    @staticmethod
    def _rate(query: QueryView) -> float:
        selectivity = 1.0
        for operator in query.operators:
            selectivity *= operator.selectivity
        queued = sum(operator.queued for operator in query.operators)
        return selectivity * queued / max(query.cost, 1e-9)


@dataclass(frozen=True, slots=True)
class StreamBox:
    """The query with the nearest window end, until its watermark has been processed."""

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Choose by the next window's end; queries without a window by their oldest row."""
        chosen = min(queries, key=lambda q: (self._end(q), q.name), default=None)
        if chosen is None:
            return Decision(None)
        return Decision(chosen.name, "swept" if chosen.streams else "batch")

    @staticmethod
    def _end(query: QueryView) -> float:
        if not query.streams:
            return query.oldest + query.objective
        return min(s.sweep for s in query.streams)

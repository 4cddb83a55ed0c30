"""Memory management: under memory stress, first run what frees most.

When memory use reaches a bound, queries are ranked by the rows that running them removes:
queued rows x (1 - product of the selectivities up to the operator), limited to what fits in
one cycle; ties go to the least slack. This lasts until half of the memory in use has been
freed or a few seconds have passed; then slack counts again until the bound is met anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.policy.slack import LeastSlack
from taut.policy.view import Decision, Operator, QueryView, Slack


def freed_rows(operators: Sequence[Operator], cycle: float) -> float:
    """Most rows that one cycle of running the pipeline removes, over where it may be cut.

    >>> freed_rows([Operator(100, 0.25, 0.001)], cycle=1.0)
    75.0
    """
    return best_cut(operators, cycle)[0]


def best_cut(operators: Sequence[Operator], cycle: float) -> tuple[float, int]:
    """Most rows that one cycle removes, and of how many operators, from the first on, that is.

    >>> best_cut([Operator(100, 0.2, 0.001), Operator(0, 10.0, 0.001)], cycle=1.0)
    (80.0, 1)
    """
    best, cut = 0.0, 0
    queued = cost = 0.0
    kept = 1.0
    for n, operator in enumerate(operators, 1):
        queued += operator.queued
        cost += operator.row_cost
        kept *= operator.selectivity
        fits = min(queued, cycle / cost) if cost > 0 else queued
        if fits * (1.0 - kept) > best:
            best, cut = fits * (1.0 - kept), n
    return best, cut


@dataclass(frozen=True, slots=True)
class MemoryManagement:
    """The bound, how much is to be freed, and for how long at most."""

    bound: float = 0.85
    free: float = 0.5
    seconds: float = 3.0
    cycle: float = 0.12

    def __post_init__(self) -> None:
        if not 0.0 < self.bound <= 1.0:
            raise ValueError(f"bound={self.bound}: a share of memory above 0, at most 1")
        if not 0.0 < self.free <= 1.0:
            raise ValueError(f"free={self.free}: a share of what is in use above 0, at most 1")
        if not self.seconds > 0.0:
            raise ValueError(f"seconds={self.seconds}: must be above 0")
        if not self.cycle > 0.0:
            raise ValueError(f"cycle={self.cycle}: must be above 0 seconds, such as 0.12")

    def build(self, policy: LeastSlack) -> MemoryManaged:
        """A policy that obeys ``policy`` except under memory stress."""
        return MemoryManaged(self, policy)


class MemoryManaged:
    """Least slack with memory management; ``observe`` takes the share of memory in use."""

    def __init__(self, spec: MemoryManagement, policy: LeastSlack) -> None:
        self.spec = spec
        self.policy = policy
        self._used = 0.0
        self._until: float | None = None
        self._target = 0.0
        self._rested = True

    @property
    def stressed(self) -> bool:
        """Whether memory, not slack, decides at present."""
        return self._until is not None

    def observe(self, now: float, used: float) -> None:
        """Take the share of memory in use, 0 to 1."""
        self._used = used
        if used < self.spec.bound:
            self._rested = True
        elif self._until is not None:
            self._rested = False
        if self._until is not None and (now >= self._until or used <= self._target):
            self._until = None
        elif self._until is None and used >= self.spec.bound and self._rested:
            self._until = now + self.spec.seconds
            self._target = used * (1.0 - self.spec.free)
            self._rested = False

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        """Least slack, or under stress the query that frees most."""
        if self._until is not None and now >= self._until:
            self._until = None
        if self._until is None or not queries:
            return self.policy.decide(now, queries)
        freed = {q.name: freed_rows(q.operators, self.spec.cycle) for q in queries}
        most = max(freed.values())
        if most <= 0.0:
            return self.policy.decide(now, queries)
        best = [q for q in queries if freed[q.name] == most]
        slacks = {q.name: self.policy.slack(now, q) for q in queries}
        chosen = min(best, key=lambda q: (slacks[q.name].value, q.name))
        return Decision(chosen.name, "swept" if chosen.streams else "batch", None, slacks)

    def cut(self, query: QueryView) -> int:
        """Operators, from the first on, that a turn of the query runs: all but under stress.

        For an engine that can run a part of a pipeline: what frees most need not go to its end.
        """
        cut = best_cut(query.operators, self.spec.cycle)[1] if self.stressed else 0
        return cut or len(query.operators)

    def slack(self, now: float, query: QueryView) -> Slack:
        """A query's slack, whatever decides at present."""
        return self.policy.slack(now, query)

    def check(self) -> None:
        """Assert the invariants."""
        assert self._until is None or self._target < 1.0
        assert not (self._until is not None and self._rested and self._used >= self.spec.bound)

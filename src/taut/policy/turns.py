"""Who may run: the state machine that grants turns and keeps the rules a policy might break.

Events go in (a batch was planned, its rows were written, nothing came), grants come out. No
threads and no clock: the Spark runtime and a simulation drive the same object. A policy
suggests; this is the one place that enforces:

- at most ``concurrency`` turns at a time;
- no query is held past ``hold_limit`` while others run (no starvation);
- a turn ends after ``budget`` batches even if its window did not come out;
- a policy that raises is set aside and everything runs freely, as stock Spark would.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from taut.policy.view import Policy, QueryView, Slack, Until

Why = Literal["policy", "hold limit", "planned", "open"]
"""Who granted a turn: the policy; the limit of holding; nobody, for a batch was planned without a
turn and a slot was free; or a policy that had failed, after which everything runs."""


class State(enum.Enum):
    """Where a query stands."""

    LOOSE = "waiting for data"
    PLANNED = "planned"
    RUNNING = "running"
    HELD = "held"


@dataclass(slots=True)
class Turn:
    """The right to run one query until its due output is out; why, and since when it had waited."""

    started: float
    until: Until
    target: float | None
    why: Why
    waited_since: float
    batches: int = 0
    in_batch: bool = False


@dataclass(slots=True)
class _Entry:
    state: State = State.LOOSE
    since: float = 0.0
    last_turn: float = -math.inf
    turn: Turn | None = None
    slack: Slack | None = None


Views = Callable[[Sequence[str]], Sequence[QueryView]]


class Turns:
    """Grants turns to queries by a policy, within the rules above.

    Parameters
    ----------
    policy
        Suggests which held query runs next.
    concurrency
        Turns at a time.
    hold_limit
        Seconds after which a held query goes before all others.
    budget
        Batches a turn may take when its window does not come out.
    """

    def __init__(
        self, policy: Policy, *, concurrency: int = 1, hold_limit: float = 60.0, budget: int = 4
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency={concurrency}: at least 1 is needed")
        if budget < 1:
            raise ValueError(f"budget={budget}: at least 1 batch is needed")
        if hold_limit <= 0:
            raise ValueError(f"hold_limit={hold_limit}: must be above 0 seconds")
        self.policy = policy
        self.concurrency = concurrency
        self.hold_limit = hold_limit
        self.budget = budget
        self.failure: BaseException | None = None
        self._entries: dict[str, _Entry] = {}
        self._begun: list[tuple[_Entry, State, float]] = []

    @property
    def open(self) -> bool:
        """Whether the policy failed and queries run freely."""
        return self.failure is not None

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def names(self, state: State) -> list[str]:
        """The queries in a state, those longest in it first."""
        found = [n for n, e in self._entries.items() if e.state is state]
        return sorted(found, key=lambda n: (self._entries[n].since, n))

    def state(self, name: str) -> State:
        """Where a query stands."""
        return self._entries[name].state

    def since(self, name: str) -> float:
        """When it came there."""
        return self._entries[name].since

    def last_turn(self, name: str) -> float:
        """When its last turn began."""
        return self._entries[name].last_turn

    def turn(self, name: str) -> Turn | None:
        """The turn that it has."""
        return self._entries[name].turn

    def slack(self, name: str) -> Slack | None:
        """Its slack when the policy last looked at it."""
        return self._entries[name].slack

    def awaiting_batch(self, before: float) -> list[str]:
        """Queries whose turn began before a time and which have planned no batch since."""
        return [
            n
            for n, e in self._entries.items()
            if e.turn is not None and not e.turn.in_batch and e.since < before
        ]

    def add(self, name: str, now: float) -> None:
        """Take up a query; it is loose until it has planned a batch."""
        if name in self._entries:
            raise ValueError(f"{name!r} is already there")
        self._entries[name] = _Entry(since=now)

    def remove(self, name: str) -> None:
        """Forget a query that ended."""
        self._entries.pop(name, None)

    def planned(self, name: str, now: float) -> bool:
        """A batch is planned and about to run; True if it may, False if it must wait."""
        entry = self._entries[name]
        if entry.turn is not None:
            entry.turn.in_batch = True
            entry.since = now
            return True
        if self.open:
            self._start(entry, now, "batch", "open")
            return True
        self._move(entry, State.PLANNED, now)
        return False

    def written(self, name: str, now: float, watermark: float | None) -> bool:
        """A batch's rows are out; True if the turn goes on, False if the query is held.

        ``watermark`` is the one the batch ran with: all windows that end by it are out.
        """
        entry = self._entries[name]
        turn = entry.turn
        assert turn is not None, f"{name} wrote a batch without a turn"
        turn.batches += 1
        turn.in_batch = False
        entry.since = now
        if self.open or self._goes_on(turn, watermark):
            return True
        entry.turn = None
        self._move(entry, State.HELD, now)
        return False

    def idle(self, name: str, now: float) -> None:
        """A query with a turn found no data: its turn ends, it may plan when data comes."""
        entry = self._entries[name]
        entry.turn = None
        self._move(entry, State.LOOSE, now)

    def grant(self, now: float, views: Views) -> tuple[list[str], float | None]:
        """Grant what can be granted now; returns the names, and when to ask again at the latest."""
        self._begun.clear()
        try:
            return self._grant(now, views)
        except BaseException:
            # not a policy's error but an interrupt: nobody heard of what was granted
            for entry, state, since in self._begun:
                entry.turn = None
                self._move(entry, state, since)
            raise

    def _grant(self, now: float, views: Views) -> tuple[list[str], float | None]:
        granted: list[str] = []
        again: float | None = None
        while True:
            free = self.concurrency - len(self.names(State.RUNNING))
            waiting = self.names(State.PLANNED)
            held = self.names(State.HELD)
            if self.open:
                for name in waiting + held:
                    self._start(self._entries[name], now, "batch", "open")
                return granted + waiting + held, None
            if free <= 0 or not (waiting or held):
                return granted, again
            if waiting:
                self._start(self._entries[waiting[0]], now, "batch", "planned")
                granted.append(waiting[0])
                continue
            chosen, again = self._choose(now, held, views)
            if chosen is not None:
                granted.append(chosen)
            elif not self.open:
                return granted, again

    def fail(self, error: BaseException) -> None:
        """Set the policy aside: from here on everything is granted."""
        if self.failure is None:
            self.failure = error

    def check(self) -> None:
        """Assert the invariants."""
        running = self.names(State.RUNNING)
        assert self.open or len(running) <= self.concurrency, running
        for name, entry in self._entries.items():
            assert (entry.turn is not None) == (entry.state is State.RUNNING), name

    def _choose(self, now: float, held: list[str], views: Views) -> tuple[str | None, float | None]:
        # the same sum as is handed out below: a difference could round to just under the limit
        limit = self._entries[held[0]].since + self.hold_limit
        try:
            by_name = {v.name: v for v in views(held)}
            if now >= limit:
                view = by_name[held[0]]
                self._take(held[0], view, now, _until(now, view), "hold limit")
                return held[0], None
            decision = self.policy.decide(now, [by_name[n] for n in held])
            if decision.run is not None and decision.run not in by_name:
                raise LookupError(f"chose {decision.run!r}, which is not held")
            again = min(limit, math.inf if decision.again is None else decision.again)
            slacks = {n: decision.slacks[n] for n in held if n in decision.slacks}
        except Exception as error:  # R5: whatever a policy gets or does wrong, queries must go on
            self.failure = error
            return None, None
        for name, slack in slacks.items():
            self._entries[name].slack = slack
        if decision.run is None:
            return None, again
        self._take(decision.run, by_name[decision.run], now, decision.until, "policy")
        return decision.run, None

    def _take(self, name: str, view: QueryView, now: float, until: Until, why: Why) -> None:
        target = max((s.sweep for s in view.streams), default=None)
        self._start(self._entries[name], now, until, why, target)

    def _start(
        self,
        entry: _Entry,
        now: float,
        until: Until,
        why: Why,
        target: float | None = None,
    ) -> None:
        self._begun.append((entry, entry.state, entry.since))
        planned = entry.state is State.PLANNED
        entry.turn = Turn(now, until, target, why, entry.since, in_batch=planned)
        entry.last_turn = now
        self._move(entry, State.RUNNING, now)

    def _goes_on(self, turn: Turn, watermark: float | None) -> bool:
        if turn.until == "batch" or turn.target is None or watermark is None:
            return False
        return watermark < turn.target and turn.batches < self.budget

    @staticmethod
    def _move(entry: _Entry, state: State, now: float) -> None:
        entry.state = state
        entry.since = now


def _until(now: float, view: QueryView) -> Until:
    """How long a turn lasts that no policy asked for: a window that is due comes out with it."""
    return "swept" if view.streams and max(s.sweep for s in view.streams) <= now else "batch"

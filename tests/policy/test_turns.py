import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy import POLICIES, Decision, LeastSlack, Policy, QueryView, Slack
from taut.policy.turns import State, Turns
from taut.policy.view import Delay, Stream

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)


def view(name: str, *sweeps: float, held_since: float = 0.0, last_turn: float = 0.0) -> QueryView:
    return QueryView(
        name, held_since, last_turn, oldest=held_since, batch_cost=0.3, queued_cost=0.1,
        streams=tuple(Stream(sweep, Delay(0.1, 0.05)) for sweep in sweeps),
    )  # fmt: skip


def views(held: Sequence[str]) -> list[QueryView]:
    return [view(name, 10.0) for name in held]


@dataclass
class Says:
    """A policy that always gives the same answer."""

    answer: object
    asked: int = 0

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


@dataclass
class Favours:
    """A policy that has eyes for one query only."""

    name: str

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        there = self.name in {q.name for q in queries}
        return Decision(self.name if there else None, "swept")


@dataclass
class Newest:
    """A policy that gives the turn to whoever was held last."""

    def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
        return Decision(max(queries, key=lambda q: (q.held_since, q.name)).name, "swept")


def held(policy: object, *names: str, at: float = 0.0, **options: float) -> Turns:
    """Turns with these queries held since ``at``."""
    turns = Turns(Says(Decision(None)), **options)  # type: ignore[arg-type]
    for name in names:
        turns.add(name, at)
        assert not turns.planned(name, at)
        assert turns.grant(at, views)[0] == [name]
        assert not turns.written(name, at, None)
    turns.policy = policy  # type: ignore[assignment]
    turns.check()
    return turns


# --- a tiny machine on virtual time ---------------------------------------------------------

GAP = 0.05
LONGEST_BATCH = 0.8


@dataclass
class Machine:
    """Queries that plan, write, find nothing, die and are added, at random, under Turns."""

    turns: Turns
    rng: random.Random
    now: float = 0.0
    slide: float = 2.0
    most: int = 6
    births: int = 0
    watermark: dict[str, float] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    overtaken: dict[str, dict[str, int]] = field(default_factory=dict)
    longest_hold: float = 0.0
    _events: list[tuple[float, int, str, str]] = field(default_factory=list)
    _asked: set[float] = field(default_factory=set)
    _ids: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def longest_turn(self) -> float:
        return self.turns.budget * (LONGEST_BATCH + GAP) + GAP

    def later(self, seconds: float, what: str, name: str) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._ids), what, name))

    def birth(self) -> None:
        name = f"q{self.births}"
        self.births += 1
        self.turns.add(name, self.now)
        self.watermark[name] = self.now - 1.0
        self.later(self.rng.uniform(0.0, 1.0), "plan", name)
        if self.rng.random() < 0.3:
            self.later(self.rng.uniform(5.0, 60.0), "die", name)

    def views(self, names: Sequence[str]) -> list[QueryView]:
        return [
            view(
                name,
                (self.watermark[name] // self.slide + 1) * self.slide,
                held_since=self.turns.since(name),
                last_turn=self.turns.last_turn(name),
            )
            for name in names
        ]

    def run(self, seconds: float) -> None:
        for _ in range(self.most):
            self.birth()
        while self._events and self._events[0][0] <= seconds:
            self.now, _, what, name = heapq.heappop(self._events)
            if what == "birth":
                self.birth()
            elif what != "ask" and name in self.watermark:
                getattr(self, f"_{what}")(name)
            self.turns.check()
            self._grant()
            self.turns.check()

    def _plan(self, name: str) -> None:
        had_turn = self.turns.state(name) is State.RUNNING
        may = self.turns.planned(name, self.now)
        assert may == (had_turn or self.turns.open)
        if may:
            self.later(self.rng.uniform(0.05, LONGEST_BATCH), "write", name)

    def _write(self, name: str) -> None:
        self.batches[name] = self.batches.get(name, 0) + 1
        goes_on = self.turns.written(name, self.now, self.watermark[name])
        self.watermark[name] = self.now - self.rng.uniform(0.1, 0.5)
        assert goes_on == (self.turns.state(name) is State.RUNNING)
        if not self.turns.open:
            assert self.batches[name] <= self.turns.budget
        if goes_on:
            self.later(GAP, "idle" if self.rng.random() < 0.2 else "plan", name)

    def _idle(self, name: str) -> None:
        self.turns.idle(name, self.now)
        assert self.turns.state(name) is State.LOOSE
        self.later(self.rng.uniform(0.1, 2.0), "plan", name)

    def _die(self, name: str) -> None:
        del self.watermark[name]
        self.turns.remove(name)
        self.later(self.rng.uniform(0.1, 5.0), "birth", "")

    def _grant(self) -> None:
        before = {n: (self.turns.state(n), self.turns.since(n)) for n in self.watermark}
        names, again = self.turns.grant(self.now, self.views)
        assert len(set(names)) == len(names)
        for name in names:
            state, since = before[name]
            assert state in {State.PLANNED, State.HELD}
            assert self.turns.state(name) is State.RUNNING
            assert self.turns.last_turn(name) == self.now
            self._begin(name, state, since)
        if not self.turns.open:
            self._nobody_starves(again)
        if again is not None and again not in self._asked:
            self._asked.add(again)
            heapq.heappush(self._events, (max(again, self.now), next(self._ids), "ask", ""))

    def _begin(self, name: str, state: State, since: float) -> None:
        self.batches[name] = 0
        self.overtaken.pop(name, None)
        for passed in self.overtaken.values():
            passed[name] = passed.get(name, 0) + 1
        if state is State.PLANNED:
            self.later(self.rng.uniform(0.05, LONGEST_BATCH), "write", name)
        else:
            self.longest_hold = max(self.longest_hold, self.now - since)
            self.later(GAP, "idle" if self.rng.random() < 0.2 else "plan", name)

    def _nobody_starves(self, again: float | None) -> None:
        held = self.turns.names(State.HELD)
        free = self.turns.concurrency - len(self.turns.names(State.RUNNING))
        assert free >= 0
        starving = {n for n in held if self.now >= self.turns.since(n) + self.turns.hold_limit}
        if free:
            assert not self.turns.names(State.PLANNED)
            assert not starving
            assert not held or (again is not None and again > self.now)
        for name in [n for n in self.overtaken if n not in starving]:
            del self.overtaken[name]
        for name in starving:
            # twice: held for longer, then with a batch that it had planned meanwhile
            assert max(self.overtaken.setdefault(name, {}).values(), default=0) <= 2


POLICIES_AND_ADVERSARIES = {
    **POLICIES,
    "favours one": lambda: Favours("q0"),
    "newest": Newest,
    "never": lambda: Says(Decision(None)),
}


@pytest.mark.parametrize("concurrency", [1, 2, 5])
@pytest.mark.parametrize("name", POLICIES_AND_ADVERSARIES)
def test_rules_hold_under_any_policy(name: str, concurrency: int) -> None:
    for seed in range(4):
        policy: Policy = POLICIES_AND_ADVERSARIES[name]()
        turns = Turns(policy, concurrency=concurrency, hold_limit=4.0, budget=3)
        machine = Machine(turns, random.Random(seed))
        machine.run(120.0)
        assert turns.failure is None
        assert machine.births > 6
        ahead = 2 * (machine.births - 1) + 1
        assert machine.longest_hold <= 4.0 + ahead * machine.longest_turn


@pytest.mark.parametrize("name", ["favours one", "newest", "never"])
def test_an_adversary_is_overruled(name: str) -> None:
    """Steady queries: each hold ends after the limit and one turn of each other at most."""
    for seed in range(5):
        turns = Turns(POLICIES_AND_ADVERSARIES[name](), hold_limit=4.0, budget=3)
        machine = Machine(turns, random.Random(seed), most=4)
        machine.run(200.0)
        assert machine.longest_hold >= 4.0
        assert machine.longest_hold <= 4.0 + 4 * machine.longest_turn
        alive = list(machine.watermark)
        assert all(turns.last_turn(n) > 150.0 for n in alive if turns.since(n) < 150.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_policy_that_fails_midway(seed: int) -> None:
    @dataclass
    class Fails:
        left: int
        inner: LeastSlack

        def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
            self.left -= 1
            if self.left == 0:
                raise ZeroDivisionError("of a policy")
            return self.inner.decide(now, queries)

    policy = Fails(20 + seed, LeastSlack())
    turns = Turns(policy, hold_limit=5.0)
    machine = Machine(turns, random.Random(seed))
    machine.run(120.0)
    assert turns.open
    assert isinstance(turns.failure, ZeroDivisionError)
    assert policy.left == 0, "asked once more after it failed"
    assert not turns.names(State.HELD)
    assert not turns.names(State.PLANNED)


# --- rule by rule ---------------------------------------------------------------------------


def test_a_planned_batch_waits_for_a_slot_and_goes_first() -> None:
    turns = held(Says(Decision("a", "swept")), "a", "b")
    assert turns.grant(1.0, views) == (["a"], None)
    turns.add("new", 1.0)
    assert not turns.planned("new", 1.5)
    assert turns.state("new") is State.PLANNED
    assert turns.grant(1.5, views) == ([], None)
    assert not turns.written("a", 2.0, 10.0)
    assert turns.grant(2.0, views) == (["new"], None)
    assert turns.awaiting_batch(99.0) == []


def test_planned_batches_in_their_order() -> None:
    turns = Turns(Says(Decision(None)))
    for at, name in enumerate(["b", "c", "a"]):
        turns.add(name, 0.0)
        turns.planned(name, float(at))
    order = []
    for now in (5.0, 6.0, 7.0):
        (name,), _ = turns.grant(now, views)
        order.append(name)
        turns.written(name, now + 0.5, None)
    assert order == ["b", "c", "a"]


def test_concurrency() -> None:
    turns = held(LeastSlack(), *"abcde", concurrency=3)
    assert len(turns.grant(50.0, views)[0]) == 3
    assert turns.grant(50.0, views) == ([], None)
    turns.check()
    for name in "abcde":
        turns.remove(name)
    assert turns.grant(51.0, views) == ([], None)


def test_idle_frees_the_slot() -> None:
    turns = held(LeastSlack(), "a", "b")
    assert turns.grant(50.0, views)[0] == ["a"]
    turns.idle("a", 51.0)
    assert turns.state("a") is State.LOOSE
    assert turns.since("a") == 51.0
    assert turns.grant(51.0, views)[0] == ["b"]
    turns.check()


def test_removal_frees_the_slot() -> None:
    turns = held(LeastSlack(), "a", "b")
    assert turns.grant(50.0, views)[0] == ["a"]
    turns.remove("a")
    turns.check()
    assert turns.grant(51.0, views)[0] == ["b"]
    turns.remove("a")  # it may end twice: killed, and seen dead
    turns.add("a", 52.0)
    assert turns.state("a") is State.LOOSE


def test_a_turn_whose_query_plans_nothing_is_seen() -> None:
    turns = held(LeastSlack(), "a")
    turns.grant(50.0, views)
    assert turns.awaiting_batch(50.0) == []
    assert turns.awaiting_batch(50.1) == ["a"]
    assert turns.planned("a", 51.0)
    assert turns.awaiting_batch(99.0) == []
    assert turns.written("a", 52.0, 0.0)
    assert turns.awaiting_batch(52.1) == ["a"]


@STEADY
@given(
    watermarks=st.lists(st.floats(0, 20) | st.none(), min_size=8, max_size=8),
    sweeps=st.lists(st.floats(0, 20), min_size=1, max_size=2),
    budget=st.integers(1, 8),
)
def test_a_swept_turn_ends_with_its_window_or_its_budget(
    watermarks: list[float | None], sweeps: list[float], budget: int
) -> None:
    turns = held(Says(Decision("a", "swept")), "a", budget=budget)
    turns.grant(1.0, lambda _: [view("a", *sweeps)])
    for batch, watermark in enumerate(watermarks, start=1):
        assert turns.planned("a", float(batch))
        out = watermark is None or watermark >= max(sweeps)
        goes_on = turns.written("a", float(batch), watermark)
        assert goes_on == (not out and batch < budget)
        turns.check()
        if not goes_on:
            break
    assert turns.state("a") is State.HELD


@pytest.mark.parametrize("sweeps", [(), (10.0,)])
def test_a_batch_turn_is_one_batch(sweeps: tuple[float, ...]) -> None:
    until = "batch" if sweeps else "swept"
    turns = held(Says(Decision("a", until)), "a")  # type: ignore[arg-type]
    turns.grant(1.0, lambda _: [view("a", *sweeps)])
    assert turns.planned("a", 1.0)
    assert not turns.written("a", 2.0, 0.0)


def test_asks_again_when_the_policy_says_or_the_limit_comes() -> None:
    turns = held(Says(Decision(None, again=7.0)), "a", "b", hold_limit=20.0)
    assert turns.grant(1.0, views) == ([], 7.0)
    turns.policy = Says(Decision(None))
    assert turns.grant(1.0, views) == ([], 20.0)
    turns.policy = Says(Decision(None, again=99.0))
    assert turns.grant(1.0, views) == ([], 20.0)


@STEADY
@given(at=st.floats(0, 2e9), limit=st.floats(0.001, 1000))
def test_held_to_the_limit_it_runs_when_asked_again(at: float, limit: float) -> None:
    """In floats (since + limit) - since may fall short of the limit: nobody must spin on that."""
    turns = held(Says(Decision(None)), "a", at=at, hold_limit=limit)
    again = at + limit
    if again > at:
        assert turns.grant(at, views) == ([], again)
    assert turns.grant(again, views) == (["a"], None)


def test_the_longest_held_past_the_limit_goes_first() -> None:
    turns = Turns(Favours("c"), hold_limit=10.0)
    for at, name in enumerate(["b", "a", "c"]):
        turns.add(name, 0.0)
        turns.planned(name, float(at))
        turns.grant(float(at), views)
        turns.written(name, float(at), None)
    order = []
    for now in (9.0, 12.0, 12.5):
        (name,), _ = turns.grant(now, views)
        order.append(name)
        turns.written(name, now, 10.0)
    assert order == ["c", "b", "a"]


def test_slacks_are_kept() -> None:
    slack = Slack(1.0, 2.0, 1.5, 2.5, 0.3)
    turns = held(Says(Decision(None, slacks={"a": slack, "gone": slack})), "a", "b")
    assert turns.slack("a") is None
    turns.grant(1.0, views)
    assert turns.slack("a") == slack
    assert turns.slack("b") is None
    assert not turns.open


GARBAGE = [
    ValueError("no idea"),
    None,
    42,
    "a",
    Decision("nobody"),
    Decision(["a"]),  # type: ignore[arg-type]
    Decision(None, again="soon"),  # type: ignore[arg-type]
    Decision(None, slacks=None),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("answer", GARBAGE, ids=repr)
def test_a_failing_policy_opens(answer: object) -> None:
    """R5: all run as stock Spark would, from then on."""
    policy = Says(answer)
    turns = held(policy, "a", "b", "c")
    turns.add("loose", 0.0)
    assert turns.grant(1.0, views) == (["a", "b", "c"], None)
    assert turns.open
    failure = turns.failure
    assert isinstance(failure, Exception)
    if isinstance(answer, Exception):
        assert failure is answer
    turns.check()

    turns.add("new", 2.0)
    for name in ("a", "b", "c", "loose", "new"):
        assert turns.planned(name, 3.0)
    for now in range(4, 20):
        for name in ("a", "b", "c", "loose", "new"):
            assert turns.written(name, float(now), 0.0)
            assert turns.planned(name, float(now))
    turns.idle("a", 20.0)
    assert turns.grant(20.0, views) == ([], None)
    assert turns.planned("a", 21.0)
    turns.remove("b")
    turns.check()
    assert policy.asked == 1
    assert turns.failure is failure


def test_a_failure_lets_waiting_batches_go_too() -> None:
    turns = held(Says(Decision("a", "swept")), "a", "b")
    turns.grant(1.0, views)
    turns.add("new", 1.0)
    turns.planned("new", 1.0)
    turns.failure = RuntimeError("seen elsewhere")
    assert turns.grant(1.0, views) == (["new", "b"], None)
    assert turns.awaiting_batch(9.0) == ["a", "b"]
    turns.check()


def test_an_interrupt_is_not_swallowed() -> None:
    class Interrupted:
        def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
            raise KeyboardInterrupt

    turns = held(Interrupted(), "a")
    with pytest.raises(KeyboardInterrupt):
        turns.grant(1.0, views)
    assert not turns.open


def test_a_query_is_there_once() -> None:
    turns = held(LeastSlack(), "a")
    with pytest.raises(ValueError, match="'a' is already there"):
        turns.add("a", 1.0)


def test_a_write_without_a_turn_is_a_defect() -> None:
    turns = held(LeastSlack(), "a")
    with pytest.raises(AssertionError, match="without a turn"):
        turns.written("a", 1.0, None)


def test_before_the_first_turn() -> None:
    turns = Turns(LeastSlack())
    turns.add("a", 3.0)
    assert turns.last_turn("a") == -math.inf
    assert turns.names(State.LOOSE) == ["a"]
    assert turns.grant(4.0, views) == ([], None)


@pytest.mark.parametrize(
    ("options", "named"), [({"concurrency": 0}, "concurrency=0"), ({"hold_limit": 0}, "hold_limit")]
)
def test_refuses(options: dict[str, int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Turns(LeastSlack(), **options)


@pytest.mark.parametrize(("sweep", "goes_on"), [(60.0, False), (4.0, True)])
def test_a_turn_by_the_limit_lasts_for_a_window_only_if_that_is_due(
    sweep: float, goes_on: bool
) -> None:
    """Else it would take its whole budget of batches, for a window that cannot come out."""
    turns = held(Says(Decision(None)), "a", hold_limit=5.0)
    assert turns.grant(5.0, lambda _: [view("a", sweep)]) == (["a"], None)
    assert turns.planned("a", 5.0)
    assert turns.written("a", 5.5, watermark=3.0) is goes_on


def test_an_interrupt_takes_back_what_nobody_heard_of() -> None:
    """A query that was granted in the same call would else wait for ever."""

    class Interrupted:
        def decide(self, now: float, queries: Sequence[QueryView]) -> Decision:
            raise KeyboardInterrupt

    turns = held(Interrupted(), "a", concurrency=2)
    turns.add("b", 0.0)
    assert not turns.planned("b", 1.0)
    with pytest.raises(KeyboardInterrupt):
        turns.grant(2.0, views)
    turns.check()
    assert (turns.state("a"), turns.state("b")) == (State.HELD, State.PLANNED)
    turns.fail(KeyboardInterrupt())
    assert sorted(turns.grant(3.0, views)[0]) == ["a", "b"]


def test_a_turn_says_why_it_was_granted_and_since_when_it_was_waited_for() -> None:
    turns = Turns(Says(Decision(None)), hold_limit=60.0)
    turns.add("q", 0.0)
    assert turns.turn("q") is None
    turns.planned("q", 1.0)
    turns.grant(2.0, views)
    assert (turns.turn("q").why, turns.turn("q").waited_since) == ("planned", 1.0)
    turns.written("q", 3.0, None)
    turns.policy = Says(Decision("q"))
    turns.grant(4.0, views)
    assert (turns.turn("q").why, turns.turn("q").waited_since) == ("policy", 3.0)
    turns.written("q", 5.0, None)
    turns.policy = Says(Decision(None))
    turns.grant(65.0, views)
    assert (turns.turn("q").why, turns.turn("q").waited_since) == ("hold limit", 5.0)
    turns.written("q", 66.0, None)
    turns.policy = Says(ValueError("no"))
    turns.grant(67.0, views)
    assert (turns.turn("q").why, turns.turn("q").waited_since) == ("open", 66.0)
    turns.add("late", 70.0)
    assert turns.planned("late", 71.0)
    assert (turns.turn("late").why, turns.turn("late").waited_since) == ("open", 70.0)

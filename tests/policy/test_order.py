import dataclasses
import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy import Decision, Fcfs, HighestRate, Policy, QueryView, RoundRobin, StreamBox
from taut.policy.view import Delay, Operator, Stream

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=60)
CERTAIN = Delay(0.0, 0.0)


def query(name: str, **fields: object) -> QueryView:
    view = QueryView(name, 0.0, -math.inf, oldest=0.0, batch_cost=1.0, queued_cost=0.0)
    return dataclasses.replace(view, **fields)  # type: ignore[arg-type]


OPERATORS = st.lists(
    st.builds(Operator, st.floats(0, 1e4), st.floats(0, 2), st.floats(0, 1)), max_size=3
).map(tuple)
STREAMS = st.lists(st.builds(Stream, st.floats(0, 50), st.just(CERTAIN)), max_size=2).map(tuple)
QUERIES = st.lists(
    st.builds(
        query,
        name=st.just(""),
        oldest=st.floats(0, 100),
        last_turn=st.floats(0, 100) | st.just(-math.inf),
        batch_cost=st.floats(0.01, 2),
        queued_cost=st.floats(0, 5),
        batches=st.integers(1, 2),
        objective=st.floats(0, 10),
        operators=OPERATORS,
        streams=STREAMS,
    ),
    min_size=1,
    max_size=6,
).map(lambda views: [dataclasses.replace(v, name=f"q{i}") for i, v in enumerate(views)])

ALL: list[Policy] = [Fcfs(), RoundRobin(), HighestRate(), StreamBox()]


@pytest.mark.parametrize("policy", ALL, ids=lambda p: type(p).__name__)
def test_nothing_to_choose(policy: Policy) -> None:
    assert policy.decide(1.0, []) == Decision(None)


@pytest.mark.parametrize("policy", ALL, ids=lambda p: type(p).__name__)
@STEADY
@given(queries=QUERIES, data=st.data())
def test_never_idle_and_blind_to_order(
    policy: Policy, queries: list[QueryView], data: st.DataObject
) -> None:
    decision = policy.decide(1.0, queries)
    assert decision.run in {q.name for q in queries}
    assert policy.decide(1.0, data.draw(st.permutations(queries))) == decision


@STEADY
@given(queries=QUERIES)
def test_first_come_first_served(queries: Sequence[QueryView]) -> None:
    chosen = Fcfs().decide(1.0, queries)
    oldest = {q.name: q.oldest for q in queries}
    assert oldest[chosen.run or ""] == min(oldest.values())
    assert chosen.until == "batch"


def test_first_come_first_served_takes_turns_when_rows_keep_coming() -> None:
    policy, oldest, served = Fcfs(), {"a": 0.0, "b": 1.0, "c": 2.0}, Counter[str]()
    for turn in range(300):
        run = policy.decide(turn, [query(n, oldest=at) for n, at in oldest.items()]).run
        assert run is not None
        oldest[run] = 10.0 + turn
        served[run] += 1
    assert set(served.values()) == {100}


def test_round_robin_serves_each_once_a_cycle() -> None:
    policy, last, order = RoundRobin(), dict.fromkeys("cabde", -math.inf), []
    for turn in range(1000):
        run = policy.decide(turn, [query(n, last_turn=at) for n, at in last.items()]).run
        assert run is not None
        last[run] = float(turn)
        order.append(run)
    for start in range(0, 1000, 5):
        assert order[start : start + 5] == list("abcde")


def test_round_robin_starves_nobody_when_queries_come_and_go() -> None:
    """A query that is held at every other turn waits at most for all others, twice."""
    policy, last, served = RoundRobin(), dict.fromkeys("abcdef", -math.inf), dict[str, int]()
    for turn in range(2000):
        held = [n for i, n in enumerate(last) if (turn + i) % 2]
        run = policy.decide(turn, [query(n, last_turn=last[n]) for n in held]).run
        assert run is not None
        assert turn - served.get(run, 0) <= 2 * len(last)
        last[run] = served[run] = turn
    assert set(served) == set(last)
    assert all(turn >= 2000 - 2 * len(last) for turn in served.values())


def rate(view: QueryView) -> float:
    """Rows out for each second of running what is queued."""
    rows = sum(o.queued for o in view.operators)
    kept = math.prod(o.selectivity for o in view.operators)
    return rows * kept / (view.batches * view.batch_cost + view.queued_cost)


@STEADY
@given(queries=QUERIES)
def test_highest_rate(queries: Sequence[QueryView]) -> None:
    decision = HighestRate().decide(1.0, queries)
    rates = {q.name: rate(q) for q in queries}
    assert rates[decision.run or ""] == pytest.approx(max(rates.values()))
    assert decision.until == "batch"


def test_highest_rate_prefers_the_productive_and_the_cheap() -> None:
    filtering = query("a", operators=(Operator(100, 0.1, 0.0),))
    passing = query("b", operators=(Operator(100, 0.9, 0.0),))
    dear = query("c", operators=(Operator(100, 0.9, 0.0),), queued_cost=5.0)
    assert HighestRate().decide(1.0, [filtering, passing, dear]).run == "b"


def test_highest_rate_takes_turns_among_equals() -> None:
    policy, last, served = HighestRate(), dict.fromkeys("abc", -math.inf), Counter[str]()
    for turn in range(300):
        run = policy.decide(turn, [query(n, last_turn=at) for n, at in last.items()]).run
        assert run is not None
        last[run] = float(turn)
        served[run] += 1
    assert set(served.values()) == {100}


@STEADY
@given(queries=QUERIES)
def test_streambox_takes_the_nearest_end(queries: Sequence[QueryView]) -> None:
    decision = StreamBox().decide(1.0, queries)
    ends = {
        q.name: min((s.sweep for s in q.streams), default=q.oldest + q.objective) for q in queries
    }
    assert decision.run is not None
    assert ends[decision.run] == min(ends.values())
    windowed = {q.name: bool(q.streams) for q in queries}
    assert decision.until == ("swept" if windowed[decision.run] else "batch")


def test_streambox_stays_until_the_window_is_out() -> None:
    near, far = (query(n, streams=(Stream(end, CERTAIN),)) for n, end in (("a", 10.0), ("b", 10.5)))
    assert StreamBox().decide(0.0, [far, near]) == Decision("a", "swept")

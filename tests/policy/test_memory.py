import dataclasses
import doctest
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import taut.policy.memory
from taut.policy import LeastSlack, MemoryManaged, MemoryManagement, QueryView
from taut.policy.memory import best_cut, freed_rows
from taut.policy.view import Delay, Operator, Stream

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)
OPERATORS = st.lists(
    st.builds(
        Operator,
        queued=st.floats(0, 1e5),
        selectivity=st.floats(0, 3),
        row_cost=st.floats(0, 0.01),
    ),
    max_size=5,
)


def query(name: str, rows: float, selectivity: float = 0.5, sweep: float = 100.0) -> QueryView:
    return QueryView(
        name, held_since=0.0, last_turn=0.0, oldest=0.0, batch_cost=0.3, queued_cost=0.1,
        streams=(Stream(sweep, Delay(0.2, 0.1)),),
        operators=(Operator(rows, selectivity, 1e-6),),
    )  # fmt: skip


def managed(**fields: float) -> MemoryManaged:
    return MemoryManagement(**fields).build(LeastSlack())


@STEADY
@given(operators=OPERATORS, cycle=st.floats(0.01, 2))
def test_freed_rows_is_the_best_cut(operators: list[Operator], cycle: float) -> None:
    """Every cut of the pipeline, each worked out from its beginning."""
    best = 0.0
    for cut in range(1, len(operators) + 1):
        part = operators[:cut]
        rows = sum(o.queued for o in part)
        seconds = sum(o.row_cost for o in part)
        if seconds > 0:
            rows = min(rows, cycle / seconds)
        best = max(best, rows * (1 - float(np.prod([o.selectivity for o in part]))))
    assert freed_rows(operators, cycle) == pytest.approx(best, abs=1e-9)


def test_freed_rows_examples() -> None:
    assert doctest.testmod(taut.policy.memory).failed == 0
    assert freed_rows([], 1.0) == 0.0
    assert freed_rows([Operator(100, 2.0, 0.0)], 1.0) == 0.0  # it makes more than it takes
    assert freed_rows([Operator(100, 0.0, 0.1)], 1.0) == pytest.approx(10.0)  # what fits
    # cut before the operator that multiplies the rows again
    assert freed_rows([Operator(100, 0.2, 0.0), Operator(0, 10.0, 0.0)], 1.0) == 80.0


@STEADY
@given(operators=OPERATORS, cycle=st.floats(0.01, 2))
def test_a_cut_frees_what_is_said(operators: list[Operator], cycle: float) -> None:
    freed, cut = best_cut(operators, cycle)
    assert freed == freed_rows(operators[:cut], cycle) == freed_rows(operators, cycle)
    assert cut == 0 or freed > freed_rows(operators[: cut - 1], cycle)


def test_a_pipeline_is_cut_under_stress_only() -> None:
    policy = managed()
    steps = (Operator(100, 0.2, 1e-6), Operator(10, 3.0, 1e-6), Operator(0, 1.0, 1e-6))
    filters = dataclasses.replace(query("a", 10), operators=steps)
    stays = dataclasses.replace(query("b", 10), operators=(Operator(10, 1.0, 1e-6),))
    assert (policy.cut(filters), policy.cut(stays)) == (3, 1)
    policy.observe(0.0, 0.9)
    assert (policy.cut(filters), policy.cut(stays)) == (1, 1)


@STEADY
@given(operators=OPERATORS, cycle=st.floats(0.01, 2), longer=st.floats(1, 5))
def test_freed_rows_grow_with_the_cycle(
    operators: list[Operator], cycle: float, longer: float
) -> None:
    assert 0.0 <= freed_rows(operators, cycle) <= freed_rows(operators, cycle * longer) + 1e-9


def test_enters_at_the_bound() -> None:
    policy = managed()
    for used, stressed in [(0.1, False), (0.8499, False), (0.85, True)]:
        policy.observe(0.0, used)
        policy.check()
        assert policy.stressed is stressed


def test_leaves_when_half_is_freed() -> None:
    policy = managed()
    policy.observe(0.0, 0.9)
    policy.observe(1.0, 0.46)
    assert policy.stressed
    policy.observe(1.1, 0.45)
    assert not policy.stressed
    policy.check()


@pytest.mark.parametrize("by", ["observe", "decide"])
def test_leaves_after_three_seconds(by: str) -> None:
    policy = managed()
    policy.observe(10.0, 0.9)
    for now, stressed in [(12.99, True), (13.0, False)]:
        if by == "observe":
            policy.observe(now, 0.9)
        else:
            policy.decide(now, [query("a", 10)])
        assert policy.stressed is stressed
        policy.check()


def test_does_not_come_back_before_use_was_below_the_bound() -> None:
    policy = managed()
    policy.observe(0.0, 0.95)
    for now in range(3, 60):
        policy.observe(float(now), 0.95)
        assert not policy.stressed
        policy.check()
    policy.observe(60.0, 0.84)
    assert not policy.stressed
    policy.observe(61.0, 0.85)
    assert policy.stressed
    policy.check()


def test_a_dip_under_stress_is_no_rest() -> None:
    """Below the bound and back at it before half was freed: stress goes on, but not anew."""
    policy = managed()
    for now, used in [(0.0, 0.9), (1.0, 0.8), (2.0, 0.9)]:
        policy.observe(now, used)
        policy.check()
        assert policy.stressed
    for now in (3.0, 4.0, 5.0):
        policy.observe(now, 0.9)
        policy.check()
        assert not policy.stressed


def test_a_low_bound_is_sound() -> None:
    policy = managed(bound=0.3)
    policy.observe(0.0, 0.9)
    policy.check()
    assert policy.stressed


@pytest.mark.parametrize("seed", range(20))
def test_against_a_plain_reading(seed: int) -> None:
    """A random walk of memory use: stress is what the three sentences of the rule say."""
    rng = random.Random(seed)
    policy = managed()
    now, used, began, at_begin, rested = 0.0, 0.5, -1.0, 0.0, True
    for _ in range(500):
        now += rng.uniform(0.05, 0.6)
        used = min(1.0, max(0.0, used + rng.gauss(0.0, 0.15)))
        policy.observe(now, used)
        policy.check()
        rested = used < 0.85 or (rested and began < 0)
        if began >= 0 and (now >= began + 3.0 or used <= at_begin / 2):
            began = -1.0
        elif began < 0 and used >= 0.85 and rested:
            began, at_begin, rested = now, used, False
        assert policy.stressed == (began >= 0)


def test_under_stress_what_frees_most_goes_first() -> None:
    policy = managed()
    late, big = query("a", 10, sweep=1.0), query("b", 1000)
    assert policy.decide(5.0, [late, big]).run == "a"
    policy.observe(5.0, 0.9)
    decision = policy.decide(5.0, [late, big])
    assert (decision.run, decision.until) == ("b", "swept")
    assert set(decision.slacks) == {"a", "b"}
    assert policy.decide(8.0, [late, big]).run == "a"


def test_many_rows_that_stay_free_nothing() -> None:
    policy = managed()
    policy.observe(0.0, 0.9)
    assert policy.decide(0.0, [query("a", 9000, 0.99), query("b", 1000, 0.1)]).run == "b"


def test_a_tie_goes_to_the_least_slack() -> None:
    policy = managed()
    policy.observe(0.0, 0.9)
    far, near = query("a", 100, sweep=90.0), query("b", 100, sweep=50.0)
    assert policy.decide(0.0, [far, near]).run == "b"
    twin = dataclasses.replace(far, name="c")
    assert policy.decide(0.0, [twin, far]).run == "a"


def test_slack_counts_when_nothing_can_be_freed() -> None:
    policy = managed()
    policy.observe(0.0, 0.9)
    queries = [query("a", 100, 1.0, sweep=90.0), query("b", 0, 0.1), query("c", 50, 2.0)]
    assert policy.decide(0.0, queries) == LeastSlack().decide(0.0, queries)
    assert policy.decide(0.0, []).run is None


def test_without_stress_it_is_its_policy() -> None:
    policy = managed()
    policy.observe(0.0, 0.5)
    queries = [query("a", 10, sweep=4.0), query("b", 1000, sweep=2.0)]
    for now in (0.0, 3.0, 9.0):
        assert policy.decide(now, queries) == LeastSlack().decide(now, queries)


@pytest.mark.parametrize("bound", [0.0, -1.0, 1.01])
def test_refuses(bound: float) -> None:
    with pytest.raises(ValueError, match=f"bound={bound}"):
        managed(bound=bound)


@pytest.mark.parametrize(
    ("given", "told"),
    [({"free": 0.0}, "free=0.0"), ({"seconds": 0.0}, "seconds=0.0"), ({"cycle": 0.0}, "cycle=0.0")],
)
def test_wrong_parameters_are_refused(given: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        managed(**given)

"""Every query at its own rhythm."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.policy.intervals import Intervals, Rhythm
from taut.policy.turns import Turns
from taut.policy.view import QueryView


def view(name: str, last_turn: float, held_since: float = 0.0) -> QueryView:
    return QueryView(name, held_since, last_turn, 0.0, 0.0, 0.0)


def test_nothing_runs_before_it_is_due() -> None:
    policy = Intervals({"a": Rhythm(2.0), "b": Rhythm(3.0, 1.0)})
    held = [view("a", 10.1), view("b", 10.2)]
    waiting = policy.decide(11.0, held)
    assert (waiting.run, waiting.again) == (None, 12.0)
    assert policy.decide(12.0, held).run == "a"
    # at 13 both are due, b since then and a for longer
    assert policy.decide(13.0, held).run == "a"
    assert policy.decide(13.0, held[1:]).run == "b"
    assert policy.decide(13.0, held).until == "batch"
    assert policy.decide(13.0, []).run is None


def test_the_first_turn_and_strangers_are_due_at_once() -> None:
    policy = Intervals({"a": Rhythm(2.0)})
    assert policy.decide(5.0, [view("a", -math.inf, 4.0)]).run == "a"
    assert policy.decide(5.0, [view("b", 4.9, 5.0), view("a", 4.5)]).run == "b"


@pytest.mark.parametrize("interval", [0.0, -1.0, math.inf, math.nan])
def test_intervals_that_are_none_are_refused(interval: float) -> None:
    with pytest.raises(ValueError, match=r"a: interval=.*: must be above 0 seconds"):
        Intervals({"a": Rhythm(interval)})


@given(st.floats(0.05, 30.0), st.floats(0.0, 1.0), st.floats(0.0, 2e9))
def test_due_once_in_each_interval(interval: float, share: float, now: float) -> None:
    rhythm = Rhythm(interval, share * interval)
    due = rhythm.after(now)
    assert -1e-3 * interval < due - now <= interval * 1.001
    # a turn that begins when it is due is not due again at once
    assert rhythm.after(due) == pytest.approx(due + interval, rel=1e-9)


def test_a_late_turn_does_not_shift_those_that_follow() -> None:
    turns = Turns(Intervals({"a": Rhythm(1.0), "b": Rhythm(1.0)}), concurrency=1)
    for name in ("a", "b"):
        turns.add(name, 0.0)
        turns.planned(name, 0.0)

    def views(names: object) -> list[QueryView]:
        return [view(name, turns.last_turn(name)) for name in names]  # type: ignore[attr-defined]

    assert turns.grant(0.0, views)[0] == ["a"]
    turns.written("a", 0.6, None)
    assert turns.grant(0.6, views)[0] == ["b"]
    turns.written("b", 0.9, None)
    assert turns.grant(0.9, views) == ([], 1.0)
    assert turns.grant(1.0, views)[0] == ["a"]
    turns.check()

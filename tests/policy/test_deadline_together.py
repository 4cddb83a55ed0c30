"""Which rows of a batch, when all of them are out at its end."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.deadline import CHOICES, Alike
from taut.policy.deadline.together import ends_at

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=500)
# whole numbers: what is compared here are choices, not the last digit of a sum
GROUP = st.builds(
    Alike,
    st.integers(-3, 20).map(float),
    st.sampled_from([0.0, 1.0, 3.0, 8.0]),
    st.integers(0, 4),
    st.integers(0, 2),
)
GROUPS = st.lists(GROUP, max_size=5)
MOMENT = st.integers(-2, 12).map(float)


def on_time(groups: Sequence[Alike], kept: Sequence[int], now: float, after: float) -> int:
    """How many of the rows that are worked on are on time."""
    end = ends_at(groups, kept, now, after)
    # a nanosecond more: the last digit of a sum makes no row late
    return sum(n for n, group in zip(kept, groups, strict=True) if group.deadline >= end - 1e-9)


def best(groups: list[Alike], now: float, after: float) -> tuple[int, float]:
    """The most rows on time, and the earliest end with as many, by trying all counts."""
    counts = itertools.product(*(range(group.rows + 1) for group in groups))
    most, end = max(
        (on_time(groups, kept, now, after), -ends_at(groups, kept, now, after)) for kept in counts
    )
    return most, -end


@STEADY
@given(GROUPS, MOMENT, st.integers(0, 3).map(float))
def test_as_many_as_can_be_on_time_together(groups: list[Alike], now: float, after: float) -> None:
    kept = CHOICES["cost-aware"](groups, now, after)
    assert on_time(groups, kept, now, after) == sum(kept), "none is worked on in vain"
    assert (sum(kept), ends_at(groups, kept, now, after)) == best(groups, now, after)


def test_thousands_of_small_batches() -> None:
    draw = random.Random(2)
    for _ in range(2_000):
        groups = [
            Alike(float(draw.randint(0, 15)), float(draw.choice([0, 1, 5])), draw.randint(0, 3))
            for _ in range(draw.randint(0, 4))
        ]
        now, after = float(draw.randint(0, 6)), float(draw.randint(0, 3))
        kept = CHOICES["cost-aware"](groups, now, after)
        assert on_time(groups, kept, now, after) == best(groups, now, after)[0]


@STEADY
@given(GROUPS, MOMENT, st.integers(0, 3).map(float))
def test_no_other_choice_has_more_on_time(groups: list[Alike], now: float, after: float) -> None:
    told = {}
    for name, choice in CHOICES.items():
        kept = choice(groups, now, after)
        assert len(kept) == len(groups)
        assert all(0 <= n <= group.rows for n, group in zip(kept, groups, strict=True))
        told[name] = on_time(groups, kept, now, after)
    assert told["cost-aware"] == max(told.values())


@pytest.mark.parametrize("name", CHOICES)
def test_when_all_can_be_on_time_all_are_worked_on(name: str) -> None:
    groups = [Alike(5.0, 0.1, 10, 1), Alike(6.0, 0.3, 10, 0), Alike(7.0, 0.0, 4, 2)]
    assert CHOICES[name](groups, 0.5, 0.5) == [10, 10, 4], "to the last moment"
    assert on_time(groups, [10, 10, 4], 0.5, 0.5) == 24


@pytest.mark.parametrize("name", CHOICES)
def test_nothing_given(name: str) -> None:
    assert CHOICES[name]([], 0.0, 0.0) == []
    assert CHOICES[name]([Alike(1.0, 1.0, 0)], 0.0, 0.0) == [0]


def test_what_is_late_already_is_left_out_except_in_order_of_arrival() -> None:
    groups = [Alike(1.0, 1.0, 3), Alike(1.0, 0.0, 2)]
    kept = {name: choice(groups, 2.0, 0.0) for name, choice in CHOICES.items()}
    assert kept.pop("fifo") == [3, 2]
    assert set(map(tuple, kept.values())) == {(0, 0)}


def test_those_that_begin_by_their_deadline_against_those_that_end_by_it() -> None:
    groups = [Alike(0.95, 0.3, 9, 0), Alike(1.3, 0.1, 9, 0)]
    assert CHOICES["edf"](groups, 0.0, 0.0) == [4, 1], "the last of each begins before, ends after"
    assert CHOICES["dover"](groups, 0.0, 0.0) == [3, 4]
    exact = [Alike(0.3, 0.1, 9)]
    assert CHOICES["edf"](exact, 0.0, 0.0) == CHOICES["dover"](exact, 0.0, 0.0) == [3]


def test_the_batch_that_is_due_first_goes_first() -> None:
    groups = [Alike(4.0, 1.0, 3, 0), Alike(3.0, 1.0, 1, 1), Alike(9.0, 1.0, 4, 1)]
    assert CHOICES["edf"](groups, 0.0, 0.0) == [0, 1, 4]

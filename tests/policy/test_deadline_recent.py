from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.deadline import Recent
from taut.policy.deadline.recent import KEPT

STEADY = settings(derandomize=True, deadline=None, database=None)
VALUES = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=30)


def seen(values: list[float]) -> Recent:
    recent = Recent(0.5)
    for value in values:
        recent = recent.observe(value)
    return recent


@STEADY
@given(VALUES)
def test_only_the_last_few_count(values: list[float]) -> None:
    recent = seen(values)
    assert recent.seen == tuple(values[-KEPT:])
    assert recent == seen(values[-KEPT:])
    assert min(recent.seen) <= recent.value <= max(recent.seen)
    assert recent.careful >= recent.value


def test_before_anything_was_seen_the_prior_counts() -> None:
    assert (Recent(0.5).value, Recent(0.5).careful) == (0.5, 0.5)


def test_a_first_value_out_of_line_is_soon_forgotten() -> None:
    """A batch that has everything to load says nothing about those that follow."""
    assert seen([20.0, 1.0, 1.0]).careful == 1.0
    assert seen([1.0] * 4 + [60.0] * 4).value < 60.0

"""What rows cost, learned from batches."""

from __future__ import annotations

import random
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.deadline import Mean, RowCost

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=300)
SECONDS = st.floats(0.0, 100.0)


@STEADY
@given(st.lists(SECONDS, min_size=1, max_size=5))
def test_the_first_few_count_evenly(values: list[float]) -> None:
    mean = Mean(7.0)
    for value in values:
        mean = mean.observe(value)
    assert mean.seen == len(values)
    assert mean.value == pytest.approx(fmean(values))
    assert mean.spread == pytest.approx(pstdev(values), abs=1e-6)
    assert mean.careful == mean.value + mean.spread


@STEADY
@given(st.lists(SECONDS, min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_a_mean_lies_among_its_values(values: list[float], weight: float) -> None:
    mean = Mean(7.0)
    for value in values:
        mean = mean.observe(value, weight)
    assert min(values) - 1e-9 <= mean.value <= max(values) + 1e-9
    assert 0.0 <= mean.spread <= max(values) - min(values) + 1e-9


def test_a_mean_follows_what_is_new() -> None:
    mean = Mean(0.0)
    for value in [1.0] * 50 + [3.0] * 20:
        mean = mean.observe(value)
    assert mean.value == pytest.approx(3.0, rel=0.02)
    assert mean.spread == pytest.approx(0.0, abs=0.3)


def test_a_mean_and_its_spread_are_found() -> None:
    draw, mean = random.Random(1), Mean(0.0)
    for _ in range(2_000):
        mean = mean.observe(draw.gauss(5.0, 0.5), weight=0.01)
    assert mean.value == pytest.approx(5.0, rel=0.03)
    assert mean.spread == pytest.approx(0.5, rel=0.15)


@STEADY
@given(st.floats(0.0, 0.5), st.floats(1e-7, 1e-3), st.lists(st.integers(1, 50_000), max_size=20))
def test_both_parts_are_found(fixed: float, each: float, sizes: list[int]) -> None:
    cost = RowCost()
    for rows in [100, 40_000, *sizes, 1_000, 30_000]:
        cost = cost.observe(rows, fixed + each * rows)
    whole = cost.y / cost.x
    if each >= 0.05 * whole:
        assert cost.each == pytest.approx(each, rel=1e-4)
        assert cost.fixed == pytest.approx(fixed, rel=1e-4, abs=1e-6)
    else:
        assert cost.each == pytest.approx(0.05 * whole), "rows are never quite free"


@STEADY
@given(st.lists(st.tuples(st.integers(0, 100_000), st.floats(0.0, 1e3)), max_size=30))
def test_neither_part_is_ever_negative(batches: list[tuple[int, float]]) -> None:
    cost = RowCost()
    for rows, seconds in batches:
        cost = cost.observe(rows, seconds)
        assert cost.each >= 0.0
        assert cost.fixed >= 0.0
        if cost.x:
            # what was seen on the whole is what is expected on the whole
            assert cost.n * cost.fixed + cost.each * cost.x == pytest.approx(cost.y, abs=1e-6)


def test_with_noise_both_parts_are_found_nearly() -> None:
    draw, cost = random.Random(1), RowCost()
    for _ in range(200):
        rows = draw.randint(1_000, 50_000)
        cost = cost.observe(rows, (0.05 + 4e-6 * rows) * draw.uniform(0.9, 1.1), decay=0.98)
    assert cost.each == pytest.approx(4e-6, rel=0.15)
    assert cost.fixed == pytest.approx(0.05, rel=0.35)


def test_before_anything_is_seen() -> None:
    assert (RowCost().each, RowCost().fixed) == (5e-6, 0.0)
    empty = RowCost(prior=2e-6).observe(0, 0.25).observe(0, 0.25)
    assert (empty.each, empty.fixed) == (2e-6, 0.25)


def test_batches_of_one_size_give_all_to_the_rows() -> None:
    cost = RowCost()
    for _ in range(20):
        cost = cost.observe(1_000, 0.03)
    assert cost.each == pytest.approx(3e-5)
    assert cost.fixed == pytest.approx(0.0, abs=1e-12)


def test_what_is_old_fades() -> None:
    cost = RowCost()
    for each, batches in ((1e-6, 100), (8e-6, 60)):
        for n in range(batches):
            rows = 500 + 300 * (n % 5)
            cost = cost.observe(rows, 0.01 + each * rows)
    assert cost.each == pytest.approx(8e-6, rel=0.02)
    assert cost.fixed == pytest.approx(0.01, rel=0.05)

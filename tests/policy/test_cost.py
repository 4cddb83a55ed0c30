import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.cost import BatchCost

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("fixed", "slope"), [(0.3, 0.05), (1.0, 0.5), (0.05, 0.0), (0.0, 0.2)])
def test_learns_both_parts(fixed: float, slope: float, seed: int) -> None:
    rng = random.Random(seed)
    cost = BatchCost()
    for _ in range(200):
        inputs = rng.uniform(0.5, 10.0)
        cost.observe(inputs, max(0.0, fixed + slope * inputs + rng.gauss(0.0, 0.02)))
        cost.check()
    assert cost.fixed == pytest.approx(fixed, abs=0.1)
    assert cost.per_second == pytest.approx(slope, abs=0.02)
    assert cost.predict(5.0) == pytest.approx(fixed + 5.0 * slope, abs=0.04)


def test_exact_without_noise() -> None:
    cost = BatchCost()
    for inputs in (1.0, 2.0, 4.0):
        cost.observe(inputs, 0.3 + 0.1 * inputs)
    assert (cost.fixed, cost.per_second) == pytest.approx((0.3, 0.1))


@STEADY
@given(
    batches=st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e4)), max_size=60),
    asked=st.floats(0, 1e5),
)
def test_never_negative(batches: list[tuple[float, float]], asked: float) -> None:
    cost = BatchCost()
    for inputs, seconds in batches:
        cost.observe(inputs, seconds)
        cost.check()
        assert cost.predict(asked) >= 0.0


@STEADY
@given(batches=st.lists(st.tuples(st.floats(0, 100), st.floats(0, 10)), min_size=1, max_size=60))
def test_the_line_passes_through_the_middle(batches: list[tuple[float, float]]) -> None:
    """However it is bent to stay above zero, it is right at the (fading) mean batch."""
    cost = BatchCost()
    for inputs, seconds in batches:
        cost.observe(inputs, seconds)
    weights = [0.9**age for age in reversed(range(len(batches)))]
    total = sum(weights)
    middle = sum(w * x for w, (x, _) in zip(weights, batches, strict=True)) / total
    seconds = sum(w * y for w, (_, y) in zip(weights, batches, strict=True)) / total
    assert cost.predict(middle) == pytest.approx(seconds, rel=1e-6, abs=1e-9)


def test_a_prior_until_the_first_batch() -> None:
    cost = BatchCost(prior=0.7)
    cost.check()
    assert (cost.fixed, cost.per_second, cost.predict(9.0)) == (0.7, 0.0, 0.7)
    cost.observe(2.0, 0.4)
    assert cost.predict(9.0) == 0.4


@pytest.mark.parametrize("inputs", [0.0, 1.0, 3600.0])
def test_one_size_of_input_is_all_fixed(inputs: float) -> None:
    """No slope can be told from one size; the mean is the best there is."""
    rng = random.Random(1)
    cost = BatchCost()
    seen = []
    for _ in range(100):
        seen.append(rng.uniform(0.4, 0.6))
        cost.observe(inputs, seen[-1])
        cost.check()
    assert cost.per_second == 0.0
    assert cost.predict(inputs) == pytest.approx(0.5, abs=0.05)


def test_batches_that_get_cheaper_with_input_have_no_slope() -> None:
    cost = BatchCost()
    for inputs in (1.0, 2.0, 3.0, 4.0):
        cost.observe(inputs, 1.0 - 0.1 * inputs)
    assert cost.per_second == 0.0
    assert cost.fixed > 0.0


def test_a_line_that_starts_below_zero_starts_at_zero() -> None:
    cost = BatchCost()
    for inputs in (2.0, 3.0, 4.0):
        cost.observe(inputs, inputs - 1.5)
    assert cost.fixed == pytest.approx(0.0, abs=1e-12)
    assert 0.0 < cost.per_second < 1.0


def test_follows_a_change() -> None:
    rng = random.Random(4)
    cost = BatchCost()

    def run(batches: int, fixed: float, slope: float) -> None:
        for _ in range(batches):
            inputs = rng.uniform(1.0, 5.0)
            cost.observe(inputs, fixed + slope * inputs)

    run(500, 0.2, 0.05)
    run(100, 1.0, 0.3)
    assert (cost.fixed, cost.per_second) == pytest.approx((1.0, 0.3), abs=0.02)
    run(100, 0.2, 0.05)
    assert (cost.fixed, cost.per_second) == pytest.approx((0.2, 0.05), abs=0.02)


@pytest.mark.parametrize("seed", range(10))
def test_slow_first_batches_do_not_pass_for_a_cost_of_input(seed: int) -> None:
    """Seen on Spark: batches cost the same, but the first ones much more, with much input."""
    rng = random.Random(seed)
    cost = BatchCost()
    for inputs, seconds in ((0.1, 0.4), (6.0, 2.0), (0.5, 0.3), (9.0, 1.0), (0.4, 0.2)):
        cost.observe(inputs, seconds * rng.uniform(0.8, 1.2))
    assert cost.fixed > 0.2
    for _ in range(10):
        cost.observe(12.0, rng.uniform(0.25, 0.35))
        cost.observe(0.4, rng.uniform(0.15, 0.25))
    assert cost.fixed > 0.15
    assert cost.per_second < 0.02


def test_wrong_decay_is_refused() -> None:
    with pytest.raises(ValueError, match=r"decay=1.0: must lie between 0 and 1"):
        BatchCost(decay=1.0)

import math
import random
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.timeout import (
    REPLAYS,
    AdaptiveTimeout,
    NoReplay,
    Replay,
    Replication,
    percentile,
    timeout_for,
)

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)
LATENCIES = st.lists(st.floats(0.001, 10.0) | st.sampled_from([0.1, 0.2, 0.5, 4.0]), min_size=1)
BUDGETS = st.sampled_from([0.001, 0.01, 0.03, 0.1, 0.5, 1.0])


def quantile(latencies: list[float], share: Fraction) -> float:
    """The least one that no more than the rest are above."""
    above_at_most = (1 - share) * len(latencies)
    return min(x for x in latencies if sum(y > x for y in latencies) <= above_at_most)


def reference(latencies: list[float], budget: Fraction) -> float:
    p90, p95, p99, p999 = (quantile(latencies, Fraction(n, 1000)) for n in (900, 950, 990, 999))
    published = p90 if p99 > 2 * p90 else p95 if p999 > 2 * p95 else p999
    return max(published, quantile(latencies, 1 - budget))


class Literal:
    """Keeps all that has happened, and works out the timeout anew every time."""

    def __init__(self, period: float, fewest: int, budget: float) -> None:
        self.period, self.fewest, self.budget = period, fewest, Fraction(str(budget))
        self.begun: float | None = None
        self.finished: list[tuple[float, float]] = []
        self.timeout: float | None = None
        self.overspent = Fraction(0)

    def at(self, now: float) -> None:
        if self.begun is None:
            self.begun = now
        samples = [x for when, x in self.finished if when >= self.begun]
        if now >= self.begun + self.period and len(samples) >= self.fewest:
            twice = [x for x in samples if self.timeout is not None and x > self.timeout]
            self.overspent += len(twice) - self.budget * len(samples)
            self.overspent = max(self.overspent, Fraction(0))
            left = self.budget - self.overspent / len(samples)
            self.timeout = reference(samples, max(left, Fraction(0)))
            self.begun, self.finished = now, []


@STEADY
@given(latencies=LATENCIES, budget=BUDGETS)
def test_the_timeout_is_the_published_one_within_the_budget(
    latencies: list[float], budget: float
) -> None:
    assert timeout_for(latencies, budget) == reference(latencies, Fraction(str(budget)))
    assert timeout_for(latencies) == reference(latencies, Fraction(1))
    above = sum(x > timeout_for(latencies, budget) for x in latencies)
    assert above <= budget * len(latencies) + 1e-9


@pytest.mark.parametrize("n", [1, 7, 10, 100, 999, 1_000, 1_234])
def test_percentiles_are_those_of_the_definition(n: int) -> None:
    ordered = [float(x) for x in range(1, n + 1)]
    for thousandth in (0, 1, 30, 500, 700, 900, 950, 970, 990, 999, 1_000):
        wanted = max(1, math.ceil(Fraction(thousandth, 1_000) * n))
        assert percentile(ordered, thousandth / 1_000) == wanted


@STEADY
@given(seed=st.integers(0, 2**32), fewest=st.integers(1, 12), budget=BUDGETS)
def test_a_history_gives_the_timeouts_of_the_literal_rule(
    seed: int, fewest: int, budget: float
) -> None:
    replay, literal = AdaptiveTimeout(1.0, fewest, budget), Literal(1.0, fewest, budget)
    draw, now = random.Random(seed), 100.0
    for _ in range(150):
        now += draw.choice([0.0, 0.02, 0.1, 0.6])
        size, seconds = draw.randint(1, 50), draw.choice([0.1, 1.0, 9.0]) * draw.random()
        literal.at(now)
        if draw.random() < 0.8:
            replay.observe(size, seconds, now)
            literal.finished.append((now, seconds / size))
        else:
            expected = None if literal.timeout is None else now + literal.timeout * size
            assert replay.due(size, now) == expected
        assert replay.timeout == literal.timeout
        replay.check()


def test_nothing_is_replayed_before_the_first_adjustment() -> None:
    replay = AdaptiveTimeout(fewest=2)
    replay.observe(1, 0.2, now=0.0)
    replay.observe(1, 0.2, now=0.9)
    assert replay.due(1, now=0.99) is None
    assert replay.timeout is None
    assert replay.due(1, now=1.0) == 1.2
    assert not replay.eager


def test_a_period_with_too_few_samples_goes_on() -> None:
    replay = AdaptiveTimeout(period=1.0, fewest=100)
    for n in range(100):
        assert replay.due(1, now=10.0 * n) is None
        replay.observe(1, 0.2, now=10.0 * n)
    assert replay.due(1, now=1_000.0) == 1_000.2
    replay.observe(1, 9.0, now=1_000.0)
    assert replay.due(1, now=2_000.0) == 2_000.2, "kept until there are enough again"


def test_a_period_is_forgotten_when_it_is_over() -> None:
    replay = AdaptiveTimeout(period=1.0, fewest=10)
    for start, seconds in ((0.0, 9.0), (1.0, 0.2)):
        for n in range(10):
            replay.observe(1, seconds, now=start + n / 100)
    assert replay.due(1, now=1.5) == 10.5
    assert replay.due(1, now=2.0) == 2.2


def test_units_of_many_rows_may_take_longer() -> None:
    replay = AdaptiveTimeout(period=1.0, fewest=1)
    replay.observe(1_000, 0.5, now=0.0)
    assert replay.due(4_000, now=1.0) == 3.0
    assert replay.timeout == 0.0005


@pytest.mark.parametrize("a_second", [100, 500, 2_000])
@pytest.mark.parametrize("budget", [0.03, 0.05])
def test_second_instances_cost_no_more_than_the_budget(budget: float, a_second: int) -> None:
    """Units of a long tail; a second instance is a fresh draw, and the first to finish counts."""
    draw = random.Random(5)

    def unit() -> float:
        return draw.expovariate(100.0) if draw.random() < 0.93 else draw.uniform(0.1, 1.0)

    def cost(replay: Replay, units: int = 40_000) -> float:
        twice = 0
        for n in range(units):
            now = n / a_second
            due, seconds = replay.due(1, now), unit()
            if due is not None and now + seconds > due:
                twice += 1
                seconds = min(seconds, due - now + unit())
            replay.observe(1, seconds, now)
        return twice / units

    assert 0.9 * budget < cost(AdaptiveTimeout(budget=budget)) < 1.02 * budget
    assert 0.07 < cost(AdaptiveTimeout(budget=1.0)) < 0.12, "what it costs without"


def test_what_a_clock_has_spoilt_is_left_out() -> None:
    replay = AdaptiveTimeout(fewest=1)
    replay.observe(1, -0.5, now=0.0)
    assert replay.due(1, now=5.0) is None
    replay.observe(1, 0.0, now=5.0)
    assert replay.due(1, now=6.0) is None, "a timeout of 0 would replay every unit"
    replay.check()


@STEADY
@given(hundredth=st.integers(1, 100), units=st.integers(1, 500))
def test_replication_is_even_and_exact(hundredth: int, units: int) -> None:
    replay = Replication(hundredth / 100)
    twice = 0
    for n in range(1, units + 1):
        due = replay.due(3, now=float(n))
        assert due in {None, float(n)}
        twice += due is not None
        assert twice == n * hundredth // 100
        replay.observe(3, 1.0, now=float(n))
    assert replay.eager
    assert replay.timeout is None


def test_without_replay_nothing_is_ever_due() -> None:
    replay = NoReplay()
    for n in range(500):
        replay.observe(1, 1.0, now=float(n))
        assert replay.due(1, now=float(n)) is None
    assert replay.timeout is None
    assert not replay.eager


def test_every_replay_has_its_name_and_is_fresh() -> None:
    assert list(REPLAYS) == ["none", "adaptive", "replicate-20", "replicate-50", "replicate-100"]
    for build in REPLAYS.values():
        assert build() is not build()
        assert build().due(1, now=3.0) in {None, 3.0}
    counts = {name: sum(bool(replay.due(1, 1.0)) for _ in range(100))
              for name, build in REPLAYS.items() for replay in [build()]}  # fmt: skip
    assert list(counts.values()) == [0, 0, 20, 50, 100]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: AdaptiveTimeout(period=0.0), r"period=0\.0 s"),
        (lambda: AdaptiveTimeout(fewest=0), "fewest=0"),
        (lambda: AdaptiveTimeout(budget=0.0), r"budget=0\.0"),
        (lambda: AdaptiveTimeout(budget=1.5), r"budget=1\.5"),
        (lambda: AdaptiveTimeout().observe(0, 1.0, 0.0), "a unit of 0 rows"),
        (lambda: Replication(0.0), r"share=0\.0"),
        (lambda: Replication(1.1), r"share=1\.1"),
        (lambda: timeout_for([]), "no latencies"),
        (lambda: timeout_for([1.0], budget=-1.0), r"budget=-1\.0: from 0 to 1"),
    ],
)
def test_wrong_values_are_refused(wrong: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        wrong()

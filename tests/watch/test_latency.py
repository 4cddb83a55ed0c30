from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import TautError
from taut.watch.latency import Latencies
from taut.watch.query_board import Counts

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)
SHAPES = {
    "exponential": lambda rng, n: rng.exponential(0.2, n),
    "lognormal": lambda rng, n: rng.lognormal(-1.0, 1.0, n),
    "pareto": lambda rng, n: 0.1 * (1.0 + rng.pareto(2.0, n)),
    "two modes": lambda rng, n: np.where(
        rng.random(n) < 0.995, rng.normal(0.2, 0.02, n), rng.normal(5.0, 0.5, n)
    ),
}

observed = st.lists(
    st.tuples(st.floats(0.0, 300.0), st.floats(0.0, 1_000.0, width=32)), max_size=60
)


def fed(them: list[tuple[float, float]]) -> Latencies:
    latencies = Latencies()
    for at, seconds in them:
        latencies.observe(at, seconds)
        latencies.check()
    return latencies


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("pieces", [1, 1_000])
def test_the_tail_of_a_million_is_within_one_percent(shape: str, pieces: int) -> None:
    values = SHAPES[shape](np.random.default_rng(7), 1_000_000)
    whole = Latencies()
    for piece in np.array_split(values, pieces):
        one = Latencies()
        one.observe_all(0.0, piece)
        whole.merge(one)
    exact = np.quantile(values, [0.99, 0.999], method="inverted_cdf")
    for found in (whole.quantiles(0.0), whole.total()):
        assert found is not None
        assert found.count == 1_000_000
        assert found.p999 == pytest.approx(exact[1], rel=0.01)
        assert found.p99 == pytest.approx(exact[0], rel=0.015)
        assert found.mean == pytest.approx(values.mean())
        assert found.max == values.max()
    assert len(whole.to_bytes()) < 100_000


@STEADY
@given(observed)
def test_few_latencies_are_exact_and_the_oldest_slices_go(them: list[tuple[float, float]]) -> None:
    latencies = fed(sorted(them))
    now = 300.0
    recent = sorted(s for at, s in them if math.floor(at / 10.0) > 30 - 12)
    found = latencies.quantiles(now)
    assert latencies.count == len(them)
    if not recent:
        assert found is None
        return
    assert found is not None
    assert found.count == len(recent)
    assert found.p99 == recent[math.ceil(0.99 * len(recent)) - 1]
    assert found.p50 == recent[math.ceil(0.5 * len(recent)) - 1]
    assert found.max == recent[-1] == latencies.quantile(now, 1.0)
    assert found.mean == pytest.approx(sum(recent) / len(recent)) == latencies.quantile(now, None)
    assert found.p50 <= found.p90 <= found.p99 <= found.p999 <= found.max


@STEADY
@given(observed, observed)
def test_merged_is_as_if_observed_in_one_place(
    mine: list[tuple[float, float]], others: list[tuple[float, float]]
) -> None:
    together = fed(mine)
    together.merge(fed(others))
    together.check()
    one = fed([*mine, *others])
    assert together.count == one.count
    if one.count:
        ours, theirs = together.total(), one.total()
        assert ours is not None
        assert theirs is not None
        assert (ours.p50, ours.p99, ours.max) == (theirs.p50, theirs.p99, theirs.max)


@STEADY
@given(observed)
def test_bytes_and_back(them: list[tuple[float, float]]) -> None:
    latencies = fed(them)
    back = Latencies.from_bytes(latencies.to_bytes())
    back.check()
    assert back.total() == latencies.total()
    assert back.quantiles(300.0) == latencies.quantiles(300.0)


def test_what_is_no_number_is_left_out_and_time_may_jump() -> None:
    latencies = Latencies()
    latencies.observe(0.0, math.nan)
    latencies.observe_all(0.0, [math.inf, 1.0])
    assert latencies.count == 1
    latencies.observe(1e9, 2.0)
    latencies.observe(0.0, 3.0)
    latencies.check()
    assert latencies.count == 3
    found = latencies.quantiles(0.0)
    assert found is not None
    assert (found.count, found.max) == (1, 3.0), "as the clock was set back"


@pytest.mark.parametrize("back", [30.0, 110.0, 600.0, 1e6])
def test_a_clock_that_is_set_back_stops_nothing(back: float) -> None:
    latencies, counts = Latencies(), Counts()
    for n in range(200):
        latencies.observe(2e6 + n, 9.0)
        counts.add(2e6 + n, 1, 1)
    began = 2e6 + 200.0 - back
    for n in range(500):
        latencies.observe(began + n, 0.1)
        latencies.check()
        counts.add(began + n, 1, 0)
        counts.check()
        found = latencies.quantiles(began + n)
        assert found is not None
        # of a clock that was set back by little, what came before stays in sight
        if n > (120.0 + back if back < 120.0 else 0.0):
            assert found.max == pytest.approx(0.1)
            assert counts.recent(began + n)[1] == 0
    assert 110 <= found.count == counts.recent(began + n)[0] <= 120


def test_what_is_merged_from_long_ago_does_not_set_the_clock_back() -> None:
    mine, other = Latencies(), Latencies()
    mine.observe(1_000.0, 1.0)
    other.observe(10.0, 2.0)
    mine.merge(other)
    found = mine.quantiles(1_000.0)
    assert found is not None
    assert (found.count, mine.count) == (1, 2)
    other.merge(mine)
    found = other.quantiles(1_000.0)
    assert found is not None
    assert (found.count, other.count) == (1, 3)


@STEADY
@given(observed)
def test_without_the_whole_the_last_while_is_the_same(them: list[tuple[float, float]]) -> None:
    latencies, whole = Latencies(whole=False), fed(them)
    for at, seconds in them:
        latencies.observe(at, seconds)
        latencies.check()
    assert (latencies.count, latencies.total()) == (len(them), None)
    assert latencies.quantiles(300.0) == whole.quantiles(300.0)
    back = Latencies.from_bytes(latencies.to_bytes())
    back.merge(whole)
    back.check()
    assert (back.count, back.whole) == (2 * len(them), False)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="do not merge into those of all time"):
        Latencies().merge(Latencies(whole=False))
    with pytest.raises(ValueError, match=r"12 x 5.0 s do not merge into 12 x 10.0 s"):
        Latencies().merge(Latencies(seconds=5.0))
    with pytest.raises(ValueError, match="seconds=0"):
        Latencies(seconds=0.0)
    for wrong in (b"", b"\x01", Latencies().to_bytes()[:-1]):
        with pytest.raises(TautError, match="no latencies"):
            Latencies.from_bytes(wrong)

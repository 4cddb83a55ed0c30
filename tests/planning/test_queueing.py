"""Formulas of queues against queues that are simulated, and textbook cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from taut.planning.queueing import Moments, gg_wait, last_of, normal_max, position

CUSTOMERS = 400_000


def lindley(between: np.ndarray, service: np.ndarray) -> np.ndarray:
    """Waits at one server, customer by customer: each waits for what the one before left."""
    steps = service[:-1] - between[1:]
    walk = np.concatenate([[0.0], np.cumsum(steps)])
    return walk - np.minimum.accumulate(walk)


def times(random: np.random.Generator, mean: float, scv: float) -> np.ndarray:
    if scv == 0.0:
        return np.full(CUSTOMERS, mean)
    return random.gamma(1.0 / scv, mean * scv, CUSTOMERS)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8, 0.9])
@pytest.mark.parametrize("scv", [0.0, 0.25, 1.0, 4.0])
def test_poisson_arrivals_at_one_server(load: float, scv: float) -> None:
    random = np.random.default_rng(7)
    seen = lindley(times(random, 1.0, 1.0), times(random, load, scv)).mean()
    told = gg_wait(Moments(1.0, 1.0), Moments(load, scv * load**2)).mean
    # exact in theory; what is left is chance, more of it the busier and the more varied
    assert told == pytest.approx(seen, rel=0.04 + 0.15 * load**4 * (0.5 + scv / 2))


@pytest.mark.parametrize("load", [0.5, 0.7, 0.9])
@pytest.mark.parametrize("arrival_scv", [0.0, 0.3, 0.7])
@pytest.mark.parametrize("service_scv", [0.3, 1.0])
def test_arrivals_more_even_than_poisson_wait_less(
    load: float, arrival_scv: float, service_scv: float
) -> None:
    random = np.random.default_rng(11)
    seen = lindley(times(random, 1.0, arrival_scv), times(random, load, service_scv)).mean()
    told = gg_wait(Moments(1.0, arrival_scv), Moments(load, service_scv * load**2)).mean
    assert seen <= told * 1.03
    if load == 0.9:
        assert told == pytest.approx(seen, rel=0.25)


def test_several_servers_as_erlang_says() -> None:
    told = gg_wait(Moments(1.0, 1.0), Moments(3.2, 3.2**2), servers=4)
    busy, each = 0.5964, 3.2 / (4 - 3.2)
    assert told.mean == pytest.approx(busy * each, rel=1e-3)


def test_the_variance_of_a_wait() -> None:
    # M/M/1 at 0.8: P(wait > t) = 0.8 exp(-t/5) with service 1, so that the variance is known
    told = gg_wait(Moments(1.25, 1.25**2), Moments(1.0, 1.0))
    assert told.mean == pytest.approx(4.0)
    assert told.variance == pytest.approx(2 * 0.8 * 25.0 - 16.0)


def test_a_queue_that_cannot_keep_up_waits_for_ever() -> None:
    assert gg_wait(Moments(1.0, 1.0), Moments(1.0, 0.0)).mean == float("inf")
    with pytest.raises(ValueError, match="above zero"):
        gg_wait(Moments(0.0, 0.0), Moments(1.0, 0.0))


@pytest.mark.parametrize("many", [2, 5, 16, 200])
def test_the_largest_of_normals(many: int) -> None:
    drawn = np.random.default_rng(3).standard_normal((40_000, many)).max(axis=1)
    told = normal_max(many)
    assert told.mean == pytest.approx(drawn.mean(), abs=0.02)
    assert told.variance == pytest.approx(drawn.var(), rel=0.05)


def test_the_largest_of_very_many_is_where_extreme_values_have_it() -> None:
    many = 1_000_000
    gumbel = stats.norm.isf(1.0 / many)
    assert normal_max(many).mean == pytest.approx(gumbel, rel=0.04)


def test_the_last_of_a_stage() -> None:
    one = Moments(10.0, 4.0)
    assert last_of(one, 1) == one
    assert last_of(one, 2).mean == pytest.approx(10.0 + 2.0 * 0.5642, rel=1e-4)


@pytest.mark.parametrize("parts", [1, 2, 7])
def test_where_in_a_batch_a_part_is_done(parts: int) -> None:
    done = 6.0 * (1 + np.arange(parts)) / parts
    told = position(parts, 6.0)
    assert told.mean == pytest.approx(done.mean())
    assert told.variance == pytest.approx(done.var())

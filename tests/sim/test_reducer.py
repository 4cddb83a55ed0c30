"""A reducer under overload."""

from __future__ import annotations

import pytest

from taut.policy.deadline import SCHEDULES
from taut.sim.reducer import Reducer

FITS = Reducer(rate=20_000.0, keys=2_000, hot_cost=20e-6, cold_cost=200e-6)


def test_load_is_what_comes() -> None:
    assert FITS.load == pytest.approx(20_000 * 20e-6)
    less = Reducer(rate=20_000.0, keys=2_000, hot_cost=20e-6, cold_cost=200e-6, memory=0.25)
    assert 0.0 < less.cold_share < 0.4
    assert less.load > FITS.load


@pytest.mark.parametrize("name", SCHEDULES)
def test_with_time_enough_all_are_on_time(name: str) -> None:
    outcome = FITS.run(SCHEDULES[name](), 5.0, seed=1)
    assert outcome.share == 1.0


@pytest.mark.parametrize("memory", [0.05, 0.1])
def test_with_little_memory_cost_aware_keeps_the_most(memory: float) -> None:
    reducer = Reducer(rate=20_000.0, keys=2_000, hot_cost=20e-6, cold_cost=200e-6, memory=memory)
    assert reducer.load > 1.0
    shares = {name: reducer.run(build(), 5.0, seed=1).share for name, build in SCHEDULES.items()}
    assert max(shares, key=lambda name: shares[name]) == "cost-aware"
    assert shares["fifo"] < shares["cost-aware"] / 2


def test_wrong_values_are_refused() -> None:
    with pytest.raises(ValueError, match="memory=2"):
        Reducer(rate=1.0, memory=2.0)
    with pytest.raises(ValueError, match="rate=0"):
        Reducer(rate=0.0)

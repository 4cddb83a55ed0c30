"""How long plans take once a job is profiled.

    pytest benchmarks/test_planner.py
    pytest benchmarks/test_planner.py --benchmark-json .bench/planner.json

Profiles are made up, as in the tests. Seconds are of CPU time. Fails beyond what a plan may take.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from tests.planning.synthetic import profile

import taut
from taut.planning.plan import make
from taut.planning.settings import Cluster
from taut.slo import Slo

MOST_S = 5.0


def alone(window: float) -> object:
    """Of one job, for clusters of one to ten executors."""
    known = profile(window=window, sizes=(5_000, 20_000, 80_000))
    clusters = [Cluster(many, 2) for many in range(1, 11)]
    return make(known, Slo("p99 <= 2 s"), None, clusters)


def together(many: int) -> object:
    """Of many queries on sixteen cores."""
    demands = [
        taut.Demand(
            name=f"q{nth}",
            slo=f"p99 <= {2 + nth % 5} s",
            rate=2_000 + 500 * nth,
            profile=profile(fixed=0.1 + 0.02 * (nth % 4), window=2.0 * (nth % 3 == 0)),
        )
        for nth in range(many)
    ]
    return taut.plan_together(demands, cluster=Cluster(4, 4))


CASES: dict[str, Callable[[], object]] = {
    "rows, ten clusters": lambda: alone(0.0),
    "windows, ten clusters": lambda: alone(2.0),
    "twenty queries": lambda: together(20),
}


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("name", CASES)
def test_plans_take_seconds(benchmark: BenchmarkFixture, name: str) -> None:
    benchmark.pedantic(CASES[name], rounds=3, warmup_rounds=1, iterations=1)
    assert benchmark.stats.stats.median < MOST_S

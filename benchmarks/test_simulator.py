"""How fast the simulator is on one core, as ``taut simulate speed`` tells, in many rounds.

    pytest benchmarks/test_simulator.py
    pytest benchmarks/test_simulator.py --benchmark-json .bench/simulator.json

Seconds are of CPU time. Fails below what the simulator is made for; a machine without a core to
spare is slower by a tenth, for caches are shared.
"""

from __future__ import annotations

import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from taut.sim.speed import WANTED, kinds


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("name", kinds())
def test_hops_a_second(benchmark: BenchmarkFixture, name: str) -> None:
    topology, seconds = kinds()[name]
    outcome = benchmark.pedantic(
        topology.run, (seconds,), {"seed": 1}, rounds=7, warmup_rounds=1, iterations=1
    )
    hops_per_s = outcome.hops / benchmark.stats.stats.median
    benchmark.extra_info["hops_per_s"] = round(hops_per_s)
    assert hops_per_s >= WANTED

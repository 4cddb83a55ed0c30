"""The same network in SimPy, with the same draws: the same tuple at the same time."""

from __future__ import annotations

from collections.abc import Generator
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import simpy

from taut.sim.cluster import Machine, Network, Operator, Spout, Topology
from taut.sim.draws import Constant, Exponential, Gamma, drawing
from taut.sim.kernel import Kernel

GAP, FIRST, SECOND, DELAY = Exponential(0.5), Exponential(0.8), Gamma(0.7, 0.5), 0.125
SECONDS = 2_000.0


def simpys(seed: int, shared: bool) -> list[float]:
    """Latencies of a spout, two tasks in turn, and two more that share a queue or do not."""
    environment = simpy.Environment()
    kernel = Kernel(seed)
    latencies: list[float] = []
    first = [simpy.Resource(environment, 1) for _ in range(2)]
    second = [simpy.Resource(environment, 2)] if shared else first.copy()
    if not shared:
        second = [simpy.Resource(environment, 1) for _ in range(2)]
    work = {
        f"{name}{n}": drawing(draws, kernel.stream(f"{name}{n}/service"))
        for name, draws in (("first", FIRST), ("second", SECOND))
        for n in range(2)
    }

    def turns(route: str, tasks: int) -> Any:
        return cycle(kernel.stream(f"{route}/shuffle").permutation(tasks).tolist())

    from_spout = turns("spout0/first", 2)
    from_first = [turns(f"first{n}/second", len(second)) for n in range(2)]

    def tuple_() -> Generator[simpy.Event, None, None]:
        issued = environment.now
        n = next(from_spout)
        yield environment.timeout(DELAY)
        # drawn in the order of arrival, as a task that knows ahead draws
        seconds = work[f"first{n}"]()
        with first[n].request() as turn:
            yield turn
            yield environment.timeout(seconds)
        m = next(from_first[n])
        yield environment.timeout(DELAY)
        seconds = work[f"second{m}"]()
        with second[m].request() as turn:
            yield turn
            yield environment.timeout(seconds)
        latencies.append(environment.now - issued)

    def spout() -> Generator[simpy.Event, None, None]:
        gap = drawing(GAP, kernel.stream("spout0/gaps"))
        while True:
            yield environment.timeout(gap())
            if environment.now > SECONDS:
                return
            environment.process(tuple_())

    environment.process(spout())
    environment.run()
    return latencies


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("cores", [None, 100])
def test_event_for_event(shared: bool, cores: int | None) -> None:
    topology = Topology(
        Spout(1, GAP),
        (
            Operator("first", 2, FIRST),
            Operator("second", 2, SECOND, after=("first",), shared=shared),
        ),
        (Machine(cores),),
        Network(Constant(DELAY)),
    )
    found = topology.run(SECONDS, seed=5).latencies
    expected = np.array(simpys(5, shared))
    assert len(found) == len(expected) > 3_000
    assert np.sort(found) == pytest.approx(np.sort(expected), rel=1e-9)

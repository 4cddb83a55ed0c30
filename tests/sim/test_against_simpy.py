"""The same network in SimPy, with the same draws: the same tuple at the same time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import simpy

from taut.sim.cluster import Machine, Network, Operator, Spout, Topology
from taut.sim.draws import Constant, Exponential, Gamma, drawing
from taut.sim.kernel import Kernel

GAP, FIRST, SECOND, DELAY = Exponential(0.56), Exponential(0.8), Gamma(0.7, 0.5), 0.125
SECONDS = 2_000.0


def simpys(seed: int, shared: bool, many_cores: int | None) -> list[float]:
    """Latencies of a spout, two tasks in turn, and two more that share a queue or do not."""
    environment = simpy.Environment()
    kernel = Kernel(seed)
    latencies: list[float] = []
    first = [simpy.Resource(environment, 1) for _ in range(2)]
    second = [simpy.Resource(environment, 1) for _ in range(2)]
    if shared:
        second = [simpy.Resource(environment, 2)] * 2
    cores = simpy.Resource(environment, many_cores or 1_000)
    work = {
        f"{name}:{n}": drawing(draws, kernel.stream(f"{name}:{n}/service"))
        for name, draws in (("first", FIRST), ("second", SECOND))
        for n in range(2)
    }

    def turns(route: str, tasks: int) -> Any:
        return cycle(kernel.stream(f"{route}/shuffle").permutation(tasks).tolist())

    from_spout = turns("spout0/first", 2)
    from_first = [turns(f"first:{n}/second", 2) for n in range(2)]

    def served(
        task: simpy.Resource, seconds: Callable[[], float]
    ) -> Generator[simpy.Event, None, None]:
        with task.request() as turn:
            yield turn
            with cores.request() as core:
                yield core
                yield environment.timeout(seconds())

    def tuple_() -> Generator[simpy.Event, None, None]:
        issued = environment.now
        n = next(from_spout)
        yield environment.timeout(DELAY)
        yield from served(first[n], work[f"first:{n}"])
        m = next(from_first[n])
        yield environment.timeout(DELAY)
        yield from served(second[m], work[f"second:{0 if shared else m}"])
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
@pytest.mark.parametrize("cores", [None, 3])
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
    expected = np.array(simpys(5, shared, cores))
    assert len(found) == len(expected) > 3_000
    assert np.sort(found) == pytest.approx(np.sort(expected), rel=1e-9)

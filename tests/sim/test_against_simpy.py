"""The same network in SimPy, with the same draws: the same tuple at the same time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import cycle
from typing import Any

import pytest
import simpy

from taut.sim.cluster import Machine, Network, Operator, Spout, Topology
from taut.sim.cluster.spout import Emitting
from taut.sim.cluster.unit import Flight
from taut.sim.draws import Constant, Exponential, Gamma, drawing
from taut.sim.kernel import Kernel

GAP, FIRST, SECOND, DELAY = Exponential(0.56), Exponential(0.8), Gamma(0.7, 0.5), 0.125
SECONDS = 2_000.0


def simpys(seed: int, shared: bool, many_cores: int | None) -> dict[float, float]:
    """Tuples of a spout, two tasks in turn, and two more that share a queue or do not.

    When each ended, by when it was issued.
    """
    environment = simpy.Environment()
    kernel = Kernel(seed)
    ended: dict[float, float] = {}
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
        ended[issued] = environment.now

    def spout() -> Generator[simpy.Event, None, None]:
        gap = drawing(GAP, kernel.stream("spout0/gaps"))
        while True:
            yield environment.timeout(gap())
            if environment.now > SECONDS:
                return
            environment.process(tuple_())

    environment.process(spout())
    environment.run()
    return ended


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("cores", [None, 3])
def test_tuple_by_tuple(shared: bool, cores: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology(
        Spout(1, GAP),
        (
            Operator("first", 2, FIRST),
            Operator("second", 2, SECOND, after=("first",), shared=shared),
        ),
        (Machine(cores),),
        Network(Constant(DELAY)),
    )
    found: dict[float, float] = {}
    hears = Emitting.acknowledged

    def noting(self: Emitting, flight: Flight) -> None:
        found[flight.unit.issued] = self._kernel.now
        hears(self, flight)

    monkeypatch.setattr(Emitting, "acknowledged", noting)
    topology.run(SECONDS, seed=5)
    expected = simpys(5, shared, cores)
    assert len(found) == len(expected) > 3_000
    issued = sorted(found)
    assert issued == pytest.approx(sorted(expected), rel=1e-9)
    ends = [expected[at] for at in sorted(expected)]
    assert [found[at] for at in issued] == pytest.approx(ends, rel=1e-9)

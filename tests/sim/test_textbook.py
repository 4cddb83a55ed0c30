"""What the theory of queues says, the simulator says too."""

from __future__ import annotations

import itertools
from statistics import fmean

import numpy as np
import pytest

from taut.policy.waiting import mean_wait
from taut.sim.cluster import Machine, Operator, Pauses, Random, Spout, Topology
from taut.sim.cluster.station import Computing
from taut.sim.draws import Constant, Draws, Exponential, Gamma, Lognormal


def waited(servers: int, rho: float, service: Draws, units: int = 500_000, seed: int = 1) -> float:
    """The mean wait before one queue with so many servers, Poisson arrivals."""
    rate = servers * rho / service.mean
    topology = Topology(
        Spout(1, Exponential(1.0 / rate)),
        (Operator("bolt", servers, service, shared=True),),
    )
    return topology.run(units / rate, seed=seed).waited("bolt")


@pytest.mark.parametrize(
    ("servers", "rho", "units"),
    [
        (1, 0.3, 300_000),
        (1, 0.7, 800_000),
        (2, 0.5, 300_000),
        (4, 0.7, 800_000),
        (8, 0.7, 1_000_000),
    ],
)
def test_mean_waits_of_mmc(servers: int, rho: float, units: int) -> None:
    expected = mean_wait(servers, servers * rho, 1.0)
    assert waited(servers, rho, Exponential(1.0), units) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize(
    ("service", "runs"),
    [
        (Constant(1.0), 1),
        (Gamma(1.0, 0.25), 1),
        (Gamma(1.0, 0.2, least=0.5), 1),
        # with a tail a single run of this length is apart by 1 % as often as not
        (Lognormal(1.0, 1.0), 4),
    ],
)
def test_mean_waits_of_mg1(service: Draws, runs: int) -> None:
    """Pollaczek and Khinchine."""
    rho = 0.6
    expected = rho / (1.0 - rho) * (1.0 + service.scv) / 2.0
    found = [waited(1, rho, service, seed=seed) for seed in range(runs)]
    assert fmean(found) == pytest.approx(expected, rel=0.02)


def test_two_tasks_on_one_core_wait_for_it_as_for_a_server() -> None:
    """Two queues, each with a task of its own, and a core between them: together M/M/1."""
    topology = Topology(
        Spout(2, Exponential(1.0 / 0.35)),
        (Operator("bolt", 2, Exponential(1.0), grouping=Random()),),
        (Machine(cores=1),),
    )
    outcome = topology.run(300_000 / 0.7, seed=2)
    assert outcome.waited("bolt") == pytest.approx(mean_wait(1, 0.7, 1.0), rel=0.02)


def network(cores: int | None) -> Topology:
    """Two operators with queues of both kinds, on two machines."""
    return Topology(
        Spout(2, Exponential(0.5)),
        (
            Operator("first", 2, Exponential(0.4)),
            Operator("second", 3, Gamma(0.5, 0.5), after=("first",), shared=True),
        ),
        (Machine(cores, pauses=Pauses(50.0, Exponential(1.0))), Machine(cores)),
    )


def test_littles_law_to_rounding() -> None:
    """Tuples there over time, integrated from event to event, are the sum of their stays."""
    outcome = network(cores=2).run(5_000.0, seed=3)
    for station in itertools.chain.from_iterable(outcome.stations.values()):
        assert isinstance(station, Computing)
        assert station.tuples > 1_000
        assert station.there_over_time == pytest.approx(station.stayed, rel=1e-9)


def test_ends_that_are_known_ahead_are_those_that_come_about() -> None:
    """One event a hop gives what an event for each beginning and end gives, with cores enough."""
    ahead, stepped = network(cores=None).run(5_000.0), network(cores=1_000).run(5_000.0)
    assert ahead.events < stepped.events
    assert np.array_equal(np.sort(ahead.latencies), np.sort(stepped.latencies))


def test_results_are_the_same_on_any_machine() -> None:
    """To all digits but those in which libraries of mathematics differ."""
    outcome = network(cores=2).run(500.0, seed=11)
    assert (outcome.units, outcome.events) == (1915, 11497)
    assert outcome.mean == pytest.approx(19.40568379211355, rel=1e-9)


def test_the_same_seed_gives_the_same_result() -> None:
    topology = Topology(
        Spout(3, Exponential(0.01)),
        (Operator("bolt", 4, Exponential(0.01), grouping=Random()),),
        (Machine(), Machine(cores=2)),
    )
    one, same, other = (topology.run(50.0, seed=seed).latencies for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert len(one) != len(other) or not np.array_equal(one, other)

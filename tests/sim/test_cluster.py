"""Machines, tasks, networks and spouts: each does what it says."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.balance import BALANCES, LatencyBalance
from taut.policy.timeout import AdaptiveTimeout, Replication
from taut.sim.cluster import (
    All,
    Balanced,
    Fields,
    Grouping,
    Machine,
    Network,
    Operator,
    Outcome,
    Overloaded,
    PartialKey,
    Pauses,
    Random,
    Shuffle,
    Spout,
    Topology,
)
from taut.sim.cluster.machine import Running
from taut.sim.cluster.network import Edge, Link
from taut.sim.cluster.spout import Emitting
from taut.sim.cluster.station import Computing, Waiting
from taut.sim.draws import Constant, Exponential, Gamma, Geometric, Lognormal, Uniform
from taut.sim.kernel import Kernel

EVEN = Constant(0.01)


def one(service: float = 0.001, tasks: int = 1, **given: object) -> Operator:
    return Operator("bolt", tasks, Constant(service), **given)  # type: ignore[arg-type]


# Machines


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    jobs=st.lists(st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 3.0)), max_size=30),
    speed=st.sampled_from([0.5, 1.0, 2.0]),
)
def test_work_is_done_when_its_machine_has_run_for_so_long(
    seed: int, jobs: list[tuple[float, float]], speed: float
) -> None:
    """Against the literal: step over the pauses one by one."""
    kernel = Kernel(seed)
    machine = Machine(None, speed, Pauses(1.0, Exponential(0.5))).build(kernel, "m")
    for start, work in sorted(jobs):
        end = machine.done(start, work)
        left, now = work / speed, start
        pauses = list(zip(machine._starts, machine._ends, strict=True))
        assert machine._starts[-1] > end or machine._ends[-1] >= end
        for begin, over in pauses:
            if over <= now:
                continue
            if begin > now:
                run = min(left, begin - now)
                left -= run
                now += run
                if left <= 1e-12:
                    break
            now = over
        else:
            now += left
        assert end == pytest.approx(max(now, start), abs=1e-9)
        machine.check()


def test_pauses_take_their_share_of_the_time() -> None:
    pauses = Pauses(2.0, Gamma(0.5, 0.5))
    machine = Machine(pauses=pauses).build(Kernel(1), "m")
    end = machine.done(0.0, 20_000.0)
    assert 20_000.0 / end == pytest.approx(1.0 - pauses.share, rel=0.02)


def test_a_shared_queue_gets_tuples_by_the_number_of_its_tasks() -> None:
    topology = Topology(
        Spout(1, EVEN), (one(0.001, 3, machines=(0, 0, 1), shared=True),), (Machine(), Machine())
    )
    two, single = (s.tuples for s in topology.run(30.0).stations["bolt"])
    assert two == pytest.approx(2 * single, abs=2)


def test_cores_are_taken_in_the_order_of_asking() -> None:
    """Ten tuples for one task, then one for another: that one's turn is the second."""
    topology = Topology(
        Spout(1, Constant(1.0)),
        (
            Operator("all", 10, Constant(0.0), grouping=All()),
            Operator("many", 1, Constant(0.01), after=("all",)),
            Operator("few", 1, Constant(0.01)),
        ),
        (Machine(cores=1),),
        Network(Constant(0.0)),
    )
    outcome = topology.run(20.0)
    many, few = outcome.stations["many"][0], outcome.stations["few"][0]
    assert many.tuples == 10 * few.tuples
    # the one waits for what is under way, not for all that others have waiting
    assert few.waited / few.tuples <= 0.01 + 1e-9
    assert many.waited / many.tuples > 0.04


# Groupings


def counts(grouping: Grouping, keys: int = 1, zipf: float = 0.0) -> list[int]:
    topology = Topology(
        Spout(2, Exponential(0.01), keys=keys, zipf=zipf), (one(0.0, 4, grouping=grouping),)
    )
    outcome = topology.run(100.0, seed=4)
    return [station.tuples for station in outcome.stations["bolt"]]


def test_groupings() -> None:
    shuffled = counts(Shuffle())
    assert max(shuffled) - min(shuffled) <= 2, "each spout in turn"
    drawn = counts(Random())
    assert 2 < max(drawn) - min(drawn) < 500
    assert sorted(counts(Fields()))[:3] == [0, 0, 0], "a single key has one task"
    assert sum(n > 0 for n in counts(PartialKey())) == 2, "and two here"
    everyone = counts(All())
    assert len(set(everyone)) == 1
    assert sum(everyone) == 4 * everyone[0]


def test_partial_keys_spread_what_keys_do_not() -> None:
    by_key, by_two = (counts(g, keys=1_000, zipf=1.2) for g in (Fields(), PartialKey()))
    assert max(by_two) < 0.8 * max(by_key)


def test_a_key_has_the_same_task_always() -> None:
    choosing = Fields().build(Kernel(), "r", [None] * 7)  # type: ignore[list-item]

    class Of:
        def __init__(self, key: int) -> None:
            self.key = key

    seen = {key: {tuple(choosing.choose(Of(key))) for _ in range(3)} for key in range(500)}  # type: ignore[arg-type]
    assert all(len(places) == 1 for places in seen.values())
    assert len(Counter(places.pop() for places in seen.values())) == 7


def test_balance_moves_load_to_the_fast_machine() -> None:
    def shares(policy: str) -> list[float]:
        topology = Topology(
            Spout(2, Exponential(0.02)),
            (one(0.006, 2, grouping=Balanced(BALANCES[policy]), machines=(0, 1)),),
            (Machine(cores=1, speed=0.5), Machine(cores=1)),
        )
        outcome = topology.run(300.0, seed=1, every=10.0)
        slow, fast = outcome.series["bolt"][-2].tuples
        return [slow / (slow + fast), outcome.quantile(0.99)]

    even, balanced = shares("even"), shares("balance")
    assert even[0] == pytest.approx(0.5, abs=0.02)
    assert 0.0 < balanced[0] < 0.3
    assert balanced[1] < even[1]


def test_queues_that_tasks_share_are_balanced_by_tasks() -> None:
    topology = Topology(
        Spout(1, EVEN),
        (one(0.001, 3, grouping=Balanced(BALANCES["even"]), machines=(0, 0, 1), shared=True),),
        (Machine(), Machine()),
    )
    two, single = (s.tuples for s in topology.run(30.0).stations["bolt"])
    assert two == pytest.approx(2 * single, abs=2)


# Spouts


def test_the_first_of_two_instances_counts() -> None:
    """Of two tasks one takes a second; with both asked at once nobody waits for it."""

    def latencies(share: float | None) -> np.ndarray:
        topology = Topology(
            Spout(1, Constant(3.0), *(() if share is None else (lambda: Replication(share),))),
            (one(0.5, 2, machines=(0, 1)),),
            (Machine(speed=0.5), Machine(speed=50.0)),
        )
        outcome = topology.run(60.0)
        assert outcome.cost == (share or 0.0)
        return np.sort(outcome.latencies)

    assert set(latencies(None).round(9)) == {0.01, 1.0}
    assert set(latencies(1.0).round(9)) == {0.01}


class After:
    eager = False
    timeout = None

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def due(self, size: int, now: float) -> float:
        return now + self.seconds

    def observe(self, size: int, seconds: float, now: float) -> None: ...

    def adjust(self, now: float) -> None: ...


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_what_takes_too_long_is_issued_once_more(late: float) -> None:
    """Every second tuple goes to a task that takes a second; its other instance does not."""
    topology = Topology(
        Spout(1, Constant(3.0), lambda: After(0.1), late=late),
        (one(0.5, 2, machines=(0, 1)),),
        (Machine(speed=0.5), Machine(speed=50.0)),
    )
    outcome = topology.run(600.0)
    again = outcome.latencies[outcome.latencies > 0.05]
    assert len(again) > 60
    assert outcome.cost == len(again) / len(outcome.latencies)
    assert again.min() == pytest.approx(0.11, abs=0.01 + 1e-9)
    assert again.max() == pytest.approx(0.11 + 0.1 * late, abs=0.01 + 1e-9)


@pytest.mark.parametrize("grouping", [Shuffle(), Random(), Balanced(BALANCES["even"])])
def test_the_second_instance_goes_to_another_task(grouping: Grouping) -> None:
    """Of five tasks one takes 1.4 s; four tuples come until a timeout, so that it is due again."""
    topology = Topology(
        Spout(1, Constant(0.3), lambda: After(1.3)),
        (one(0.01, 5, grouping=grouping, machines=(0, 1, 2, 3, 4)),),
        (Machine(speed=0.01 / 1.4), *(Machine() for _ in range(4))),
    )
    outcome = topology.run(600.0)
    again = outcome.latencies[outcome.latencies > 0.1]
    assert outcome.cost == len(again) / len(outcome.latencies) > 0.1
    assert set(again.round(9)) == {1.31}


def test_where_there_is_one_task_it_gets_both_instances() -> None:
    topology = Topology(Spout(1, Constant(3.0), lambda: Replication(1.0)), (one(0.5),))
    assert set(topology.run(60.0).latencies.round(9)) == {0.5}


def test_the_timeout_shortens_the_tail() -> None:
    def run(*replay: Callable[[], AdaptiveTimeout]) -> Outcome:
        return Topology(
            Spout(1, Exponential(0.01), *replay),
            (Operator("bolt", 4, Exponential(0.001), machines=(0, 1, 2, 3)),),
            tuple(Machine(pauses=Pauses(5.0, Constant(0.2))) for _ in range(4)),
        ).run(200.0, warm_up=2.0, seed=3)

    plain, adaptive = run(), run(lambda: AdaptiveTimeout(budget=1.0))
    assert plain.cost == 0.0 < adaptive.cost < 0.2
    assert adaptive.quantile(0.99) < plain.quantile(0.99) / 2


def test_a_spout_that_stands_still_hears_late_and_emits_nothing() -> None:
    pauses = Pauses(2.0, Constant(1.0))
    moving, still = (
        Topology(Spout(1, Geometric(0.5, 0.001), pauses=p), (one(0.02, 20),)).run(60.0, seed=2)
        for p in (None, pauses)
    )
    assert moving.quantile(1.0) < 0.1
    assert 0.9 < still.quantile(1.0) <= 1.1
    assert len(still.latencies) == pytest.approx(
        len(moving.latencies) * (1 - pauses.share), rel=0.1
    )


def test_a_tuple_of_branches_ends_with_the_last() -> None:
    topology = Topology(
        Spout(1, Constant(1.0)),
        (
            Operator("head", 1, Constant(0.1)),
            Operator("quick", 1, Constant(0.1), after=("head",)),
            Operator("slow", 1, Constant(0.5), after=("head",)),
            Operator("joined", 1, Constant(0.0), after=("quick", "slow")),
        ),
        network=Network(Constant(0.01)),
        ack=Constant(0.02),
    )
    outcome = topology.run(10.0)
    assert outcome.latencies.round(9).tolist() == [0.65] * 10
    assert outcome.stations["joined"][0].tuples == 20


def test_what_is_dropped_is_done() -> None:
    topology = Topology(
        Spout(1, Exponential(0.01)),
        (
            Operator("filter", 1, Constant(0.0), selectivity=0.25),
            Operator("rest", 1, Constant(0.0), after=("filter",)),
        ),
    )
    outcome = topology.run(100.0)
    assert len(outcome.latencies) == outcome.units
    share = outcome.stations["rest"][0].tuples / outcome.stations["filter"][0].tuples
    assert share == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    "component", [Running, Emitting, Computing, Waiting, Link, Edge, LatencyBalance, Kernel]
)
def test_every_component_checks_itself_after_a_run(
    component: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = Topology(
        Spout(1, EVEN, lambda: AdaptiveTimeout(budget=1.0)),
        (
            Operator("first", 2, Constant(0.001), machines=(0, 1)),
            Operator("second", 2, Constant(0.001), Balanced(BALANCES["balance"]), after=("first",)),
        ),
        (Machine(), Machine(cores=1)),
        Network(link=10_000.0),
    )

    def broken(_: object) -> None:
        raise AssertionError(f"{component.__name__} is checked")

    monkeypatch.setattr(component, "check", broken)
    with pytest.raises(AssertionError, match=f"{component.__name__} is checked"):
        topology.run(1.0)


def test_what_is_noted_over_time_adds_up() -> None:
    topology = Topology(Spout(1, Exponential(0.01)), (one(0.005, 2),))
    outcome = topology.run(60.0, seed=1, every=2.0)
    noted, stations = outcome.series["bolt"], outcome.stations["bolt"]
    assert [n.at for n in noted] == pytest.approx([2.0 * k for k in range(1, len(noted) + 1)])
    counted = sum(sum(n.tuples) for n in noted)
    assert counted == pytest.approx(sum(s.tuples for s in stations), abs=400)
    waited = sum(n.waited * sum(n.tuples) for n in noted if sum(n.tuples))
    assert waited / counted == pytest.approx(outcome.waited("bolt"), rel=0.05)


# Networks


def test_a_link_lets_tuples_through_one_by_one() -> None:
    topology = Topology(
        Spout(1, Constant(1.0)),
        (
            Operator("many", 4, Constant(0.0), grouping=All(), machines=(0, 0, 0, 0)),
            Operator("here", 1, Constant(0.0), after=("many",), machines=(0,)),
            Operator("there", 1, Constant(0.0), after=("many",), machines=(1,)),
        ),
        (Machine(), Machine()),
        Network(Constant(0.01), local=Constant(0.0), link=100.0),
    )
    outcome = topology.run(10.0)
    # four leave the machine together, 10 ms each; those that stay do not wait
    assert outcome.latencies.round(9).tolist() == [0.05] * 10


def test_tuples_that_stay_on_a_machine_are_quicker() -> None:
    topology = Topology(
        Spout(1, Constant(1.0)),
        (one(0.0, 2, machines=(0, 1)),),
        (Machine(), Machine()),
        Network(Constant(0.5), local=Constant(0.125)),
    )
    assert Counter(topology.run(10.0).latencies.tolist()) == {0.5: 5, 0.125: 5}


# Placement and errors


def test_tasks_go_round_the_machines() -> None:
    topology = Topology(
        Spout(5, EVEN),
        tuple(
            Operator(name, 3, Constant(0.0), after=(before,))
            for before, name in (("spout", "one"), ("one", "two"), ("two", "three"))
        ),
        tuple(Machine() for _ in range(5)),
    )
    outcome = topology.run(1.0)
    at = {name: [s.machine.name[-1] for s in found] for name, found in outcome.stations.items()}
    assert at == {"one": ["0", "1", "2"], "two": ["3", "4", "0"], "three": ["1", "2", "3"]}


def test_more_than_can_be_worked_off() -> None:
    topology = Topology(Spout(1, EVEN), (one(0.1),))
    with pytest.raises(Overloaded, match=r"\d+ tuples had not ended 5 s after the last came"):
        topology.run(10.0, patience=5.0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: Machine(cores=0), "cores=0"),
        (lambda: Machine(speed=0.0), "speed=0"),
        (lambda: Pauses(0.0, EVEN), "every=0"),
        (lambda: Spout(0, EVEN), "tasks=0"),
        (lambda: Spout(1, Constant(0.0)), "gaps="),
        (lambda: Spout(1, EVEN, keys=0), "keys=0"),
        (lambda: Spout(1, EVEN, late=-1.0), "late=-1"),
        (lambda: Operator("b", 0, EVEN), "tasks=0"),
        (lambda: Operator("b", 1, EVEN, selectivity=2.0), "selectivity=2"),
        (lambda: Operator("b", 2, EVEN, machines=(0,)), "1 machines for 2 tasks"),
        (lambda: one(shared=True, grouping=Fields()), "shared queues with Fields"),
        (lambda: Topology(Spout(1, EVEN), (one(),)).run(0.0), "seconds=0"),
        (lambda: Topology(Spout(1, EVEN), (one(),)).run(1.0, every=0.0), "every=0"),
        (lambda: Balanced(BALANCES["even"], period=0.0), "period=0"),
        (lambda: Kernel(seed=-1), "seed=-1"),
        (lambda: Topology(Spout(1, EVEN), ()), "needs an operator"),
        (lambda: Topology(Spout(1, EVEN), (one(), one())), "two operators are called 'bolt'"),
        (lambda: Topology(Spout(1, EVEN), (one(after=("x",)),)), "is after 'x'"),
        (lambda: Topology(Spout(1, EVEN), (one(machines=(3,)),)).run(1.0), "there are 1"),
        (lambda: Network(link=0.0), "link=0"),
        (lambda: Constant(-1.0), "value=-1"),
        (lambda: Exponential(math.nan), "mean=nan"),
        (lambda: Gamma(1.0, 0.0), "scv=0"),
        (lambda: Gamma(1.0, 1.0, least=1.0), "least=1"),
        (lambda: Lognormal(1.0, 0.0), "scv=0"),
        (lambda: Geometric(0.0, 1.0), "chance=0"),
    ],
)
def test_wrong_values_are_refused(wrong: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        wrong()  # type: ignore[operator]


@pytest.mark.parametrize(
    "draws",
    [
        Constant(2.0), Exponential(2.0), Uniform(4.0), Gamma(2.0, 0.5), Gamma(2.0, 0.1, least=1.0),
        Lognormal(2.0, 1.5), Geometric(0.25, 0.5),
    ],
)  # fmt: skip
def test_draws_have_the_mean_and_the_spread_that_they_say(draws: Constant) -> None:
    found = draws.sample(Kernel(3).stream("a"), 400_000)
    assert found.mean() == pytest.approx(draws.mean, rel=0.01)
    assert found.var() / found.mean() ** 2 == pytest.approx(draws.scv, rel=0.06, abs=1e-12)

"""Many queries, in both models: nothing is lost, and a policy that knows what is due is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from taut.policy import POLICIES, LeastSlack, MemoryManaged, MemoryManagement, Policy
from taut.policy.cost import BatchCost
from taut.policy.slack import DelayHistory
from taut.policy.turns import Turns
from taut.sim.draws import Constant, Uniform
from taut.sim.kernel import Kernel
from taut.sim.queries.cores import Cores, Together
from taut.sim.queries.microbatch import Cluster, Query
from taut.sim.queries.operators import Node, Pipeline, _Working


def sixteen(**given: float) -> list[Query]:
    how = {"rate": 1_000.0, "window": 12.0, "fixed": 0.25, "row_cost": 2e-6} | given
    return [Query(f"q{n:02}", delay=Uniform(0.02), offset=12.0 * n / 16, **how) for n in range(16)]


def test_one_query_alone_needs_two_batches() -> None:
    """The batch that ends after the sweeping row began before it; then one reads it, one emits."""
    query = Query("q", 1_000.0, 10.0, fixed=0.2, row_cost=0.0, delay=Constant(0.0))
    outcome = Cluster(cores=1.0).run([query], None, 200.0, warm_up=20.0)
    assert outcome.latencies.min() >= 0.4
    assert outcome.latencies.max() <= 0.6 + 1e-9


def test_stock_spark_runs_all_batches_and_each_takes_as_long_as_there_are_queries() -> None:
    outcome = Cluster(cores=2.0).run(sixteen(), None, 240.0, warm_up=60.0)
    assert len(outcome.latencies) == 16 * 20
    # sixteen batches of 0.25 core seconds share two cores: 2 s each; a window needs two to three
    assert outcome.mean == pytest.approx(2.0 * 2.5, rel=0.15)


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_brings_every_window_out(name: str) -> None:
    outcome = Cluster(cores=2.0, concurrency=1).run(sixteen(), POLICIES[name](), 240.0, 60.0)
    assert len(outcome.latencies) == 16 * 20
    assert (outcome.latencies > 0.0).all()


def test_least_slack_is_far_ahead_of_stock_spark() -> None:
    cluster = Cluster(cores=2.0, concurrency=1)
    stock, slack = (
        cluster.run(sixteen(), policy, 240.0, warm_up=60.0)
        for policy in (None, POLICIES["least-slack"]())
    )
    assert stock.mean > 4.0 * slack.mean
    assert stock.quantile(0.99) > 4.0 * slack.quantile(0.99)
    assert slack.batches < stock.batches / 2


@pytest.mark.parametrize("name", ["least-slack", "streambox"])
def test_a_window_that_was_read_but_is_not_out_is_still_due(name: str) -> None:
    """Watermarks come up to a second late, so that turns end before the batch that emits."""
    queries = [replace(query, delay=Uniform(1.0)) for query in sixteen()]
    outcome = Cluster(cores=2.0, concurrency=2).run(queries, POLICIES[name](), 120.0, 60.0)
    assert outcome.quantile(0.99) < 4.0


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: Query("q", 1.0, 0.0, 0.1, 0.0, Constant(0.0)), "window=0"),
        (lambda: Query("q", 1.0, 1.0, 0.0, 0.0, Constant(0.0)), "fixed=0"),
        (lambda: Cluster().run([], None, 1.0), "no queries"),
        (lambda: Cluster().run(sixteen()[:1] * 2, None, 1.0), "two queries are called 'q00'"),
        (lambda: Cluster().run(sixteen(), None, 0.0), "seconds=0"),
        (lambda: Node(cores=0), "cores=0"),
        (lambda: Node(memory=0.0), "memory=0"),
        (lambda: Pipeline("p", 1.0, 1.0, (), Constant(0.0)), "steps="),
        (lambda: Pipeline("p", 1.0, 0.0, ((1.0, 1.0),), Constant(0.0)), "window=0"),
        (lambda: Pipeline("p", 1.0, 1.0, ((1.0, 0.0),), Constant(0.0)), "leave a part"),
        (lambda: Node(train=0.0), "train=0"),
        (lambda: Node().run(pipelines(2, 0.5), None, 1.0, warm_up=-1.0), "warm_up=-1"),
        (lambda: Cores(Kernel(), 0.0), "cores=0"),
    ],
)
def test_wrong_values_are_refused(wrong: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        wrong()


def test_the_same_seed_gives_the_same_windows() -> None:
    one, same = (Cluster().run(sixteen(), POLICIES["least-slack"](), 60.0) for _ in range(2))
    assert np.array_equal(one.latencies, same.latencies)


def test_cores_are_shared() -> None:
    kernel = Kernel()
    cores, ends = Cores(kernel, 2.0), {}
    for n, seconds in enumerate((1.0, 2.0, 3.0)):
        cores.work(seconds, lambda n=n: ends.__setitem__(n, kernel.now))
    kernel.run()
    # three on two cores until the first is done at 1.5, then a core each
    assert ends == pytest.approx({0: 1.5, 1: 2.5, 2: 3.5})
    assert cores.used == pytest.approx(6.0)
    cores.check()


def pipelines(queries: int, load: float, cores: int = 4) -> list[Pipeline]:
    cost = load * cores / queries / 10_000.0
    steps = ((cost / 2, 0.5), (cost, 0.1))
    return [
        Pipeline(f"q{n:02}", 10_000.0, 3.0, steps, Uniform(0.2), offset=3.0 * n / queries)
        for n in range(queries)
    ]


def in_order(name: str | None) -> Policy | None:
    if name == "least-slack":
        return MemoryManagement().build(LeastSlack(patient=False))
    return None if name in (None, "stock") else POLICIES[name]()


@pytest.mark.parametrize("name", [None, *POLICIES])
def test_windows_of_pipelines_come_out_while_cores_suffice(name: str | None) -> None:
    outcome = Node(cores=4).run(pipelines(16, 0.8), in_order(name), 60.0, warm_up=6.0)
    assert len(outcome.latencies) >= 16 * 19
    assert outcome.quantile(0.99) < 0.7
    assert outcome.events == pytest.approx(16 * 10_000 * 66, rel=0.01)


def test_least_slack_is_ahead_beyond_saturation() -> None:
    runs = {
        name: Node(cores=4).run(pipelines(24, 1.05), in_order(name), 120.0)
        for name in ("stock", "fcfs", "round-robin", "highest-rate", "least-slack")
    }
    assert min(runs, key=lambda name: runs[name].mean) == "least-slack"
    # whoever is first, a core does the same work
    assert max(r.events for r in runs.values()) == pytest.approx(
        min(r.events for r in runs.values()), rel=0.02
    )


@pytest.mark.parametrize("name", [None, *POLICIES])
def test_full_memory_holds_sources_and_slows_work(name: str | None) -> None:
    """Three times of what the cores can do: memory is full, and no window is forgotten."""
    node = Node(cores=4, memory=300_000.0, slower=1.5)
    outcome = node.run(pipelines(16, 3.0), in_order(name), 60.0, warm_up=30.0)
    assert outcome.memory.max() <= 1.0 + 1e-9
    assert outcome.memory[-200:].mean() > 0.8
    able = 16 * 10_000 / 3.0
    # without pressure at first; with memory management at times later too
    assert able / 1.5 * 0.95 < outcome.throughput < able * (1.0 if name == "least-slack" else 0.7)
    assert len(outcome.latencies) == 16 * 20
    # of the windows that are let in, none waits for more than is in memory; most wait outside
    assert outcome.inside.mean() < 300_000.0 / (able / 1.5) < outcome.mean
    assert outcome.missed > 0.3


def test_in_round_robin_nobody_is_last_for_ever() -> None:
    """A little more than the cores can do: all are late by about as much."""
    outcome = Node(cores=4, slower=1.0).run(
        pipelines(30, 1.05), POLICIES["round-robin"](), 120.0, warm_up=6.0
    )
    assert outcome.quantile(1.0) < 4.0 * outcome.mean


def test_a_pipeline_takes_as_long_as_its_work() -> None:
    """A query alone: its window waits for a cycle to begin and for what came before it."""
    query = Pipeline("p", 1_000.0, 3.0, ((100e-6, 1.0),), Constant(0.05))
    outcome = Node(cores=1).run([query], None, 60.0)
    assert 0.05 < outcome.latencies.min() < outcome.latencies.max() < 0.05 + 0.12 + 0.03


def test_windows_of_a_held_source_count_from_their_end() -> None:
    """Ten times of what a core can do: a second of events takes ten, and all windows count."""
    query = Pipeline("p", 10_000.0, 1.0, ((1e-3, 1.0),), Constant(0.0))
    outcome = Node(cores=1, memory=2_000.0, slower=1.0).run([query], None, 120.0, warm_up=20.5)
    ends = np.arange(21.0, 141.0)
    assert len(outcome.latencies) == len(ends)
    # the run goes on for as long again, and is over at 260.5
    assert outcome.latencies == pytest.approx(np.minimum(10.0 * ends, 260.5) - ends, abs=0.3)
    assert outcome.missed == pytest.approx(np.mean(10.0 * ends > 260.5))
    # inside they take what memory holds
    assert outcome.inside.max() == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize("cores", [1, 4])
@pytest.mark.parametrize("name", [None, *POLICIES])
def test_no_cycle_does_more_than_the_cores_can(name: str | None, cores: int) -> None:
    """40 windows end at a time, and need 2.4 ms each: the last is out after all of that."""
    queries = [
        Pipeline(f"q{n:02}", 96.0, 0.125, ((150e-6, 0.5), (100e-6, 1.0)), Constant(0.0))
        for n in range(40)
    ]
    outcome = Node(cores=cores, cycle=0.125).run(queries, in_order(name), 5.0)
    together = outcome.latencies.reshape(40, -1)
    assert together.max(axis=0) == pytest.approx(40 * 2.4e-3 / cores)
    # without a policy all are at work until then; else they are out one after the other
    mean = 1.0 if name is None else (40 / cores + 1) / (80 / cores)
    assert together.mean(axis=0) == pytest.approx(mean * 40 * 2.4e-3 / cores)


@pytest.mark.parametrize("name", [None, *POLICIES])
def test_beyond_saturation_cores_do_what_they_can_and_no_more(name: str | None) -> None:
    node = Node(cores=2, slower=1.0)
    outcome = node.run(pipelines(20, 1.5, cores=2), in_order(name), 30.0, warm_up=6.0)
    assert outcome.throughput * pipelines(20, 1.5, cores=2)[0].event_cost < 2.0 * 1.02
    assert outcome.missed < 1.0


def test_a_filter_that_has_run_has_freed_memory() -> None:
    query = Pipeline("p", 10_000.0, 0.5, ((10e-6, 0.1), (500e-6, 1.0)), Constant(0.0))
    working = _Working(query, 10_000.0, Kernel())
    working.generate(1.0)
    working.let_in(1.0, 1.0)
    assert working.waiting == pytest.approx(10_000)
    assert working.cost == pytest.approx(0.1 + 0.5)
    # the core is there for the first operator only: nothing is out, a tenth is left
    assert working.work(1.0, 1.0, lambda spent: 1.0 + spent, operators=1) == pytest.approx(0.1)
    assert working.waiting == pytest.approx(1_000)
    assert [operator.queued for operator in working.view(1.1).operators] == [0.0, 1_000.0]
    assert working.cost == pytest.approx(0.5)
    assert working.owes(0.5)
    assert working.work(1.0, 1.0, lambda spent: 1.1 + spent, operators=2) == pytest.approx(0.5)
    assert working.waiting == working.cost == 0.0
    assert [window.out for window in working.windows(0.0, 1.0)] == pytest.approx([1.35, 1.6])
    working.check()


def test_memory_management_makes_room() -> None:
    """Under stress only what frees most is run, up to the filter: sources are held for less."""
    steps = ((1e-6, 0.3), (10e-6, 1.0))
    cost = 4.0 / (20 * 10_000.0) / (4e-6) * 1.2
    steps = tuple((seconds * cost, out) for seconds, out in steps)
    queries = [
        Pipeline(f"q{n:02}", 10_000.0, 3.0, steps, Uniform(0.1), offset=3.0 * n / 20)
        for n in range(20)
    ]
    node = Node(cores=4, memory=300_000.0)
    with_it, without = (
        node.run(queries, policy, 40.0, warm_up=10.0)
        for policy in (in_order("least-slack"), LeastSlack(patient=False))
    )
    assert not np.array_equal(with_it.latencies, without.latencies)
    assert with_it.memory.mean() < without.memory.mean()
    assert with_it.throughput > 1.02 * without.throughput


@pytest.mark.parametrize("seed", range(5))
def test_pieces_that_begin_together_end_as_in_the_kernel(seed: int) -> None:
    kernel = Kernel(seed)
    pieces = (kernel.stream("pieces").random(12) + 0.01).tolist()
    cores, ends = Cores(kernel, 3.0), {}
    for n, seconds in enumerate(pieces):
        cores.work(seconds, lambda n=n: ends.__setitem__(n, kernel.now))
    kernel.run()
    shared = Together(pieces, 3.0, 0.0, 100.0)
    assert [shared.when(seconds) for seconds in pieces] == pytest.approx(
        [ends[n] for n in range(12)]
    )
    assert shared.level == max(pieces)
    # cut short, all that are not done have had as much
    cut = Together(pieces, 3.0, 5.0, 5.5)
    done = sum(min(seconds, cut.level) for seconds in pieces)
    assert done == pytest.approx(3.0 * 0.5)
    assert cut.when(cut.level) == pytest.approx(5.5)
    assert Together([], 3.0, 5.0, 5.5).when(0.0) == 5.0


MICROBATCH = (Kernel, Cores, BatchCost, DelayHistory, Turns, MemoryManaged)


@pytest.mark.parametrize(
    ("component", "run"),
    [(c, lambda: Cluster().run(sixteen()[:2], POLICIES["least-slack"](), 20.0)) for c in MICROBATCH]
    + [
        (c, lambda: Node().run(pipelines(2, 0.5), in_order("least-slack"), 6.0))
        for c in (Kernel, DelayHistory, MemoryManaged)
    ],
)
def test_after_a_run_every_component_checks_itself(
    component: type, run: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsound(_: object) -> None:
        raise AssertionError("unsound")

    run()
    monkeypatch.setattr(component, "check", unsound)
    with pytest.raises(AssertionError, match="unsound"):
        run()

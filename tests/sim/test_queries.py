"""Many queries, in both models: nothing is lost, and a policy that knows what is due is better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from taut.policy import POLICIES, LeastSlack, MemoryManagement, Policy
from taut.sim.draws import Constant, Uniform
from taut.sim.kernel import Kernel
from taut.sim.queries.cores import Cores
from taut.sim.queries.microbatch import Cluster, Query
from taut.sim.queries.operators import Node, Pipeline


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
    """Three times of what the cores can do: memory is full, nothing is lost, latency is bounded."""
    node = Node(cores=4, memory=300_000.0, slower=1.5)
    outcome = node.run(pipelines(16, 3.0), in_order(name), 90.0, warm_up=30.0)
    assert outcome.memory.max() <= 1.0 + 1e-9
    assert outcome.memory[-200:].mean() > 0.9
    able = 16 * 10_000 / 3.0
    assert outcome.events / 120.0 == pytest.approx(able / 1.5, rel=0.05)
    # what is in memory takes as long as the cores need for it, or less where windows come first
    assert 1.0 < outcome.mean < 1.2 * 300_000.0 / (able / 1.5)


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


def test_time_that_a_source_is_held_does_not_count() -> None:
    """Ten times of what a core can do: windows take what memory holds, not ever longer."""
    query = Pipeline("p", 10_000.0, 1.0, ((1e-3, 1.0),), Constant(0.0))
    outcome = Node(cores=1, memory=2_000.0, slower=1.0).run([query], None, 120.0, warm_up=20.0)
    # a second of events takes ten; what is in memory two
    assert len(outcome.latencies) == pytest.approx(12, abs=1)
    assert outcome.quantile(1.0) == pytest.approx(2.0, abs=0.3)

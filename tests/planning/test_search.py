from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planning.synthetic import profile

from taut.planning.phases import fit
from taut.planning.search import Search
from taut.planning.settings import SPARE, Cluster, Settings, rules_of_thumb
from taut.slo import Slo

CLUSTER = Cluster(1, 2)
COSTS = fit(profile(spread=0.08))


def search(slo: str = "p99 <= 2 s", **changes: object) -> Search:
    return Search(COSTS, Slo(slo), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("slo", ["p99 <= 1 s", "p90 <= 800 ms", "mean <= 2 s", "max <= 5 s"])
def test_what_is_found_meets_the_objective_and_hardly_more_would(slo: str) -> None:
    looked = search(slo)
    found = looked.best(CLUSTER)
    assert found is not None
    assert found.latency.of(looked.slo) <= looked.slo.seconds
    assert looked.meets(found.settings, CLUSTER, found.rate)
    assert not looked.meets(found.settings, CLUSTER, 1.01 * found.rate)


def test_nothing_else_is_better() -> None:
    looked = search("p99 <= 1 s")
    found = looked.best(CLUSTER)
    assert found is not None
    for lanes in (1, 2, 3, 4):
        for reducers in (1, 2, 3, 4):
            for trigger in (0.0, 0.2, 0.5):
                other = looked.highest(Settings(lanes, reducers, trigger), CLUSTER)
                # those that were not profiled have only the fit of all to go by
                assert other <= found.rate * 1.02


def test_rules_of_thumb_are_no_better() -> None:
    looked = search("p99 <= 1 s")
    found = looked.best(CLUSTER)
    assert found is not None
    rules = rules_of_thumb(CLUSTER)
    assert {rule.reducers for rule in rules.values()} == {2, 200}
    assert max(looked.highest(rule, CLUSTER) for rule in rules.values()) <= found.rate


@settings(max_examples=12, deadline=None)
@given(st.floats(0.3, 10.0), st.floats(1.0, 2.0), st.sampled_from(["p99", "mean", "p50"]))
def test_a_longer_objective_never_lowers_the_rate(
    seconds: float, longer: float, measure: str
) -> None:
    few, more = (
        search(f"{measure} <= {bound:.3f} s").best(CLUSTER) for bound in (seconds, longer * seconds)
    )
    assert (more.rate if more else 0.0) >= (few.rate if few else 0.0)


@pytest.mark.parametrize("slo", ["p99 <= 1 s", "p99 <= 4 s"])
def test_a_larger_cluster_never_lowers_the_rate(slo: str) -> None:
    rates = []
    for executors, cores in ((1, 1), (1, 2), (2, 2), (3, 2), (4, 2), (4, 4)):
        found = search(slo).best(Cluster(executors, cores))
        rates.append(found.rate if found else 0.0)
    assert rates == sorted(rates)
    assert rates[-1] > 2 * rates[0]


def test_the_smallest_cluster_for_a_rate() -> None:
    looked = search("p99 <= 2 s")
    clusters = [Cluster(many, 2) for many in range(1, 6)]
    best = [looked.best(cluster) for cluster in clusters]
    asked = best[2].rate * 0.99  # type: ignore[union-attr]
    found = looked.smallest(clusters, asked)
    assert found is not None
    assert found.cluster == clusters[2]
    assert looked.smallest(clusters, 1e9) is None


def test_below_the_cost_of_a_batch_nothing_is_found() -> None:
    assert search("p99 <= 100 ms").best(CLUSTER) is None


def test_a_margin_costs_rate() -> None:
    plain, safe = (search(margin=margin).best(CLUSTER) for margin in (0.0, 5.0))
    assert plain is not None and safe is not None  # noqa: PT018
    assert safe.rate < plain.rate


def test_windows_need_longer_objectives() -> None:
    costs = fit(profile(window=2.0))
    rows = Search(replace(costs, windows=None), Slo("p99 <= 2 s")).best(CLUSTER)
    windows = Search(costs, Slo("p99 <= 2 s")).best(CLUSTER)
    assert rows is not None and windows is not None  # noqa: PT018
    assert windows.rate < rows.rate


def test_ceilings_are_where_batches_grow_without_end() -> None:
    looked = search()
    most = looked.ceiling(Settings(2, 2), CLUSTER)
    assert looked.latency(Settings(2, 2), CLUSTER, 0.99 * most).mean < math.inf
    assert looked.latency(Settings(2, 2), CLUSTER, 1.01 * most).mean == math.inf


def test_what_was_seen_often_needs_less_margin() -> None:
    found = search("p99 <= 1 s", margin=2.0)
    costs = replace(found.costs, error=0.3, seen={(2, 2): 100, (1, 1): 8})
    looked = replace(found, costs=costs)
    assert looked.left(Settings(2, 2)) == 2.0 * SPARE
    assert looked.left(Settings(1, 1)) == pytest.approx(2.0 * 0.1)
    assert looked.left(Settings(2, 1)) == 2.0 * 0.3
    often, seldom = (looked.highest(Settings(2, many), CLUSTER) for many in (2, 1))
    plain = replace(looked, costs=replace(costs, seen={}))
    assert often > plain.highest(Settings(2, 2), CLUSTER)
    assert seldom == plain.highest(Settings(2, 1), CLUSTER)

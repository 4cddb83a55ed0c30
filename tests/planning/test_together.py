"""Queries that are planned together, against the same queries taking turns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.planning.synthetic import profile
from tests.planning.taking_turns import simulate

import taut
from taut.errors import PlanError
from taut.planning.phases import fit
from taut.planning.profile import Profile
from taut.planning.runner import INTERVALS, Member, Tasks, rhythms
from taut.planning.search import HIGHEST
from taut.planning.settings import Cluster, Settings
from taut.planning.shared import SharedPlan
from taut.planning.together import Arrangement, Together
from taut.slo import Slo

ONE, TWO, FOUR = Cluster(1, 1), Cluster(1, 2), Cluster(1, 4)


def member(name: str, slo: str, rate: float, **costs: object) -> Member:
    return Member(name, fit(profile(**costs)), Slo(slo), rate)  # type: ignore[arg-type]


CASES = {
    "two on one core": (
        ONE,
        [
            member("a", "p99 <= 2 s", 4_000, cluster=ONE),
            member("b", "p99 <= 5 s", 2_000, fixed=0.3, cluster=ONE),
        ],
    ),
    "a short objective beside a long one": (
        ONE,
        [
            member("a", "p99 <= 2 s", 500, cluster=ONE),
            member("b", "p99 <= 30 s", 4_000, fixed=0.4, cluster=ONE),
        ],
    ),
    "three on two cores": (
        TWO,
        [
            member("a", "p99 <= 2 s", 8_000),
            member("b", "p90 <= 5 s", 5_000, fixed=0.3),
            member("c", "mean <= 3 s", 2_000, spread=0.2),
        ],
    ),
    "with windows": (
        TWO,
        [
            member("a", "p99 <= 4 s", 8_000, window=2.0),
            member("b", "p99 <= 5 s", 5_000, fixed=0.3),
            member("c", "p99 <= 4 s", 2_000, window=5.0),
        ],
    ),
    "eight on one core": (
        ONE,
        [
            member(f"q{nth}", f"p99 <= {3 + nth} s", 1_000, spread=0.05 + 0.05 * (nth % 4))
            for nth in range(8)
        ],
    ),
    "eight on four cores": (
        FOUR,
        [
            member(f"q{nth}", f"p99 <= {2 + nth} s", 2_000 + 300 * nth, fixed=0.1 + 0.03 * nth)
            for nth in range(8)
        ],
    ),
}


@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
@pytest.mark.parametrize("case", list(CASES))
def test_latency_is_what_turns_make_it(case: str, share: float) -> None:
    """Up to the limit; most errors are far below these bounds."""
    cluster, members = CASES[case]
    together = Together(members, cluster)
    best = together.best()
    assert best is not None
    growth = share * best.growth
    seen, taken = simulate(members, best, growth=growth)
    assert taken > 0.8 or share < 1.0 or case != "eight on one core"
    for one, latency in zip(together.latencies(best, growth), seen, strict=True):
        assert one.shape == "measured"
        assert one.mean == pytest.approx(latency.moments().mean, rel=0.15)
        assert one.quantile(0.99) == pytest.approx(latency.quantile(0.99), rel=0.2)
        assert sum(one.phases.values()) == pytest.approx(one.mean, rel=0.05)


@pytest.mark.parametrize("case", list(CASES))
def test_what_is_planned_holds_when_it_runs(case: str) -> None:
    """Even at the most: there is a margin."""
    cluster, members = CASES[case]
    best = Together(members, cluster).best()
    assert best is not None
    seen, _ = simulate(members, best, growth=best.growth)
    for one, latency in zip(members, seen, strict=True):
        share = one.slo.quantile
        value = latency.moments().mean if share is None else latency.quantile(share)
        assert value <= one.slo.seconds * 1.01, one.name


def test_cantelli_is_never_below() -> None:
    members = [member(f"q{nth}", "p99 <= 9 s", 2_000, batches=1, spread=0.15) for nth in range(3)]
    together = Together(members, TWO)
    best = together.best()
    assert best is not None
    for share in (0.3, 1.0):
        growth = share * best.growth
        seen, _ = simulate(members, best, growth=growth)
        for one, latency in zip(together.latencies(best, growth), seen, strict=True):
            assert one.shape == "cantelli"
            assert one.mean == pytest.approx(latency.moments().mean, rel=0.15)
            assert one.quantile(0.99) >= latency.quantile(0.99)


@pytest.mark.parametrize("case", list(CASES))
def test_a_plan_meets_its_own_model_and_hardly_more_would(case: str) -> None:
    cluster, members = CASES[case]
    together = Together(members, cluster)
    best = together.best()
    assert best is not None
    assert 1 <= best.turns <= cluster.slots
    assert together.meets(best, best.growth)
    assert together.meets(best, 0.5 * best.growth)
    assert not together.meets(best, 1.05 * best.growth)
    part = best.way.part
    for one, each in zip(members, best.settings, strict=True):
        assert each.trigger in INTERVALS
        assert each.trigger < one.slo.seconds
        assert each.lanes <= part.slots
        assert each.reducers <= 2 * part.slots


def room(slos: list[str], cluster: Cluster, rates: tuple[float, ...] = (2_000, 1_000)) -> float:
    members = [
        Member(f"q{nth}", COSTS, Slo(slo), rate)
        for nth, (slo, rate) in enumerate(zip(slos, rates, strict=True))
    ]
    best = Together(members, cluster).best()
    return best.growth if best else 0.0


COSTS = fit(profile())
STEPS = 0.96
"""Intervals are tried in steps of a tenth, and rates in steps as well."""


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(1.0, 6.0),
    st.floats(1.0, 6.0),
    st.floats(1.0, 3.0),
    st.sampled_from(["p99", "mean"]),
    st.sampled_from([ONE, TWO]),
)
def test_a_longer_objective_never_lowers_the_room(
    first: float, second: float, longer: float, measure: str, cluster: Cluster
) -> None:
    before = room([f"{measure} <= {first:.3f} s", f"p99 <= {second:.3f} s"], cluster)
    after = room([f"{measure} <= {longer * first:.3f} s", f"p99 <= {second:.3f} s"], cluster)
    assert after >= STEPS * before


def test_a_larger_cluster_never_lowers_the_room() -> None:
    slos = ["p99 <= 2 s", "p99 <= 4 s"]
    rooms = [room(slos, Cluster(1, cores)) for cores in (1, 2, 3, 4, 6)]
    rooms += [room(slos, Cluster(many, 4)) for many in (2, 4)]
    assert all(after >= STEPS * before for before, after in pairwise(rooms))
    assert rooms[-1] > 2.0 * rooms[0]


def wanted(name: str, slo: str, rate: float, **costs: object) -> taut.Demand:
    taken = msgspec.structs.replace(profile(**costs), app=name)  # type: ignore[arg-type]
    return taut.Demand(profile=taken, slo=slo, rate=rate)


@pytest.mark.parametrize("slo", ["p99 <= 1 s", "p99 <= 4 s", "mean <= 2 s"])
def test_alone_it_is_about_what_a_plan_for_one_gives(slo: str) -> None:
    alone = taut.plan_together([wanted("job", slo, 5_000)])
    plan = taut.plan(profile=profile(), slo=slo, rate=5_000)
    assert alone.concurrency == 1
    assert alone["job"].most == pytest.approx(plan.most, rel=0.06)
    assert alone["job"].phases["turn"] == 0.0


def three() -> list[taut.Demand]:
    return [
        wanted("clicks", "p99 <= 2 s", 8_000),
        wanted("orders", "p99 <= 5 s", 5_000, fixed=0.3),
        wanted("words", "mean <= 4 s", 1_000, window=2.0),
    ]


@pytest.fixture(scope="module")
def shared() -> SharedPlan:
    return taut.plan_together(three())


def test_what_would_pile_up_is_not_looked_at() -> None:
    """If batches cost a quarter more, turns would not do: latency is that just before."""
    first = taut.plan_together(three())
    near = [replace(each, rate=0.97 * first.growth * each.rate) for each in three()]
    shared = taut.plan_together(near)
    assert shared.busy > 0.8
    assert all("would not keep up" in plan.warnings[-1] for plan in shared.plans)
    for plan in shared.plans:
        expected = plan.expected[Slo(plan.slo).measure]
        assert expected.seconds <= expected.high < 1.5 * expected.seconds


def test_a_query_piles_up_alone_where_others_leave_turns_free() -> None:
    """It has one turn, however many there are."""
    large = member("large", "p99 <= 20 s", 78_000, cluster=FOUR)
    small = member("small", "p99 <= 20 s", 500, cluster=FOUR)
    together = Together([large, small], FOUR)
    way = next(way for way in together.ways() if way.turns == 2)
    found = Arrangement(way, 1.0, (Settings(2, 2, 10.0), Settings(1, 1, 10.0)))
    assert together.busy(found) < 0.65
    first, second = together.bearable(found)
    alone = together._runners(found, 1.0)[0].work.growth(large.rate)
    assert first == pytest.approx(HIGHEST / alone)
    assert 1.0 < first < 1.5 < second


def test_a_shared_plan_says_what_to_expect(shared: SharedPlan) -> None:
    assert [plan.app for plan in shared.plans] == ["clicks", "orders", "words"]
    assert shared.growth > 1.0
    assert 0.0 < shared.busy < 1.0
    for demand, plan in zip(three(), shared.plans, strict=True):
        slo = Slo(demand.slo)
        assert plan.slo == str(slo)
        assert plan.rate == demand.rate
        assert plan.most == pytest.approx(shared.growth * demand.rate)
        expected = plan.expected[slo.measure]
        assert expected.low <= expected.seconds <= expected.high
        assert expected.seconds <= slo.seconds
        assert plan.phases["turn"] >= 0.0
        assert sum(plan.phases.values()) == pytest.approx(plan.expected["mean"].seconds, rel=0.05)
        assert plan.settings.cap is not None
        assert plan.settings.cap > plan.most * plan.settings.trigger


def test_explained_for_a_person(shared: SharedPlan) -> None:
    told = shared.explain()
    for part in (
        "3 queries on 1 executor with 2 cores: ",
        f"{shared.concurrency} at a time, turns taken for {shared.busy:.0%} of the time",
        f"all objectives hold up to {shared.growth:.2f} times these rates",
        "orders: p99 <= 5 s at 5,000 rows a second",
        "turn",
        "batches every",
    ):
        assert part in told, told


def test_a_shared_plan_comes_back_from_its_file(shared: SharedPlan, tmp_path: Path) -> None:
    kept = tmp_path / "shared.json"
    shared.save(kept)
    assert SharedPlan.load(kept) == shared
    msgspec.structs.replace(shared, format=7).save(kept)
    with pytest.raises(PlanError, match=r"shared plan .* has format 7"):
        SharedPlan.load(kept)
    with pytest.raises(PlanError, match="No such file"):
        SharedPlan.load(tmp_path / "none.json")


def test_what_spark_and_a_runtime_are_told(shared: SharedPlan) -> None:
    assert shared.conf() == {
        "spark.executor.instances": "1",
        "spark.executor.cores": "2",
        "spark.cores.max": "2",
    }
    policy = shared.policy()
    for plan in shared.plans:
        assert policy.rhythms[plan.app].interval == plan.settings.trigger
    with pytest.raises(KeyError, match="'none': the plan has clicks, orders, words"):
        shared["none"]


def test_batches_with_one_interval_are_not_due_at_once() -> None:
    found = rhythms(["a", "b", "c"], [Settings(trigger=2.0)] * 3)
    offsets = sorted(rhythm.offset for rhythm in found.values())
    assert offsets[0] == 0.0
    assert min(b - a for a, b in pairwise(offsets)) > 0.4
    assert all(rhythm.offset < rhythm.interval for rhythm in found.values())


def test_too_much_is_refused_with_the_query_and_the_numbers() -> None:
    asked = [wanted("clicks", "p99 <= 2 s", 60_000), wanted("orders", "p99 <= 5 s", 50_000)]
    with pytest.raises(taut.Infeasible, match=r"(clicks|orders): .* times all rates") as no:
        taut.plan_together(asked)
    factor = no.value.nearest_rate / (60_000 if "clicks:" in str(no.value) else 50_000)
    assert 0.3 < factor < 1.0
    less = [
        wanted("clicks", "p99 <= 2 s", 0.99 * factor * 60_000),
        wanted("orders", "p99 <= 5 s", 0.99 * factor * 50_000),
    ]
    assert taut.plan_together(less).growth == pytest.approx(1.01, abs=0.02)


def test_an_objective_too_short_is_named_with_one_that_is_not() -> None:
    asked = [wanted("clicks", "p99 <= 400 ms", 1_000), wanted("orders", "p99 <= 5 s", 1_000)]
    with pytest.raises(taut.Infeasible, match="clicks: p99 <= 400 ms cannot be met") as no:
        taut.plan_together(asked)
    nearest = no.value.nearest_slo
    assert nearest is not None
    assert nearest.quantile == 0.99
    assert 0.4 < nearest.seconds < 2.0
    again = [wanted("clicks", str(nearest), 1_000), asked[1]]
    assert taut.plan_together(again)["clicks"].slo == str(nearest)
    shorter = f"p99 <= {0.8 * nearest.seconds:.3f} s"
    with pytest.raises(taut.Infeasible):
        taut.plan_together([wanted("clicks", shorter, 1_000), asked[1]])


def test_what_no_objective_would_make_possible() -> None:
    asked = [wanted("clicks", "p99 <= 2 s", 1e7), wanted("orders", "p99 <= 5 s", 1_000)]
    with pytest.raises(taut.Infeasible, match="no longer objective for it alone would do") as no:
        taut.plan_together(asked)
    assert no.value.nearest_slo is None


def test_twenty_queries_on_sixteen_cores() -> None:
    asked = [
        wanted(
            f"q{nth}",
            f"p99 <= {2 + nth % 5} s",
            2_000 + 500 * nth,
            fixed=0.1 + 0.02 * (nth % 4),
            window=2.0 * (nth % 3 == 0),
        )
        for nth in range(20)
    ]
    found = taut.plan_together(asked, cluster=Cluster(4, 4))
    assert found.concurrency <= 16
    assert any("profiled on 1 executor with 2 cores" in said for said in found["q0"].warnings)


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="queries: none was given"):
        taut.plan_together([])
    with pytest.raises(PlanError, match=r"rate=-1: rows a second, above zero"):
        taut.plan_together([wanted("a", "p99 <= 1 s", -1)])
    with pytest.raises(PlanError, match=r"name='a': is that of 2 queries; each needs its own"):
        taut.plan_together([wanted("a", "p99 <= 1 s", 1)] * 2)
    with pytest.raises(PlanError, match="app= or profile= is needed"):
        taut.plan_together([taut.Demand(slo="p99 <= 1 s", rate=1)])
    with pytest.raises(taut.SloError, match="is not an objective"):
        taut.plan_together([wanted("a", "soon", 1)])
    elsewhere = wanted("b", "p99 <= 2 s", 1_000, cluster=FOUR)
    with pytest.raises(PlanError, match="cluster: is needed, for the profiles are of several"):
        taut.plan_together([wanted("a", "p99 <= 2 s", 1_000), elsewhere])
    kept = tmp_path / "profile.json"
    profile().save(kept)
    by_file = taut.Demand(profile=kept, slo="p99 <= 2 s", rate=1_000, name="again")
    assert taut.plan_together([by_file])["again"].rate == 1_000
    assert Profile.load(kept).app == "job"


@pytest.mark.parametrize(
    ("cluster", "many", "slots", "beside"),
    [(TWO, 1, 2, 0), (TWO, 2, 1, 1), (FOUR, 3, 1, 2), (Cluster(4, 2), 4, 2, 1)],
)
def test_parts_of_a_cluster(cluster: Cluster, many: int, slots: int, beside: int) -> None:
    part = cluster.part(many)
    assert part.slots == slots
    assert part.taken == beside
    assert Tasks(COSTS, part).best(10_000).lanes <= slots
    with pytest.raises(PlanError, match="run at most"):
        cluster.part(cluster.slots + 1)
    with pytest.raises(PlanError, match=r"taken=9: a whole number, from 0 to"):
        Cluster(1, 2, taken=9)


def test_what_a_model_can_do_near_its_limit_is_planned() -> None:
    """The way that a formula ranks first has less than is asked for, and another one as much."""
    asked = [
        wanted("noisy", "p99 <= 5.98 s", 78_291, fixed=0.2, spread=0.2),
        wanted("quick", "p99 <= 6.44 s", 39_145, fixed=0.1),
    ]
    found = taut.plan_together(asked, cluster=Cluster(1, 2))
    assert found.growth >= 1.0
    for demand, made in zip(asked, found.plans, strict=True):
        assert made.expected["p99"].seconds <= Slo(demand.slo).seconds


def test_what_cannot_be_is_refused_before_anything_is_profiled(tmp_path: Path) -> None:
    def app(spark: object, settings: object) -> object:
        raise AssertionError("it is profiled")

    fine = taut.Demand(app, slo="p99 <= 1 s", rate=1_000)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="name='app': is that of 2 queries"):
        taut.plan_together([fine, fine])
    with pytest.raises(PlanError, match=r"rate=0: rows a second"):
        taut.plan_together([fine, replace(fine, rate=0, name="other")])
    kept = tmp_path / "app.profile.json"
    msgspec.structs.replace(profile(), app="app").save(kept)
    by_file = taut.Demand(profile=kept, slo="p99 <= 1 s", rate=1_000)
    with pytest.raises(PlanError, match="name='app': is that of 2 queries"):
        taut.plan_together([fine, by_file])
    with pytest.raises(taut.SloError):
        taut.plan_together([fine, replace(fine, slo="soon", name="other")])

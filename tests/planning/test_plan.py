from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.planning.synthetic import profile, sample

import taut
from taut.errors import PlanError, ProfileError
from taut.planning.latency import predict
from taut.planning.phases import fit
from taut.planning.plan import Infeasible, Plan, expected, make, spread
from taut.planning.profile import Profile
from taut.planning.search import Choice, Search
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo

CLUSTER = Cluster(1, 2)


def plan(slo: str = "p99 <= 2 s", rate: float | None = None, **costs: float) -> Plan:
    return taut.plan(profile=profile(**costs), slo=slo, rate=rate)


def test_a_plan_says_what_to_expect() -> None:
    made = plan(rate=20_000)
    assert made.rate == 20_000 < made.most
    assert made.cluster == CLUSTER
    assert list(made.expected) == ["mean", "p50", "p90", "p99"]
    for each in made.expected.values():
        assert each.low < each.seconds < each.high
    told = [made.expected[name].seconds for name in ("p50", "p90", "p99")]
    assert told == sorted(told)
    assert made.expected["p99"].seconds <= 2.0
    assert sum(made.phases.values()) == pytest.approx(made.expected["mean"].seconds, rel=0.03)
    assert made.settings.cap is not None
    assert made.settings.cap > 20_000 * made.phases["wait"]


def test_without_a_rate_it_is_the_highest() -> None:
    made = plan()
    assert made.rate == made.most
    assert plan("p95 <= 2 s").expected["p95"].seconds <= 2.0


def test_explained_for_a_person() -> None:
    told = plan(rate=20_000).explain()
    for part in (
        "job: p99 <= 2 s at 20,000 rows a second",
        "on 1 executor with 2 cores: 2 lanes",
        "where the time goes:",
        "reduce",
        "what limits it",
        "as measured",
    ):
        assert part in told, told
    assert "beware" not in told


def test_a_plan_for_another_cluster_says_that_it_is_a_guess() -> None:
    made = taut.plan(profile=profile(), slo="p99 <= 2 s", rate=10_000, cluster=Cluster(8, 4))
    assert any("profiled on 1 executor with 2 cores" in warning for warning in made.warnings)
    assert "beware" in made.explain()


def test_rates_that_need_larger_batches_than_were_profiled_are_said_to_be_guesses() -> None:
    made = plan("p99 <= 60 s", rate=2_000)
    largest = max(sample.rows for sample in made.profile.samples)
    (told,) = made.warnings
    assert told.startswith("the highest rate is extrapolated: its batches would have ")
    assert told.endswith(f"rows, the profile has up to {largest:,}")
    told, *_ = plan("p99 <= 60 s").warnings
    assert re.match(r"batches of [\d,]+ rows are expected, the profile has up to ", told)


def test_a_profile_whose_source_ran_out_of_rows_says_so() -> None:
    dry = msgspec.structs.replace(profile(), dry=2)
    made = taut.plan(profile=dry.merged(dry), slo="p99 <= 2 s")
    assert "ran out of rows while 4 of the queries were profiled, so that" in made.explain()


def test_a_profile_of_a_machine_that_still_warms_up_says_so() -> None:
    warming = profile(spread=0.01)
    samples = [
        msgspec.structs.replace(
            one,
            seconds={phase: took * (1.0 - 0.02 * (n % 12)) for phase, took in one.seconds.items()},
        )
        for n, one in enumerate(warming.samples)
    ]
    made = taut.plan(
        profile=msgspec.structs.replace(warming, samples=samples), slo="p99 <= 2 s", rate=20_000
    )
    (told,) = made.warnings
    assert re.search(r"batches became 1[123]% faster .* profile again in the same session", told)
    assert not taut.plan(profile=warming, slo="p99 <= 2 s", rate=20_000).warnings


def test_the_smallest_cluster() -> None:
    clusters = [Cluster(many, 2) for many in range(1, 11)]
    made = taut.plan(profile=profile(), slo="p99 <= 2 s", rate=150_000, cluster=clusters)
    assert 1 < made.cluster.executors < 10
    fewer = Cluster(made.cluster.executors - 1, 2)
    with pytest.raises(Infeasible):
        taut.plan(profile=profile(), slo="p99 <= 2 s", rate=150_000, cluster=fewer)


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    made = plan(rate=20_000)
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made
    cut = tmp_path / "cut.json"
    cut.write_bytes((tmp_path / "plan.json").read_bytes()[:300])
    with pytest.raises(PlanError, match=r"cut\.json cannot be read"):
        Plan.load(cut)
    with pytest.raises(PlanError, match="No such file"):
        Plan.load(tmp_path / "none.json")
    msgspec.structs.replace(made, format=7).save(cut)
    with pytest.raises(PlanError, match="has format 7, this Taut reads 2"):
        Plan.load(cut)


def test_below_the_cost_of_a_batch_it_is_refused_with_the_number() -> None:
    with pytest.raises(Infeasible, match=r"cannot be met at any rate: a batch without rows") as no:
        plan("p99 <= 150 ms")
    assert no.value.nearest_rate == 0.0
    nearest = no.value.nearest_slo
    assert nearest is not None
    assert nearest.quantile == 0.99
    assert taut.plan(profile=profile(), slo=nearest, rate=1.0).rate == 1.0


def test_too_high_a_rate_is_refused_with_what_can_be_had() -> None:
    most = plan().most
    with pytest.raises(Infeasible, match=rf"up to {most:,.0f} can") as no:
        plan(rate=1.1 * most)
    assert no.value.nearest_rate == pytest.approx(most)
    nearest = no.value.nearest_slo
    assert nearest is not None
    assert nearest.seconds > 2.0
    assert taut.plan(profile=profile(), slo=nearest, rate=1.1 * most).rate == 1.1 * most
    with pytest.raises(Infeasible, match="batches would grow without end") as never:
        plan(rate=1e9)
    assert never.value.nearest_slo is None


@pytest.mark.parametrize("rate", [0.0, -5.0, float("inf"), float("nan")])
def test_rates_that_are_none_are_refused(rate: float) -> None:
    with pytest.raises(PlanError, match=r"rate=.*above zero"):
        plan(rate=rate)


def test_nothing_to_plan() -> None:
    with pytest.raises(PlanError, match="app= or profile= is needed"):
        taut.plan(slo="p99 <= 1 s")
    with pytest.raises(PlanError, match="none was given"):
        make(profile(), Slo("p99 <= 1 s"), None, [])


def changed(samples: list[object]) -> Profile:
    return msgspec.structs.replace(profile(), samples=samples)


def test_a_job_with_one_row_a_batch() -> None:
    one = [sample(1, 1, 1) for _ in range(40)]
    with pytest.raises(PlanError, match="needs batches of two sizes"):
        taut.plan(profile=changed(one), slo="p99 <= 2 s", rate=1.0)


def test_no_cost_of_a_row_is_said() -> None:
    same = [sample(1, 1, 10, row_us=0.0) for _ in range(10)]
    same += [sample(1, 1, 20_000, row_us=0.0) for _ in range(10)]
    with pytest.raises(PlanError, match="no cost of a row"):
        taut.plan(profile=changed(list(same)), slo="p99 <= 2 s")


def test_enormous_rows() -> None:
    made = taut.plan(profile=profile(sizes=(1, 8), row_us=250_000.0), slo="p99 <= 10 s", rate=0.5)
    assert made.most < 10.0
    assert made.expected["mean"].seconds > 0.25


def test_a_profile_of_another_spark() -> None:
    with pytest.raises(ProfileError, match="this is 9"):
        make(profile(), Slo("p99 <= 1 s"), None, [CLUSTER], spark="9")


def test_settings_are_told_to_spark() -> None:
    settings = Settings(4, 3, 0.25, cap=1_000)
    assert settings.conf() == {"spark.sql.shuffle.partitions": "3"}
    assert str(settings) == "4 lanes, 3 reducers, batches every 0.25 s, at most 1,000 rows each"
    assert plan(rate=100.0).conf()["spark.cores.max"] == "2"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"lanes": 0}, "lanes=0: a whole number"),
        ({"reducers": True}, "reducers=True"),
        ({"trigger": -1.0}, "trigger=-1.0: seconds, 0 or more"),
        ({"cap": 0}, "cap=0"),
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        Settings(**wrong)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="speed=0"):
        Cluster(1, 1, 0.0)


@pytest.mark.parametrize("bound", ["p99 <= 8 s", "p99 <= 12 s", "mean <= 30 s"])
@pytest.mark.parametrize("rate", [None, 1_000])
def test_windows_at_rates_that_batches_hardly_bear_are_planned(
    bound: str, rate: float | None
) -> None:
    """Near the limit batches take hours, with thousands of windows in one."""
    made = plan(bound, rate, window=2.0)
    assert made.expected[Slo(bound).measure].seconds <= Slo(bound).seconds


@pytest.mark.parametrize("window", [0.0, 10.0])
@pytest.mark.parametrize("slo", ["p99 <= 4 s", "p99 <= 12 s", "mean <= 30 s"])
def test_a_cap_leaves_room_for_what_is_expected(slo: str, window: float) -> None:
    made = plan(slo, window=window, fixed=1.0)
    assert made.settings.cap is not None
    assert made.settings.cap > made.most * made.settings.trigger
    assert made.expected["p99"].seconds > 0.0
    assert made.phases


def test_a_plan_that_bends_comes_back_from_its_file(tmp_path: Path) -> None:
    made = plan(sizes=(3_000, 15_000, 75_000), knee=15_000.0, beyond_us=4.0)  # type: ignore[arg-type]
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made


@pytest.mark.parametrize("rate", [1.0, 60.0, 5_000.0])
def test_windows_are_on_time_at_the_rate_that_was_asked_for(rate: float) -> None:
    """With few rows the one that shows the end of a window comes after the batch has looked."""
    assert plan("p99 <= 2.5 s", rate, window=2.0).expected["p99"].seconds <= 2.5


def test_a_plan_at_its_limit_says_so_and_comes_back_from_its_file(tmp_path: Path) -> None:
    made = plan("p99 <= 30 s")
    told = made.explain()
    assert re.search(r"p99 +[0-9.]+ s \([0-9.]+ s to [0-9.]+ (s|min)\)", told), told
    assert "they would not keep up" in told
    made.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == made


def test_a_fit_that_is_far_off_has_an_interval_all_the_same() -> None:
    wild = profile(spread=0.0)
    strays = [sample(2, 2, 400_000, factor=4.0), sample(1, 1, 900_000, factor=0.2)] * 2
    made = taut.plan(profile=wild.merged(strays), slo="p99 <= 60 s", rate=1_000)
    for each in made.expected.values():
        assert 0.0 < each.low <= each.seconds <= each.high


def test_the_nearest_objective_of_a_refusal_can_be_had() -> None:
    wide = [Cluster(1, 16)]
    taken = profile()
    for slo in ("p99 <= 300 ms", "p99 <= 1 s"):
        with pytest.raises(Infeasible) as no:
            make(taken, Slo(slo), 200_000.0, wide)
        nearest = no.value.nearest_slo
        assert nearest is not None
        assert make(taken, nearest, 200_000.0, wide).rate == 200_000.0
        shorter = Slo(f"p99 <= {0.9 * nearest.seconds:.3f} s")
        with pytest.raises(Infeasible):
            make(taken, shorter, 200_000.0, wide)


@pytest.mark.parametrize(
    ("dearer", "inside"), [(1.2, True), (1 / 1.2, True), (1.4, False), (1 / 1.4, False)]
)
def test_the_interval_is_for_batches_that_cost_a_quarter_more_or_less(
    dearer: float, inside: bool
) -> None:
    slo, rate = "p99 <= 5 s", 20_000
    settings = Settings(2, 2)
    seen = predict(
        fit(profile(fixed=0.2 * dearer, task=0.05 * dearer, row_us=10.0 * dearer)),
        settings, CLUSTER, rate,
    )  # fmt: skip
    search = Search(fit(profile()), Slo(slo))
    middle = search.latency(settings, CLUSTER, rate)
    told = expected(search, Choice(CLUSTER, settings, rate, middle), rate)
    assert (told["mean"].low <= seen.mean <= told["mean"].high) == inside
    assert (told["p99"].low <= seen.quantile(0.99) <= told["p99"].high) == inside


def test_the_interval_is_wider_where_the_fit_is_further_off() -> None:
    near, far = (spread(replace(fit(profile()), error=error)) for error in (0.1, 0.2))
    assert far[0] < near[0] < 1.0 < near[1] < far[1]


def test_more_can_be_spared_and_a_plan_remembers_it(tmp_path: Path) -> None:
    usual, careful = (taut.plan(profile=profile(), slo="p99 <= 2 s", spare=s) for s in (0.05, 0.2))
    assert careful.rate < 0.95 * usual.rate
    careful.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json").spare == 0.2
    shared = taut.plan_together(
        [taut.Demand(profile=profile(), slo="p99 <= 2 s", rate=1_000)], spare=0.2
    )
    assert [each.spare for each in shared.plans] == [0.2]
    for refused in (-0.1, float("nan"), float("inf")):
        with pytest.raises(PlanError, match=r"a share of what batches cost, such as 0\.05"):
            taut.plan(profile=profile(), slo="p99 <= 2 s", spare=refused)


def test_a_profile_cannot_be_taken_in_no_time() -> None:
    with pytest.raises(PlanError, match="seconds=3: at least 5 to profile"):
        taut.plan(lambda spark, settings: None, slo="p99 <= 2 s", seconds=3)  # type: ignore

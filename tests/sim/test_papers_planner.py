"""The experiments with the planner: it is asked itself, and what they say of it holds."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from statistics import fmean, pstdev

import msgspec
import pytest

from taut.planning import trials
from taut.planning.latency import predict
from taut.planning.search import Search
from taut.planning.settings import Cluster, Settings, rules_of_thumb
from taut.sim.draws import Constant
from taut.sim.papers import EXPERIMENTS, Effort, Found, planner, planner_trial
from taut.sim.papers.planner import MEAN_WITHIN, PROFILES, SHARES, Rates, grid
from taut.sim.papers.planner_trial import ENGINE, JOBS, SESSIONS, WINDOWS, WORDS, Case, cases
from taut.sim.queries.tasks import Engine
from taut.slo import Slo
from taut.spark.planning import profiling

QUICK = Effort(scale=0.02)
SMALL = Case(WORDS, Cluster(1, 2), Slo("p99 <= 2 s"))
PLAIN = replace(
    WORDS,
    plan=Constant(0.06),
    log=Constant(0.025),
    write=Constant(0.04),
    after=Constant(0.06),
    zipf=0.0,
    ratio=0.1,
)


@cache
def found_by(name: str, scale: float) -> Found:
    """What an experiment shows; several tests look at the same run."""
    return EXPERIMENTS[name].run(Effort(scale=scale))


@cache
def rates() -> dict[str, Rates]:
    effort = Effort(scale=0.3)
    return {case.name: planner.rates_of(case, effort) for case in cases(effort)}


# The planner itself is asked


class Asked(Exception):
    """The planner was."""


@pytest.mark.parametrize(
    ("name", "where", "what"),
    [
        ("planner-accuracy", planner, "predict"),
        ("planner-accuracy", planner_trial, "fit"),
        ("planner-accuracy", planner_trial, "sized"),
        ("planner-rules", planner_trial, "make"),
        ("planner-rules", Search, "best"),
        ("planner-rules", planner, "rules_of_thumb"),
    ],
)
def test_experiments_ask_the_planner(
    name: str, where: object, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = getattr(where, what)
    assert asked.__module__.startswith("taut.planning.")

    def ask(*_: object, **__: object) -> object:
        raise Asked

    monkeypatch.setattr(where, what, ask)
    with pytest.raises(Asked):
        EXPERIMENTS[name].run(QUICK)


def test_a_profile_tries_what_one_on_spark_does() -> None:
    same = ("trials", "mixtures", "sized", "closer", "BATCHES", "CLOSER_BATCHES", "CUT")
    for name in same:
        assert getattr(profiling, name) is getattr(trials, name) is getattr(planner_trial, name)
    cluster, slo = Cluster(2, 4), Slo("p99 <= 2 s")
    profile = Case(SESSIONS, cluster, slo).profile(1)
    profile.check()
    first, last = (
        profile.samples[: -trials.CLOSER_BATCHES],
        profile.samples[-trials.CLOSER_BATCHES :],
    )
    tried = Counter((each.lanes, each.reducers, each.rows) for each in first)
    large = max(rows for _, _, rows in tried)
    wanted = {(run.lanes, run.reducers, run.cap) for run in trials.trials(cluster, large)}
    assert tried == dict.fromkeys(wanted, trials.BATCHES)
    closer = trials.closer(msgspec.structs.replace(profile, samples=first), slo, None)
    assert closer is not None
    assert {(each.lanes, each.reducers) for each in last} == {(closer.lanes, closer.reducers)}
    (rows,) = {each.rows for each in last}
    assert rows == pytest.approx(closer.cap, rel=0.05)


def test_a_worse_planner_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    good = found_by("planner-accuracy", QUICK.scale).figures["all"]

    def doubled(*given: object, **more: object) -> object:
        return predict(*given, scale=2.0, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(planner, "predict", doubled)
    told = EXPERIMENTS["planner-accuracy"].run(QUICK).figures["all"]
    assert told["mean_within_15_percent"] < 0.5 * good["mean_within_15_percent"]
    assert told["p99_off_percent"] > 3.0 * good["p99_off_percent"]


def test_the_same_seed_gives_the_same() -> None:
    again = EXPERIMENTS["planner-accuracy"].run(QUICK)
    assert again.figures == found_by("planner-accuracy", QUICK.scale).figures
    assert SMALL.profile(1) == SMALL.profile(1) != SMALL.profile(2)
    settings = Settings(2, 2)
    first, same = (SMALL.late(settings, 1e5, QUICK) for _ in range(2))
    assert first == same != SMALL.late(settings, 1e5, Effort(2, 0.02))


# Where its model holds, and where it does not


@pytest.mark.parametrize("settings", [Settings(2, 2), Settings(1, 2), Settings(2, 2, 1.0)], ids=str)
def test_nothing_is_off_where_batches_are_as_the_model_has_them(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No noise, no pauses, no unequal keys."""
    monkeypatch.setattr(planner_trial, "ENGINE", Engine())
    case = replace(SMALL, job=PLAIN)
    search = case.search(case.profile(1))
    for rate in (20_000.0, 100_000.0):
        measured = case.measure(settings, rate, QUICK)
        told = predict(search.costs, settings, case.cluster, rate)
        assert told.mean == pytest.approx(measured.mean, rel=0.03)
        assert told.quantile(0.99) == pytest.approx(measured.quantile(0.99), rel=0.03)


def test_a_highest_rate_is_one() -> None:
    settings = Settings(2, 2)
    for guess in (2e4, 1.5e5, 1e6):
        rate = SMALL.highest(settings, guess, QUICK)
        assert SMALL.late(settings, rate, QUICK) <= 1.0
        assert SMALL.late(settings, 1.03 * rate, QUICK) > 1.0
    assert SMALL.highest(Settings(2, 2, 5.0), 1e5, QUICK) == 0.0


def test_all_that_was_asked_for_is_looked_at() -> None:
    every = cases(Effort())
    assert {case.job for case in every} == set(JOBS)
    assert {case.cluster.slots for case in every} == {2, 8, 40}
    assert sum(len(grid(case)) for case in every) >= 30
    assert SHARES[0] == 10
    assert SHARES[-1] == 90
    for case in every:
        rules = rules_of_thumb(case.cluster).values()
        assert sum(rule in case.every() for rule in rules) >= 2
        assert max(each.reducers for each in case.every()) == 2 * case.cluster.slots


# Accuracy


@pytest.mark.parametrize(
    ("variant", "figure"),
    [
        ("all", "mean_within_15_percent"),
        ("all", "p99_within_20_percent"),
        (WORDS.name, "mean_within_15_percent"),
        (WORDS.name, "p99_within_20_percent"),
        (SESSIONS.name, "mean_within_15_percent"),
        (SESSIONS.name, "p99_within_20_percent"),
        (WINDOWS.name, "mean_within_15_percent"),
        (WINDOWS.name, "p99_within_20_percent"),
    ],
)
def test_as_many_predictions_are_near_as_published(variant: str, figure: str) -> None:
    published = EXPERIMENTS["planner-accuracy"].published["all"][figure]
    assert found_by("planner-accuracy", 1.0).figures[variant][figure] >= published


def test_notes_of_accuracy_follow_from_its_figures() -> None:
    found = found_by("planner-accuracy", 1.0)
    told = found.figures
    assert found.notes[0].startswith("36 settings of 9 jobs and clusters at 5 rates each")
    means = re.findall(
        r"\d+", found.notes[1].split(f" % of the means are within {MEAN_WITHIN:g}")[0]
    )
    assert len(means) == PROFILES
    assert sum(map(int, means)) / PROFILES == pytest.approx(
        told["all"]["mean_within_15_percent"], abs=0.6
    )
    (windows,) = re.findall(r"windows with an interval ([+-]\d+) and", found.notes[2])
    assert abs(int(windows)) < MEAN_WITHIN / 2.0
    at = [told[f"rate-{share}/mean"]["near_percent"] for share in SHARES]
    assert sum(at) / len(at) == pytest.approx(told["all"]["mean_within_15_percent"])


def test_a_longer_profile_is_nearer() -> None:
    told = found_by("planner-accuracy", 1.0).figures
    for figure in ("mean_off_percent", "p99_off_percent"):
        assert told["longer profile"][figure] < told["all"][figure]


# Rules of thumb


NAMES = [case.name for case in cases(Effort())]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_better_than_the_best(name: str) -> None:
    told = rates()[name]
    assert told.plan <= told.best
    assert max(told.rules.values()) <= told.best
    assert told.rules["trigger 5 s"] == 0.0, "longer than the objective"
    assert told.rules["trigger 1 s"] <= 1.02 * told.rules["trigger 0 s"]
    assert told.rules["Spark's defaults"] < told.rules["trigger 0 s"]


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_within_5_percent_of_the_best_settings(name: str) -> None:
    told = rates()[name]
    assert told.plan >= 0.95 * told.best


@pytest.mark.parametrize("name", NAMES)
def test_most_plans_are_met(name: str) -> None:
    assert rates()[name].met > 0.5


def _planned(case: Case, times: int = 1) -> list[float]:
    """Of what is sustained with as many tasks as cores, from several profiles."""
    settings = Settings(case.cluster.slots, case.cluster.slots)
    sustained = case.highest(settings, 1e5, Effort(scale=0.3))
    searches = [case.search(case.profile(seed, times)) for seed in range(1, 7)]
    return [search.highest(settings, case.cluster) / sustained for search in searches]


def test_plans_differ_for_the_noise_of_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case(SESSIONS, Cluster(1, 2), JOBS[SESSIONS])
    noisy = _planned(case)
    monkeypatch.setattr(planner_trial, "ENGINE", replace(ENGINE, task=Constant(1.0)))
    steady = _planned(case)
    assert pstdev(noisy) > 1.2 * pstdev(steady)
    assert fmean(noisy) < 1.0
    assert max(steady) < 1.0


def test_what_results_of_windows_cost_is_planned_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """From long profiles without noise, so that nothing else makes a difference."""
    still = replace(ENGINE, task=Constant(1.0), pause_every=math.inf)
    monkeypatch.setattr(planner_trial, "ENGINE", still)
    free = replace(WINDOWS, reduce=replace(WINDOWS.reduce, out=0.0), write_out=0.0)
    costly, cheap = (
        fmean(_planned(Case(job, Cluster(1, 2), JOBS[WINDOWS]), times=8)) for job in (WINDOWS, free)
    )
    assert 0.9 < costly < 1.0
    assert 0.9 < cheap < 1.0


def test_two_waves_are_better_for_unequal_keys() -> None:
    def gained(zipf: float) -> float:
        case = Case(replace(WORDS, zipf=zipf), Cluster(2, 4), JOBS[WORDS])
        one, two = (case.highest(Settings(8, many), 4e5, Effort(scale=0.3)) for many in (8, 16))
        return two / one

    assert gained(0.0) < 1.02
    assert gained(WORDS.zipf) > 1.05


@pytest.mark.parametrize("name", ["words 2x4", "windowed-words 2x4"])
def test_two_waves_are_planned_where_they_are_better(name: str) -> None:
    told = rates()[name]
    assert told.plan >= 1.05 * max(told.rules.values())
    case = told.case
    assert case.plan(case.profile(1)).settings.reducers == 2 * case.cluster.slots


def test_windows_are_predicted_whether_they_end_with_triggers_or_not() -> None:
    def off(window: float) -> float:
        case = Case(replace(WINDOWS, window=window), Cluster(2, 4), JOBS[WINDOWS])
        search, settings = case.search(case.profile(1)), Settings(4, 8, 1.0)
        measured = case.measure(settings, 1e5, Effort(scale=0.3)).mean
        told = predict(search.costs, settings, case.cluster, 1e5)
        return 100.0 * (told.mean / measured - 1.0)

    for window in (
        2.0,
        2.5,
        2.381966,  # at ever another part of an interval
    ):
        assert abs(off(window)) < MEAN_WITHIN / 2.0


@pytest.mark.xfail(reason="tasks as cores, one batch after another, is a rule, and what is planned")
def test_a_plan_gains_over_rules_what_was_published() -> None:
    assert min(min(told.over) for told in rates().values()) >= 5.2


def test_notes_of_rules_follow_from_figures() -> None:
    found = found_by("planner-rules", QUICK.scale)
    (chosen,) = re.findall(r"In (\d) of (\d) cases the settings of the plan", found.notes[1])
    alike, of = map(int, chosen)
    assert 0 < alike <= of == 3
    assert found.figures["all"]["least_over_rules_percent"] <= 0.0, "a rule gains as much"
    told = " ".join(found.notes)
    assert "trigger 5 s: all" in told
    for case in cases(QUICK):
        rate = {
            variant: found.figures[f"{case.name}/{variant}"]["rate"]
            for variant in ("planned", "plan", "best rule", "best of all")
        }
        share = found.figures[f"{case.name}/planned, of sustained"]["percent"]
        assert share == pytest.approx(100.0 * rate["planned"] / rate["plan"])
        assert rate["best of all"] >= max(rate["plan"], rate["best rule"])

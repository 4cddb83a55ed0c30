"""The planner: how near its predictions are, and what its settings gain over rules of thumb."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, pstdev

from taut.planning.latency import predict
from taut.planning.settings import Settings, rules_of_thumb
from taut.sim.papers.deadline import SOURCE
from taut.sim.papers.experiment import Axes, Curve, Effort, Experiment, Found, Picture, Reason
from taut.sim.papers.planner_trial import ENGINE, INTERVALS, JOBS, NEAR, WINDOWS, Case, cases

MEAN_WITHIN, P99_WITHIN = 15.0, 20.0
SHARES = (10, 30, 50, 70, 90)
"""Percent of the highest rate under the objective."""
PROFILES = 3
PLANS = 8
"""Each from a profile of its own: fewer do not tell how many are met."""
LONGER = 4
"""Times the batches that a profile has on Spark."""
_NEAR = 20.0
_DRAWN = tuple(range(0, 41, 2))
_BETTER = 1.0 + NEAR
"""Times the highest rate so far that settings must sustain to be better."""


# Accuracy


@dataclass(frozen=True, slots=True)
class Point:
    """Settings at a rate, and percent by which predictions are above what was measured.

    Attributes
    ----------
    share
        Of the highest rate, in percent.
    profile, longer
        Which one the prediction is from, and whether it had more batches.
    """

    case: Case
    settings: Settings
    share: int
    profile: int
    longer: bool
    mean: float
    p99: float


def grid(case: Case) -> list[Settings]:
    """As many tasks as cores, or half as many, with an interval or without."""
    slots = case.cluster.slots
    half = max(1, slots // 2)
    return [
        Settings(slots, slots),
        Settings(slots, half),
        Settings(half, slots, 1.0),
        Settings(half, half, 0.5),
    ]


def _accuracy(effort: Effort) -> Found:
    """Predicted and measured, from a tenth to nine tenths of the highest rate."""
    points: list[Point] = []
    drawn: dict[str, Curve] = {}
    for case in cases(effort):
        found, first = _compare(case, effort)
        points += found
        if case.cluster == cases(effort)[-1].cluster:
            drawn |= first
    short = [point for point in points if not point.longer]
    long = [point for point in points if point.longer]
    figures = {"all": _near(short), "longer profile": _near(long)}
    for job in JOBS:
        figures[job.name] = _near([point for point in short if point.case.job == job])
    for share in SHARES:
        at = _near([point for point in short if point.share == share])
        figures[f"rate-{share}/mean"] = {"near_percent": at["mean_within_15_percent"]}
        figures[f"rate-{share}/p99"] = {"near_percent": at["p99_within_20_percent"]}
    curves = {
        f"{name}{told}": _within([value(point) for point in some])
        for told, some in (("", short), (", longer profile", long))
        for name, value in _MEASURES.items()
    }
    axes = Axes("percent of the highest rate under the objective", "p99, s", low_y=0.0)
    notes = (_asked(short), _by_profile(short), *_apart(short), _simulated())
    return Found(figures, curves, notes, {"rate": Picture(axes, drawn)})


def _compare(case: Case, effort: Effort) -> tuple[list[Point], dict[str, Curve]]:
    """All points of a case; and p99 at its first settings, measured and predicted, to be drawn."""
    searches = [
        (profile, longer, case.search(case.profile(effort.seed + profile, LONGER if longer else 1)))
        for profile in range(PROFILES)
        for longer in (False, True)
    ]
    points: list[Point] = []
    drawn: dict[str, Curve] = {}
    for settings in grid(case):
        half = searches[0][2].ceiling(settings, case.cluster) / 2.0
        highest = case.highest(settings, half, effort, quick=True)
        tails: list[tuple[float, float, float]] = []
        for share in SHARES if highest else ():
            rate = highest * share / 100.0
            measured = case.measure(settings, rate, effort)
            mean, p99 = measured.mean, measured.quantile(0.99)
            for profile, longer, search in searches:
                told = predict(search.costs, settings, case.cluster, rate)
                tail = told.quantile(0.99)
                off = _percent(told.mean, mean), _percent(tail, p99)
                points.append(Point(case, settings, share, profile, longer, *off))
                if profile == 0 and not longer and tail < math.inf:
                    tails.append((float(share), p99, tail))
        if not drawn and tails:
            at, real, expected = zip(*tails, strict=True)
            drawn = {case.name: (at, real), f"{case.name}, predicted": (at, expected)}
    return points, drawn


_MEASURES: Mapping[str, Callable[[Point], float]] = {
    "mean": lambda point: point.mean,
    "p99": lambda point: point.p99,
}


def _percent(value: float, of: float) -> float:
    """By how many percent it is above."""
    return 100.0 * (value / of - 1.0)


def _near(points: Sequence[Point]) -> dict[str, float]:
    """Percent of predictions that are near enough, and how far off they are in the middle."""
    means, tails = ([abs(value(point)) for point in points] for value in _MEASURES.values())
    return {
        "mean_within_15_percent": 100.0 * sum(off <= MEAN_WITHIN for off in means) / len(means),
        "p99_within_20_percent": 100.0 * sum(off <= P99_WITHIN for off in tails) / len(tails),
        "mean_off_percent": median(means),
        "p99_off_percent": median(tails),
    }


def _within(off: Sequence[float]) -> Curve:
    """Percent of predictions that are at most so many percent off."""
    return _DRAWN, [100.0 * sum(abs(by) <= most for by in off) / len(off) for most in _DRAWN]


def _asked(points: Sequence[Point]) -> str:
    first = [point for point in points if point.profile == 0]
    settings = {(point.case.name, point.settings) for point in first}
    return (
        f"{len(settings)} settings of {len({point.case.name for point in first})} jobs and "
        f"clusters at {len(SHARES)} rates each, predicted from {PROFILES} profiles: {len(points)} "
        "predictions. A profile has as many settings, sizes and batches as one on Spark; the "
        f"longer one {LONGER} times the batches."
    )


def _by_profile(points: Sequence[Point]) -> str:
    """How much a profile's own noise matters."""
    each = [_near([p for p in points if p.profile == number]) for number in range(PROFILES)]
    means, tails = (
        ", ".join(f"{near[figure]:.0f}" for near in each)
        for figure in ("mean_within_15_percent", "p99_within_20_percent")
    )
    return (
        f"By profile: {means} % of the means are within {MEAN_WITHIN:g} %, {tails} % of p99 within "
        f"{P99_WITHIN:g} %."
    )


def _apart(points: Sequence[Point]) -> list[str]:
    """Kinds of points whose predictions are too low or too high as a rule."""
    kinds: Mapping[str, Callable[[Point], bool]] = {
        "windows with an interval": lambda p: p.case.job.window > 0.0 and p.settings.trigger > 0.0,
        "windows, batches one after another": (
            lambda p: p.case.job.window > 0.0 and not p.settings.trigger
        ),
        "rows with an interval": lambda p: not p.case.job.window and p.settings.trigger > 0.0,
        "rows, batches one after another": (
            lambda p: not p.case.job.window and not p.settings.trigger
        ),
    }
    told = []
    for kind, belongs in kinds.items():
        some = [point for point in points if belongs(point)]
        if some:
            mean, p99 = (median(value(p) for p in some) for value in _MEASURES.values())
            told.append(f"{kind} {mean:+.0f} and {p99:+.0f} %")
    return [f"Predicted above measured, mean and p99, medians: {'; '.join(told)}."]


def _simulated() -> str:
    return (
        "Not in the planner's model: several reducers with more rows than others, tasks that take "
        f"{100.0 * math.sqrt(ENGINE.task.scv):.0f} % more or less, a driver that starts one each "
        f"{1e3 * ENGINE.dispatch:g} ms, pauses of {1e3 * ENGINE.pause.mean:g} ms every "
        f"{ENGINE.pause_every:g} s."
    )


# Rules of thumb


@dataclass(frozen=True, slots=True)
class Rates:
    """Highest rates under the objective, as measured.

    Attributes
    ----------
    planned, late
        What was planned from each profile, and what the objective bounds there, as a multiple of
        the bound.
    chosen
        The settings of the first plan.
    plan
        What they sustain.
    rules
        By rule; 0 of one that never meets the objective.
    best, found
        Of all settings that were tried, and which ones.
    valid
        The share of them that meet the objective at the first planned rate.
    margin
        What plans leave for errors, as a share; the median.
    """

    case: Case
    planned: Sequence[float]
    late: Sequence[float]
    chosen: Settings
    plan: float
    rules: Mapping[str, float]
    best: float
    found: Settings
    valid: float
    margin: float

    @property
    def spread(self) -> float:
        """The standard deviation of what is planned, from profile to profile, as a share."""
        return pstdev(self.planned) / fmean(self.planned)

    @property
    def met(self) -> float:
        """The share of plans whose rate meets the objective."""
        return sum(late <= 1.0 for late in self.late) / len(self.late)

    @property
    def over(self) -> list[float]:
        """Percent more than with each rule that ever meets the objective, least first."""
        return sorted(_percent(self.plan, rate) for rate in self.rules.values() if rate)

    @property
    def a_rule(self) -> bool:
        """Whether the settings of the plan are those of a rule."""
        return self.chosen in rules_of_thumb(self.case.cluster).values()


def rates_of(case: Case, effort: Effort) -> Rates:
    """Plan, and try all else."""
    profiles = [case.profile(effort.seed + number) for number in range(PLANS)]
    plans = [case.plan(profile) for profile in profiles]
    margin = median(
        case.search(profile).left(plan.settings)
        for profile, plan in zip(profiles, plans, strict=True)
    )
    planned = [plan.rate for plan in plans]
    late = [case.late(plan.settings, plan.rate, effort) for plan in plans]
    chosen = plans[0].settings.but(cap=None)
    tried = {chosen: case.highest(chosen, planned[0], effort)}
    rules = rules_of_thumb(case.cluster)
    for rule in rules.values():
        if rule not in tried:
            tried[rule] = case.highest(rule, planned[0], effort)
    best, valid = max(tried.values()), 0
    for settings in case.every():
        valid += case.late(settings, planned[0], effort, quick=True) <= 1.0
        better = _BETTER * best
        if settings not in tried and case.late(settings, better, effort, quick=True) <= 1.0:
            tried[settings] = case.highest(settings, better, effort)
            best = max(best, tried[settings])
    return Rates(
        case,
        planned,
        late,
        chosen,
        tried[chosen],
        {name: tried[rule] for name, rule in rules.items()},
        best,
        max(tried, key=lambda settings: tried[settings]),
        valid / len(case.every()),
        margin,
    )


def _rules(effort: Effort) -> Found:
    """The plan, rules of thumb, and all settings."""
    told = [rates_of(case, effort) for case in cases(effort)]
    figures: dict[str, dict[str, float]] = {}
    windows = [each for each in told if each.case.job == WINDOWS]
    figures["windowed-words"] = _over(windows)
    figures["all"] = {
        **_over(told),
        "met_percent": 100.0 * fmean(each.met for each in told),
        "of_best_percent": 100.0 * min(each.plan / each.best for each in told),
    }
    for each in told:
        rates = {
            "planned": median(each.planned),
            "plan": each.plan,
            "best rule": max(each.rules.values()),
            "best of all": each.best,
        }
        shares = {
            "planned, of sustained": 100.0 * median(each.planned) / each.plan,
            "sustained, of the best": 100.0 * each.plan / each.best,
            "met": 100.0 * each.met,
            "spread": 100.0 * each.spread,
            "margin": 100.0 * each.margin,
            "valid settings": 100.0 * each.valid,
        }
        for variant, rate in rates.items():
            figures[f"{each.case.name}/{variant}"] = {"rate": rate}
        for variant, share in shares.items():
            figures[f"{each.case.name}/{variant}"] = {"percent": share}
    notes = (_tried(told), _chosen(told), _spread(told), *_never(told), _columns(), _simulated())
    return Found(figures, _by_cores(windows), notes)


def _by_cores(told: Sequence[Rates]) -> dict[str, Curve]:
    """Rates of one job; of rules, where they meet the objective at all."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in told:
        own = {"planned": median(each.planned), "plan": each.plan, "best of all": each.best}
        for name, rate in (own | dict(each.rules)).items():
            if rate:
                lines.setdefault(name, []).append((float(each.case.cluster.slots), rate))
    return {
        name: ([x for x, _ in points], [y for _, y in points]) for name, points in lines.items()
    }


def _over(told: Sequence[Rates]) -> dict[str, float]:
    """Percent more than with rules: the least of all, and the most."""
    over = [by for each in told for by in each.over]
    return {"least_over_rules_percent": min(over), "most_over_rules_percent": max(over)}


def _tried(told: Sequence[Rates]) -> str:
    tried = ", ".join(str(len(case.case.every())) for case in told[: len(told) // 3 or 1])
    slos = ", ".join(f"{job.name} {slo}" for job, slo in JOBS.items())
    return (
        f"Objectives: {slos}. Rates are the highest at which the objective is met in the simulated "
        f"Spark, within {100.0 * NEAR:g} %; all settings that were tried are {tried} by cluster: "
        "lanes and reducers from one for each executor to twice the cores, with intervals of "
        f"{' and '.join(f'{each:g}' for each in INTERVALS)} s."
    )


def _chosen(told: Sequence[Rates]) -> str:
    """Whether a rule says the same."""
    same = sum(each.a_rule for each in told)
    apart = [
        f"{each.case.name} {each.found} ({_percent(each.best, each.plan):+.0f} %)"
        for each in told
        if each.best > _BETTER * each.plan
    ]
    text = (
        f"In {same} of {len(told)} cases the settings of the plan are those of a rule, and gain "
        "nothing over it."
    )
    return text + (f" Better than the plan's: {'; '.join(apart)}." if apart else "")


def _spread(told: Sequence[Rates]) -> str:
    """Whether what is left for errors is as much as there are."""
    wider = [each for each in told if each.spread > each.margin]
    fewest = min(told, key=lambda each: each.met)
    return (
        f"In {len(wider)} of {len(told)} cases plans differ from profile to profile by more than "
        f"they leave for errors. Fewest are met of {fewest.case.name}: "
        f"{100.0 * fewest.met:.0f} %."
    )


def _never(told: Sequence[Rates]) -> list[str]:
    """Rules that do not meet the objective at any rate."""
    rules = {
        rule: [each.case.name for each in told if not each.rules[rule]] for rule in told[0].rules
    }
    lines = [
        f"{rule}: {'all' if len(names) == len(told) else ', '.join(names)}"
        for rule, names in rules.items()
        if names
    ]
    if not lines:
        return []
    return [
        "Rules that meet the objective at no rate, and are not in what is gained over rules: "
        f"{'; '.join(lines)}."
    ]


def _columns() -> str:
    return (
        f"In the table of percentages: the planned rate (the median of {PLANS} plans, each from "
        "a profile of its own) of what the plan's settings sustain; that of the best rate; how "
        "many of the plans meet the objective at their rate; by how much planned rates differ, as "
        "their standard deviation; what plans leave for errors; and how many of all "
        "settings meet the objective at the rate of the first."
    )


EXPERIMENTS = (
    Experiment(
        "planner-accuracy",
        f"{SOURCE}, section 5.1",
        "Latency as planned against latency measured, mean within 15 % and p99 within 20 %",
        _accuracy,
        published={
            "all": {
                "mean_within_15_percent": 100.0 * 31 / 34,
                "p99_within_20_percent": 100.0 * 19 / 22,
            }
        },
        absent={"points": "published as pictures, but for how many were within"},
        axes=Axes("percent off, at most", "predictions, percent"),
        near=_NEAR,
        reasons=(
            Reason(
                "windows that end with a trigger, and are seen by the next.",
                below=("all.mean_within_15_percent",),
            ),
        ),
    ),
    Experiment(
        "planner-rules",
        f"{SOURCE}, figure 6i",
        "The highest rate under an objective: the plan, rules of thumb, and all settings",
        _rules,
        published={
            "windowed-words": {"least_over_rules_percent": 5.2, "most_over_rules_percent": 57.0}
        },
        absent={"words, sessions": "what a plan gains was published for windowed word count alone"},
        axes=Axes("cores", "rows a second, windowed word count", log_x=True, low_y=0.0),
        near=_NEAR,
        reasons=(
            Reason(
                "nothing like Spark's 200 reducers was among the rules published.",
                above=("*.most_over_rules_percent",),
            ),
            Reason(
                "as many tasks as cores is what rules and the plan have in common, and an interval "
                "that is no longer than a batch makes no difference on Spark.",
                below=("*_over_rules_percent",),
            ),
        ),
    ),
)

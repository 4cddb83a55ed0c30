"""All of ``bench plan``: profile, plan, a grid predicted and measured, rules of thumb, a search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from time import monotonic

from taut.bench.pace import Pace
from taut.bench.place import Place, spark_session
from taut.bench.plan.beside import Beside, Took, beside
from taut.bench.plan.figures import Compared, Rates, figures, settings_name
from taut.bench.plan.jobs import WORKLOADS, app
from taut.bench.plan.run import Measured, Progress, Watcher, run
from taut.bench.record import BenchError, Record
from taut.planning.latency import predict
from taut.planning.phases import fit
from taut.planning.plan import Infeasible, Plan, make
from taut.planning.profile import Profile
from taut.planning.search import Search
from taut.planning.settings import Cluster, Settings, rules_of_thumb
from taut.slo import Slo
from taut.spark.planning.app import cluster_of
from taut.spark.planning.profiling import Step, take

PROFILED_RATE = 40_000
"""Rows a second of the load that a job is first profiled with: how dense its windows are."""
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_STEP = 1.05
_LONGEST_STEP = 1.5
_CLIMBS = 14
_TENTH, _HALF = 0.1, 0.5
_BESIDE = 0.9
"""Of the plan's rate, at which other settings are compared with it: at all of it, a machine that is
slow for a minute would have a queue."""
_TOO_LATE = 2.0
"""Times the objective, from which on it does not matter how much later others are."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run.

    Attributes
    ----------
    points
        Settings and rates that are predicted and measured.
    seconds, warm_up_s
        Of each run, measured and before that.
    settle_s
        How long the job runs before it is profiled.
    hold_s
        How long the plan has to hold at its rate.
    search
        Whether rates of rules of thumb and of all settings are found by trying.
    beside
        Whether all of them are compared with the plan's at nine tenths of its rate.
    keep
        Where the profile is written, to look at it later.
    """

    workload: str = "words"
    slo: str = "p99 <= 1 s"
    points: int = 12
    seconds: float = 25.0
    warm_up_s: float = 10.0
    settle_s: float = 120.0
    hold_s: float = 180.0
    cores: int = 2
    search: bool = True
    beside: bool = False
    keep: str | None = None


def bench(spec: Spec, watch: Watcher) -> tuple[Record, list[Compared], Rates, Plan | None]:
    """Run everything."""
    slo = Slo(spec.slo)
    if spec.workload not in WORKLOADS:
        raise BenchError(f"workload {spec.workload!r}: one of {', '.join(WORKLOADS)}")
    record = Record("plan", asdict(spec))
    with Pace() as pace, spark_session(f"local[{spec.cores}]") as place:
        # a JVM gets faster for minutes: a first profile only tells what to warm it with
        cold, record.options["cold_profile_s"] = profiled(
            place, spec, watch, "warm-up", PROFILED_RATE
        )
        # windows and sessions hold as many rows as they will when the plan runs, or about that
        settings, sustained = _sustained(cold, slo)
        density = record.options["profiled_rate"] = round(sustained)
        trial = Trial(place, spec, slo, watch, pace)
        trial.settle(settings, density)
        taken = monotonic()
        profile, record.options["profile_s"] = profiled(place, spec, watch, "profile", density)
        trial.loop_s = pace.took(taken, monotonic())
        if spec.keep is not None:
            profile.save(spec.keep)
        began = monotonic()
        cluster = profile.cluster
        search = Search(fit(profile), slo)
        plan: Plan | None = None
        try:
            plan = make(profile, slo, None, [cluster])
        except Infeasible as no:
            record.options["infeasible"] = str(no)
        record.options |= {
            "plan_s": round(monotonic() - began, 2),
            "fit_error": round(search.costs.error, 4),
            "empty_batch_s": [round(_empty_s(each), 3) for each in (cold, profile)],
            "warm_up": f"{spec.settle_s:g} s before the profile, {spec.warm_up_s:g} s of each run",
        }
        compared = [
            trial.compare(search, settings, cluster, rate, share)
            for settings, rate, share in points(search, cluster, spec.points)
        ]
        rates = Rates()
        if plan is not None:
            record.options["plan"] = str(plan.settings)
            rates = trial.rates(search, plan, cluster)
    record.add(figures(spec.workload, compared, rates))
    return record, compared, rates, plan


def profiled(
    place: Place, spec: Spec, watch: Watcher, name: str, rate: int
) -> tuple[Profile, float]:
    """The profile, of a load of so many rows a second, and how long it took."""
    assert cluster_of(place.spark).slots == spec.cores
    began = monotonic()

    def tell(step: Step) -> None:
        watch(Progress(name, 0, f"{step.doing}, {step.done} of {step.of}"))

    job = app(spec.workload, rate)
    profile = take(place.spark, job, spec.workload, slo=Slo(spec.slo), watch=tell)
    return profile, round(monotonic() - began, 1)


def _sustained(profile: Profile, slo: Slo) -> tuple[Settings, float]:
    """The highest rate under the objective; half of what never ends, if none meets it."""
    search, cluster = Search(fit(profile), slo), profile.cluster
    best = search.best(cluster)
    tasks = Settings(cluster.slots, cluster.slots)
    if best:
        return best.settings, best.rate
    return tasks, search.ceiling(tasks, cluster) / 2.0


def _empty_s(profile: Profile) -> float:
    """What a batch without rows takes."""
    lines = fit(profile).lines(Settings(), profile.cluster)
    return sum(line.fixed for line in lines.values())


def points(search: Search, cluster: Cluster, many: int) -> Iterator[tuple[Settings, int, float]]:
    """Settings and rates from a tenth to nine tenths of what each sustains, mixed.

    What it sustains is the highest rate under the objective; of settings that never meet it, half
    of that from which batches would grow without end.
    """
    slots = cluster.slots
    tasks = sorted({1, slots})
    triggers = (0.0, 1.0, 2.0)
    grid = [
        Settings(lanes, reducers, trigger)
        for trigger, lanes, reducers in product(triggers, reversed(tasks), reversed(tasks))
    ]
    for index in range(many):
        settings = grid[index % len(grid)]
        share = SHARES[(2 * index + index // len(SHARES)) % len(SHARES)]
        most = search.highest(settings, cluster) or search.ceiling(settings, cluster) / 2.0
        yield settings, max(1, round(share * most)), share


@dataclass(slots=True)
class Trial:
    """Runs settings at rates, and says whether they were on time."""

    place: Place
    spec: Spec
    slo: Slo
    watch: Watcher
    pace: Pace | None = None
    loop_s: float | None = None
    """What the loop of the pace took when the job was profiled."""

    def compare(
        self, search: Search, settings: Settings, cluster: Cluster, rate: int, share: float
    ) -> Compared:
        """A point: predicted, then measured."""
        latency = predict(search.costs, settings, cluster, rate)
        name, began = point_name(settings, share), monotonic()
        measured = self._run(settings, rate, self.spec.seconds, name)
        told = Compared(name, rate, latency.mean, latency.quantile(0.99), measured)
        speed = self._speed(began)
        if speed is None:
            return told
        latency = predict(search.costs, settings, replace(cluster, speed=speed), rate)
        return replace(told, speed=speed, at_speed=(latency.mean, latency.quantile(0.99)))

    def _speed(self, began: float) -> float | None:
        """Of the machine since then, as a multiple of what it was when the job was profiled."""
        loop_s = self.pace.took(began, monotonic()) if self.pace else None
        return None if loop_s is None or self.loop_s is None else self.loop_s / loop_s

    def settle(self, settings: Settings, rate: int) -> None:
        """Let it run until a JVM has compiled what it runs most."""
        if self.spec.settle_s:
            self._run(settings, rate, self.spec.settle_s, "settling")

    def rates(self, search: Search, plan: Plan, cluster: Cluster) -> Rates:
        """Whether the plan holds; and what others reach."""
        told, began = Rates(plan_rate=plan.rate), monotonic()
        held = self._run(plan.settings, round(plan.rate), self.spec.hold_s, "plan")
        told.plan_measured = held
        if (speed := self._speed(began)) is not None:
            told.speeds["plan"] = speed
        told.plan_held = held.of(self.slo) <= self.slo.seconds
        if self.spec.beside:
            told.beside = self._beside(plan, cluster)
        if not self.spec.search:
            return told
        known = plan.rate if told.plan_held else 0.0
        self._rules(told, search, cluster, known)
        best = least = max(known, told.rule_rate if told.rule_held else 0.0)
        better = []
        for settings in every(cluster, {0.0, plan.settings.trigger}):
            found = self.climb(settings, best * _STEP or plan.rate, best, f"search {settings}")
            if found:
                best = found
                better.append((found, settings))
        longer = self._held(better, max(least, _HALF * best), told, "best_found")
        told.found_rate, told.found = (longer[0], str(longer[1])) if longer else (least, None)
        return told

    def _rules(self, told: Rates, search: Search, cluster: Cluster, known: float) -> None:
        """The rule of thumb with the highest rate; ``known``: the plan's, if it held."""
        rules = self._rules_in_time(cluster)
        guessed = {
            name: search.highest(settings, cluster) or told.plan_rate or 0.0
            for name, settings in rules.items()
        }
        found: list[tuple[float, Settings]] = []
        best = 0.0
        for name in sorted(rules, key=lambda name: -guessed[name]):
            rate = self.climb(rules[name], max(guessed[name], best * _STEP), best, name)
            if rate:
                best, told.rule = rate, name
                found.append((rate, rules[name]))
        # one that is a step below the plan anyway need not show for how long it holds
        least = min(best, known / _STEP or _HALF * best)
        held = self._held(found, least, told, "best_rule_of_thumb")
        told.rule_rate, told.rule_held = held[0] if held else least, held is not None
        if held:
            told.rule = next(name for name in rules if rules[name] == held[1])

    def _rules_in_time(self, cluster: Cluster) -> dict[str, Settings]:
        return {
            name: settings
            for name, settings in rules_of_thumb(cluster).items()
            # rows wait for the interval alone: no rate could make up for that
            if (self.slo.quantile or 0.5) * settings.trigger < self.slo.seconds
        }

    def _beside(self, plan: Plan, cluster: Cluster) -> list[Beside]:
        """All that are searched, and rules of thumb, against the plan's settings."""
        mine, rate = plan.settings.but(cap=None), round(_BESIDE * plan.rate)
        rules = self._rules_in_time(cluster).values()
        others = dict.fromkeys([*every(cluster, {0.0, mine.trigger}), *rules])
        too_late = Slo(f"{self.slo.measure} <= {_TOO_LATE * self.slo.seconds:g} s")

        def took(settings: Settings, nth: int) -> Took:
            name = f"beside the plan, round {nth + 1}: {settings}, {rate:,}/s"
            give_up = None if settings == mine else too_late
            measured = self._run(settings, rate, self.spec.seconds, name, give_up=give_up)
            ended = give_up is not None and measured.of(give_up) > give_up.seconds
            return Took(measured.of(self.slo), ended)

        return beside(took, mine, [each for each in others if each != mine])

    def _held(
        self, found: Iterable[tuple[float, Settings]], least: float, told: Rates, name: str
    ) -> tuple[float, Settings] | None:
        """The highest rate that holds as long as the plan has to; None if none above ``least``.

        Rates that were found in seconds often do not, and are tried again a step lower.
        """
        left = sorted(found, key=_rate)
        while left and _rate(left[-1]) > least:
            (rate, settings), began = left.pop(), monotonic()
            if self._holds(settings, rate):
                if (speed := self._speed(began)) is not None:
                    told.speeds[name] = speed
                return rate, settings
            left = sorted([*left, (rate / _STEP, settings)], key=_rate)
        return None

    def climb(self, settings: Settings, start: float, least: float, name: str) -> float:
        """The highest rate that is on time, to 5 %; 0 if it is not above ``least``.

        Steps become longer until the rate lies between two that were tried, then shorter. What is
        late at a tenth of the first rate as well is given up.
        """
        met, missed, step = 0.0, math.inf, _STEP
        rate = start
        for nth in range(_CLIMBS):
            if rate <= least or missed <= _STEP * max(met, least) * (1.0 + 1e-9):
                break
            if self._meets(settings, rate, name):
                met = rate
            else:
                missed = rate
            if nth == 1 and not met and not self._meets(settings, _TENTH * start, name):
                break
            if met and missed < math.inf:
                rate = math.sqrt(met * missed)
            else:
                rate = rate * step if met else rate / step
                step = min(_LONGEST_STEP, step * step)
        return met

    def _meets(self, settings: Settings, rate: float, name: str) -> bool:
        name, slo = f"{name}, {rate:,.0f}/s", self.slo
        measured = self._run(settings, round(rate), self.spec.seconds, name, give_up=slo)
        return measured.of(slo) <= slo.seconds

    def _holds(self, settings: Settings, rate: float) -> bool:
        name, slo = f"{settings}, {rate:,.0f}/s", self.slo
        measured = self._run(settings, round(rate), self.spec.hold_s, name, give_up=slo)
        return measured.of(slo) <= slo.seconds

    def _run(
        self, settings: Settings, rate: int, seconds: float, name: str, give_up: Slo | None = None
    ) -> Measured:
        spec = self.spec
        return run(
            self.place, spec.workload, settings, rate, seconds, spec.warm_up_s, name, self.watch,
            patience=max(10.0, 3.0 * self.slo.seconds), give_up=give_up,
        )  # fmt: skip


def _rate(found: tuple[float, Settings]) -> float:
    return found[0]


def every(cluster: Cluster, triggers: Iterable[float] = (0.0,)) -> Sequence[Settings]:
    """All settings that are searched: up to as many tasks as slots, and twice as many."""
    tasks = [*range(1, cluster.slots + 1), 2 * cluster.slots]
    return [Settings(*each) for each in product(tasks, tasks, sorted(triggers))]


def point_name(settings: Settings, share: float) -> str:
    """In the names of figures.

    >>> point_name(Settings(2, 1, 0.5), 0.3)
    'l2-r1-t500-30'
    """
    return f"{settings_name(settings)}-{round(100 * share)}"

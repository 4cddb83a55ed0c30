"""All of ``bench plan``: profile, plan, a grid predicted and measured, a contest of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from time import monotonic

import msgspec

from taut.bench.pace import Pace
from taut.bench.place import Place, spark_session
from taut.bench.plan.contest import Screened, Took, contest, screen
from taut.bench.plan.figures import Compared, Held, Rates, figures, settings_name
from taut.bench.plan.jobs import WORKLOADS, app
from taut.bench.plan.run import Measured, Progress, Watcher, run
from taut.bench.record import BenchError, Record
from taut.errors import PlanError
from taut.planning.latency import predict
from taut.planning.phases import fit
from taut.planning.plan import Infeasible, Plan, make
from taut.planning.profile import Profile
from taut.planning.search import Search
from taut.planning.settings import Cluster, Settings, rules_of_thumb
from taut.slo import Slo
from taut.spark.planning.app import cluster_of
from taut.spark.planning.profiling import Step, take
from taut.spark.planning.running import Planned

PROFILED_RATE = 40_000
"""Rows a second of the load that a job is first profiled with: how dense its windows are."""
SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
_OTHERS, _RULES = 2, 2
"""Settings, and rules of thumb, those best at the plan's rate, whose highest rates are found."""
_LESS = 0.99
"""Of the highest rate, so that what is planned at it is not refused for the last digit."""
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
        Whether rules of thumb and all settings are tried, and the highest rates of the best found.
    rounds
        How often those are found.
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
    rounds: int = 3
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
            rates = trial.rates(plan, cluster)
            if rates.not_replanned is not None:
                record.options["not_replanned"] = rates.not_replanned
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

    def rates(self, plan: Plan, cluster: Cluster) -> Rates:
        """Whether the plan holds, and what follows from what was seen; and what others reach."""
        told = Rates(slo=str(self.slo), mine=plan.settings.but(cap=None))
        again: list[Plan] = []

        def replanned(job: Planned) -> None:
            try:
                again.append(_replanned(job))
            except PlanError as no:
                told.not_replanned = str(no)

        told.plan = self._held(plan, plan.rate, "plan", plan, replanned)
        for each in again:
            # the cap is for the rate that was seen, and would act at a higher one
            settings = msgspec.structs.replace(each, settings=each.settings.but(cap=None))
            told.replanned = self._held(settings, each.most, "replanned")
        if self.spec.search:
            told.rules = _rules_in_time(self.slo, cluster)
            self._tried(told, plan, cluster)
        return told

    def _held(
        self,
        plan: Plan,
        rate: float,
        name: str,
        applied: Plan | None = None,
        seen: Callable[[Planned], None] = lambda job: None,
    ) -> Held:
        """For as long as a plan has to hold."""
        began = monotonic()
        measured = self._run(
            plan.settings, round(rate), self.spec.hold_s, name, plan=applied, seen=seen
        )
        met = measured.of(self.slo) <= self.slo.seconds
        return Held(str(plan.settings), rate, measured, met, self._speed(began))

    def _tried(self, told: Rates, plan: Plan, cluster: Cluster) -> None:
        """All settings at the plan's rate; then the best of them and the plan's by turns."""
        mine, rules = told.mine, list(told.rules.values())
        others = dict.fromkeys([*every(cluster, {0.0, mine.trigger}), *rules])
        too_late = Slo(f"{self.slo.measure} <= {_TOO_LATE * self.slo.seconds:g} s")

        def took(settings: Settings, rate: float) -> Took:
            name = f"all about the plan's rate: {settings}, {rate:,.0f}/s"
            measured = self._run(settings, round(rate), self.spec.seconds, name, give_up=too_late)
            return Took(measured.of(self.slo), measured.ended)

        def best_of(seen: Sequence[Screened]) -> list[Screened]:
            best_rules = [each for each in seen if each.settings in rules]
            return [*seen[:_OTHERS], *best_rules[:_RULES]]

        each_one = [each for each in others if each != mine]
        told.screened = screen(took, each_one, plan.rate, best_of)
        entrants = dict.fromkeys([mine, *(each.settings for each in best_of(told.screened))])

        def on_time(settings: Settings, rate: float, nth: int) -> bool:
            name, slo = f"by turns, round {nth}: {settings}, {rate:,.0f}/s", self.slo
            measured = self._run(settings, round(rate), self.spec.seconds, name, give_up=slo)
            return measured.of(slo) <= slo.seconds

        told.reached = contest(on_time, list(entrants), plan.rate, self.spec.rounds)

    def _run(
        self,
        settings: Settings,
        rate: int,
        seconds: float,
        name: str,
        give_up: Slo | None = None,
        plan: Plan | None = None,
        seen: Callable[[Planned], None] = lambda job: None,
    ) -> Measured:
        spec = self.spec
        return run(
            self.place, spec.workload, settings, rate, seconds, spec.warm_up_s, name, self.watch,
            patience=max(10.0, 3.0 * self.slo.seconds), give_up=give_up, plan=plan, seen=seen,
        )  # fmt: skip


def _replanned(job: Planned) -> Plan:
    """From what was seen, at that rate; or, if that is a bit too much, at the highest that is not.

    The rate of a plan is the highest, so that a machine a little slower is enough for the former.
    """
    try:
        return job.replan()
    except Infeasible as no:
        if not no.nearest_rate:
            raise
        return job.replan(_LESS * no.nearest_rate)


def _rules_in_time(slo: Slo, cluster: Cluster) -> dict[str, Settings]:
    return {
        name: settings
        for name, settings in rules_of_thumb(cluster).items()
        # rows wait for the interval alone: no rate could make up for that
        if (slo.quantile or 0.5) * settings.trigger < slo.seconds
    }


def every(cluster: Cluster, triggers: Iterable[float] = (0.0,)) -> Sequence[Settings]:
    """All settings that are tried: up to as many tasks as slots, and twice as many."""
    tasks = [*range(1, cluster.slots + 1), 2 * cluster.slots]
    return [Settings(*each) for each in product(tasks, tasks, sorted(triggers))]


def point_name(settings: Settings, share: float) -> str:
    """In the names of figures.

    >>> point_name(Settings(2, 1, 0.5), 0.3)
    'l2-r1-t500-30'
    """
    return f"{settings_name(settings)}-{round(100 * share)}"

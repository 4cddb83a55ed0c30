"""Jobs to plan, on a simulated Spark: profiled, planned by the planner itself, and measured.

What is asked of the planner is asked of :mod:`taut.planning`, the functions that plan on Spark. The
simulated Spark has what their model does not: see :mod:`taut.sim.queries.tasks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product

from msgspec.structs import replace

from taut.planning.phases import fit
from taut.planning.plan import Plan, make
from taut.planning.profile import Profile, Sample, Windows
from taut.planning.search import Search
from taut.planning.settings import Cluster, Settings
from taut.planning.trials import (
    BATCHES,
    CLOSER_BATCHES,
    CUT,
    closer,
    mixtures,
    sized,
    trials,
)
from taut.sim.draws import Draws, Gamma, Lognormal
from taut.sim.papers.experiment import Effort
from taut.sim.queries.tasks import Engine, Job, Outcome, Stage
from taut.slo import Slo

KEYS = 20_000
DENSITY = 20_000.0
"""Rows a second for each core, of the load that jobs are profiled with: as in ``taut bench plan``,
which has 40,000 on two."""
_BACKLOG_S = 3_600.0
INTERVALS = (0.0, 1.0)
"""Seconds: of the settings among which the best are searched for."""
_BATCHES, _WARM_UP, _BESIDE = 30, 25, 48
"""Of each run; and queries side by side."""
_QUICK = 3
"""So many times fewer of them, where settings are only to be told apart."""
NEAR = 0.01
"""How near to the highest rate, as a share."""
_LEAST, _STEP = 0.01, 1.25
"""Of a guess, where a rate is looked for; and up from where it is met."""
_RUNS = 1_000
"""Seeds for the runs of a profile: each has its own noise."""
_ALL_FROM = 0.3
"""The scale from which on all clusters are looked at."""

ENGINE = Engine(
    dispatch=0.7e-3,
    crowding=0.04,
    task=Lognormal(1.0, 0.03),
    pause_every=20.0,
    pause=Gamma(0.08, 0.5),
)


def _about(ms: float, scv: float = 0.05) -> Draws:
    """Never less than half."""
    return Gamma(1e-3 * ms, scv, 0.5e-3 * ms)


WORDS = Job(
    "words",
    plan=_about(60),
    log=_about(25, 0.1),
    map=Stage(8e-3, 2e-6),
    reduce=Stage(25e-3, 5e-6, 2e-6),
    write=_about(40),
    after=_about(60),
    write_out=1e-6,
    keys=KEYS,
    zipf=1.0,
    ratio=None,
)
WINDOWS = Job(
    "windowed-words",
    plan=_about(80),
    log=_about(25, 0.1),
    map=Stage(8e-3, 2e-6),
    reduce=Stage(30e-3, 4e-6, 6e-6),
    write=_about(40),
    after=_about(70),
    write_out=2e-6,
    keys=KEYS,
    zipf=1.0,
    window=2.0,
    delay=0.05,
)
SESSIONS = Job(
    "sessions",
    plan=_about(70),
    log=_about(25, 0.1),
    map=Stage(8e-3, 2e-6),
    reduce=Stage(35e-3, 10e-6, 4e-6),
    write=_about(30),
    after=_about(60),
    write_out=2e-6,
    keys=KEYS,
    zipf=0.6,
    ratio=0.05,
)

CLUSTERS = (Cluster(1, 2), Cluster(2, 4), Cluster(5, 8))
JOBS: Mapping[Job, Slo] = {
    WORDS: Slo("p99 <= 2 s"),
    WINDOWS: Slo("mean <= 3 s"),
    SESSIONS: Slo("p99 <= 2 s"),
}
"""The objective of windows is that published; of the others twice that for Spark's fixed costs."""


@dataclass(frozen=True, slots=True)
class Case:
    """A job on a cluster, with an objective."""

    job: Job
    cluster: Cluster
    slo: Slo

    @property
    def name(self) -> str:
        """In the names of figures."""
        return f"{self.job.name} {self.cluster.executors}x{self.cluster.cores}"

    def profile(self, seed: int, times: int = 1) -> Profile:
        """As one is taken on Spark: with a backlog, at a few settings and sizes of batches.

        ``times`` as many batches of each as on Spark.
        """
        cluster = self.cluster
        most = mixtures(cluster)[0]
        seeds = count(_RUNS * seed)
        windowed = self.job.window > 0.0

        def warmed(rows: int) -> list[Sample]:
            return self._profiled(most.but(cap=rows), next(seeds))[-3:]

        large = sized(warmed, self._density, self.slo.seconds, lambda: windowed)
        samples = [
            sample
            for settings in trials(cluster, large)
            for sample in self._profiled(settings, next(seeds), times)
        ]
        # simulated time does not make it stale
        taken = math.inf
        profile = Profile(
            self.job.name,
            "simulated",
            cluster.executors,
            cluster.cores,
            samples,
            Windows(self.job.window, delay=self.job.delay) if windowed else None,
            taken,
        )
        last = closer(profile, self.slo, None)
        if last is None:
            return profile
        found = self._profiled(last, next(seeds), times, CLOSER_BATCHES)
        return replace(profile, samples=[*samples, *found])

    @property
    def _density(self) -> float:
        return DENSITY * self.cluster.slots

    def _profiled(
        self, settings: Settings, seed: int, times: int = 1, batches: int = BATCHES
    ) -> list[Sample]:
        done = self.job.run(
            ENGINE,
            self.cluster,
            settings,
            self._density,
            batches=times * batches,
            warm_up=CUT,
            backlog=_BACKLOG_S,
            seed=seed,
        )
        return list(done.samples())

    def search(self, profile: Profile) -> Search:
        """The planner's, from what was measured."""
        return Search(fit(profile), self.slo)

    def plan(self, profile: Profile) -> Plan:
        """The settings with the highest rate under the objective, as the planner has it."""
        return make(profile, self.slo, None, [self.cluster])

    def measure(
        self, settings: Settings, rate: float, effort: Effort, *, quick: bool = False
    ) -> Outcome:
        """Latency at a rate."""
        return self.job.run(
            ENGINE,
            self.cluster,
            settings,
            rate,
            batches=_BATCHES,
            warm_up=_WARM_UP,
            beside=max(2, round(effort.scale * _BESIDE / (_QUICK if quick else 1))),
            seed=effort.seed,
        )

    def late(
        self, settings: Settings, rate: float, effort: Effort, *, quick: bool = False
    ) -> float:
        """What the objective bounds, as a multiple of the bound."""
        found = self.measure(settings, rate, effort, quick=quick)
        share = self.slo.quantile
        return (found.mean if share is None else found.quantile(share)) / self.slo.seconds

    def highest(
        self, settings: Settings, guess: float, effort: Effort, *, quick: bool = False
    ) -> float:
        """The highest rate at which the objective is met, by trying; 0 if it never is."""

        def meets(rate: float) -> bool:
            return self.late(settings, rate, effort, quick=quick) <= 1.0

        low, high = _LEAST * guess, guess
        if meets(guess):
            low = guess
            while meets(high := _STEP * low):
                low = high
        elif not meets(low):
            return 0.0
        while high > (1.0 + NEAR) * low:
            # far apart, they come together faster by their ratio
            middle = math.sqrt(low * high)
            if meets(middle):
                low = middle
            else:
                high = middle
        return low

    def every(self) -> Sequence[Settings]:
        """All settings that are tried where the best are searched for."""
        executors, slots = self.cluster.executors, self.cluster.slots
        tasks = sorted({executors, slots // 2, 3 * slots // 4, slots, 2 * slots})
        return [Settings(*each) for each in product(tasks, tasks, INTERVALS)]


def cases(effort: Effort) -> list[Case]:
    """Each job on each cluster; for a quick look on the smallest alone."""
    clusters = CLUSTERS if effort.scale >= _ALL_FROM else CLUSTERS[:1]
    return [Case(job, cluster, slo) for job, slo in JOBS.items() for cluster in clusters]

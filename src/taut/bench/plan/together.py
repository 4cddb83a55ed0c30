"""Plans of several queries at once: is each of them as late as its plan says?"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING

from taut.bench.place import Place, spark_session
from taut.bench.plan.figures import Compared, Rates, figures
from taut.bench.plan.jobs import WORKLOADS, Ends, app
from taut.bench.plan.run import Measured, Progress, Watcher, all_out, latency_of, run
from taut.bench.record import BenchError, Record
from taut.planning.plan import Infeasible
from taut.planning.settings import Settings
from taut.planning.shared import SharedPlan, Wanted, make_together
from taut.planning.trials import SECONDS
from taut.slo import Slo
from taut.spark.planning.app import App
from taut.spark.planning.profiling import Step, take
from taut.spark.reduce.outcome import ReduceSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from taut.spark.sinks import SinkFunction

_LOOK_S = 0.1
_LEAD_S = 1.0
_FIRST_RATE = 1_000.0
"""Rows a second of each query in the first plan, which only says by how much they can grow."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run.

    Attributes
    ----------
    shares
        Of the rates that can be had at most, those at which plans are made and run.
    seconds, warm_up_s
        Of each run, measured and before that.
    settle_s, profile_s
        How long the jobs run, one after another, before they are profiled; and how long a profile
        takes.
    rate
        Rows a second of the load that each is profiled with: how dense its windows are.
    """

    slo: str = "p99 <= 4 s"
    shares: tuple[float, ...] = (0.3, 0.6, 0.9)
    seconds: float = 60.0
    warm_up_s: float = 30.0
    settle_s: float = 120.0
    profile_s: float = SECONDS
    rate: int = 30_000
    workloads: tuple[str, ...] = WORKLOADS
    cores: int = 2


@dataclass(frozen=True, slots=True)
class Ran:
    """Queries that were planned for a share of the highest rates, and how each of them fared."""

    share: float
    plan: SharedPlan
    compared: list[Compared]


def bench(spec: Spec, watch: Watcher) -> tuple[Record, list[Ran]]:
    """Profile each alone, plan them together, and run them together at shares of what they bear."""
    slo, record = Slo(spec.slo), Record("plan-together", asdict(spec))
    with spark_session(f"local[{spec.cores}]") as place:
        wanted = []
        for workload in spec.workloads:
            _settle(place, spec, workload, watch)
        for workload in spec.workloads:
            profile = take(
                place.spark, app(workload, spec.rate), workload, rate=spec.rate, slo=slo,
                seconds=spec.profile_s, watch=partial(_tell, watch, f"profile of {workload}"),
            )  # fmt: skip
            wanted.append(Wanted(profile, slo, _FIRST_RATE))
        began = monotonic()
        try:
            most = _FIRST_RATE * make_together(wanted).growth
        except Infeasible as no:
            record.options["infeasible"] = str(no)
            return record, []
        record.options |= {"most": round(most), "plan_s": round(monotonic() - began, 2)}
        ran = []
        for share in spec.shares:
            try:
                one = _run(place, spec, wanted, share, round(share * most), watch)
            except Infeasible as no:
                record.options[f"infeasible_{share:.0%}"] = str(no)
            else:
                record.add(_figures(one))
                ran.append(one)
    compared = [each for one in ran for each in one.compared]
    record.add(figures("together", compared, Rates()))
    return record, ran


def _settle(place: Place, spec: Spec, workload: str, watch: Watcher) -> None:
    seconds = spec.settle_s / len(spec.workloads)
    if seconds:
        tasks = Settings(spec.cores, spec.cores)
        run(place, workload, tasks, spec.rate, seconds, 0.0, f"settling {workload}", watch, 10.0)


def _tell(watch: Watcher, name: str, step: Step) -> None:
    watch(Progress(name, 0, f"{step.doing}, {step.done} of {step.of}"))


@dataclass(slots=True)
class _Live:
    """A job whose rows come from ``start`` on, and who to ask what it has written."""

    workload: str
    rate: int
    start: float
    ends: Ends = field(init=False)
    sink: ReduceSink | None = None

    def __post_init__(self) -> None:
        self.ends = Ends("end" if self.workload == "windowed-words" else None)

    def app(self, spark: SparkSession, settings: Settings) -> tuple[DataFrame, SinkFunction]:
        frame, sink = app(self.workload, self.rate, self.start, self.ends)(spark, settings)
        assert isinstance(sink, ReduceSink)
        self.sink = sink
        return frame, sink

    def rows(self) -> int:
        return self.sink.stats().rows if self.sink else 0

    def all_out(self, end: float) -> bool:
        assert self.sink is not None
        return all_out(self.sink.stats().batches, self.ends, self.start, self.rate, end)

    def latency(self, begin: float, end: float, now: float) -> Measured:
        assert self.sink is not None
        batches = self.sink.stats().batches
        return latency_of(batches, self.ends, self.start, self.rate, begin, end, now)


def _run(
    place: Place, spec: Spec, wanted: Sequence[Wanted], share: float, rate: int, watch: Watcher
) -> Ran:
    """Plan for this rate of each, start what was planned, and measure all of them."""
    at_rate = [Wanted(each.profile, each.slo, float(rate)) for each in wanted]
    plan = make_together(at_rate)
    start = time.time() + _LEAD_S
    jobs = {each.profile.app: _Live(each.profile.app, rate, start) for each in wanted}
    apps: Mapping[str, App] = {name: job.app for name, job in jobs.items()}
    name, patience = f"{share:.0%} of what they bear", 10.0 + 3.0 * Slo(spec.slo).seconds
    folder = tempfile.mkdtemp(dir=place.folder)
    runtime = plan.apply(place.spark, apps, folder)
    begin = time.time() + spec.warm_up_s
    end = begin + spec.seconds
    try:
        while (now := time.time()) < end + patience:
            failed = {name: said for name, one in runtime.queries.items() if (said := one.error())}
            if failed:
                raise BenchError(f"{name}: {failed}")
            if now > end and all(job.all_out(end) for job in jobs.values()):
                break
            phase = "warming up" if now < begin else "measuring" if now < end else "waiting"
            rows = sum(job.rows() for job in jobs.values())
            watch(Progress(name, 0, phase, max(0.0, end - now), rows))
            time.sleep(_LOOK_S)
        measured = {name: job.latency(begin, end, end + patience) for name, job in jobs.items()}
    finally:
        runtime.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return Ran(share, plan, [_compared(plan, job, measured[job], share) for job in jobs])


def _compared(plan: SharedPlan, job: str, measured: Measured, share: float) -> Compared:
    one = plan[job]
    mean, p99 = (one.expected[measure].seconds for measure in ("mean", "p99"))
    return Compared(f"{job}-{round(100 * share)}", round(one.rate), mean, p99, measured)


def _figures(ran: Ran) -> dict[str, float]:
    at = f"together.at-{round(100 * ran.share)}"
    met = [
        each.measured.of(slo := Slo(plan.slo)) <= slo.seconds
        for each, plan in zip(ran.compared, ran.plan.plans, strict=True)
    ]
    return {
        f"{at}.concurrency": ran.plan.concurrency,
        f"{at}.busy": round(ran.plan.busy, 4),
        f"{at}.objectives_met": round(sum(met) / len(met), 4),
    }

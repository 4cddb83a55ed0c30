"""From the runs of ``bench queries`` to its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, median

from taut.bench.rounds import quantile

STOCK = "spark-default"


@dataclass(frozen=True, slots=True)
class Sample:
    """One window that was due: how late its first row was written, None if it never was."""

    query: int
    end_ms: int
    latency_s: float | None


@dataclass(frozen=True, slots=True)
class Run:
    """N queries under one policy, once."""

    policy: str
    round: int
    samples: tuple[Sample, ...]
    seconds: float
    rows: int = 0
    batches: int = 0
    warm_up_s: float = 0.0
    overhead: float | None = None
    objective: float | None = None
    latencies: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        out = sorted(s.latency_s for s in self.samples if s.latency_s is not None)
        object.__setattr__(self, "latencies", tuple(out))

    @property
    def missed(self) -> int:
        """Windows that were due and never came."""
        return len(self.samples) - len(self.latencies)

    @property
    def late(self) -> float | None:
        """Share of the windows that were not out within the objective after their end."""
        if self.objective is None or not self.samples:
            return None
        return 1.0 - sum(each <= self.objective for each in self.latencies) / len(self.samples)


def summary(run: Run) -> dict[str, float]:
    """The figures of one run; without any window out, those of latency are left out."""
    told: dict[str, float] = {}
    if run.latencies:
        told = {
            "mean_s": fmean(run.latencies),
            "p50_s": quantile(run.latencies, 0.50),
            "p90_s": quantile(run.latencies, 0.90),
            "p99_s": quantile(run.latencies, 0.99),
            "max_s": run.latencies[-1],
        }
    if run.late is not None:
        told["late"] = run.late
    return told | {
        "windows": len(run.latencies),
        "rows": run.rows,
        "rows_per_s": run.rows / run.seconds,
        "batches": run.batches,
        "missed": run.missed,
    }


def figures(workload: str, queries: int, runs: Iterable[Run]) -> dict[str, float]:
    """Medians over the rounds, ratios to stock Spark, the scheduler's share of the time."""
    runs = list(runs)
    policies = list(dict.fromkeys(run.policy for run in runs))
    told: dict[str, float] = {}
    for policy in policies:
        summaries = [summary(run) for run in runs if run.policy == policy]
        names = dict.fromkeys(name for each in summaries for name in each)
        for name in names:
            values = [each[name] for each in summaries if name in each]
            told[f"{workload}.{queries}.{policy}.{name}"] = _rounded(median(values))
    for policy in policies:
        for measure, ratios in _ratios(policy, runs).items():
            told[f"ratio.{policy}.{measure}"] = _rounded(median(ratios))
    for policy in policies:
        shares = [r.overhead for r in runs if r.policy == policy and r.overhead is not None]
        if shares:
            told[f"overhead.{policy}"] = float(f"{median(shares):.3g}")
    return told


def _ratios(policy: str, runs: list[Run]) -> dict[str, list[float]]:
    """Stock Spark's latency over the policy's, round by round."""
    told: dict[str, list[float]] = {}
    if policy == STOCK:
        return told
    for run in runs:
        stock = [r for r in runs if r.policy == STOCK and r.round == run.round]
        if run.policy != policy or not stock or not stock[0].latencies or not run.latencies:
            continue
        mine, theirs = summary(run), summary(stock[0])
        for measure in ("mean", "p99"):
            if mine[f"{measure}_s"] > 0:
                ratio = theirs[f"{measure}_s"] / mine[f"{measure}_s"]
                told.setdefault(measure, []).append(ratio)
    return told


def remarks(runs: Iterable[Run]) -> list[str]:
    """What a reader of the figures has to know."""
    told = []
    for run in runs:
        where = f"{run.policy}, round {run.round}"
        if not run.latencies:
            told.append(f"{where}: no window came out; its latencies are left out.")
        elif run.missed:
            told.append(
                f"{where}: {run.missed} of {len(run.samples)} windows never came; they are in "
                "`missed` and not in the latencies, which are too good by as much."
            )
    return told


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else round(value, 4)

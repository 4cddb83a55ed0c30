"""From the runs of ``bench plan`` to its figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from taut.bench.plan.run import Measured

MEAN_WITHIN, P99_WITHIN = 0.15, 0.20


@dataclass(frozen=True, slots=True)
class Compared:
    """Settings at a rate: what was predicted, what was measured."""

    name: str
    rate: int
    mean: float
    p99: float
    measured: Measured

    @property
    def mean_off(self) -> float:
        """The prediction, as a share above what was measured."""
        return self.mean / self.measured.mean - 1.0

    @property
    def p99_off(self) -> float:
        """The same of the p99."""
        return self.p99 / self.measured.p99 - 1.0


@dataclass(slots=True)
class Rates:
    """Highest rates on time: as planned, of rules of thumb, of all settings."""

    plan_rate: float | None = None
    plan_measured: Measured | None = None
    plan_held: bool = False
    rule: str | None = None
    rule_rate: float = 0.0
    found: str | None = None
    found_rate: float = 0.0


def figures(workload: str, compared: Sequence[Compared], rates: Rates) -> dict[str, float]:
    """By their dotted names; what was not measured is left out."""
    told: dict[str, float] = {}
    for point in compared:
        told |= {
            f"{workload}.{point.name}.rate": point.rate,
            f"{workload}.{point.name}.predicted_mean_s": round(point.mean, 4),
            f"{workload}.{point.name}.measured_mean_s": round(point.measured.mean, 4),
            f"{workload}.{point.name}.predicted_p99_s": round(point.p99, 4),
            f"{workload}.{point.name}.measured_p99_s": round(point.measured.p99, 4),
        }
    if compared:
        means = [abs(point.mean_off) <= MEAN_WITHIN for point in compared]
        tails = [abs(point.p99_off) <= P99_WITHIN for point in compared]
        told[f"{workload}.mean_within_15"] = round(sum(means) / len(means), 4)
        told[f"{workload}.p99_within_20"] = round(sum(tails) / len(tails), 4)
    if rates.plan_rate is not None and rates.plan_measured is not None:
        told |= {
            f"{workload}.plan_rate": round(rates.plan_rate, 1),
            f"{workload}.plan_held": float(rates.plan_held),
            f"{workload}.plan_p99_s": round(rates.plan_measured.p99, 4),
        }
    if rates.rule_rate:
        told[f"{workload}.best_rule_of_thumb_rate"] = round(rates.rule_rate, 1)
    if rates.found_rate:
        told[f"{workload}.best_found_rate"] = round(rates.found_rate, 1)
    return told

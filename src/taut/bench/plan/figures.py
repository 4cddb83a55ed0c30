"""From the runs of ``bench plan`` to its figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from taut.bench.plan.beside import Beside
from taut.bench.plan.run import Measured
from taut.planning.settings import Settings

MEAN_WITHIN, P99_WITHIN = 0.15, 0.20


@dataclass(frozen=True, slots=True)
class Compared:
    """Settings at a rate: what was predicted, what was measured.

    Attributes
    ----------
    speed
        Of the machine while it was measured, as a multiple of what it was when it was profiled.
    at_speed
        Mean and p99, as predicted for a machine of that speed.
    """

    name: str
    rate: int
    mean: float
    p99: float
    measured: Measured
    speed: float | None = None
    at_speed: tuple[float, float] | None = None

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
    """Highest rates on time: as planned, of rules of thumb, of all settings.

    ``speeds`` are those of the machine while they were held, as in :class:`Compared`. A rule that
    was not ``rule_held`` reaches its rate at most. ``beside`` are other settings at one rate.
    """

    plan_rate: float | None = None
    plan_measured: Measured | None = None
    plan_held: bool = False
    speeds: dict[str, float] = field(default_factory=dict)
    rule: str | None = None
    rule_rate: float = 0.0
    rule_held: bool = False
    found: str | None = None
    found_rate: float = 0.0
    beside: list[Beside] = field(default_factory=list)


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
        if point.speed is not None:
            told[f"{workload}.{point.name}.machine_speed"] = round(point.speed, 3)
    told |= _within(workload, "", compared)
    told |= _within(workload, "_at_speed", [_corrected(each) for each in compared if each.at_speed])
    if rates.plan_rate is not None and rates.plan_measured is not None:
        told |= {
            f"{workload}.plan_rate": round(rates.plan_rate, 1),
            f"{workload}.plan_held": float(rates.plan_held),
            f"{workload}.plan_p99_s": round(rates.plan_measured.p99, 4),
        }
    if rates.rule_rate:
        told[f"{workload}.best_rule_of_thumb_rate"] = round(rates.rule_rate, 1)
        told[f"{workload}.best_rule_of_thumb_held"] = float(rates.rule_held)
    if rates.found_rate:
        told[f"{workload}.best_found_rate"] = round(rates.found_rate, 1)
    if rates.beside:
        told[f"{workload}.best_beside_ratio"] = round(rates.beside[0].ratio, 3)
    told |= {
        f"{workload}.{settings_name(each.settings)}.beside_ratio": round(each.ratio, 3)
        for each in rates.beside
    }
    told |= {
        f"{workload}.{settings_name(each.settings)}.beside_at_least": 1.0
        for each in rates.beside
        if each.at_least
    }
    told |= {
        f"{workload}.{name}_machine_speed": round(speed, 3) for name, speed in rates.speeds.items()
    }
    return told


def settings_name(settings: Settings) -> str:
    """In the names of figures.

    >>> settings_name(Settings(2, 1, 0.5))
    'l2-r1-t500'
    """
    return f"l{settings.lanes}-r{settings.reducers}-t{round(1000 * settings.trigger)}"


def _within(workload: str, kind: str, compared: Sequence[Compared]) -> dict[str, float]:
    """Shares of points that are near enough."""
    if not compared:
        return {}
    means = [abs(point.mean_off) <= MEAN_WITHIN for point in compared]
    tails = [abs(point.p99_off) <= P99_WITHIN for point in compared]
    return {
        f"{workload}.mean_within_15{kind}": round(sum(means) / len(means), 4),
        f"{workload}.p99_within_20{kind}": round(sum(tails) / len(tails), 4),
    }


def _corrected(point: Compared) -> Compared:
    assert point.at_speed is not None
    mean, p99 = point.at_speed
    return replace(point, mean=mean, p99=p99)

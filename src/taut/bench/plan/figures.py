"""From the runs of ``bench plan`` to its figures. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite, nan
from statistics import median

from taut.bench.plan.contest import Reached, Screened
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


@dataclass(frozen=True, slots=True)
class Held:
    """Settings at a rate for some minutes, and whether the objective was met.

    ``speed`` is that of the machine meanwhile, as in :class:`Compared`.
    """

    settings: str
    rate: float
    measured: Measured
    met: bool
    speed: float | None = None


@dataclass(slots=True)
class Rates:
    """The plan against others.

    Attributes
    ----------
    mine
        The plan's settings.
    plan, replanned
        Whether it held; and whether what was then planned from what was seen did.
    not_replanned
        Why there is no such plan.
    rules
        Rules of thumb that were tried, by their names.
    screened, reached
        All others at the plan's rate; and highest rates by turns, of the plan's settings first.
    """

    slo: str = ""
    mine: Settings = field(default_factory=Settings)
    plan: Held | None = None
    replanned: Held | None = None
    not_replanned: str | None = None
    rules: dict[str, Settings] = field(default_factory=dict)
    screened: list[Screened] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)

    def best_rule(self) -> Reached | None:
        """The rule of thumb with the highest rate."""
        rules = self.rules.values()
        return _best([each for each in self.reached if each.settings in rules])

    def best_found(self) -> Reached | None:
        """The settings with the highest rate, whichever they are."""
        return _best(self.reached)

    def of_mine(self) -> Reached | None:
        """What the plan's settings reach."""
        return next((each for each in self.reached if each.settings == self.mine), None)


def _best(reached: Sequence[Reached]) -> Reached | None:
    return max((each for each in reached if each.rate), key=lambda each: each.rate, default=None)


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
    return told | _of_rates(workload, rates)


def _of_rates(workload: str, rates: Rates) -> dict[str, float]:
    told: dict[str, float] = {}
    for name, held in (("plan", rates.plan), ("replanned", rates.replanned)):
        if held is None:
            continue
        told |= {
            f"{workload}.{name}_rate": round(held.rate, 1),
            f"{workload}.{name}_held": float(held.met),
            f"{workload}.{name}_p99_s": round(held.measured.p99, 4),
        }
        if held.speed is not None:
            told[f"{workload}.{name}_machine_speed"] = round(held.speed, 3)
    mine, rule, found = rates.of_mine(), rates.best_rule(), rates.best_found()
    for name, reached in (
        ("plan_settings", mine), ("best_rule_of_thumb", rule), ("best_found", found)
    ):  # fmt: skip
        if reached is not None:
            told[f"{workload}.{name}_rate"] = round(reached.rate, 1)
    for name, other in (("rule_of_thumb", rule), ("found", found)):
        if mine is not None and other is not None and isfinite(ratio(mine, other)):
            told[f"{workload}.ratio.{name}"] = round(ratio(mine, other), 4)
    for each in rates.reached:
        told[f"{workload}.{settings_name(each.settings)}.reached_rate"] = round(each.rate, 1)
    for one in rates.screened:
        late = "late_at_least_s" if one.took.ended else "late_s"
        told[f"{workload}.{settings_name(one.settings)}.{late}"] = round(one.took.seconds, 4)
    return told


def ratio(mine: Reached, other: Reached) -> float:
    """What the plan's settings reach, by what the others do: the median of the rounds.

    A round in which the others were never on time counts for the plan's, without end; one in which
    neither was says nothing.
    """
    both = zip(mine.rates, other.rates, strict=True)
    return median([a / b if b else inf for a, b in both if a or b] or [nan])


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

"""Fit the simulated cluster to what was measured on the real one without any technique.

Only the ``default`` histograms are looked at; what the techniques do is predicted. Unknown are the
delay of a hop, the pauses of machines and of spouts, and where bolts compute, how long they do.
Each is varied (Nelder and Mead, on logarithms, the same random numbers every time) until the
quantiles of the simulated latencies are those measured: first in short runs with large steps from
where all cases begin, then in long ones with small steps.

That both instances of a replicated tuple wait for a spout that stands still, and only one of them
for a machine on its way, decides what replication can do; a single histogram does not tell how
often either happens. Two do: more bolts on the way make pauses of machines count for more. So the
two topologies that were measured at the same load are fitted together, with the same pauses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.resources import files
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.sim.cluster import Overloaded, Topology
from taut.sim.draws import Array
from taut.sim.papers import storm as cluster
from taut.sim.papers.experiment import Effort
from taut.sim.papers.measured import histograms
from taut.sim.papers.storm import Fit

if TYPE_CHECKING:
    from rich.console import Console

SHARES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999)
_WEIGHTS = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
START: Mapping[str, float] = {
    "hop": 0.001,
    "hop_scv": 1.0,
    "every": 5.0,
    "length": 0.05,
    "length_scv": 1.0,
    "spout_every": 5.0,
    "service": 0.0003,
    "service_scv": 0.2,
    "acker": 0.0001,
    "slow": 1.0,
    "longer": 1.0,
}
"""Where every case begins: round numbers, and machines that are all alike."""


@dataclass(frozen=True, slots=True)
class Case:
    """Histograms that are fitted together.

    Attributes
    ----------
    topologies
        By experiment: the default variant, given a fit.
    common
        Parameters that all of them share.
    own
        By experiment: parameters that it has for itself.
    fixed
        What is known.
    like
        What is taken from the fit of ``micro/timeout``, measured on the same machines.
    in_proportion
        Whether spouts pause as often for each pause of a machine as in that fit: a single
        histogram does not tell.
    seconds
        To simulate for each try; drafts have a fifth of it.
    drafts, tries
        How often, in short runs and in long ones.
    """

    topologies: Mapping[str, Callable[[Fit], Topology]]
    common: tuple[str, ...]
    own: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    like: tuple[str, ...] = ()
    in_proportion: bool = False
    seconds: float = 200.0
    drafts: int = 160
    tries: int = 25

    def fits(self, values: Array, known: Mapping[str, float]) -> dict[str, Fit]:
        """The fit of each experiment for values of the free parameters, in order."""
        told = iter(np.exp(values).tolist())
        common = {name: next(told) for name in self.common}
        found = {}
        for experiment in self.topologies:
            own = {name: next(told) for name in self.own.get(experiment, ())}
            made = {**known, **self.fixed, **common, **own}
            if self.in_proportion:
                made["spout_every"] *= made["every"] / known["every"]
            found[experiment] = Fit(**made)
        return found

    def start(self) -> Array:
        """Where to begin."""
        own = [name for experiment in self.topologies for name in self.own.get(experiment, ())]
        return np.log([START[name] for name in (*self.common, *own)])


_HOPS = ("hop", "hop_scv")
_PAUSES = ("every", "length", "length_scv")
_BOLTS = ("service", "acker")

CASES: Mapping[str, Case] = {
    "timeout": Case(
        {
            "micro/timeout": partial(cluster.storm, cluster.EXCLAMATION, chance=0.24),
            "page-load/timeout": partial(cluster.storm, cluster.PAGE_LOAD, chance=0.24),
        },
        ("every", "length_scv", "spout_every", "service"),
        {"micro/timeout": (*_HOPS, "length"), "page-load/timeout": (*_HOPS, "length")},
        drafts=250,
        tries=40,
    ),
    "queue": Case(
        {"micro/queue": cluster.queue},
        (*_HOPS, "service_scv", *_PAUSES),
        fixed={"service": 1 / 450},
        like=("every", "spout_every"),
        in_proportion=True,
        seconds=60.0,
    ),
    "page-load-queue": Case(
        {"page-load/queue": partial(cluster.pages_in_workers, cluster.PAGE_LOAD)},
        (*_HOPS, "service_scv", *_PAUSES),
        fixed={"service": 1 / 830},
        like=("every", "spout_every"),
        in_proportion=True,
        seconds=60.0,
    ),
    "balance-a": Case(
        {"micro/balance-a": cluster.balance_a},
        (*_HOPS, *_BOLTS, "slow", "longer", "length"),
        like=("every", "spout_every", "length_scv"),
    ),
    "balance-b": Case(
        {"micro/balance-b": cluster.balance_b},
        (*_HOPS, *_BOLTS, "slow", "longer"),
        like=("every", "spout_every", "length", "length_scv"),
    ),
    "balance-c": Case(
        {"micro/balance-c": cluster.balance_c},
        (*_HOPS, *_BOLTS, *_PAUSES, "longer"),
        like=("spout_every",),
    ),
    "page-load-balance": Case(
        {"page-load/balance": partial(cluster.pages_on_unequal, cluster.PAGE_LOAD)},
        (*_HOPS, *_BOLTS, *_PAUSES, "longer"),
        like=("spout_every",),
        seconds=100.0,
    ),
}


def loss(case: Case, made: Mapping[str, Fit], seconds: float, seed: int) -> float:
    """How far quantiles of the default variants are from those measured; the last count twice."""
    lost = 0.0
    for name, fitted in made.items():
        try:
            outcome = case.topologies[name](fitted).run(
                seconds, warm_up=2.0, seed=seed, patience=10.0
            )
        except Overloaded:
            return _FAR
        got = np.array([outcome.quantile(share) for share in SHARES])
        wanted = np.array([histograms()[name, "default"].quantile(share) for share in SHARES])
        lost += float((_WEIGHTS * np.log(got / wanted) ** 2).sum())
    return lost


_FAR = 1e3
"""What is lost where tuples do not end."""
_SHORT = 0.2
_LARGE, _SMALL = 0.5, 0.1
"""Steps, of logarithms."""


def fit(
    case: Case, seed: int, known: Mapping[str, Fit], tell: Callable[[int, float], None]
) -> tuple[dict[str, Fit], float]:
    """Find the fits of a case, given those of cases before it, and their loss; O(minutes)."""
    from scipy.optimize import minimize

    like = {name: getattr(known["micro/timeout"], name) for name in case.like}
    tried = 0
    values = case.start()
    found: Any = None
    for seconds, step, many in (
        (_SHORT * case.seconds, _LARGE, case.drafts),
        (case.seconds, _SMALL, case.tries),
    ):

        def lost(at: Array, seconds: float = seconds) -> float:
            nonlocal tried
            tried += 1
            by = loss(case, case.fits(at, like), seconds, seed)
            tell(tried, by)
            return by

        corners = np.vstack([values, values + step * np.eye(len(values))])
        found = minimize(
            lost,
            values,
            method="Nelder-Mead",
            options={"maxfev": many, "initial_simplex": corners, "adaptive": True},
        )
        values = found.x
    return case.fits(values, like), float(found.fun)


FILE = "storm_fits.json"


@cache
def _kept() -> Mapping[str, Any]:
    told: Mapping[str, Any] = json.loads(
        (files("taut.sim") / "data" / FILE).read_text(encoding="utf-8")
    )
    return told


@cache
def fits() -> Mapping[str, Fit]:
    """What was fitted, by experiment."""
    return {name: Fit(**values) for name, values in _kept()["fits"].items()}


@dataclass(frozen=True, slots=True)
class Made:
    """How the fits of a case were made.

    Attributes
    ----------
    seed
        Of all runs.
    loss
        Of what was kept.
    start
        Where its free parameters began; None for fits of which that was not kept, see
        ``docs/simulator.md``.
    """

    seed: int
    loss: float | None
    start: Mapping[str, float] | None


@cache
def made() -> Mapping[str, Made]:
    """How what is kept was found, by case."""
    return {name: Made(**told) for name, told in _kept()["made"].items()}


def unseen(effort: Effort, many: int = 3) -> Sequence[int]:
    """Seeds to predict with: so many, and none that a fit was made with."""
    seen = {case.seed for case in made().values()}
    return list(islice((n for n in count(many * effort.seed) if n not in seen), many))


def calibrate(console: Console, seed: int, cases: Sequence[str] = tuple(CASES)) -> None:
    """Fit cases anew and write what was found where it is read from."""
    path = Path(str(files("taut.sim") / "data" / FILE))
    found, how = dict(fits()), dict(made())
    for name in cases:
        case, best = CASES[name], math.inf

        def tell(tried: int, lost: float, name: str = name, case: Case = case) -> None:
            nonlocal best
            best = min(best, lost)
            if tried % 10 == 0:
                line = f"{name}: {tried} of {case.drafts + case.tries} tried, apart by {best:.4f}"
                console.print(line, highlight=False, soft_wrap=True)

        fitted, lost = fit(case, seed, found, tell)
        found |= fitted
        free = {*case.common, *(each for own in case.own.values() for each in own)}
        how[name] = Made(seed, lost, {each: START[each] for each in sorted(free)})
        told = {
            "fits": {experiment: asdict(each) for experiment, each in found.items()},
            "made": {case_: asdict(each) for case_, each in how.items()},
        }
        path.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8")

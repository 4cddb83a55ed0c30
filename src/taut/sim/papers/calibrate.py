"""Fit the simulated cluster to what was measured on the real one without any technique.

Only the ``default`` histograms are looked at; what the techniques do is predicted. Unknown are the
delay of a hop, the pauses of machines and of spouts, and where bolts compute, how long they do.
Each is varied (Nelder and Mead, on logarithms, the same random numbers every time) until the
quantiles of the simulated latencies are those measured.

That both instances of a replicated tuple wait for a spout that stands still, and only one of them
for a machine on its way, decides what replication can do; a single histogram does not tell how
often either happens. Two do: more bolts on the way make pauses of machines count for more. So the
two topologies that were measured at the same load are fitted together, with the same pauses.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut.sim.cluster import Overloaded, Topology
from taut.sim.draws import Array
from taut.sim.papers import storm as cluster
from taut.sim.papers.measured import histograms
from taut.sim.papers.storm import Fit

if TYPE_CHECKING:
    from rich.console import Console

SHARES = (0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999)
_WEIGHTS = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 2.0])
_STEP = 0.15


@dataclass(frozen=True, slots=True)
class Case:
    """Histograms that are fitted together.

    Attributes
    ----------
    topologies
        By experiment: the default variant, given a fit.
    common
        Parameters that all of them share, and where to begin.
    own
        By experiment: parameters that it has for itself, and where to begin.
    fixed
        What is known.
    like
        What is taken from the fit of ``micro/timeout``, measured on the same machines.
    in_proportion
        Whether spouts pause as often for each pause of a machine as in that fit: a single
        histogram does not tell.
    seconds
        To simulate for each try.
    """

    topologies: Mapping[str, Callable[[Fit], Topology]]
    common: Mapping[str, float]
    own: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    fixed: Mapping[str, float] = field(default_factory=dict)
    like: tuple[str, ...] = ()
    in_proportion: bool = False
    seconds: float = 200.0
    evaluations: int = 50

    def fits(self, values: Array, known: Mapping[str, float]) -> dict[str, Fit]:
        """The fit of each experiment for values of the free parameters, in order."""
        told = iter(np.exp(values).tolist())
        common = {name: next(told) for name in self.common}
        found = {}
        for experiment in self.topologies:
            own = {name: next(told) for name in self.own.get(experiment, {})}
            made = {**known, **self.fixed, **common, **own}
            if self.in_proportion:
                made["spout_every"] *= made["every"] / known["every"]
            found[experiment] = Fit(**made)
        return found

    def start(self) -> Array:
        """Where to begin."""
        own = [value for own in self.own.values() for value in own.values()]
        return np.log([*self.common.values(), *own])


_HOPS = {"hop": 0.0006, "hop_scv": 0.5}
_PAUSES = {"every": 16.0, "length": 0.05, "length_scv": 0.6}
_BEFORE = {
    "every": 4.575305592174638,
    "spout_every": 3.4661219904165197,
    "length": 0.03401165584931828,
    "length_scv": 0.5573511614617191,
}
"""The pauses of ``micro/timeout`` by the fit before the last one, which is 2 to 6 % apart."""

CASES: Mapping[str, Case] = {
    "timeout": Case(
        {
            "micro/timeout": partial(cluster.storm, cluster.EXCLAMATION, chance=0.24),
            "page-load/timeout": partial(cluster.storm, cluster.PAGE_LOAD, chance=0.24),
        },
        {"every": 4.6, "length_scv": 0.56, "spout_every": 3.4, "service": 0.00025},
        {
            "micro/timeout": {"hop": 0.0011, "hop_scv": 0.25, "length": 0.033},
            "page-load/timeout": {"hop": 0.00035, "hop_scv": 1.2, "length": 0.036},
        },
        seconds=200.0,
        evaluations=140,
    ),
    "queue": Case(
        {"micro/queue": cluster.queue},
        _HOPS | {"service_scv": 0.1, **_PAUSES},
        fixed={"service": 1 / 450},
        like=("every", "spout_every"),
        in_proportion=True,
        seconds=60.0,
        evaluations=60,
    ),
    "page-load-queue": Case(
        {"page-load/queue": partial(cluster.pages_in_workers, cluster.PAGE_LOAD)},
        _HOPS | {"service_scv": 0.1, **_PAUSES},
        fixed={"service": 1 / 830},
        like=("every", "spout_every"),
        in_proportion=True,
        seconds=60.0,
        evaluations=60,
    ),
    "balance-a": Case(
        {"micro/balance-a": cluster.balance_a},
        {
            "hop": 0.001,
            "hop_scv": 1.9,
            "service": 0.00022,
            "slow": 0.64,
            "longer": 2.5,
            "length": 0.0204,
        },
        fixed=_BEFORE | {"acker": 0.0003},
    ),
    "balance-b": Case(
        {"micro/balance-b": cluster.balance_b},
        {"hop": 0.00046, "hop_scv": 1.64, "service": 0.00029, "slow": 0.368, "longer": 1.22},
        fixed=_BEFORE | {"acker": 0.0003},
    ),
    "balance-c": Case(
        {"micro/balance-c": cluster.balance_c},
        {
            "hop": 0.00048,
            "hop_scv": 1.7,
            "service": 0.00031,
            "every": 3.0,
            "length": 0.03,
            "length_scv": 1.2,
            "longer": 2.8,
        },
        fixed={"acker": 0.0003},
        like=("spout_every",),
        seconds=300.0,
    ),
    "page-load-balance": Case(
        {"page-load/balance": partial(cluster.pages_on_unequal, cluster.PAGE_LOAD)},
        {
            "hop": 0.00045,
            "hop_scv": 1.6,
            "service": 0.00016,
            "every": 3.0,
            "length": 0.03,
            "length_scv": 1.2,
            "longer": 2.8,
        },
        fixed={"acker": 0.0003},
        like=("spout_every",),
        seconds=100.0,
        evaluations=30,
    ),
}


def fit(
    case: Case, seed: int, known: Mapping[str, Fit], tell: Callable[[int, float], None]
) -> dict[str, Fit]:
    """Find the fits of a case, given those of cases before it; O(minutes)."""
    from scipy.optimize import minimize

    like = {name: getattr(known["micro/timeout"], name) for name in case.like}

    wanted = {
        name: np.array([histograms()[name, "default"].quantile(share) for share in SHARES])
        for name in case.topologies
    }
    tried = 0

    def loss(values: Array) -> float:
        nonlocal tried
        tried += 1
        lost = 0.0
        for name, made in case.fits(values, like).items():
            topology = case.topologies[name](made)
            try:
                outcome = topology.run(case.seconds, warm_up=2.0, seed=seed, patience=10.0)
            except Overloaded:
                return 1e3
            got = np.array([outcome.quantile(share) for share in SHARES])
            lost += float((_WEIGHTS * np.log(got / wanted[name]) ** 2).sum())
        tell(tried, lost)
        return lost

    start = case.start()
    corners = np.vstack([start, start + _STEP * np.eye(len(start))])
    found: Any = minimize(
        loss,
        start,
        method="Nelder-Mead",
        options={"maxfev": case.evaluations, "initial_simplex": corners},
    )
    return case.fits(found.x, like)


FILE = "storm_fits.json"


@cache
def fits() -> Mapping[str, Fit]:
    """What was fitted, by experiment."""
    told = json.loads((files("taut.sim") / "data" / FILE).read_text(encoding="utf-8"))
    return {name: Fit(**values) for name, values in told.items()}


def calibrate(console: Console, seed: int, only: str | None = None) -> None:
    """Fit every case anew and write what was found where it is read from."""
    path = Path(str(files("taut.sim") / "data" / FILE))
    found = dict(fits()) if path.exists() else {}
    for name, case in CASES.items():
        if only not in (None, name):
            continue
        best = math.inf

        def tell(tried: int, lost: float, name: str = name, case: Case = case) -> None:
            nonlocal best
            best = min(best, lost)
            if tried % 10 == 0:
                line = f"{name}: {tried} of {case.evaluations} tried, apart by {best:.4f}"
                console.print(line, highlight=False, soft_wrap=True)

        found |= fit(case, seed, found, tell)
        told = {experiment: asdict(made) for experiment, made in found.items()}
        path.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8")

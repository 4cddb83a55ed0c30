"""Adaptive timeout, shared queues and balance: the tables and figures of the first work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from taut.policy.waiting import mean_wait
from taut.sim.cluster import Grouping, Machine, Operator, Outcome, Random, Spout, Topology
from taut.sim.draws import Exponential
from taut.sim.papers import storm as cluster
from taut.sim.papers.calibrate import fits, unseen
from taut.sim.papers.experiment import Axes, Curve, Effort, Experiment, Found, Picture, Reason
from taut.sim.papers.measured import queue_over_time
from taut.sim.papers.storm import Fit
from taut.sim.papers.variants import (
    MEASURED,
    curves,
    published,
    quantiles,
    runs,
    simulated,
    spread,
)

SOURCE = "Curtailing the tail"
LATENCY = Axes("latency, ms", "share of tuples that took longer", log_x=True, log_y=True)
NEAR = 20.0
"""Percent that a figure may be apart before it is named below its table."""
SETTLING = 115.0
"""Seconds that shares have before measurement begins. Of scenario (a) load over time was published
for 555 s under balance, and the histogram of balance has the tuples of 440."""
_WARM_UP = 5.0
"""Seconds before measurement begins where nothing has to settle."""
_LOOKED = 1.5
"""Seconds between looks at queues, as measured."""
_STARTED = 50.0
"""Seconds after which what was measured of queues is past its beginning."""
FITTED = "The default variant is fitted; all others are predicted."
_BORROWED = (
    "No histogram of this topology was published: all is predicted, on the fit of page load."
)


def compared(
    fitted: str,
    variants: Sequence[str],
    build: Callable[[Fit, str], Topology],
    seconds: float,
    *,
    settling: float = _WARM_UP,
    cost: bool = False,
    queue: str | None = None,
    seen: bool = True,
) -> Callable[[Effort], Found]:
    """Run the variants on the fit of an experiment, the same one where it was ``seen``."""

    def run(effort: Effort) -> Found:
        seeds, ran = unseen(effort), {}
        short = min(1.0, effort.scale)
        every = _LOOKED * short if queue else None
        for variant in variants:
            topology = build(fits()[fitted], variant)
            warm_up = (_WARM_UP if variant == "default" else settling) * short
            ran[variant] = runs(topology, seconds * effort.scale, warm_up, seeds, every)

        def more(outcome: Outcome) -> dict[str, float]:
            return {"queue_ms": 1e3 * outcome.waited(queue)} if queue else {}

        return Found(
            simulated(ran, cost=cost, more=more),
            curves(fitted if seen else None, ran),
            (FITTED if seen else _BORROWED, spread(ran, seeds)),
            _queues({name: outcomes[0] for name, outcomes in ran.items()}, queue) if queue else {},
        )

    return run


def _queues(outcomes: Mapping[str, Outcome], operator: str) -> dict[str, Picture]:
    """The mean time in the queues over time, beside what was measured in as many seconds."""
    drawn: dict[str, Curve] = {}
    for variant, outcome in outcomes.items():
        noted = outcome.series[operator]
        drawn[variant] = [n.at for n in noted], [1e3 * n.waited for n in noted]
        if variant not in ("default", "shared"):
            continue
        until, (times, delays) = noted[-1].at, queue_over_time(MEASURED.get(variant, variant))
        begin = times[0] + _STARTED
        kept = [
            (t - begin, d) for t, d in zip(times, delays, strict=True) if 0 <= t - begin <= until
        ]
        drawn[f"measured {variant}"] = [t for t, _ in kept], [d for _, d in kept]
    return {"queue": Picture(Axes("seconds", "mean ms in the queue"), drawn)}


REPLAYS = ("default", "timeout", "replicate-20", "replicate-50", "replicate-100")


def _replaying(bolts: Sequence[cluster.Bolt]) -> Callable[[Fit, str], Topology]:
    return lambda fit, variant: cluster.storm(bolts, fit, 0.24, replay=cluster.replaying(variant))


def _mmc(effort: Effort) -> Found:
    """Mean waits before queues with 1 to 10 servers, by utilisation."""
    figures: dict[str, dict[str, float]] = {}
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for servers in (1, 2, 4, 10):
        line: tuple[list[float], list[float]] = ([], [])
        for rho in (0.2, 0.4, 0.6, 0.7, 0.78, 0.85):
            rate = servers * rho * 450.0
            topology = Topology(
                Spout(1, Exponential(1.0 / rate)),
                (Operator("bolt", servers, Exponential(1.0 / 450.0), shared=True),),
                (Machine(),),
            )
            outcome = topology.run(200_000 * effort.scale / rate, seed=effort.seed)
            found = 1e3 * outcome.waited("bolt")
            figures[f"servers-{servers}/rho-{rho:g}"] = {"queue_ms": found}
            line[0].append(rho)
            line[1].append(found)
        curves[f"{servers} servers"] = line
    return Found(figures, curves, ("Beside it what the formula says, corrected.",))


def _mmc_formula() -> dict[str, dict[str, float]]:
    return {
        f"servers-{servers}/rho-{rho:g}": {
            "queue_ms": 1e3 * mean_wait(servers, servers * rho * 450.0, 1.0 / 450.0)
        }
        for servers in (1, 2, 4, 10)
        for rho in (0.2, 0.4, 0.6, 0.7, 0.78, 0.85)
    }


def _queueing(fit: Fit, variant: str) -> Topology:
    """Queues of one task each, in turn or by chance; or one for the four of a worker."""
    grouping: Grouping | None = Random() if variant == "random" else None
    return cluster.queue(fit, variant == "shared", grouping=grouping)


def _pages(bolts: Sequence[cluster.Bolt], how: str) -> Callable[[Fit, str], Topology]:
    """Pages as each technique was measured on them."""
    if how == "timeout":
        return _replaying(bolts)
    if how == "queue":
        return lambda fit, variant: cluster.pages_in_workers(bolts, fit, variant == "shared")
    return lambda fit, variant: cluster.pages_on_unequal(bolts, fit, variant)


def _passes(bolts: Sequence[cluster.Bolt]) -> float:
    """The chance of a tuple to come by a given machine: bolts have a task on each, and ackers."""
    return 1.0 - (1.0 - 1.0 / cluster.MACHINES) ** (len(bolts) + 1)


def _page_reasons(bolts: Sequence[cluster.Bolt], how: str) -> tuple[Reason, ...]:
    if how == "timeout":
        why = (
            "the second instance comes by the machine that pauses as well with a chance of "
            f"{100.0 * _passes(bolts):.0f} %, as {len(bolts)} bolts and the acker have a task on "
            "each."
        )
    elif how == "queue":
        why = (
            "all tasks of a bolt are on one machine, and when that pauses they do so together, "
            "whether they share a queue or not."
        )
    else:
        return ()
    return (
        Reason(
            why,
            below=("*.p99_lower_percent", "*.p999_lower_percent"),
            above=("*.p99_ms", "*.p999_ms"),
        ),
    )


def _page_experiments() -> list[Experiment]:
    """Table 5, for both topologies and all three techniques; published as ranges over both."""
    made = []
    techniques: Mapping[str, tuple[str, Mapping[str, tuple[float, float]]]] = {
        "timeout": ("timeout", {"p99": (28, 40), "p999": (24, 26)}),
        "queue": ("shared", {"p90": (16, 19), "p99": (36, 42), "p999": (20, 32)}),
        "balance": ("balance", {"p90": (22, 48), "p99": (50, 57), "p999": (21, 50)}),
    }
    for topology, bolts in (("page-load", cluster.PAGE_LOAD), ("processing", cluster.PROCESSING)):
        for how, (variant, lowered) in techniques.items():
            ranges = {f"{name}_lower_percent": ends for name, ends in lowered.items()}
            spans = ", ".join(f"{name} {a:g} to {b:g} %" for name, (a, b) in lowered.items())
            seen = topology == "page-load"
            fitted, variants = f"page-load/{how}", ("default", variant)
            made.append(
                Experiment(
                    f"{topology}-{how}",
                    f"{SOURCE}, table 5 (lower by: {spans}, over both topologies)"
                    + (", and what the authors measured of this one" if seen else ""),
                    f"{topology}: default against {variant}",
                    compared(
                        fitted,
                        variants,
                        _pages(bolts, how),
                        seconds=100.0,
                        settling=SETTLING if how == "balance" else _WARM_UP,
                        cost=how == "timeout",
                        seen=seen,
                    ),
                    published(fitted if seen else None, variants),
                    axes=LATENCY,
                    ranges={variant: ranges},
                    near=NEAR,
                    reasons=_page_reasons(bolts, how),
                )
            )
    return made


def _table_2() -> dict[str, dict[str, float]]:
    """As printed; costs are in units beyond the first, for each."""
    made = quantiles(
        {
            "default": (None, 29.2, 76.6),
            "timeout": (None, 24.1, 66.4),
            "replicate-20": (None, 25.5, 87.8),
            "replicate-50": (None, 22.1, 107.7),
            "replicate-100": (None, 17.9, 78.1),
        }
    )
    costs = {"timeout": 0.0292, "replicate-20": 0.2, "replicate-50": 0.5, "replicate-100": 1.0}
    for variant, cost in costs.items():
        made[variant]["cost"] = cost
    return made


EXPERIMENTS = (
    Experiment(
        "timeout",
        f"{SOURCE}, table 2 and thesis figure 5.1, and what the authors measured",
        "Adaptive timeout against replication, exclamation topology",
        compared(
            "micro/timeout", REPLAYS, _replaying(cluster.EXCLAMATION), seconds=200.0, cost=True
        ),
        published("micro/timeout", REPLAYS, _table_2()),
        axes=LATENCY,
        near=NEAR,
        reasons=(
            Reason(
                "what replicas cost the machines, which pause more for it, is not in the model.",
                below=("replicate-*.p9*_ms",),
                above=("replicate-*_lower_percent",),
            ),
        ),
    ),
    Experiment(
        "waiting",
        f"{SOURCE}, figure 3 (thesis 3.4)",
        "Mean time in the queue by utilisation and number of servers, 450 tuples/s each",
        _mmc,
        _mmc_formula(),
        axes=Axes("utilisation", "mean time in the queue, ms", log_y=True),
    ),
    Experiment(
        "queue",
        f"{SOURCE}, section 5.1.2, thesis figures 5.2 and 5.3, and what the authors measured",
        "Queues shared by the four tasks of a worker, 350 tuples/s each",
        compared("micro/queue", ("default", "shared", "random"), _queueing, 60.0, queue="bolt"),
        published(
            "micro/queue",
            ("default", "shared"),
            {
                "default": {"queue_ms": 2.07},
                "shared": {
                    "queue_ms": 0.516,
                    "p90_lower_percent": 35.5,
                    "p99_lower_percent": 24.9,
                    "p999_lower_percent": 36.2,
                },
            },
        ),
        axes=LATENCY,
        near=NEAR,
        reasons=(
            Reason(
                "the fit looks at latencies only, and these do not tell time in queues from time "
                "between tasks.",
                above=("default.queue_ms", "shared.queue_ms"),
            ),
            Reason(
                "tasks that share a queue are on one machine, and pause together.",
                below=("shared.p999_lower_percent",),
                above=("shared.p999_ms",),
            ),
        ),
    ),
    *_page_experiments(),
)

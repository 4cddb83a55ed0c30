"""How fast the simulator is, and how large a cluster it bears: experiments with itself."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable

from taut.sim.cluster import Machine, Network, Operator, Outcome, Pauses, Spout, Topology
from taut.sim.draws import Constant, Exponential, Gamma
from taut.sim.papers import storm
from taut.sim.papers.experiment import Effort, Experiment, Found

WANTED = 500_000.0
"""Hops a second on one core that the simulator is made for."""
_ROUNDS = 3


def kinds() -> dict[str, tuple[Topology, float]]:
    """By name: where tasks wait, and where they need a core; and for how many seconds."""
    fit = storm.Fit()
    return {
        "tasks-wait": (storm.storm(storm.EXCLAMATION, fit, 0.24), 60.0),
        "tasks-need-cores": (storm.balance_b(fit), 20.0),
    }


def _timed(
    topology: Topology, seconds: float, seed: int, clock: Callable[[], float]
) -> tuple[Outcome, float]:
    begun = clock()
    outcome = topology.run(seconds, seed=seed)
    return outcome, clock() - begun


def _speed(effort: Effort) -> Found:
    """Hops a second of CPU time, so that other work counts for little; median of three rounds."""
    figures = {}
    for name, (topology, seconds) in kinds().items():
        rates = []
        for _ in range(_ROUNDS):
            outcome, took = _timed(topology, seconds * effort.scale, effort.seed, time.process_time)
            rates.append(outcome.hops / took)
        figures[name] = {"hops_per_s": sorted(rates)[_ROUNDS // 2]}
    slowest = min(figures, key=lambda name: figures[name]["hops_per_s"])
    least = figures[slowest]["hops_per_s"]
    notes = (
        "A hop: from task to task, or word back to the spout. A second: of CPU time.",
        f"{WANTED:,.0f} a second are wanted: "
        + ("reached" if least >= WANTED else f"not reached, {slowest} has {least:,.0f}")
        + ".",
    )
    return Found(figures | {"wanted": {"hops_per_s": WANTED}}, notes=notes)


def _scale(effort: Effort) -> Found:
    """1,000 machines, 100,000 tasks, ten million tuples; a smaller scale has fewer of each."""
    machines, tasks = max(1, round(1_000 * effort.scale)), max(1, round(33_000 * effort.scale))
    topology = Topology(
        Spout(machines, Exponential(0.01)),
        tuple(
            Operator(name, tasks, Exponential(0.001), after=(before,))
            for before, name in (("spout", "one"), ("one", "two"), ("two", "three"))
        ),
        tuple(Machine(pauses=Pauses(5.0, Gamma(0.03, 0.6))) for _ in range(machines)),
        Network(Constant(0.001)),
        ack=Constant(0.001),
    )
    outcome, took = _timed(topology, 100.0, effort.seed, time.perf_counter)
    told = {
        "machines": float(machines),
        "tasks": float(machines + 3 * tasks),
        "tuples": float(outcome.units),
        "hops": float(outcome.hops),
        "seconds": took,
        "memory_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }
    return Found({"large": told})


EXPERIMENTS = {
    "speed": Experiment("speed", "Taut", "Hops a second on one core", _speed),
    "scale": Experiment(
        "scale", "Taut", "A thousand machines: how long, and how much memory", _scale
    ),
}
"""By name; not part of ``all``."""

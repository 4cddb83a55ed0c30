"""Scheduling by deadline in a reducer whose state does not fit into memory, or that is overrun.

One reducer, with all costs ten times those published and a tenth of the rows: shares stay the same,
for they depend on the ratios of costs, load and the constraint only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from taut.policy.deadline import SCHEDULES
from taut.sim.papers.experiment import Axes, Effort, Experiment, Found
from taut.sim.reducer import Reducer

SOURCE = "Latency constraints in scalable stream processing"
HOT = 20e-6
_SECONDS = 8.0
_ONLY_DRAWN = "published as a picture only, without figures"
_NAMES = {"fifo": "none", "edf": "batches", "cost-aware": "cost-aware", "dover": "D-over"}

WORDS = Reducer(0.95 / HOT, keys=20_000, hot_cost=HOT, cold_cost=25.0 * HOT, stamp_s=0.1)
"""Word count: at 95 % of what the reducer can do while all state is in memory."""
WINDOWED = replace(WORDS, zipf=0.8, constraint=3.0)
SESSIONS = replace(WORDS, memory=0.25, zipf=0.9)


def _shares(
    points: Sequence[tuple[str, float, Reducer]], schedules: Sequence[str]
) -> Callable[[Effort], Found]:
    """The share on time of every schedule at every point."""

    def run(effort: Effort) -> Found:
        figures: dict[str, dict[str, float]] = {}
        curves: dict[str, tuple[list[float], list[float]]] = {}
        for label, x, reducer in points:
            for schedule in schedules:
                made = reducer.run(SCHEDULES[schedule](), _SECONDS * effort.scale, effort.seed)
                name = _NAMES[schedule]
                figures[f"{label}/{name}"] = {"on_time_percent": 100.0 * made.share}
                line = curves.setdefault(name, ([], []))
                line[0].append(x)
                line[1].append(100.0 * made.share)
        return Found(figures, curves)

    return run


def _memory(reducer: Reducer) -> list[tuple[str, float, Reducer]]:
    """With state for 200 MB, and that much memory or less."""
    return [
        (f"memory-{mb}", mb, replace(reducer, memory=mb / 200.0)) for mb in (200, 150, 100, 75, 50)
    ]


_OVERLOAD = [
    (f"load-{load:g}", load, replace(WORDS, rate=WORDS.rate * load)) for load in (1.0, 1.36, 1.8)
]
_COLD = [
    (f"cold-{us}us", us, replace(SESSIONS, cold_cost=10.0 * us * 1e-6))
    for us in (2, 5, 10, 20, 50, 100, 200)
]
_ALL = ("fifo", "edf", "dover", "cost-aware")

EXPERIMENTS = (
    Experiment(
        "deadline-memory",
        f"{SOURCE}, figure 7a",
        "Rows on time as memory shrinks below the state: word count, 1 s",
        _shares(_memory(WORDS), _ALL),
        axes=Axes("memory, MB (the state has 200)", "on time, percent"),
        absent={"points": _ONLY_DRAWN},
    ),
    Experiment(
        "deadline-windows",
        f"{SOURCE}, figure 7b",
        "Rows on time as memory shrinks below the state: windowed word count, 3 s",
        _shares(_memory(WINDOWED), _ALL),
        axes=Axes("memory, MB (the state has 200)", "on time, percent"),
        absent={"points": _ONLY_DRAWN},
    ),
    Experiment(
        "deadline-overload",
        f"{SOURCE}, figure 7c",
        "Rows on time under overload, memory enough: word count, 1 s",
        _shares(_OVERLOAD, _ALL),
        axes=Axes("load over that sustained", "on time, percent"),
        absent={"points": _ONLY_DRAWN},
    ),
    Experiment(
        "deadline-cold",
        f"{SOURCE}, figure 7d",
        "Rows on time by the cost of a row whose state is on disk, 2 us in memory: sessions",
        _shares(_COLD, ("dover", "cost-aware")),
        axes=Axes("cost of a row on disk, us", "on time, percent", log_x=True),
        absent={"points": _ONLY_DRAWN},
    ),
)

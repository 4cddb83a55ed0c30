"""Scheduling by deadline in a reducer whose state does not fit into memory, or that is overrun.

One reducer, with all costs ten times those published and a tenth of the rows, or as many times as a
quick look wants: shares stay the same, for they depend on the ratios of costs, load and the
constraint only. Rows that count come after a warm-up, and rows go on coming until the last of them
is due: a reducer that begins with nothing to do, or ends alone with the last rows, has more of them
on time than one in the middle of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from taut.policy.deadline import CHOICES, SCHEDULES
from taut.sim.kernel import Kernel
from taut.sim.optimum import ROWS, batches, instance, optimum
from taut.sim.papers.experiment import Axes, Effort, Experiment, Found
from taut.sim.reducer import Microbatches, Outcome, Reducer, work

SOURCE = "Latency constraints in scalable stream processing"
TIMES = 10.0
HOT = TIMES * 2e-6
_SECONDS = 8.0
_WARM_UP = 5.0
"""In constraints: by then a backlog that grows has passed the constraint."""
_ONLY_DRAWN = "published as a picture only, without figures"
_NAMES = {"fifo": "none", "edf": "batches", "dover": "D-over", "cost-aware": "cost-aware"}

WORDS = Reducer(0.95 / HOT, keys=20_000, hot_cost=HOT, cold_cost=25.0 * HOT, stamp_s=0.1)
"""Word count: at 95 % of what the reducer can do while all state is in memory."""
WINDOWED = replace(WORDS, zipf=0.8, constraint=3.0)
SESSIONS = replace(WORDS, memory=0.25, zipf=0.9)
SPARK = Microbatches(replace(WORDS, rate=0.5 / HOT, constraint=4.0, stamp_s=0.0), 0.3, 0.3)
"""Word count in micro-batches, whose fixed cost is that of one on Spark here."""


@dataclass(frozen=True, slots=True)
class _At:
    label: str
    x: float
    reducer: Reducer


def _coarser(reducer: Reducer, effort: Effort) -> Reducer:
    """A quick look has fewer rows, each of which costs more, and lasts as long."""
    return replace(
        reducer,
        rate=reducer.rate * effort.scale,
        hot_cost=reducer.hot_cost / effort.scale,
        cold_cost=reducer.cold_cost / effort.scale,
    )


def _in_turn(reducer: Reducer, schedule: str, seed: int) -> Outcome:
    """Row by row, each out when it is done."""
    return reducer.run(
        SCHEDULES[schedule](), _SECONDS, seed, warm_up=_warm_up(reducer), after=reducer.constraint
    )


def _together(reducer: Reducer, schedule: str, seed: int) -> Outcome:
    """In micro-batches, whose rows are all out when the batch is."""
    return replace(SPARK, reducer=reducer).run(
        CHOICES[schedule], _SECONDS, seed, warm_up=_warm_up(reducer), after=reducer.constraint
    )


def _warm_up(reducer: Reducer) -> float:
    return _WARM_UP * reducer.constraint


def _shares(
    points: Sequence[_At],
    schedules: Sequence[str] = tuple(_NAMES),
    made: Callable[[Reducer, str, int], Outcome] = _in_turn,
) -> Callable[[Effort], Found]:
    """The share on time of every schedule at every point."""

    def run(effort: Effort) -> Found:
        figures: dict[str, dict[str, float]] = {}
        curves: dict[str, tuple[list[float], list[float]]] = {}
        for at in points:
            reducer = _coarser(at.reducer, effort)
            for schedule in schedules:
                percent = 100.0 * made(reducer, schedule, effort.seed).share
                name = _NAMES[schedule]
                figures[f"{at.label}/{name}"] = {"on_time_percent": percent}
                line = curves.setdefault(name, ([], []))
                line[0].append(at.x)
                line[1].append(percent)
        notes = [_chosen(points, TIMES / effort.scale), _measured(points[0].reducer)]
        if made is _together:
            notes.append(_fixed())
        elif "fifo" in schedules:
            notes.append(_without(points))
        return Found(figures, curves, tuple(notes))

    return run


def _chosen(points: Sequence[_At], times: float) -> str:
    """What was not published."""
    first = points[0].reducer
    full = replace(first, memory=1.0)
    colds = {at.reducer.cold_cost / at.reducer.hot_cost for at in points}
    cold = f"a row on disk {colds.pop():g} times one in memory, " if len(colds) == 1 else ""
    published = first.hot_cost / TIMES
    alike = f", and the same deadline for all rows of {first.stamp_s:g} s" if first.stamp_s else ""
    return (
        f"A row in memory costs {1e6 * times * published:g} us, {times:g} times the "
        f"{1e6 * published:g} us published for sessions, and as many times fewer rows come. Chosen "
        "here, for it was not published: "
        f"{first.keys:,} keys by Zipf's law with an exponent of {first.zipf:g}, {cold}"
        f"work for {100.0 * full.load:.0f} % of the time while all state is in memory and the load "
        f"is 1{alike}."
    )


def _measured(reducer: Reducer) -> str:
    return (
        f"Rows of {_SECONDS:g} s count, after a warm-up of {_warm_up(reducer):g} s; others come "
        f"for {reducer.constraint:g} s more."
    )


def _fixed() -> str:
    return (
        f"A batch takes {1e3 * SPARK.lead:g} ms before the reducer begins and "
        f"{1e3 * SPARK.after:g} ms after it has ended, whatever its rows, and all of them are out "
        "then."
    )


def passed_after(reducer: Reducer) -> float:
    """Seconds from an empty start until the backlog of one that works on all is the constraint."""
    return reducer.constraint / (reducer.load - 1.0)


def _without(points: Sequence[_At]) -> str:
    """What happens where nothing is left out."""
    passed = {at.label: passed_after(at.reducer) for at in points if at.reducer.load > 1.0}
    told = ", ".join(f"{label} {seconds:.1f} s" for label, seconds in passed.items())
    return (
        "Without a schedule (none) the backlog grows for ever where more comes than can be done. "
        f"From an empty start it passes the constraint after: {told}. From then on all rows are "
        "late, and the share of a run from its start is as small as the run is long."
    )


def _memory(reducer: Reducer) -> list[_At]:
    """With state for 200 MB, and that much memory or less."""
    return [
        _At(f"memory-{mb}", mb, replace(reducer, memory=mb / 200.0))
        for mb in (200, 150, 100, 75, 50)
    ]


_OVERLOAD = [
    _At(f"load-{load:g}", load, replace(WORDS, rate=WORDS.rate * load)) for load in (1.0, 1.36, 1.8)
]
_COLD = [
    _At(f"cold-{us}us", us, replace(SESSIONS, cold_cost=TIMES * us * 1e-6))
    for us in (2, 5, 10, 20, 50, 100, 200)
]


def _optimum(effort: Effort) -> Found:
    """Rows on time of all that one who knows the future has on time, on small instances."""
    many = max(1, round(40 * effort.scale))
    figures: dict[str, dict[str, float]] = {}
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for load in (1.0, 1.36, 1.8, 3.0):
        random = Kernel(effort.seed).stream(f"optimum/{load}")
        best, made = 0, dict.fromkeys(_NAMES, 0)
        for constraint in (1.5, 2.0, 3.0, 5.0):
            for ratio in (2.0, 5.0, 20.0):
                for _ in range(many):
                    rows = instance(random, load, constraint, ratio)
                    best += optimum(rows)
                    for schedule in _NAMES:
                        made[schedule] += work(SCHEDULES[schedule](), batches(rows)).on_time
        for schedule, name in _NAMES.items():
            percent = 100.0 * made[schedule] / best
            figures[f"load-{load:g}/{name}"] = {"of_optimum_percent": percent}
            line = curves.setdefault(name, ([], []))
            line[0].append(load)
            line[1].append(percent)
    figures["least"] = _least(figures)
    notes = (
        f"{12 * many} instances for each load: {ROWS} rows in two to five batches, three in ten of "
        "them 2, 5 or 20 times as expensive, with 1.5 to 5 times the time between batches.",
    )
    return Found(figures, curves, notes)


def _least(figures: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    cost_aware = [told for key, told in figures.items() if key.endswith("/cost-aware")]
    return {"of_optimum_percent": min(told["of_optimum_percent"] for told in cost_aware)}


EXPERIMENTS = (
    Experiment(
        "deadline-memory",
        f"{SOURCE}, figure 7a",
        "Rows on time as memory shrinks below the state: word count, 1 s",
        _shares(_memory(WORDS)),
        axes=Axes("memory, MB (the state has 200)", "on time, percent"),
        absent={"points": _ONLY_DRAWN},
    ),
    Experiment(
        "deadline-windows",
        f"{SOURCE}, figure 7b",
        "Rows on time as memory shrinks below the state: windowed word count, 3 s",
        _shares(_memory(WINDOWED)),
        axes=Axes("memory, MB (the state has 200)", "on time, percent"),
        absent={"points": _ONLY_DRAWN},
    ),
    Experiment(
        "deadline-overload",
        f"{SOURCE}, figure 7c",
        "Rows on time under overload, memory enough: word count, 1 s",
        _shares(_OVERLOAD),
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
    Experiment(
        "deadline-spark",
        "Taut",
        "As on Spark: rows on time in micro-batches, by memory: word count, 4 s",
        _shares(_memory(SPARK.reducer), made=_together),
        axes=Axes("memory, MB (the state has 200)", "on time, percent"),
        absent={"points": "nothing was published for micro-batches"},
    ),
    Experiment(
        "deadline-optimum",
        "Taut",
        "Rows on time on small random instances, of those of one who knows what will come",
        _optimum,
        axes=Axes("load", "of the most possible, percent"),
        absent={"points": "nothing was published of what is possible"},
    ),
)

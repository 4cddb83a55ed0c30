"""All variants at every point in every round, in one JVM."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict

from taut.bench.place import spark_session
from taut.bench.record import BenchError, Record
from taut.bench.reduce.figures import Point, Run, figures
from taut.bench.reduce.run import VARIANTS, WORKLOADS, Spec, Watcher, run
from taut.bench.reduce.sustained import sustained
from taut.bench.rounds import order


def bench(
    spec: Spec,
    points: Sequence[Point],
    variants: Sequence[str],
    rounds: int,
    watch: Watcher,
    rate: int | None = None,
) -> tuple[Record, list[Run]]:
    """Run everything; ``rate`` is that of load 1.0 where it is not to be measured."""
    _refuse(spec, points, variants, rounds)
    record = Record("reduce", asdict(spec) | {"variants": list(variants), "rounds": rounds})
    runs: list[Run] = []
    with spark_session(f"local[{spec.reducers}]") as place:
        if rate is None:
            found = sustained(place, spec, watch)
            rate = found.rate(spec.objective)
            record.options |= {"batch_fixed_s": found.fixed, "batch_row_us": 1e6 * found.each}
        whole = Point(1.0, 1.0)
        # how much memory all states need, and what a JVM does for the first time
        _, most = run(place, spec, "fifo", whole, 0, rate, None, watch)
        record.options |= {
            "rate_at_load_1": rate,
            "state_bytes": most,
            "warm_up": f"{spec.warm_up_s:g} s of each run, and one run of fifo, not counted",
        }
        for (round_, variant), point in _order(variants, points, rounds):
            budget = None
            if point.memory < 1.0:
                budget = max(1, round(point.memory * most / spec.reducers))
            load = max(1, round(rate * point.load))
            made, _ = run(place, spec, variant, point, round_, load, budget, watch)
            runs.append(made)
    record.add(figures(spec.workload, runs))
    return record, runs


def _order(
    variants: Sequence[str], points: Sequence[Point], rounds: int
) -> list[tuple[tuple[int, str], Point]]:
    """Variants alternate at each point."""
    told = []
    for round_, at_round in itertools.groupby(order(variants, rounds), key=lambda one: one[0]):
        turn = list(at_round)
        told += [((round_, variant), point) for point in points for _, variant in turn]
    return told


def _refuse(spec: Spec, points: Sequence[Point], variants: Sequence[str], rounds: int) -> None:
    if spec.workload not in WORKLOADS:
        raise BenchError(f"workload {spec.workload!r}: one of {', '.join(WORKLOADS)}")
    if not points or not variants or rounds < 1 or spec.seconds <= 0:
        raise BenchError(
            f"points={len(points)}, variants={len(variants)}, rounds={rounds}, "
            f"seconds={spec.seconds}: all must be above zero"
        )
    if unknown := [variant for variant in variants if variant not in VARIANTS]:
        raise BenchError(f"variant {unknown[0]!r}: out of {', '.join(VARIANTS)}")
    for point in points:
        if not 0.0 < point.memory <= 1.0 or not point.load > 0.0:
            raise BenchError(f"{point}: memory above 0 and at most 1, load above 0")

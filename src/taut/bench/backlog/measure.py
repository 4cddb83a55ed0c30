"""All variants in every round, in one JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from taut.bench.backlog.figures import Run, figures
from taut.bench.backlog.run import VARIANTS, Spec, Watcher, run
from taut.bench.place import spark_session
from taut.bench.record import BenchError, Record
from taut.bench.rounds import order

FIRST_S = 5.0
"""Seconds of arrivals in the run that warms up the JVM."""


def bench(
    spec: Spec, variants: Sequence[str], rounds: int, watch: Watcher
) -> tuple[Record, list[Run]]:
    """Run every variant in every round; give the record and the runs behind it."""
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown or not variants or len(set(variants)) != len(variants):
        raise BenchError(
            f"variants {','.join(variants)!r}: name each once, out of {', '.join(VARIANTS)}"
        )
    if min(rounds, spec.partitions, spec.rate) < 1 or min(spec.seconds, spec.trigger_s) <= 0:
        raise BenchError(
            f"rounds={rounds}, partitions={spec.partitions}, rate={spec.rate}, "
            f"seconds={spec.seconds}, trigger={spec.trigger_s}: all must be above zero"
        )
    if not spec.skew >= 1:
        raise BenchError(f"skew={spec.skew}: must be 1 (all partitions alike) or more")
    first = replace(spec, seconds=min(FIRST_S, spec.seconds))
    record = Record(
        "backlog",
        asdict(spec) | {
            "variants": list(variants), "rounds": rounds, "max_offsets_per_trigger": spec.budget,
            "warm_up": f"one run of {variants[0]}, {first.seconds:g} s, not counted",
        },
    )  # fmt: skip
    runs = []
    with spark_session(f"local[{spec.lanes}]") as place:
        # what the JVM and the workers do for the first time falls on no variant
        run(place, first, variants[0], 0, watch)
        for round_, variant in order(variants, rounds):
            runs.append(run(place, spec, variant, round_, watch))
    record.add(figures(runs))
    return record, runs

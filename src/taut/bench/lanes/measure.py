"""All variants in every round, in one JVM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace

from taut.bench.lanes.figures import Run, figures
from taut.bench.lanes.run import VARIANTS, Spec, Watcher, run
from taut.bench.place import spark_session
from taut.bench.record import BenchError, Record
from taut.bench.rounds import order

_FIRST_S = 5.0


def bench(
    spec: Spec, variants: Sequence[str], rounds: int, watch: Watcher
) -> tuple[Record, list[Run]]:
    """Run every variant in every round; give the record and the runs behind it."""
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown or not variants or len(set(variants)) != len(variants):
        raise BenchError(
            f"variants {','.join(variants)!r}: name each once, out of {', '.join(VARIANTS)}"
        )
    if rounds < 1 or spec.lanes < 1 or spec.seconds <= 0:
        raise BenchError(
            f"rounds={rounds}, lanes={spec.lanes}, seconds={spec.seconds}: all must be above zero"
        )
    options = asdict(spec) | {"variants": list(variants), "rounds": rounds}
    record = Record("lanes", options | {"rate": spec.what.rate})
    short = replace(spec, seconds=min(_FIRST_S, spec.seconds), grace_s=0.0)
    runs = []
    with spark_session(f"local[{spec.lanes}]") as place:
        # what the JVM and the workers do for the first time falls on no variant
        run(place, short, variants[0], 0, watch)
        for round_, variant in order(variants, rounds):
            runs.append(run(place, spec, variant, round_, watch))
    record.add(figures(spec.topology, runs))
    return record, runs

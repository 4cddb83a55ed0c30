"""All variants in every round, on one machine or on a cluster of the benchmark's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace

from taut.bench.lanes.figures import Run, figures
from taut.bench.lanes.machines import machines
from taut.bench.lanes.run import Watcher, run
from taut.bench.lanes.site import SPECULATING, site
from taut.bench.lanes.spec import ONLY, SPECULATION, VARIANTS, Spec
from taut.bench.lanes.theory import waits
from taut.bench.record import BenchError, Record
from taut.bench.rounds import order

_FIRST_S, _FIRST_BATCH_S = 8.0, 2.0


def bench(
    spec: Spec,
    variants: Sequence[str],
    rounds: int,
    watch: Watcher,
    say: Callable[[str], None] = lambda _: None,
) -> tuple[Record, list[Run]]:
    """Run every variant in every round; give the record and the runs behind it.

    ``say`` hears of what is left out.
    """
    unknown = [variant for variant in variants if variant not in VARIANTS]
    if unknown or not variants or len(set(variants)) != len(variants):
        raise BenchError(
            f"variants {','.join(variants)!r}: name each once, out of {', '.join(VARIANTS)}"
        )
    if rounds < 1:
        raise BenchError(f"rounds={rounds}: must be above zero")
    variants = possible(spec, variants, say)
    speculating = SPECULATION in variants
    needed = machines(spec.topology, spec.lanes, several=speculating)
    record = Record("lanes", spec.options() | {"variants": list(variants), "rounds": rounds})
    if needed is not None:
        record.options["machines"] = [asdict(machine) for machine in needed]
    if speculating:
        record.options["speculation"] = SPECULATING
    short = _short(spec)
    runs = []
    with site(spec.lanes, needed, own=speculating) as where:
        for round_, variant in order(variants, rounds):
            place, fresh = where.place(variant)
            if fresh:
                # what the JVM and the workers do for the first time falls on no variant
                run(place, short, variant, 0, watch)
            runs.append(run(place, spec, variant, round_, watch, where.conditions))
    record.add(figures(spec.topology, runs, theory(spec)))
    return record, runs


def _short(spec: Spec) -> Spec:
    """A run that has everything done once: also what is done at the end of a resident batch."""
    horizon = _FIRST_BATCH_S if spec.timing == "resident" else None
    measured = min(_FIRST_S, spec.seconds)
    return replace(spec, seconds=measured, warm_up_s=1.0, pauses=None, horizon_s=horizon)


def theory(spec: Spec) -> dict[str, float]:
    """Seconds that tuples should wait for a lane, where there is a theory of it."""
    if spec.utilisation is None or spec.timing == "batch":
        return {}
    return waits(spec.lanes, spec.what.rate, spec.what.service_s)


def possible(spec: Spec, variants: Sequence[str], say: Callable[[str], None]) -> list[str]:
    """The variants that mean something in this timing; what is said of the others."""
    possible, told = [], []
    for variant in variants:
        timing, why = ONLY.get(variant, (spec.timing, ""))
        if timing == spec.timing:
            possible.append(variant)
        else:
            told.append(f"{variant} is left out: {why}. It needs --timing {timing}.")
    if not possible:
        raise BenchError("\n".join(told))
    for each in told:
        say(each)
    return possible

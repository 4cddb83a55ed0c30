"""``taut bench queries``: many windowed queries on one Spark, policy against policy."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from taut.bench.place import spark_session
from taut.bench.queries.figures import Run, figures
from taut.bench.queries.run import Spec, Watcher, run, warm_jvm
from taut.bench.record import BenchError, Record
from taut.bench.rounds import order


def bench(
    spec: Spec,
    policies: Sequence[str],
    rounds: int,
    watch: Watcher,
    warm_with: int | None = None,
) -> tuple[Record, list[Run]]:
    """Run every policy in every round, in one JVM; give the record and the runs behind it.

    The JVM is warmed up with all queries, or with ``warm_with`` of them.
    """
    if not policies or len(set(policies)) != len(policies):
        raise BenchError(f"policies {','.join(policies)!r}: name each once, as in 'a,b,c'")
    if rounds < 1 or spec.queries < 1 or spec.seconds <= 0:
        raise BenchError(
            f"rounds={rounds}, queries={spec.queries}, seconds={spec.seconds}: "
            "all must be above zero"
        )
    record = Record("queries", _options(spec, policies, rounds))
    runs: list[Run] = []
    with spark_session() as place:
        record.options["jvm_warm_up_s"] = round(
            warm_jvm(place, replace(spec, queries=warm_with or spec.queries), watch), 1
        )
        for round_, policy in order(policies, rounds):
            runs.append(run(place, spec, policy, round_, watch))
    record.options["warm_up_s"] = {
        policy: [round(r.warm_up_s, 1) for r in runs if r.policy == policy] for policy in policies
    }
    record.add(figures(spec.workload, spec.queries, runs))
    return record, runs


def write_latencies(path: Path, runs: Sequence[Run]) -> None:
    """Every due window as a line; one that never came has no latency."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["round", "policy", "query", "end_ms", "latency_s"])
        for each in runs:
            for sample in each.samples:
                late = "" if sample.latency_s is None else f"{sample.latency_s:.4f}"
                table.writerow([each.round, each.policy, sample.query, sample.end_ms, late])


def _options(spec: Spec, policies: Sequence[str], rounds: int) -> dict[str, object]:
    return {
        "workload": spec.workload,
        "queries": spec.queries,
        "window_s": spec.window_s,
        "seconds": spec.seconds,
        "policies": list(policies),
        "rounds": rounds,
        "rate": spec.rows_per_s,
        "concurrency": spec.concurrency,
        "slo": spec.slo,
        "grace_s": spec.grace,
        "warm_up_bound_s": spec.warm_up_bound,
    }

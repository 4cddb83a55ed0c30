"""What each setting of ``taut.session`` does to the time of one micro-batch.

One windowed count (1,000 rows/s, 100 keys, 2 s windows) as fast as it goes. Every variant runs in
a Spark of its own, all variants once per round, in a new order each round; a number is the median
over the rounds of the median over a run's batches. "quiet" is the tenth percentile of the batches:
on a machine with other work on it, the better guess at what the batch itself costs. "cpu" is the
CPU time of the JVM and of the processes it started, per batch: least disturbed by other work.

    python benchmarks/session_settings.py --rounds 3 --seconds 10
    python benchmarks/session_settings.py --only tuned --only spark
    python benchmarks/session_settings.py --queries 4 --only tuned --only 'tuned, fair'
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from taut.spark.session import CHECKSUMS, SETTINGS, defaults, session

PARTS = ("triggerExecution", "addBatch", "walCommit", "commitOffsets", "queryPlanning")
COLUMNS = (PARTS[0], "quiet", "cpu", *PARTS[1:])
MEASURED = tuple(
    s.key for s in SETTINGS if s.key.startswith(("spark.sql.streaming.", "spark.taut."))
)
STREAMING = "spark.sql.streaming"

# Set on top of the tuned settings. None is a default: docs/session.md says what is known of each.
CANDIDATES: dict[str, dict[str, str]] = {
    "HDFS-backed state": {
        f"{STREAMING}.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
        "HDFSBackedStateStoreProvider"
    },
    "no row counting": {f"{STREAMING}.stateStore.rocksdb.trackTotalNumberOfRows": "false"},
    "1 partition": {"spark.sql.shuffle.partitions": "1"},
    "no whole-stage codegen": {"spark.sql.codegen.wholeStage": "false"},
    "no codegen": {
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    },
    "no adaptive execution": {"spark.sql.adaptive.enabled": "false"},
    "vfork": {"spark.driver.extraJavaOptions": "-Djdk.lang.Process.launchMechanism=VFORK"},
    "parallel GC": {"spark.driver.extraJavaOptions": "-XX:+UseParallelGC"},
    "driver 4g": {"spark.driver.memory": "4g"},
    "no purge thread": {f"{STREAMING}.asyncLogPurge.enabled": "false"},
    "polling 100 ms": {f"{STREAMING}.pollingDelay": "100ms"},
    "maintenance 10 min": {f"{STREAMING}.stateStore.maintenanceInterval": "600s"},
    "no shuffle compression": {
        "spark.shuffle.compress": "false",
        "spark.shuffle.spill.compress": "false",
        "spark.broadcast.compress": "false",
    },
    "no context cleaner": {"spark.cleaner.referenceTracking": "false"},
    "no commit validation": {f"{STREAMING}.stateStore.commitValidation.enabled": "false"},
    "UI on": {"spark.ui.enabled": "true"},
    "fair": {"spark.scheduler.mode": "FAIR"},
}


@dataclass(frozen=True)
class Variant:
    """A name, and the whole configuration of one run."""

    name: str
    conf: Mapping[str, str] = field(hash=False)


def variants(master: str) -> list[Variant]:
    tuned = defaults(master)
    partitions = {"spark.sql.shuffle.partitions": tuned["spark.sql.shuffle.partitions"]}
    found = [
        Variant("tuned", tuned),
        Variant("spark", {}),
        Variant("spark, few partitions", partitions),
    ]
    for key in MEASURED:
        without = {k: v for k, v in tuned.items() if k != key}
        found.append(Variant(f"tuned without {_short(key)}", without))
        found.append(
            Variant(f"spark, few partitions, with {_short(key)}", partitions | {key: tuned[key]})
        )
    found += [Variant(f"tuned, {name}", tuned | more) for name, more in CANDIDATES.items()]
    return found


def _short(key: str) -> str:
    return "checksums off" if key == CHECKSUMS else key.removeprefix("spark.sql.streaming.")


def measure(master: str, conf: Mapping[str, str], seconds: float, queries: int) -> dict[str, float]:
    """Run the query, or several of it, under exactly ``conf`` and take the medians."""
    from pyspark.sql import functions as F

    everything = set(defaults(master))
    spark = session(master, "settings", conf=_only(conf, everything))
    running = []
    for number in range(queries):
        rows = spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
        counts = (
            rows.withWatermark("timestamp", "0 seconds")
            .groupBy(F.window("timestamp", "2 seconds"), (F.col("value") % 100).alias("key"))
            .agg(F.count("*").alias("rows"))
        )
        running.append(
            counts.writeStream.queryName(f"q{number}")
            .outputMode("append")
            .option("checkpointLocation", tempfile.mkdtemp(prefix="taut-settings-"))
            .foreachBatch(lambda batch, _: batch.collect())
            .start()
        )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and any(_batch(query) < 15 for query in running):
        time.sleep(0.2)
    before = [_batch(query) for query in running]
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    spent = _cpu_ms(jvm)
    time.sleep(seconds)
    spent = _cpu_ms(jvm) - spent
    progress = [
        event
        for query, first in zip(running, before, strict=True)
        for event in query.recentProgress
        if event["batchId"] > first
    ] or [query.lastProgress for query in running if query.lastProgress]
    found = {
        part: statistics.median(event["durationMs"].get(part, 0) for event in progress)
        for part in PARTS
    }
    whole = sorted(event["durationMs"]["triggerExecution"] for event in progress)
    found["quiet"] = whole[len(whole) // 10]
    found["batches"] = len(progress)
    found["cpu"] = spent / len(progress)
    return found


def _cpu_ms(pid: int) -> float:
    """CPU time of a process and of the children it has waited for; Linux only, else 0."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return 0.0
    fields = stat.read_text().rpartition(")")[2].split()
    return 1000 * sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _batch(query: object) -> int:
    last = query.lastProgress  # type: ignore[attr-defined]
    return int(last["batchId"]) if last else -1


def _only(conf: Mapping[str, str], everything: set[str]) -> dict[str, str]:
    """``conf`` with Spark's own default written out for each of Taut's that it leaves out."""
    spark_says = {
        f"{STREAMING}.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
        "checkpointing.FileContextBasedCheckpointFileManager",
        CHECKSUMS: "true",
        f"{STREAMING}.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state."
        "HDFSBackedStateStoreProvider",
        f"{STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
        "spark.sql.shuffle.partitions": "200",
    }
    return {k: v for k, v in spark_says.items() if k in everything} | dict(conf)


@click.command(help=__doc__)
@click.option("--master", default="local[2]", show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--seconds", default=10.0, show_default=True, help="Measured, after the warm-up.")
@click.option("--queries", default=1, show_default=True, help="Run side by side.")
@click.option("--only", multiple=True, help="A variant, by its full name; may be repeated.")
@click.option("--child", hidden=True)
def main(
    master: str, rounds: int, seconds: float, queries: int, only: tuple[str, ...], child: str | None
) -> None:
    if child is not None:
        print("RESULT " + json.dumps(measure(master, json.loads(child), seconds, queries)))
        sys.stdout.flush()
        os._exit(0)  # waiting for the queries to stop would only cost time
    every = variants(master)
    unknown = set(only) - {v.name for v in every}
    if unknown:
        names = ", ".join(repr(v.name) for v in every)
        raise click.UsageError(f"--only {', '.join(sorted(unknown))}: the variants are {names}")
    chosen = [v for v in every if not only or v.name in only]
    found: dict[str, list[dict[str, float]]] = {v.name: [] for v in chosen}
    for number in range(rounds):
        order = chosen.copy()
        random.Random(number).shuffle(order)
        for variant in order:
            result = _run(variant, master, seconds, queries)
            if result is not None:
                found[variant.name].append(result)
                click.echo(f"# {number} {variant.name}: {result}", err=True)
    _table(found)


def _run(variant: Variant, master: str, seconds: float, queries: int) -> dict[str, float] | None:
    command = [sys.executable, __file__, "--master", master, "--seconds", str(seconds)]
    command += ["--queries", str(queries), "--child", json.dumps(dict(variant.conf))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
    if not lines:
        click.echo(f"{variant.name} failed:\n{done.stderr[-2000:]}", err=True)
        return None
    result: dict[str, float] = json.loads(lines[0].removeprefix("RESULT "))
    return result


def _table(found: Mapping[str, list[dict[str, float]]]) -> None:
    head = "variant, batch ms, quiet, cpu, run, offset log, commit log, planning, batches, runs"
    click.echo(f"| {head.replace(', ', ' | ')} |")
    click.echo("|---" * len(head.split(", ")) + "|")
    for name, runs in found.items():
        if runs:
            cells = [f"{statistics.median(run[part] for run in runs):.0f}" for part in COLUMNS]
            cells += [f"{statistics.median(run['batches'] for run in runs):.0f}", str(len(runs))]
            click.echo(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

import taut
from taut.bench.commands.options import WIDE
from taut.bench.place import Place
from taut.bench.queries.figures import Run, Sample
from taut.bench.queries.measure import bench, write_latencies
from taut.bench.queries.run import Collector, Progress, Spec, run
from taut.bench.queries.show import live, results
from taut.bench.record import BenchError
from taut.cli import main


def test_due_windows_of_all_queries() -> None:
    spec = Spec(queries=4, window_s=4.0)
    due = spec.due(100.0, 108.0)
    assert len(due) == 8
    assert all(100_000 <= end < 108_000 and end % 4_000 == index * 1_000 for index, end in due)


def test_the_first_row_of_a_window_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([104.5, 109.0])
    monkeypatch.setattr("taut.bench.queries.run.time", SimpleNamespace(time=lambda: next(clock)))
    collector = Collector(2)
    batch: Any = SimpleNamespace(collect=lambda: [{"end": datetime.fromtimestamp(104)}])
    collector.sink(1)(batch, 0)
    collector.sink(1)(batch, 1)
    assert collector.sample((1, 104_000)) == Sample(1, 104_000, 0.5)
    assert collector.sample((0, 104_000)) == Sample(0, 104_000, None)
    assert collector.first_after(103.0) == 1
    assert collector.first_after(104.0) == 0


def test_a_query_that_ends_ends_the_run_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stopped: list[float] = []

    class Broken:
        def __init__(self, spark: object, policy: str, trace: bool) -> None: ...

        def start(self, frame: object, **options: Any) -> SimpleNamespace:
            Path(options["checkpoint"]).mkdir(parents=True)
            dead = SimpleNamespace(isActive=False, name="ads-0", exception=lambda: "no disk")
            return SimpleNamespace(query=dead)

        def stop(self, timeout: float) -> None:
            stopped.append(timeout)

    monkeypatch.setattr(taut, "Runtime", Broken)
    spec = SimpleNamespace(
        queries=1,
        window_s=1.0,
        seconds=1.0,
        concurrency=None,
        rows_per_s=1,
        workload="ads",
        slo="p99 <= 1 s",
        warm_up_bound=1.0,
        shown=None,
        what=SimpleNamespace(build=lambda *_: None),
    )
    with pytest.raises(BenchError, match="no disk"):
        run(Place(None, tmp_path), spec, "fcfs", 1, lambda _: None)  # type: ignore[arg-type]
    assert stopped == [30]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("policies", "rounds"), [((), 1), (("a", "a"), 1), (("a",), 0)])
def test_refuses_before_spark_starts(policies: tuple[str, ...], rounds: int) -> None:
    with pytest.raises(BenchError):
        bench(Spec(), policies, rounds, lambda _: None)


def test_latencies_as_csv(tmp_path: Path) -> None:
    runs = [Run("fcfs", 1, (Sample(0, 4_000, 0.25), Sample(1, 5_000, None)), 1.0)]
    write_latencies(tmp_path / "l.csv", runs)
    with (tmp_path / "l.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "round": "1", "policy": "fcfs", "query": "0", "end_ms": "4000", "latency_s": "0.2500",
    }  # fmt: skip
    assert rows[1]["latency_s"] == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_shows_how_a_run_stands(terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=120)
    with live(console) as watch:
        watch(Progress("fcfs", 1, "starting", 0.0))
        watch(Progress("fcfs", 1, "measuring", 5.0, 4, (1.0, 2.0)))
        watch(Progress("fcfs", 1, "stopping", 0.0))
    assert "fcfs" in out.getvalue()
    assert "1.50" in out.getvalue()


def test_the_table_has_a_row_for_each_policy() -> None:
    runs = [Run(policy, 1, (Sample(0, 1, 2.0),), 1.0) for policy in ("spark-default", "fcfs")]
    out = io.StringIO()
    Console(file=out, width=160).print(results("ads", 2, runs, "title"))
    assert "fcfs" in out.getvalue()
    assert "1.0x" in out.getvalue()


@pytest.mark.parametrize(("narrow", "width"), [(True, 80), (False, WIDE)])
def test_the_table_fits_and_tells_what_is_late(narrow: bool, width: int) -> None:
    samples = tuple(Sample(0, end, each) for end, each in enumerate((0.4, 17.0, 16.0, None)))
    work = {"rows": 160_000, "batches": 1_234, "overhead": 0.0112, "objective": 1.0}
    policies = ("spark-default", "least-slack")
    runs = [Run(policy, 1, samples, 1.0, **work) for policy in policies]  # type: ignore[arg-type]
    out = io.StringIO()
    Console(file=out, width=width).print(results("ads", 12, runs, "title", narrow=narrow))
    assert "…" not in out.getvalue()
    assert re.search(r"p99 s +(max s +windows +)?late ", out.getvalue())
    assert "75 %" in out.getvalue()
    assert ("never out" in out.getvalue()) is not narrow


@pytest.mark.parametrize(
    "arguments",
    [
        ["--policies", "fifo"],
        ["--policies", "fcfs,fcfs"],
        ["--window", "5 parsecs"],
        ["--window", "0s"],
        ["--workload", "words"],
        ["--queries", "0"],
    ],
)
def test_wrong_options_are_refused_at_once(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["bench", "queries", *arguments])
    assert done.exit_code == 2
    assert arguments[0] in done.output


@pytest.mark.spark
def test_two_queries_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    files = [tmp_path / name for name in ("q.json", "q.csv", "q.png")]
    done = CliRunner().invoke(
        main,
        [
            *("bench", "queries", "--queries", "2", "--window", "2s", "--seconds", "4"),
            *("--rate", "200", "--rounds", "1", "--policies", "spark-default,least-slack"),
            *("--json", str(files[0]), "--latencies", str(files[1]), "--picture", str(files[2])),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert all(file.stat().st_size > 0 for file in files)
    assert not list(temporary.glob("taut-bench-*"))

    told = json.loads(files[0].read_text())
    assert told["name"] == "queries"
    assert told["options"]["rate"] == 200
    assert set(told["options"]["warm_up_s"]) == {"spark-default", "least-slack"}
    measures = (
        "mean_s", "p50_s", "p90_s", "p99_s", "max_s",
        "windows", "rows", "rows_per_s", "batches", "missed", "late",
    )  # fmt: skip
    expected = {f"ads.2.{p}.{m}" for p in ("spark-default", "least-slack") for m in measures}
    expected |= {f"ratio.least-slack.{m}" for m in ("mean", "p99")}
    expected |= {f"overhead.{p}" for p in ("spark-default", "least-slack")}
    assert set(told["figures"]) == expected
    for policy in ("spark-default", "least-slack"):
        assert told["figures"][f"ads.2.{policy}.windows"] == 4
        assert told["figures"][f"ads.2.{policy}.missed"] == 0
        assert told["figures"][f"ads.2.{policy}.mean_s"] > 0
    assert "least-slack" in done.output

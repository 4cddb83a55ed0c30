from __future__ import annotations

import io
import json
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from tests.bench.lanes import machines_driver
from tests.spark.cluster import process

from taut.bench.cgroup import Hierarchy
from taut.bench.commands.lanes import TOPOLOGIES as TOLD_TOPOLOGIES
from taut.bench.commands.lanes import VARIANTS as TOLD_VARIANTS
from taut.bench.lanes import dispatch
from taut.bench.lanes.dispatch import CASES
from taut.bench.lanes.measure import bench, possible
from taut.bench.lanes.run import Progress
from taut.bench.lanes.show import legend, live
from taut.bench.lanes.spec import VARIANTS, Spec
from taut.bench.record import BenchError
from taut.cli import main
from taut.workloads.topologies import TOPOLOGIES

MEASURES = (
    "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p999_ms", "tuples", "duplicates", "lost", "cost"
)  # fmt: skip


def test_the_command_offers_all_there_is() -> None:
    assert set(TOLD_TOPOLOGIES) == set(TOPOLOGIES)
    assert set(TOLD_VARIANTS) == set(VARIANTS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--variants", "fast"],
        ["--topology", "star"],
        ["--timing", "never"],
        ["--lanes", "0"],
        ["--slow", "1.5"],
        ["--utilisation", "1"],
    ],
)
def test_wrong_options_are_refused_at_once(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["bench", "lanes", *arguments])
    assert done.exit_code == 2
    assert arguments[0] in done.output


@pytest.mark.parametrize(
    ("spec", "variants", "why"),
    [
        (Spec(), ["fast"], "variants 'fast': name each once"),
        (Spec(), [], "name each once"),
        (Spec(), ["shared", "shared"], "name each once"),
        (Spec(timing="resident"), ["speculation"], "It needs --timing batch"),
        (Spec(timing="batch"), ["two-choices"], "It needs --timing resident"),
        (Spec("balance-b", "resident", lanes=8), ["default"], "lanes=8: balance-b needs 5"),
    ],
)
def test_what_cannot_run_is_refused(spec: Spec, variants: list[str], why: str) -> None:
    with pytest.raises(BenchError, match=why):
        bench(spec, variants, 1, lambda _: None)


def test_what_means_nothing_in_a_timing_is_left_out_and_told() -> None:
    told: list[str] = []
    resident = Spec(timing="resident")
    variants = ["default", "speculation", "shared"]
    assert possible(resident, variants, told.append) == ["default", "shared"]
    assert [line[:26] for line in told] == ["speculation is left out: r"]
    assert possible(Spec(), ["speculation", "two-choices"], told.append) == ["speculation"]


def test_the_legend_tells_what_was_done_to_lanes() -> None:
    told = " ".join(legend(Spec.of("exclamation", timing="resident"), []))
    assert "paused, each about every 3.5 s for 60 ms" in told
    assert "No batch ended" in told
    told = " ".join(legend(Spec.of("queue", timing="resident", utilisation=0.78), []))
    assert "M/M/c" in told
    assert "paused" not in told


@pytest.mark.parametrize("terminal", [True, False])
def test_shows_how_a_run_stands(terminal: bool) -> None:
    out = io.StringIO()
    terminals = {"TERM": "xterm"}
    console = Console(file=out, force_terminal=terminal, width=120, _environ=terminals)
    with live(console) as watch:
        watch(Progress("shared", 1, "measuring", 5.0, 4_000))
    assert "shared: measuring, 4,000 outputs written" in out.getvalue()


def figures_of(variant: str, *more: str, topology: str = "exclamation") -> set[str]:
    return {f"{topology}.{variant}.{name}" for name in (*MEASURES, *more)}


def ratios_of(variant: str, *more: str) -> set[str]:
    return {f"ratio.{variant}.{name}" for name in ("mean", "p90", "p99", "p999", *more)}


@pytest.mark.spark
@pytest.mark.parametrize("timing", ["batch", "resident"])
def test_two_lanes_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timing: str) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    file = tmp_path / "lanes.json"
    done = CliRunner().invoke(
        main,
        [
            *("bench", "lanes", "--topology", "exclamation", "--timing", timing, "--lanes", "2"),
            *("--rate", "200", "--seconds", "2", "--rounds", "1", "--warm-up", "1"),
            *("--variants", "default,shared,speculation" if timing == "resident" else "default"),
            *("--json", str(file), "--picture", str(tmp_path / "lanes.png")),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert not list(temporary.glob("taut-bench-*"))
    told = json.loads(file.read_text())
    assert told["name"] == "lanes"
    assert told["options"]["rate"] == 200
    assert told["options"]["timing"] == timing
    variants = ("default",)
    expected = figures_of("default")
    if timing == "resident":
        variants = ("default", "shared")
        expected |= figures_of("shared") | ratios_of("shared", "queue")
        expected |= {f"exclamation.{variant}.queue_ms" for variant in variants}
        assert "speculation is left out" in done.output
        assert told["options"]["pauses"] == {"every_s": 3.5, "mean_s": 0.06}
    # on a slow machine no batch may begin in the two seconds that are measured
    batches = {"exclamation.default.batch_ms"} if timing == "batch" else set()
    assert set(told["figures"]) - batches == expected
    for variant in variants:
        assert 300 < told["figures"][f"exclamation.{variant}.tuples"] < 500
        for none in ("duplicates", "lost", "cost"):
            assert told["figures"][f"exclamation.{variant}.{none}"] == 0
    assert (tmp_path / "lanes.png").exists()


@pytest.mark.spark
def test_two_branches_under_pauses_and_replay_for_real(tmp_path: Path) -> None:
    file = tmp_path / "lanes.json"
    done = CliRunner().invoke(
        main,
        [
            *("bench", "lanes", "--topology", "processing", "--timing", "resident"),
            *("--lanes", "2", "--rate", "100", "--seconds", "3", "--rounds", "1"),
            *("--warm-up", "1", "--variants", "replicate-100", "--pauses", "500ms,50ms"),
            *("--json", str(file), "--picture", str(tmp_path / "lanes.png")),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert "no lane was paused" not in done.output
    told = json.loads(file.read_text())["figures"]
    assert set(told) == figures_of("replicate-100", "queue_ms", topology="processing")
    assert told["processing.replicate-100.duplicates"] == 0
    assert told["processing.replicate-100.lost"] == 0
    assert 0.5 < told["processing.replicate-100.cost"] <= 1
    assert (tmp_path / "lanes-cost.png").exists()


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_unequal_machines_and_copies_for_real(tmp_path: Path) -> None:
    """On a cluster, so in a process of its own: the one of the tests has its Spark already."""
    try:
        Hierarchy.find()
    except BenchError as error:
        pytest.skip(str(error))
    with process(
        tmp_path, "driver", sys.executable, machines_driver.__file__, str(tmp_path)
    ) as own:
        code = own.wait(timeout=500)
    assert code == 0, (tmp_path / "driver.log").read_text()[-4_000:]
    told = json.loads((tmp_path / "lanes.json").read_text())
    assert [machine["rivals"] for machine in told["options"]["machines"]] == [1, 0]
    assert told["options"]["speculation"]["spark.speculation"] == "true"
    assert figures_of("speculation", topology="balance-b") <= set(told["figures"])
    assert told["figures"]["balance-b.speculation.duplicates"] == 0
    assert told["figures"]["balance-b.speculation.lost"] == 0


@pytest.mark.spark
def test_what_dealing_out_costs_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: replace(case, rows=min(case.rows, 2_000)) for name, case in CASES.items()}
    monkeypatch.setattr(dispatch, "CASES", few)
    file = tmp_path / "dispatch.json"
    command = ["bench", "lanes", "--topology", "dispatch", "--lanes", "1", "--rounds", "1"]
    done = CliRunner().invoke(main, [*command, "--json", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = json.loads(file.read_text())["figures"]
    # a difference of two times, which may be anything where other work goes on beside
    assert math.isfinite(told["dispatch.chunk_us"])
    assert "dispatch.chunk_us" in done.output

from __future__ import annotations

import io
import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from taut.bench.commands import TOPOLOGIES as TOLD_TOPOLOGIES
from taut.bench.commands import VARIANTS as TOLD_VARIANTS
from taut.bench.lanes import dispatch
from taut.bench.lanes.dispatch import CASES
from taut.bench.lanes.measure import bench
from taut.bench.lanes.run import VARIANTS, Progress, Spec
from taut.bench.lanes.show import live
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
    ],
)
def test_wrong_options_are_refused_at_once(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["bench", "lanes", *arguments])
    assert done.exit_code == 2
    assert arguments[0] in done.output


@pytest.mark.parametrize(
    ("spec", "variants", "why"),
    [
        ({"topology": "star"}, ["default"], "topology 'star': one of exclamation, queue"),
        ({"timing": "never"}, ["default"], "timing 'never': one of batch, resident"),
        ({"timing": "resident", "batch": 5}, ["default"], "only with timing 'batch'"),
        ({}, ["fast"], "variants 'fast': name each once"),
        ({}, [], "name each once"),
        ({"lanes": 0}, ["default"], "lanes=0"),
    ],
)
def test_what_cannot_run_is_refused(spec: dict[str, object], variants: list[str], why: str) -> None:
    with pytest.raises(BenchError, match=why):
        bench(Spec(**spec), variants, 1, lambda _: None)  # type: ignore[arg-type]


@pytest.mark.parametrize("terminal", [True, False])
def test_shows_how_a_run_stands(terminal: bool) -> None:
    out = io.StringIO()
    terminals = {"TERM": "xterm"}
    console = Console(file=out, force_terminal=terminal, width=120, _environ=terminals)
    with live(console) as watch:
        watch(Progress("shared", 1, "measuring", 5.0, 4_000))
    assert "shared: measuring, 4,000 tuples written" in out.getvalue()


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
            *("--json", str(file)),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert not list(temporary.glob("taut-bench-*"))
    told = json.loads(file.read_text())
    assert told["name"] == "lanes"
    assert told["options"]["rate"] == 200
    assert told["options"]["timing"] == timing
    expected = {f"exclamation.{v}.{m}" for v in ("default", "shared") for m in MEASURES}
    expected |= {f"ratio.shared.{m}" for m in ("p99", "p999")}
    # on a slow machine no batch may begin in the two seconds that are measured
    batches = {f"exclamation.{v}.batch_ms" for v in ("default", "shared")} | {"ratio.shared.batch"}
    assert set(told["figures"]) - (batches if timing == "batch" else set()) == expected
    for variant in ("default", "shared"):
        assert 300 < told["figures"][f"exclamation.{variant}.tuples"] < 500
        for none in ("duplicates", "lost", "cost"):
            assert told["figures"][f"exclamation.{variant}.{none}"] == 0
    assert "shared" in done.output


@pytest.mark.spark
def test_what_dealing_out_costs_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = {name: replace(case, rows=min(case.rows, 2_000)) for name, case in CASES.items()}
    monkeypatch.setattr(dispatch, "CASES", few)
    file = tmp_path / "dispatch.json"
    command = ["bench", "lanes", "--topology", "dispatch", "--lanes", "1", "--rounds", "1"]
    done = CliRunner().invoke(main, [*command, "--json", str(file)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = json.loads(file.read_text())["figures"]
    assert told["dispatch.chunk_us"] > 0
    assert "dispatch.chunk_us" in done.output

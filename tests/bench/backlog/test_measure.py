from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from taut.bench.backlog.measure import bench
from taut.bench.backlog.run import VARIANTS, Progress, Spec
from taut.bench.backlog.show import live
from taut.bench.commands.backlog import VARIANTS as TOLD_VARIANTS
from taut.bench.record import BenchError
from taut.cli import main
from taut.policy.backlog import ADMISSIONS

MEASURES = ("max_backlog", "mean_delay_ms", "p99_delay_ms", "rows", "rows_per_s", "lost")


def test_the_command_offers_all_there_is() -> None:
    assert set(TOLD_VARIANTS) == set(VARIANTS) == set(ADMISSIONS)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--variants", "fast"],
        ["--partitions", "0"],
        ["--skew", "0.5"],
        ["--rate", "0"],
        ["--seconds", "0"],
        ["--trigger", "0"],
    ],
)
def test_wrong_options_are_refused_at_once(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["bench", "backlog", *arguments])
    assert done.exit_code == 2
    assert arguments[0] in done.output


@pytest.mark.parametrize(
    ("spec", "variants", "why"),
    [
        ({}, ["fast"], "variants 'fast': name each once"),
        ({}, [], "name each once"),
        ({}, ["round-robin", "round-robin"], "name each once"),
        ({"partitions": 0}, ["round-robin"], "partitions=0"),
        ({"seconds": 0.0}, ["round-robin"], "seconds=0.0"),
        ({"trigger_s": 0.0}, ["round-robin"], "trigger=0.0"),
        ({"skew": 0.5}, ["round-robin"], "skew=0.5: must be 1"),
    ],
)
def test_what_cannot_run_is_refused(spec: dict[str, object], variants: list[str], why: str) -> None:
    with pytest.raises(BenchError, match=why):
        bench(Spec(**spec), variants, 1, lambda _: None)  # type: ignore[arg-type]


def test_a_batch_may_take_less_than_arrives() -> None:
    spec = Spec(rate=1_000, seconds=20.0, trigger_s=0.5)
    assert (spec.total, spec.budget, spec.drain_s) == (20_000, 400, 5.0)


@pytest.mark.parametrize("terminal", [True, False])
def test_shows_how_a_run_stands(terminal: bool) -> None:
    out = io.StringIO()
    terminals = {"TERM": "xterm"}
    console = Console(file=out, force_terminal=terminal, width=120, _environ=terminals)
    with live(console) as watch:
        watch(Progress("round-robin", 1, "arriving", 5.0, 4_000, 9_000))
    assert "round 1, round-robin: arriving, 4,000 of 9,000 rows written" in out.getvalue()


@pytest.mark.spark
def test_two_ways_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    file, drawn = tmp_path / "backlog.json", tmp_path / "backlog.png"
    variants = ("proportional", "largest-backlog")
    done = CliRunner().invoke(
        main,
        [
            *("bench", "backlog", "--partitions", "8", "--skew", "10", "--seconds", "8"),
            *("--rate", "500", "--rounds", "1", "--variants", ",".join(variants)),
            *("--json", str(file), "--picture", str(drawn)),
        ],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert not list(temporary.glob("taut-bench-*"))
    told = json.loads(file.read_text())
    assert told["name"] == "backlog"
    assert told["options"]["max_offsets_per_trigger"] == 400
    expected = {f"{v}.{m}" for v in variants for m in MEASURES}
    assert set(told["figures"]) == expected | {"ratio.largest-backlog.max_backlog"}
    for variant in variants:
        assert told["figures"][f"{variant}.rows"] == 4_000
        assert told["figures"][f"{variant}.lost"] == 0
        assert 0 < told["figures"][f"{variant}.max_backlog"] < 4_000
        assert told["figures"][f"{variant}.mean_delay_ms"] > 0
        assert variant in done.output
    assert drawn.read_bytes().startswith(b"\x89PNG")

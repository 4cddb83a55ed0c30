"""The experiments: they run, they repeat, and predict what the fits have not seen."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from taut.cli import main
from taut.sim.papers import EXPERIMENTS, Effort, Found
from taut.sim.papers.calibrate import CASES, Case, fit, fits
from taut.sim.papers.experiment import Figures
from taut.sim.papers.measured import Histogram, histograms
from taut.sim.papers.show import grids
from taut.sim.papers.storm import Fit
from taut.sim.papers.tails import REPLAYS
from taut.sim.speed import EXPERIMENTS as SELF


@cache
def found_by(name: str, scale: float = 1.0) -> Found:
    """What an experiment shows; several tests look at the same run."""
    return {**EXPERIMENTS, **SELF}[name].run(Effort(scale=scale))


def quick(name: str) -> Found:
    return found_by(name, 0.02)


@pytest.mark.parametrize("name", [*EXPERIMENTS, *SELF])
def test_every_experiment_has_finite_figures(name: str) -> None:
    experiment = {**EXPERIMENTS, **SELF}[name]
    found = quick(name)
    told = [value for figures in found.figures.values() for value in figures.values()]
    assert told
    assert all(math.isfinite(value) for value in told)
    assert all(len(x) == len(y) > 0 for x, y in found.curves.values())
    assert all(name.startswith(f"{experiment.name}.") for name in experiment.flat(found))
    assert grids(experiment, found)


@pytest.mark.parametrize(
    "name",
    ["timeout", "balance-b", "slack-nodes", "slack-spark", "backlog-interval", "deadline-cold"],
)
def test_the_same_seed_gives_the_same_figures(name: str) -> None:
    same, other = (EXPERIMENTS[name].run(Effort(seed, 0.02)) for seed in (1, 2))
    first = quick(name)
    assert first.figures == same.figures
    assert first.figures != other.figures


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_was_published_is_simulated_or_explained(name: str) -> None:
    experiment = EXPERIMENTS[name]
    figures = quick(name).figures
    for variant, told in experiment.published.items():
        for figure in told:
            # where lines do not cross there is nothing to say
            assert figure in figures.get(variant, {}) or variant == "crossing", (variant, figure)
    assert experiment.published or experiment.absent or name == "slack-spark"


# Predictions


@pytest.mark.parametrize("variant", REPLAYS)
def test_p99_of_replays_is_predicted_within_15_percent(variant: str) -> None:
    published = EXPERIMENTS["timeout"].published[variant]["p99_ms"]
    assert found_by("timeout").figures[variant]["p99_ms"] == pytest.approx(published, rel=0.15)


def test_variants_of_replay_are_in_the_order_published() -> None:
    def in_order(figures: Figures) -> list[str]:
        return sorted(REPLAYS, key=lambda variant: figures[variant]["p99_ms"])

    found = found_by("timeout").figures
    assert in_order(found) == in_order(EXPERIMENTS["timeout"].published)
    assert found["timeout"]["cost"] < 0.04


def test_waits_are_those_of_mmc() -> None:
    waiting, found = EXPERIMENTS["waiting"], found_by("waiting")
    for key, told in waiting.published.items():
        # a wait of less than 10 us is that of a handful of tuples
        if told["queue_ms"] > 0.01:
            assert found.figures[key]["queue_ms"] == pytest.approx(told["queue_ms"], rel=0.1)


def test_a_shared_queue_is_shorter_by_as_much_as_measured() -> None:
    found = found_by("queue").figures
    published = EXPERIMENTS["queue"].published
    measured = published["default"]["queue_ms"] / published["shared"]["queue_ms"]
    simulated = found["default"]["queue_ms"] / found["shared"]["queue_ms"]
    assert simulated == pytest.approx(measured, rel=0.2)
    assert all(found["shared"][f"p{p}_lower_percent"] > 0.0 for p in ("90", "99", "999"))


@pytest.mark.parametrize(("letter", "within"), [("a", 0.2), ("b", 0.2), ("c", 0.3)])
def test_p99_under_balance_is_predicted(letter: str, within: float) -> None:
    """Within 20 %; (c) is further off, and its table says so."""
    experiment, found = EXPERIMENTS[f"balance-{letter}"], found_by(f"balance-{letter}")
    published = experiment.published["balance"]["p99_ms"]
    assert found.figures["balance"]["p99_ms"] == pytest.approx(published, rel=within)
    assert (within > 0.2) == any("below what was measured" in note for note in found.notes)
    assert found.figures["balance"]["p99_ms"] < found.figures["default"]["p99_ms"]
    assert found.figures["balance"]["p999_ms"] < found.figures["default"]["p999_ms"]
    assert set(found.more) == {"load", "latency"}


@pytest.mark.parametrize("name", [n for n in EXPERIMENTS if n.startswith(("page", "process"))])
def test_every_technique_shortens_the_tail_of_pages(name: str) -> None:
    (variant,) = EXPERIMENTS[name].published
    told = found_by(name, 0.1).figures[variant]
    assert all(told[figure] > 0.0 for figure in EXPERIMENTS[name].published[variant])


# Calibration


def test_a_fit_finds_what_a_histogram_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    # with pauses so often that a short run has many
    fixed = {"every": 0.5, "length_scv": 0.5, "spout_every": 1.0, "hop_scv": 0.3}
    made = Fit(hop=0.002, length=0.03, **fixed)
    build = CASES["timeout"].topologies["micro/timeout"]
    truth = build(made).run(60.0, warm_up=2.0, seed=9)
    ms = (truth.latencies * 1e3).astype(int)
    counts = {value: int((ms == value).sum()) for value in set(ms.tolist())}
    told = {("x", "default"): Histogram(*zip(*sorted(counts.items()), strict=True))}
    monkeypatch.setattr("taut.sim.papers.calibrate.histograms", lambda: told)
    case = Case(
        {"x": build}, {"hop": 0.001, "length": 0.02}, fixed=fixed, seconds=20.0, evaluations=30
    )
    tried: list[int] = []
    found = fit(case, 1, {}, lambda n, _: tried.append(n))["x"]
    assert tried == list(range(1, len(tried) + 1))
    assert found.hop == pytest.approx(made.hop, rel=0.1)
    assert found.length == pytest.approx(made.length, rel=0.15)


def test_everything_fitted_is_kept() -> None:
    wanted = {name for case in CASES.values() for name in case.topologies}
    assert wanted == set(fits())
    assert all((name, "default") in histograms() for name in wanted)


@pytest.mark.parametrize("name", CASES)
def test_what_is_not_fitted_is_what_it_was_taken_from(name: str) -> None:
    case, first = CASES[name], fits()["micro/timeout"]
    for experiment in case.topologies:
        made = fits()[experiment]
        free = {*case.common, *case.own.get(experiment, {})}
        for known, value in case.fixed.items():
            assert known in free or getattr(made, known) == value, known
        if case.in_proportion:
            assert made.spout_every / made.every == pytest.approx(first.spout_every / first.every)
        for known in set(case.like) - free - ({"spout_every"} if case.in_proportion else set()):
            assert getattr(made, known) == getattr(first, known), known
        for other in case.topologies:
            assert all(getattr(made, k) == getattr(fits()[other], k) for k in case.common)


def test_quantiles_of_a_histogram() -> None:
    even = Histogram(tuple(range(10)), (10,) * 10)
    assert [even.quantile(q) for q in (0.05, 0.5, 1.0)] == pytest.approx([0.0005, 0.005, 0.01])


# The command


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["simulate", *arguments])
    assert done.exit_code == 0, done.output
    return done.output


def test_the_command_lists_experiments() -> None:
    listed = run("--list")
    assert all(name in listed for name in EXPERIMENTS)
    assert run() == listed


def test_the_command_writes_figures_pictures_and_a_page(tmp_path: Path) -> None:
    page, figures, folder = tmp_path / "p.md", tmp_path / "f.json", tmp_path / "pictures"
    output = run(
        "balance-c", "--scale", "0.02", "--json", str(figures), "--page", str(page),
        "--pictures", str(folder),
    )  # fmt: skip
    assert "simulated" in output
    told = json.loads(figures.read_text())
    assert told["name"] == "balance-c"
    names = set(told["figures"])
    assert {"balance-c.balance.p99_ms", "balance-c.published.balance.p99_ms"} <= names
    written = page.read_text()
    assert "| variant | figure | simulated | published | apart |" in written
    for picture in ("balance-c", "balance-c-load", "balance-c-latency"):
        assert (folder / f"{picture}.png").stat().st_size > 1_000
        assert f"(pictures/{picture}.png)" in written


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nothing"], "'nothing': all, calibrate, or one of timeout"),
        (["all", "--picture", "x.png"], "--pictures FOLDER"),
        (["timeout", "--scale", "0"], "0.01"),
        (["timeout", "--seed", "-1"], "-1"),
        (["calibrate", "--scale", "0.5"], "no option but --seed"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(main, ["simulate", *arguments])
    assert done.exit_code == 2
    assert told in done.output

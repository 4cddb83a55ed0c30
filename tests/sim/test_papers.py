"""The experiments: they run, they repeat, and predict what the fits have not seen."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from taut.cli import main
from taut.sim import speed
from taut.sim.papers import EXPERIMENTS, Effort, Found
from taut.sim.papers.calibrate import CASES, Case, fit, fits
from taut.sim.papers.measured import Histogram, histograms
from taut.sim.papers.show import grids
from taut.sim.papers.storm import Fit
from taut.sim.papers.tails import REPLAYS
from taut.sim.speed import EXPERIMENTS as SELF

QUICK = Effort(scale=0.02)


@pytest.mark.parametrize("name", [*EXPERIMENTS, *SELF])
def test_every_experiment_has_finite_figures(name: str) -> None:
    experiment = {**EXPERIMENTS, **speed.EXPERIMENTS}[name]
    found = experiment.run(QUICK)
    told = [value for figures in found.figures.values() for value in figures.values()]
    assert told
    assert all(math.isfinite(value) for value in told)
    assert all(len(x) == len(y) > 0 for x, y in found.curves.values())
    assert all(name.startswith(f"{experiment.name}.") for name in experiment.flat(found))
    assert grids(experiment, found)


@pytest.mark.parametrize("name", ["timeout", "balance-b", "slack-lrb", "deadline-cold"])
def test_the_same_seed_gives_the_same_figures(name: str) -> None:
    first, same, other = (EXPERIMENTS[name].run(Effort(seed, 0.02)) for seed in (1, 1, 2))
    assert first.figures == same.figures
    assert first.figures != other.figures


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_what_was_published_is_simulated_or_explained(name: str) -> None:
    experiment = EXPERIMENTS[name]
    figures = experiment.run(Effort(scale=0.02)).figures
    for variant, told in experiment.published.items():
        for figure in told:
            # where lines do not cross there is nothing to say
            assert figure in figures.get(variant, {}) or variant == "crossing", (variant, figure)
    assert experiment.published or experiment.absent or name == "slack-spark"


# Predictions


@pytest.fixture(scope="module")
def replays() -> Found:
    return EXPERIMENTS["timeout"].run(Effort())


@pytest.mark.parametrize("variant", REPLAYS)
def test_p99_of_replays_is_predicted_within_15_percent(replays: Found, variant: str) -> None:
    published = EXPERIMENTS["timeout"].published[variant]["p99_ms"]
    assert replays.figures[variant]["p99_ms"] == pytest.approx(published, rel=0.15)


def test_the_more_is_replicated_the_shorter_the_tail(replays: Found) -> None:
    p99 = {variant: replays.figures[variant]["p99_ms"] for variant in REPLAYS}
    assert p99["default"] > p99["replicate-20"] > p99["replicate-50"] > p99["replicate-100"]
    assert p99["replicate-20"] > p99["timeout"] > p99["replicate-50"]
    assert replays.figures["timeout"]["cost"] < 0.04


def test_waits_are_those_of_mmc() -> None:
    waiting = EXPERIMENTS["waiting"]
    found = waiting.run(Effort())
    for key, told in waiting.published.items():
        # a wait of less than 10 us is that of a handful of tuples
        if told["queue_ms"] > 0.01:
            assert found.figures[key]["queue_ms"] == pytest.approx(told["queue_ms"], rel=0.1)


def test_a_shared_queue_is_shorter_by_as_much_as_measured() -> None:
    found = EXPERIMENTS["queue"].run(Effort()).figures
    published = EXPERIMENTS["queue"].published
    measured = published["default"]["queue_ms"] / published["shared"]["queue_ms"]
    simulated = found["default"]["queue_ms"] / found["shared"]["queue_ms"]
    assert simulated == pytest.approx(measured, rel=0.2)
    assert all(found["shared"][f"p{p}_lower_percent"] > 0.0 for p in ("90", "99", "999"))


@pytest.mark.parametrize("letter", "abc")
def test_p99_under_balance_is_predicted_within_20_percent(letter: str) -> None:
    experiment = EXPERIMENTS[f"balance-{letter}"]
    found = experiment.run(Effort())
    published = experiment.published["balance"]["p99_ms"]
    assert found.figures["balance"]["p99_ms"] == pytest.approx(published, rel=0.2)
    assert found.figures["balance"]["p99_ms"] < found.figures["default"]["p99_ms"]
    assert found.figures["balance"]["p999_ms"] < found.figures["default"]["p999_ms"]
    assert set(found.more) == {"load", "latency"}


def test_least_slack_is_ahead_near_saturation() -> None:
    found = EXPERIMENTS["slack-ysb"].run(Effort(scale=0.3)).figures
    means = {
        key.split("/")[1]: told["mean_s"] for key, told in found.items() if key.startswith("60/")
    }
    others = [mean for name, mean in means.items() if name in ("default", "fcfs", "round-robin")]
    assert means["least-slack"] < 0.8 * min(others)


def test_the_most_backlogged_queue_first() -> None:
    best = EXPERIMENTS["backlog-rate"].run(Effort()).figures["best"]["lower_percent"]
    assert best == pytest.approx(83.3, abs=3.0)
    best = EXPERIMENTS["backlog-delay-rate"].run(Effort()).figures["best"]["lower_percent"]
    assert best == pytest.approx(89.8, abs=3.0)


@pytest.mark.parametrize("name", [n for n in EXPERIMENTS if n.startswith("deadline")])
def test_cost_aware_is_never_behind(name: str) -> None:
    found = EXPERIMENTS[name].run(Effort(scale=0.5))
    for key, told in found.figures.items():
        point, schedule = key.split("/")
        best = found.figures[f"{point}/cost-aware"]["on_time_percent"]
        assert best >= told["on_time_percent"] - 1e-9, f"{key}: {schedule}"


def test_intervals_hold_what_they_say() -> None:
    for key, told in EXPERIMENTS["slack-interval"].run(Effort()).figures.items():
        wanted = float(key.rpartition("-")[2])
        assert told["inside_percent"] == pytest.approx(wanted, abs=1.5)


# Calibration


def test_a_fit_finds_what_a_histogram_was_made_with(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Fit(hop=0.002, hop_scv=0.3, every=2.0, length=0.05, length_scv=0.5, spout_every=5.0)
    build = CASES["timeout"].topologies["micro/timeout"]
    truth = build(made).run(60.0, warm_up=2.0, seed=9)
    ms = (truth.latencies * 1e3).astype(int)
    counts = {value: int((ms == value).sum()) for value in set(ms.tolist())}
    told = {("x", "default"): Histogram(*zip(*sorted(counts.items()), strict=True))}
    monkeypatch.setattr("taut.sim.papers.calibrate.histograms", lambda: told)
    fixed = {"every": 2.0, "length_scv": 0.5, "spout_every": 5.0, "hop_scv": 0.3}
    case = Case(
        {"x": build}, {"hop": 0.001, "length": 0.03}, fixed=fixed, seconds=30.0, evaluations=40
    )
    tried: list[int] = []
    found = fit(case, 1, {}, lambda n, _: tried.append(n))["x"]
    assert tried == list(range(1, len(tried) + 1))
    assert found.hop == pytest.approx(made.hop, rel=0.05)
    assert found.length == pytest.approx(made.length, rel=0.3)


def test_everything_fitted_is_kept() -> None:
    wanted = {name for case in CASES.values() for name in case.topologies}
    assert wanted == set(fits())
    assert all((name, "default") in histograms() for name in wanted)


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

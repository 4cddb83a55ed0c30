"""From runs to figures, and what a run's latency is."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from tests.planning.synthetic import profile

from taut.bench.plan.beside import Beside
from taut.bench.plan.figures import Compared, Rates, figures
from taut.bench.plan.measure import Spec, Trial, every, point_name, points
from taut.bench.plan.run import Measured, of_rows, of_windows
from taut.bench.plan.show import of_settings, picture, rates_told
from taut.bench.record import BenchError
from taut.cli import main
from taut.planning.phases import fit
from taut.planning.plan import make
from taut.planning.search import Search
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo


def measured(mean: float = 1.0, p99: float = 2.0) -> Measured:
    return Measured(mean, 0.9 * mean, 1.5 * mean, p99, 100)


def batch(rows: int, written: float) -> Any:
    return SimpleNamespace(rows=rows, written=written)


def test_shares_within_bounds_are_counted() -> None:
    near = Compared("l1-r1-t0-10", 10, 1.1, 2.1, measured())
    far = Compared("l1-r1-t0-90", 90, 1.2, 1.5, measured())
    told = figures("words", [near, far], Rates())
    assert told["words.mean_within_15"] == 0.5
    assert told["words.p99_within_20"] == 0.5
    assert told["words.l1-r1-t0-10.predicted_mean_s"] == 1.1
    assert told["words.l1-r1-t0-90.measured_p99_s"] == 2.0
    assert "words.plan_rate" not in told


def test_predictions_for_the_speed_of_the_machine_are_counted_apart() -> None:
    slow = Compared("l1-r1-t0-10", 10, 0.7, 1.4, measured(), speed=0.7, at_speed=(1.0, 2.0))
    fast = Compared("l1-r1-t0-90", 90, 1.0, 2.0, measured(), speed=1.3, at_speed=(0.7, 2.1))
    told = figures("words", [slow, fast], Rates())
    assert (told["words.mean_within_15"], told["words.p99_within_20"]) == (0.5, 0.5)
    assert told["words.l1-r1-t0-10.machine_speed"] == 0.7
    assert told["words.mean_within_15_at_speed"] == 0.5
    assert told["words.p99_within_20_at_speed"] == 1.0


def test_settings_beside_the_plan_are_told_the_best_first() -> None:
    rates = Rates(beside=[Beside(Settings(1, 2), 1.04, 3), Beside(Settings(2, 2), 1.3, 1, True)])
    assert figures("words", [], rates) == {
        "words.best_beside_ratio": 1.04,
        "words.l1-r2-t0.beside_ratio": 1.04,
        "words.l2-r2-t0.beside_ratio": 1.3,
        "words.l2-r2-t0.beside_at_least": 1.0,
    }
    first, second = rates_told(rates)
    assert first == (
        "beside the plan: 1.04 times as late, 1 lane, 2 reducers, batches one after another, "
        "3 rounds"
    )
    assert second.endswith("one round")


def test_rates_that_were_not_measured_are_left_out() -> None:
    held = Rates(plan_rate=100.0, plan_measured=measured(), plan_held=True)
    told = figures("words", [], held)
    assert told == {"words.plan_rate": 100.0, "words.plan_held": 1.0, "words.plan_p99_s": 2.0}
    held.rule, held.rule_rate, held.found_rate = "trigger 0 s", 90.0, 104.0
    told = figures("words", [], held)
    assert told["words.best_rule_of_thumb_rate"] == 90.0
    assert told["words.best_found_rate"] == 104.0
    assert len(rates_told(held)) == 3


def test_rows_wait_for_their_batch() -> None:
    # 10 rows a second from 0 on; those of the first second are out at 2, of the second at 4
    told = of_rows([batch(10, 2.0), batch(10, 4.0)], 0.0, 10, 0.0, 2.0, 9.0)
    assert told.mean == pytest.approx(2.0)
    assert told.p99 == pytest.approx(2.98, abs=0.01)
    assert told.results == 20


def test_rows_that_never_came_out_are_as_late_as_one_waited() -> None:
    told = of_rows([batch(10, 2.0)], 0.0, 10, 0.0, 2.0, 9.0)
    assert told.mean == pytest.approx((1.5 + 7.5) / 2)
    only = of_rows([batch(10, 2.0)], 0.0, 10, 1.0, 2.0, 9.0)
    assert only.mean == pytest.approx(7.5)


def test_what_has_not_come_yet_does_not_make_a_run_late() -> None:
    # ten seconds are measured, and it is second 2: one second is out, one waits, eight are to come
    early = of_rows([batch(10, 1.0)], 0.0, 10, 0.0, 10.0, 2.0)
    assert early.results == 100
    assert early.mean == pytest.approx((0.5 + 0.5 + 8 * 0.0) / 10)
    # a twentieth of all is late already: whatever comes, the p99 is above 1 s
    slow = of_rows([batch(10, 4.0)], 0.0, 10, 0.0, 20.0, 4.0)
    assert slow.of(Slo("p99 <= 1 s")) > 1.0 >= slow.of(Slo("p50 <= 1 s"))
    whole = of_rows([batch(10, 4.0), batch(190, 20.0)], 0.0, 10, 0.0, 20.0, 20.0)
    assert whole.p99 >= slow.p99


def test_windows_that_have_not_ended_do_not_make_a_run_late() -> None:
    told = of_windows({10.0: 11.0}, 9.5, 15.5, 13.0)
    assert told.results == 6
    assert told.p50 == 0.0
    assert told.p99 == 2.0
    assert of_windows({10.0: 11.0}, 9.5, 15.5, 16.0).p99 == 5.0


def test_windows_are_late_from_their_end_on() -> None:
    told = of_windows({10.0: 11.0, 11.0: 13.0}, 9.5, 12.5, 20.0)
    assert told.results == 3
    assert told.mean == pytest.approx((1.0 + 2.0 + 8.0) / 3)
    assert told.p99 == 8.0
    with pytest.raises(BenchError, match="no window ended"):
        of_windows({}, 9.2, 9.5, 20.0)


def test_an_objective_that_is_not_measured_is_refused() -> None:
    assert measured().of(Slo("p99 <= 1 s")) == 2.0
    with pytest.raises(BenchError, match="mean, p50, p90 or p99"):
        measured().of(Slo("p95 <= 1 s"))


def test_points_go_from_a_tenth_to_nine_tenths() -> None:
    search = Search(fit(profile()), Slo("p99 <= 2 s"))
    cluster = Cluster(1, 2)
    found = list(points(search, cluster, 20))
    assert {share for _, _, share in found} == {0.1, 0.3, 0.5, 0.7, 0.9}
    assert len({point_name(settings, share) for settings, _, share in found}) == 20
    for settings, rate, share in found:
        most = search.highest(settings, cluster) or search.ceiling(settings, cluster) / 2
        assert rate == pytest.approx(share * most, rel=0.01)
    assert Settings(4, 4) in every(cluster)


def test_shown(tmp_path: Path) -> None:
    from rich.console import Console

    compared = [Compared("l1-r1-t0-10", 10, 1.1, 2.1, measured())]
    console = Console(width=124, record=True)
    console.print(of_settings("words", compared))
    assert "+10 %" in console.export_text()
    picture(tmp_path / "plan.svg", "words", compared)
    assert (tmp_path / "plan.svg").stat().st_size > 1_000


def test_wrong_options_are_refused() -> None:
    told = CliRunner().invoke(main, ["bench", "plan", "--slo", "soon"])
    assert told.exit_code == 2
    assert "is not an objective" in told.output


@pytest.mark.parametrize("start", [20.0, 95.0, 400.0])
def test_a_search_by_trying_ends_near_the_highest_rate(
    start: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[float] = []

    def meets(trial: Trial, settings: Settings, rate: float, name: str) -> bool:
        tried.append(rate)
        return rate <= 100.0

    monkeypatch.setattr(Trial, "_meets", meets)
    trial = Trial(None, Spec(), Slo("p99 <= 1 s"), lambda progress: None)  # type: ignore[arg-type]
    assert 100.0 / 1.05 <= trial.climb(Settings(), start, 0.0, "a") <= 100.0
    assert len(tried) <= 13
    tried.clear()
    assert trial.climb(Settings(), 105.0, 100.0, "no better") == 0.0
    assert len(tried) == 1
    assert trial.climb(Settings(), 90.0, 100.0, "not above what is known") == 0.0


def test_what_is_late_at_a_tenth_as_well_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []

    def never(trial: Trial, settings: Settings, rate: float, name: str) -> bool:
        tried.append(rate)
        return False

    monkeypatch.setattr(Trial, "_meets", never)
    trial = Trial(None, Spec(), Slo("p99 <= 1 s"), lambda progress: None)  # type: ignore[arg-type]
    assert trial.climb(Settings(), 100.0, 0.0, "hopeless") == 0.0
    assert tried == pytest.approx([100.0, 100.0 / 1.05, 10.0])


@pytest.mark.parametrize(
    ("held", "holds_up_to"), [(True, 1e9), (True, 1.2), (False, 1.2), (True, 0.0)]
)
def test_what_is_found_has_to_hold_as_long_as_the_plan(
    held: bool, holds_up_to: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In seconds two reducers reach 1.4 times the plan's rate; held for minutes, less."""
    slo = Slo("p99 <= 2 s")
    plan = make(profile(), slo, None, [Cluster(1, 2)])
    most = {1: 1.1, 2: 1.4}
    held_for: list[float] = []

    def ran(
        trial: Trial, settings: Settings, rate: int, seconds: float, name: str, give_up: Any = None
    ) -> Measured:
        if name == "plan":
            return measured(p99=1.9 if held else 2.1)
        bound = most.get(settings.reducers, 0.5) if settings.lanes == 1 else 0.5
        if seconds == trial.spec.hold_s:
            held_for.append(rate)
            bound = min(bound, holds_up_to)
        return measured(p99=1.0 if rate <= bound * plan.rate else 3.0)

    monkeypatch.setattr(Trial, "_run", ran)
    trial = Trial(None, Spec(slo=str(slo)), slo, lambda progress: None)  # type: ignore[arg-type]
    told = trial.rates(Search(fit(profile()), slo), plan, Cluster(1, 2))
    assert told.plan_held == held
    assert told.rule_rate == pytest.approx(0.5 * plan.rate, rel=0.06)
    assert held_for
    if holds_up_to > 1.4:
        assert told.found_rate == pytest.approx(1.4 * plan.rate, rel=0.06)
        assert told.found == "1 lane, 2 reducers, batches one after another"
    elif holds_up_to:
        assert told.found_rate == pytest.approx(1.2 * plan.rate, rel=0.06)
    else:
        assert told.found_rate == plan.rate
        assert told.found is None


@pytest.mark.parametrize(
    ("held", "holds_up_to", "rule_rate", "rule_held"),
    [
        (True, 1.2, 1.2, True),
        (True, 1.1, 1.1, True),
        (True, 0.5, 1 / 1.05, False),
        (False, 0.8, 0.8, True),
        (False, 0.0, 0.6, False),
    ],
)
def test_a_rule_of_thumb_has_to_hold_as_long_as_the_plan(
    held: bool,
    holds_up_to: float,
    rule_rate: float,
    rule_held: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many tasks as cores reach 1.2 times the plan's rate in seconds."""
    slo = Slo("p99 <= 2 s")
    plan = make(profile(), slo, None, [Cluster(1, 2)])

    def ran(
        trial: Trial, settings: Settings, rate: int, seconds: float, name: str, give_up: Any = None
    ) -> Measured:
        if name == "plan":
            return measured(p99=1.9 if held else 2.1)
        bound = 1.2 if settings == Settings(2, 2) else 0.4
        if seconds == trial.spec.hold_s:
            bound = min(bound, holds_up_to)
        return measured(p99=1.0 if rate <= bound * plan.rate else 3.0)

    monkeypatch.setattr(Trial, "_run", ran)
    trial = Trial(None, Spec(slo=str(slo)), slo, lambda progress: None)  # type: ignore[arg-type]
    told = trial.rates(Search(fit(profile()), slo), plan, Cluster(1, 2))
    assert told.rule_rate == pytest.approx(rule_rate * plan.rate, rel=0.06)
    assert told.rule_held == rule_held
    known = max(float(held), rule_rate if rule_held else 0.0)
    assert told.found_rate == pytest.approx(known * plan.rate, rel=0.06)
    said = rates_told(told)
    assert any("thumb: at most " in line for line in said) == (not told.rule_held)


def test_all_settings_and_rules_run_beside_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    slo = Slo("p99 <= 2 s")
    plan = make(profile(), slo, None, [Cluster(1, 2)])
    mine = plan.settings.but(cap=None)
    ran_at: set[int] = set()

    def ran(
        trial: Trial, settings: Settings, rate: int, seconds: float, name: str, give_up: Any = None
    ) -> Measured:
        if name == "plan":
            return measured(p99=1.9)
        ran_at.add(rate)
        # the plan's own is never cut short
        assert (give_up is None) == (settings == mine)
        return measured(p99=1.0 if settings == mine else 1.2 if settings.lanes == 1 else 4.5)

    monkeypatch.setattr(Trial, "_run", ran)
    spec = Spec(slo=str(slo), search=False, beside=True)
    trial = Trial(None, spec, slo, lambda progress: None)  # type: ignore[arg-type]
    told = trial.rates(Search(fit(profile()), slo), plan, Cluster(1, 2)).beside
    assert ran_at == {round(0.9 * plan.rate)}
    assert mine not in (tried := {each.settings for each in told})
    assert tried >= {*every(Cluster(1, 2)), Settings(2, 2, 0.1), Settings(2, 200)} - {mine}
    assert told[0].ratio == pytest.approx(1.2)
    assert not told[0].at_least
    assert told[-1].ratio == pytest.approx(4.5)
    assert told[-1].at_least
    assert "4.50 times as late or more, " in rates_told(Rates(beside=told))[-1]


@pytest.mark.parametrize("slo", ["max <= 2 s", "p95 <= 1 s"])
def test_what_is_not_measured_is_refused_at_once(slo: str) -> None:
    told = CliRunner().invoke(main, ["bench", "plan", "--slo", slo])
    assert told.exit_code == 2
    assert "mean, p50, p90 or p99 is measured" in told.output

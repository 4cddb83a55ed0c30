"""From runs to figures, and what a run's latency is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from tests.planning.synthetic import profile

from taut.bench.plan.contest import Reached, Screened, Took
from taut.bench.plan.figures import Compared, Held, Rates, figures
from taut.bench.plan.measure import Spec, Trial, every, point_name, points
from taut.bench.plan.run import Measured, of_rows, of_windows
from taut.bench.plan.show import of_settings, picture, rates_told
from taut.bench.record import BenchError
from taut.cli import main
from taut.planning.phases import fit
from taut.planning.plan import Infeasible, make
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


def test_rates_that_were_not_measured_are_left_out() -> None:
    held = Rates(plan=Held("1 lane", 100.0, measured(), True))
    told = figures("words", [], held)
    assert told == {"words.plan_rate": 100.0, "words.plan_held": 1.0, "words.plan_p99_s": 2.0}
    held.replanned = Held("2 lanes", 120.0, measured(), False, 0.9)
    told = figures("words", [], held)
    assert (told["words.replanned_rate"], told["words.replanned_held"]) == (120.0, 0.0)
    assert told["words.replanned_machine_speed"] == 0.9
    assert ["held" in line and "did not" not in line for line in rates_told(held)] == [True, False]


def test_settings_are_compared_by_what_they_reach_in_the_same_round() -> None:
    mine, rule, other = Settings(1, 2), Settings(2, 2), Settings(2, 1)
    rates = Rates(
        slo="p99 <= 1 s",
        mine=mine,
        rules={"trigger 0 s": rule},
        # the machine is half as fast in the second round
        reached=[
            Reached(mine, (100.0, 50.0, 110.0)),
            Reached(other, (102.0, 52.0, 104.0)),
            Reached(rule, (80.0, 40.0, 88.0)),
            Reached(Settings(2, 200), (0.0, 0.0, 0.0)),
        ],
        screened=[Screened(rule, Took(0.9)), Screened(Settings(2, 200), Took(2.5, True))],
    )
    assert figures("words", [], rates) == {
        "words.plan_settings_rate": 100.0,
        "words.best_rule_of_thumb_rate": 80.0,
        "words.best_found_rate": 102.0,
        "words.ratio.rule_of_thumb": 1.25,
        "words.ratio.found": 0.9804,
        "words.l1-r2-t0.reached_rate": 100.0,
        "words.l2-r1-t0.reached_rate": 102.0,
        "words.l2-r2-t0.reached_rate": 80.0,
        "words.l2-r200-t0.reached_rate": 0.0,
        "words.l2-r2-t0.late_s": 0.9,
        "words.l2-r200-t0.late_at_least_s": 2.5,
    }
    said = rates_told(rates)
    assert said[0].startswith("on time at up to 100 rows/s: 1 lane, 2 reducers")
    assert "the plan's settings" in said[0]
    assert "trigger 0 s; the plan's reach 1.25 times that" in said[2]
    assert said[3].startswith("never on time: 2 lanes, 200 reducers")
    assert said[5] == (
        "at the plan's rate: p99 2.500 s or more, 2 lanes, 200 reducers, batches one after another"
    )


def test_a_plan_whose_settings_are_never_on_time_is_told() -> None:
    mine, other = Settings(1, 2), Settings(2, 2)
    reached = [Reached(mine, (0.0, 0.0, 90.0)), Reached(other, (100.0, 100.0, 100.0))]
    told = figures("words", [], Rates(mine=mine, reached=reached))
    assert (told["words.plan_settings_rate"], told["words.best_found_rate"]) == (0.0, 100.0)
    assert told["words.ratio.found"] == 0.0


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


@pytest.mark.parametrize("held", [True, False])
def test_a_plan_is_held_planned_again_and_compared(
    held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two lanes and one reducer bear 1.4 times the plan's rate, all others less."""
    slo = Slo("p99 <= 2 s")
    plan = make(profile(), slo, None, [Cluster(1, 2)])
    mine, best = Settings(1, 2), Settings(2, 1)
    plan = msgspec.structs.replace(plan, settings=mine.but(cap=1_000_000))
    ran: list[tuple[str, Settings]] = []

    class Job:
        def replan(self, rate: float | None = None) -> Any:
            if not held:
                raise Infeasible("it cannot be met any more", None, 0.0)
            if rate is None:
                raise Infeasible("a bit too much", None, 1.2 * plan.rate)
            assert rate < 1.2 * plan.rate
            return msgspec.structs.replace(plan, most=1.2 * plan.rate)

    def run(
        trial: Trial, settings: Settings, rate: int, seconds: float, name: str, **how: Any
    ) -> Measured:
        ran.append((name, settings))
        if name == "plan":
            assert how["plan"] is plan
            how["seen"](Job())
            return measured(p99=1.9 if held else 2.1)
        bounds = {mine: 1.3, best: 1.4, Settings(2, 2): 0.9, Settings(2, 200): 0.2}
        took = measured(p99=2.0 * rate / (bounds.get(settings, 0.55) * plan.rate))
        until = how.get("give_up")
        if until is None or took.of(until) <= until.seconds:
            return took
        # runs that were ended have all taken about the same
        return replace(took, p99=1.01 * until.seconds, ended=True)

    monkeypatch.setattr(Trial, "_run", run)
    trial = Trial(None, Spec(slo=str(slo), rounds=2), slo, lambda progress: None)  # type: ignore[arg-type]
    told = trial.rates(plan, Cluster(1, 2))
    assert told.plan is not None
    assert told.plan.met == held
    if held:
        assert told.replanned is not None
        assert told.replanned.rate == pytest.approx(1.2 * plan.rate)
        assert told.replanned.met
    else:
        assert told.replanned is None
        assert told.not_replanned == "it cannot be met any more"
        assert "not planned again: it cannot be met any more" in rates_told(told)
    screened = {each.settings for each in told.screened}
    assert screened >= {*every(Cluster(1, 2)), Settings(2, 200), Settings(2, 2, 0.1)} - {mine}
    assert mine not in screened
    assert told.screened[0].settings == best
    by_place = {each.settings: each for each in told.screened}
    assert not by_place[best].took.ended
    assert by_place[Settings(1, 1)].took == Took(pytest.approx(2.0 / 0.55, rel=1e-3), False), (
        "not yet twice"
    )
    assert by_place[Settings(2, 200)].took.ended
    assert told.reached[0].settings == mine
    assert told.reached[0].rate == pytest.approx(1.3 * plan.rate, rel=0.06)
    found, rule = told.best_found(), told.best_rule()
    assert found is not None
    assert rule is not None
    assert (found.settings, rule.settings) == (best, Settings(2, 2))
    assert found.rate == pytest.approx(1.4 * plan.rate, rel=0.06)
    assert rule.rate == pytest.approx(0.9 * plan.rate, rel=0.06)
    # by turns: no settings run all of theirs before the next
    round_1 = [settings for name, settings in ran if name.startswith("by turns, round 1")]
    assert len(set(round_1[: len(told.reached)])) == len(told.reached)


@pytest.mark.parametrize("slo", ["max <= 2 s", "p95 <= 1 s"])
def test_what_is_not_measured_is_refused_at_once(slo: str) -> None:
    told = CliRunner().invoke(main, ["bench", "plan", "--slo", slo])
    assert told.exit_code == 2
    assert "mean, p50, p90 or p99 is measured" in told.output

"""Plans of several queries at once, run for real: briefly, so that nothing is said of how near."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from taut.bench.plan.run import Progress
from taut.bench.plan.together import Spec, bench
from taut.cli import main


@pytest.mark.spark
def test_two_queries_are_planned_and_run_together() -> None:
    told: list[str] = []
    rows: list[int] = []
    spec = Spec(
        "p99 <= 9 s",
        shares=(0.1,),
        seconds=6.0,
        warm_up_s=3.0,
        settle_s=0.0,
        profile_s=10.0,
        rate=4_000,
        workloads=("words", "windowed-words"),
    )

    def watch(now: Progress) -> None:
        told.append(now.variant)
        rows.append(now.rows)

    record, (ran,) = bench(spec, watch)
    assert [each.name for each in ran.compared] == ["words-10", "windowed-words-10"]
    for each, plan in zip(ran.compared, ran.plan.plans, strict=True):
        # what never comes out is as late as it was waited for, 10 s and three times 9
        assert 0.0 < each.measured.mean <= each.measured.p99 < 37.0
        assert each.rate == plan.rate == round(0.1 * record.options["most"])
    by_rows, by_windows = (each.measured.results for each in ran.compared)
    assert by_rows == pytest.approx(6 * ran.compared[0].rate, rel=0.01)
    assert by_windows in (6, 7)
    assert rows[-1] >= by_rows
    figures = record.figures
    assert figures["together.at-10.concurrency"] == ran.plan.concurrency
    assert figures["together.words-10.measured_p99_s"] > 0.0
    assert {"profile of words", "10% of what they bear"} <= set(told)


def test_an_objective_that_is_not_measured_is_refused() -> None:
    done = CliRunner().invoke(main, ["bench", "plan-together", "--slo", "p95 <= 1 s"])
    assert done.exit_code == 2
    assert "mean, p50, p90 or p99 is measured" in done.output

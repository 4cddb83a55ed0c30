"""What a planned query tells those who watch."""

from __future__ import annotations

import pytest
from tests.planning.synthetic import profile

import taut
from taut.spark.planning.running import Drift, tell
from taut.watch.records import Expected, Record


@pytest.fixture
def plan() -> taut.Plan:
    return taut.plan(profile=profile(), slo="p99 <= 2 s", rate=20_000)


def test_what_is_expected_is_told_and_then_what_was_seen(
    plan: taut.Plan, heard: list[Record]
) -> None:
    tell(plan)
    tell(plan, Drift("p99", 1.0, 0.9, 1.1, observed=1.5, rate=21_000.0, batches=20))
    first, second = heard
    assert isinstance(first, Expected)
    assert isinstance(second, Expected)
    expected = plan.expected["p99"]
    assert (first.query, first.measure) == (plan.app, "p99")
    assert (first.seconds, first.low, first.high) == (expected.seconds, expected.low, expected.high)
    assert (first.observed, first.rate, first.planned_rate) == (None, 0.0, 20_000)
    assert (second.observed, second.rate) == (1.5, 21_000.0)
    assert second.phases == plan.phases
    assert sum(second.phases.values()) == pytest.approx(plan.expected["mean"].seconds, rel=0.03)


def test_nobody_listens_and_nothing_is_made(
    plan: taut.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taut.spark.planning.running.Expected", None)
    tell(plan)

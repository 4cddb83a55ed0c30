"""What a planned query tells those who watch."""

from __future__ import annotations

import msgspec
import pytest
from tests.planning.synthetic import profile, sample

import taut
from taut.planning.profile import Windows
from taut.spark.planning.meter import Batch
from taut.spark.planning.running import Drift, Planned, observed, tell
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


def test_an_objective_that_is_missed_is_told_though_it_was_to_be_expected() -> None:
    drift = Drift("p99", 0.9, 0.7, 1.5, observed=1.2, rate=20_000.0, batches=20, objective=1.0)
    assert (drift.beyond, drift.missed) == (False, True)
    assert str(drift) == (
        "p99 1.2 s at 20,000 rows a second, within the 700 ms to 1.5 s expected, missing the 1 s "
        "of its objective"
    )


def test_without_an_objective_nothing_is_missed() -> None:
    drift = Drift("mean", 0.9, 0.7, 1.5, observed=0.8, rate=20_000.0, batches=20)
    assert str(drift) == "mean 800 ms at 20,000 rows a second, within the 700 ms to 1.5 s expected"


@pytest.mark.parametrize(
    ("objective", "steps"),
    [
        # missed, and met again; missed and beyond; less than expected, and back
        (1.0, [(0.9, 0), (1.2, 1), (1.2, 0), (0.9, 1), (2.0, 1), (2.0, 0), (0.5, 1), (0.9, 1)]),
        # more than expected, then so much more that it is missed, also from less than expected
        (1.8, [(1.6, 1), (1.7, 0), (1.9, 1), (1.6, 1), (0.6, 1), (1.9, 1)]),
    ],
)
def test_drift_is_logged_when_something_begins_or_ends(
    plan: taut.Plan,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    objective: float,
    steps: list[tuple[float, int]],
) -> None:
    """A job that runs, without the Spark that it runs on."""
    job = Planned.__new__(Planned)
    job.plan, job._said = plan, (False, False, False)
    seen = iter([value for value, _ in steps])

    def drift(self: Planned) -> Drift:
        return Drift("p99", 0.9, 0.7, 1.5, next(seen), 20_000.0, 20, objective)

    monkeypatch.setattr(Planned, "drift", drift)
    job._look()
    assert not caplog.records, "Spark has not given the query yet"
    job.query = None  # type: ignore[assignment]
    logged = []
    for _ in steps:
        caplog.clear()
        job._look()
        logged.append(caplog.text.count("p99"))
        assert ("; replan()" in caplog.text) == (
            "missing" in caplog.text or "beyond" in caplog.text
        )
    assert logged == [told for _, told in steps]


def test_what_was_seen_on_another_cluster_is_not_planned_from(plan: taut.Plan) -> None:
    job = Planned.__new__(Planned)
    job.plan = msgspec.structs.replace(plan, cluster=taut.Cluster(4, 8))
    with pytest.raises(taut.PlanError, match=r"and runs on 4 executors .* plan it anew"):
        job.replan()


def test_nobody_listens_and_nothing_is_made(
    plan: taut.Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taut.spark.planning.running.Expected", None)
    tell(plan)


def every_second(many: int) -> list[Batch]:
    """Batches that start on the second and are written 0.4 s later."""
    return [Batch(at, at, at + 0.4, at + 1.0, sample(2, 2, 100)) for at in range(many)]


def test_rows_waited_while_the_batch_before_ran() -> None:
    seen = observed(every_second(10), None)
    assert seen is not None
    assert seen.moments().mean == pytest.approx(0.9)
    assert seen.quantile(1.0) == pytest.approx(1.4)


@pytest.mark.parametrize(
    ("windows", "latency"),
    [
        (Windows(2.0), 1.4),  # ends with a batch, out with the next
        (Windows(2.0, 0.25), 0.75 + 1.4),
        (Windows(2.0, 0.25, 0.8), 1.75 + 1.4),  # known at 1.05 of a second, seen at the next
    ],
)
def test_windows_are_seen_by_the_first_batch_that_can(windows: Windows, latency: float) -> None:
    seen = observed(every_second(12), windows)
    assert seen is not None
    assert seen.moments().mean == pytest.approx(latency)
    assert seen.moments().sd == pytest.approx(0.0, abs=1e-6)


def test_without_batches_nothing_was_observed() -> None:
    assert observed(every_second(1), None) is None
    assert observed(every_second(2), Windows(2.0)) is None

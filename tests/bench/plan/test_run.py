"""A run of the benchmark, for real: briefly, so that nothing is said of how late it is."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from tests.planning.synthetic import profile

from taut.bench.place import spark_session
from taut.bench.plan.run import run
from taut.planning.plan import Plan, make
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo
from taut.spark.planning.running import Planned

RATE = 2_000


@pytest.mark.spark
def test_a_plan_is_applied_and_planned_again_from_what_was_seen(
    eventually: Callable[..., None],
) -> None:
    before = msgspec.structs.replace(profile(), app="words")
    plan = make(before, Slo("p99 <= 20 s"), RATE, [Cluster(1, 2)])
    # many batches in a short time
    plan = msgspec.structs.replace(plan, settings=plan.settings.but(trigger=0.0, cap=None))
    again: list[Plan] = []
    names: list[str] = []

    def seen(job: Planned) -> None:
        assert job.query.isActive
        eventually(lambda: len(job.batches()) > 4)
        again.append(job.replan())

    with spark_session("local[2]") as place:
        told = run(
            place, "words", plan.settings, RATE, 6.0, 4.0, "held",
            lambda now: names.append(now.phase), patience=30.0, plan=plan, seen=seen,
        )  # fmt: skip
        assert not place.spark.streams.active
    assert 0.0 < told.mean <= told.p99 < 36.0
    assert told.results == pytest.approx(6 * RATE, rel=0.01)
    assert not told.ended
    (new,) = again
    assert new.app == "words"
    # it knows more, and that of the rate that was seen
    assert len(new.profile.samples) > len(before.samples)
    assert new.rate == pytest.approx(RATE, rel=0.5)
    assert {"warming up", "measuring"} <= set(names)


@pytest.mark.spark
def test_a_run_that_misses_its_objective_is_ended() -> None:
    with spark_session("local[2]") as place:
        told = run(
            place, "words", Settings(1, 1), RATE, 60.0, 1.0, "hopeless",
            lambda now: None, patience=30.0, give_up=Slo("mean <= 1 ms"),
        )  # fmt: skip
    assert told.ended
    assert told.mean > 0.001

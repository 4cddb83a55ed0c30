"""Resident lanes: the model against a simulated queue with pauses, and the plans made from it."""

from __future__ import annotations

import heapq
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.planning.synthetic import served

from taut.errors import PlanError, ProfileError
from taut.planning.plan import Infeasible
from taut.planning.resident import (
    ASKING_S,
    HORIZONS,
    Lanes,
    ResidentPlan,
    Served,
    corrected,
    highest,
    make_resident,
    rows_of,
)
from taut.planning.settings import Settings
from taut.slo import Slo


def simulated(of: Lanes, seconds: float = 2_000.0, seed: int = 3) -> np.ndarray:
    """Latencies of rows that come at random; every so often lanes take none for a while."""
    drawn = np.random.default_rng(seed)
    rows = np.array(of.served.rows)
    arrivals = np.cumsum(drawn.exponential(1.0 / of.rate, round(seconds * of.rate)))
    cycle = of.horizon
    free = [0.0] * of.many
    late = []
    for at in arrivals:
        start = max(at, free[0])
        if start % cycle < of.pause:
            start += of.pause - start % cycle
        work = float(drawn.choice(rows))
        heapq.heapreplace(free, start + ASKING_S + work)
        late.append(start + ASKING_S + work - at)
    return np.array(late)


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("horizon", [5.0, 60.0])
@pytest.mark.parametrize("even", [False, True])
def test_latency_is_that_of_a_queue_with_pauses(busy: float, horizon: float, even: bool) -> None:
    profile = served(even=even)
    found = Lanes(profile, 4, horizon, busy * 4 / profile.work.mean)
    late = simulated(found)
    spans = found.latency()
    assert spans is not None
    assert spans.mean == pytest.approx(late.mean(), rel=0.15)
    for share in (0.5, 0.9, 0.99):
        true = float(np.quantile(late, share))
        near = spans.quantile(share) == pytest.approx(true, rel=0.2)
        # where pauses begin to count it is steep: then as many rows lie beyond
        assert near or 1.0 - spans.below(true) == pytest.approx(1.0 - share, rel=0.35)
    assert sum(found.phases().values()) == pytest.approx(spans.mean, rel=0.02)


def test_lanes_that_cannot_keep_up_have_no_latency() -> None:
    profile = served()
    assert Lanes(profile, 4, 60.0, 4 / profile.work.mean).latency() is None
    # with as many rows, but pauses more often than not
    assert Lanes(profile, 4, 1.0, 0.85 * 4 / profile.work.mean).latency() is None


def test_the_fewest_lanes_and_the_shortest_horizon_are_planned() -> None:
    slo = Slo("p99 <= 200 ms")
    plan = make_resident(served(lanes=16), slo, 100.0, 16)
    chosen = plan.settings
    assert chosen.horizon is not None
    at = Lanes(plan.profile, chosen.lanes, chosen.horizon, 100.0)
    assert at.meets(slo)
    fewer = (Lanes(plan.profile, chosen.lanes - 1, each, 100.0) for each in HORIZONS)
    shorter = HORIZONS[: HORIZONS.index(chosen.horizon)]
    quicker = (Lanes(plan.profile, chosen.lanes, each, 100.0) for each in shorter)
    assert not any(each.meets(slo) for each in (*fewer, *quicker))
    assert plan.expected["p99"].low <= plan.expected["p99"].seconds <= 0.2
    assert plan.most >= 100.0
    assert chosen.chunk == 1
    assert chosen.source() == {
        "lanes": str(chosen.lanes), "chunk": "1", "horizon": f"{chosen.horizon:g} s",
    }  # fmt: skip
    # one that is patient needs no long batches, which a crash would have to work on again
    patient = make_resident(served(lanes=16), Slo("p99 <= 2 s"), 100.0, 16)
    assert patient.settings.horizon is not None
    assert patient.settings.horizon < chosen.horizon


def test_a_tail_beyond_the_p99_takes_longer_batches() -> None:
    shorter, longer = (
        make_resident(served(0.002, lanes=8), Slo(f"{which} <= 100 ms"), 500.0, 8).settings.horizon
        for which in ("p90", "p99")
    )
    assert shorter is not None
    assert longer is not None
    assert shorter < longer


def test_many_rows_a_second_come_in_chunks() -> None:
    plan = make_resident(served(1e-4, lanes=16), Slo("p99 <= 1 s"), 10_000.0, 16)
    assert plan.settings.chunk == 3


@pytest.mark.parametrize("measure", ["mean", "p50", "p90", "p99"])
def test_more_time_or_lanes_never_lower_the_rate(measure: str) -> None:
    profile = served()
    by_slo = [highest(profile, Slo(f"{measure} <= {ms} ms"), 4) for ms in (30, 60, 120, 500, 2_000)]
    assert by_slo == sorted(by_slo)
    by_lanes = [highest(profile, Slo(f"{measure} <= 200 ms"), lanes) for lanes in (1, 2, 4, 8)]
    assert by_lanes == sorted(by_lanes)


def test_without_a_rate_it_is_the_highest() -> None:
    slo = Slo("p99 <= 300 ms")
    plan = make_resident(served(), slo, None, 4)
    assert plan.rate == pytest.approx(highest(served(), slo, 4), rel=1e-3)
    with pytest.raises(Infeasible) as no:
        make_resident(served(), slo, 1.05 * plan.rate, 4)
    assert no.value.nearest_rate == pytest.approx(plan.rate, rel=1e-3)
    assert no.value.nearest_slo is not None
    assert make_resident(served(), no.value.nearest_slo, 1.05 * plan.rate, 4)


def test_what_takes_longer_than_the_objective_is_refused_with_the_number() -> None:
    with pytest.raises(
        Infeasible, match=r"cannot be met at any rate: a row takes .* on average"
    ) as no:
        make_resident(served(), Slo("p50 <= 1 ms"), None, 4)
    assert no.value.nearest_rate == 0.0
    assert no.value.nearest_slo is not None
    with pytest.raises(Infeasible, match=r"with 1 lanes: up to"):
        make_resident(served(), Slo("p99 <= 1 s"), 1e6, 1)
    with pytest.raises(PlanError, match="rate=0"):
        make_resident(served(), Slo("p99 <= 1 s"), 0.0, 1)
    with pytest.raises(PlanError, match=r"lanes=0: a whole number, at least 1"):
        make_resident(served(), Slo("p99 <= 1 s"), None, 0)
    with pytest.raises(PlanError, match="waits in a queue have no longest"):
        make_resident(served(), Slo("max <= 1 s"), None, 4)


def test_a_few_rows_that_hang_are_in_the_tail() -> None:
    rows = [0.02] * 1_994 + [10.0] * 6
    hangs = msgspec.structs.replace(served(lanes=64), rows=rows, pauses=[0.01, 0.01])
    assert make_resident(hangs, Slo("p99 <= 1 s"), 50.0, 64).expected["p99"].seconds < 1.0
    with pytest.raises(Infeasible):
        make_resident(hangs, Slo("p99.9 <= 1 s"), 50.0, 64)


def test_rows_handed_out_together_are_not_counted_with_the_time_of_all() -> None:
    # ten rows at a time, each told with what all of them took
    assert corrected([0.01] * 100, (60, 0.06), (40, 0.04)) == [0.001] * 100
    # what one by one took less time by chance is left as it is
    assert corrected([0.01] * 100, (1_000, 20.0)) == [0.01] * 100
    assert corrected([0.01], (0, 0.0)) == corrected([0.01]) == [0.01]
    assert corrected([], (1, 1.0)) == []


def test_warnings_and_words() -> None:
    plan = make_resident(served(lanes=2), Slo("p99 <= 900 ms"), None, 4)
    told = plan.explain()
    assert "profiled with 2 lanes, planned for 4" in told
    assert "do not keep up" in told
    assert "lanes=4, chunk=1, horizon=" in told
    odd = msgspec.structs.replace(served(), pauses=[0.3, 0.3, 1.5])
    assert "up to 1.5 s" in make_resident(odd, Slo("p99 <= 5 s"), 10.0, 4).explain()


def test_kept_in_files(tmp_path: Path) -> None:
    plan = make_resident(served(), Slo("p99 <= 1 s"), 50.0, 4)
    plan.save(tmp_path / "plan.json")
    assert ResidentPlan.load(tmp_path / "plan.json") == plan
    plan.profile.save(tmp_path / "profile.json")
    assert Served.load(tmp_path / "profile.json") == plan.profile
    (tmp_path / "profile.json").write_text("{")
    with pytest.raises(ProfileError, match="cannot be read"):
        Served.load(tmp_path / "profile.json")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rows": [0.1] * 9}, "9 rows: at least 50"),
        ({"pauses": [0.1]}, "1 pauses: at least 2"),
        ({"rows": [-1.0] * 60}, "cannot have been measured"),
        ({"spark": "4.2.0"}, "taken on Spark 4.2.0"),
        ({"taken": 0.0}, "days old"),
    ],
)
def test_profiles_that_say_nothing_are_refused(changes: dict[str, object], told: str) -> None:
    with pytest.raises(ProfileError, match=told):
        make_resident(
            msgspec.structs.replace(served(), **changes), Slo("p99 <= 1 s"), None, 4, spark="4.3.0"
        )


def test_rows_are_seen_one_by_one_where_they_come_so() -> None:
    assert rows_of([(1, 0.1)] * 100 + [(5, 1.0)]) == [0.1] * 100
    assert rows_of([(4, 0.8)] * 100 + [(1, 0.1)]) == [0.2] * 100 + [0.1]
    assert len(rows_of([(1, 0.1)] * 9_999)) <= 2_000


@pytest.mark.parametrize("wrong", [{"chunk": 0}, {"chunk": 1.5}, {"horizon": 0.5}])
def test_settings_are_checked(wrong: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=f"{next(iter(wrong))}="):
        Settings(**wrong)  # type: ignore[arg-type]

from __future__ import annotations

import pytest

from taut.workloads.topologies import TOPOLOGIES, Topology
from taut.workloads.windows import WorkloadError


def test_a_hundredth_of_the_tuples_is_heavy_and_a_quarter_of_the_lanes_slow() -> None:
    queue = TOPOLOGIES["queue"]
    times = [queue.seconds(n, 7, 8) for n in range(100_000)]
    assert set(times) == {0.001, 0.05}
    assert 900 < times.count(0.05) < 1_100
    assert [queue.seconds(1, lane, 8) for lane in range(8)] == [0.003] * 2 + [0.001] * 6


def test_every_operator_takes_its_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds + 0.02  # a sleep ends late

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("taut.workloads.topologies._overslept", [0.0])
    monkeypatch.setattr("taut.workloads.topologies._MOST_OVERSLEPT", 0.1)
    value = "7"
    for operator in Topology(bolts=3, service_s=0.3, rate=1).operators(4):
        value = operator(value)
    assert value == "7!!!"
    assert slept == pytest.approx([0.1, 0.08, 0.08])
    assert now[0] == pytest.approx(100.32)


@pytest.mark.parametrize("wrong", [{"heavy": -0.1}, {"slow": 1.1}])
def test_shares_are_between_none_and_all(wrong: dict[str, float]) -> None:
    with pytest.raises(WorkloadError, match="from 0 to 1"):
        Topology(bolts=1, service_s=1.0, rate=1, **wrong)  # type: ignore[arg-type]

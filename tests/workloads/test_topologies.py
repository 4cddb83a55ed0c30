from __future__ import annotations

import math
import pickle
import zlib
from itertools import pairwise

import pytest

from taut.workloads.topologies import TOPOLOGIES, Topology, number, part
from taut.workloads.topologies.bolts import balance, exclamation, page_load, processing, queue
from taut.workloads.topologies.topology import MACHINE, uniform
from taut.workloads.windows import WorkloadError

EXCLAMATION = Topology(exclamation.BOLTS, exclamation.emit, service_s=0.3, rate=1)


def test_a_hundredth_of_the_tuples_is_heavy_and_a_quarter_of_the_lanes_slow() -> None:
    topology = TOPOLOGIES["queue"]
    times = [topology.seconds(n, 7, 8) for n in range(100_000)]
    assert set(times) == {0.001, 0.05}
    assert 900 < times.count(0.05) < 1_100
    assert [topology.seconds(1, lane, 8) for lane in range(8)] == [0.003] * 2 + [0.001] * 6


def test_exponential_times_have_their_mean_and_know_nothing_of_each_other() -> None:
    topology = Topology(queue.BOLTS, queue.emit, 0.01, 1, service="exponential")
    times = [topology.seconds(n, 0, 1) for n in range(100_000)]
    mean = sum(times) / len(times)
    assert mean == pytest.approx(0.01, rel=0.01)
    assert sum(t > 0.01 for t in times) / len(times) == pytest.approx(math.exp(-1), abs=0.005)
    covariance = sum((a - mean) * (b - mean) for a, b in pairwise(times))
    assert abs(covariance / len(times)) < 0.02 * mean**2
    assert min(uniform(n) for n in range(1_000)) > 0


def taking(topology: Topology, n: int, lanes: int = 4) -> list[str]:
    """A tuple through the operators as a stream would take it."""
    values = [topology.emit(n)]
    for kind, operator in topology.operators(lanes):
        if kind == "filter":
            values = [value for value in values if operator(value)]
        elif kind == "flat_map":
            values = [made for value in values for made in operator(value)]
        else:
            values = [operator(value) for value in values]
    return values


def test_every_operator_takes_its_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, slept = [100.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds + 0.02  # a sleep ends late

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    monkeypatch.setattr("taut.workloads.topologies.waiting._overslept", [0.0])
    monkeypatch.setattr("taut.workloads.topologies.waiting._MOST_OVERSLEPT", 0.1)
    assert taking(EXCLAMATION, 7) == EXCLAMATION.results(7) == ["7 0 jackson!!!"]
    assert slept == pytest.approx([0.1, 0.08, 0.08])
    assert now[0] == pytest.approx(100.32)


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_operators_give_what_is_expected_of_them(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    topology = TOPOLOGIES[name]
    for n in range(300):
        results = taking(topology, n)
        assert results == topology.results(n)
        assert [number(value) for value in results] == [n] * len(results)
        assert tuple(part(value) for value in results) == topology.parts(n)


def test_a_tuple_that_all_take_takes_the_service_time(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    monkeypatch.setattr("taut.workloads.topologies.topology.wait", taken.append)
    for bolts, emit, most in (
        (page_load.BOLTS, page_load.emit, 6),
        (processing.BOLTS, processing.emit, 7),
    ):
        topology = Topology(bolts, emit, service_s=1.0, rate=1)
        times = []
        for n in range(200):
            taken.clear()
            taking(topology, n)
            times.append(sum(taken))
        assert max(times) == pytest.approx(1.0)
        assert min(times) < 0.75, "one that is dropped takes less"
        assert taken == pytest.approx([1 / most] * len(taken))


def test_page_load_drops_robots_and_sites_that_nobody_watches() -> None:
    topology = TOPOLOGIES["page-load"]
    kept = [n for n in range(20_000) if topology.parts(n)]
    assert len(kept) / 20_000 == pytest.approx(0.9 * 0.875, abs=0.01)
    n = kept[0]
    sent = topology.emit(n)
    times = [int(word.partition("=")[2]) for word in sent.split(" ")[5:]]
    site = page_load.SITES[sent.split(" ")[3]]
    assert topology.results(n) == [f"{n} 0 site={site} total={sum(times)} longest={max(times)}"]


def test_processing_has_two_outputs_for_large_sales() -> None:
    topology = TOPOLOGIES["processing"]
    parts = [topology.parts(n) for n in range(20_000)]
    assert set(parts) == {(0, 1), (1,)}
    assert parts.count((0, 1)) / 20_000 == pytest.approx(0.5, abs=0.015)
    n = parts.index((0, 1))
    _, _, customer, amount = topology.emit(n).split(" ")
    region, limit = processing.CUSTOMERS[customer]
    cents = round(100 * float(amount))
    assert cents >= 5_000
    assert topology.results(n) == [
        f"{n} 0 region={region} cents={cents}",
        f"{n} 1 limit={limit} thousandths={1_000 * cents // limit}",
    ]


def test_balance_reckons_for_real() -> None:
    checksum = 12
    for _ in range(3):
        checksum = zlib.crc32(balance._BYTES, checksum)
    assert TOPOLOGIES["balance-a"].results(12) == [f"12 0 {checksum:08x}"]
    assert len(balance._BYTES) == balance.OPERATIONS == 200_000


def test_on_a_cluster_machines_are_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[float] = []
    monkeypatch.setattr("taut.workloads.topologies.topology.wait", taken.append)
    topology = Topology(queue.BOLTS, queue.emit, service_s=1.0, rate=1, slow=0.25)
    for machine in ("0/4", "1/4"):
        monkeypatch.setenv(MACHINE, machine)
        taking(topology, 1, lanes=8)
    assert taken == [3.0, 1.0]


def test_operators_can_be_sent() -> None:
    from pyspark import cloudpickle

    for topology in TOPOLOGIES.values():
        packed = cloudpickle.dumps(topology.operators(2))
        assert len(packed) < 10_000, "tables stay where the code is"
        assert len(pickle.loads(packed)) == len(topology.bolts)


@pytest.mark.parametrize("wrong", [{"heavy": -0.1}, {"slow": 1.1}])
def test_shares_are_between_none_and_all(wrong: dict[str, float]) -> None:
    with pytest.raises(WorkloadError, match="from 0 to 1"):
        Topology(queue.BOLTS, queue.emit, service_s=1.0, rate=1, **wrong)  # type: ignore[arg-type]


def test_service_is_one_of_two() -> None:
    with pytest.raises(WorkloadError, match="service='normal': one of fixed, exponential"):
        Topology(queue.BOLTS, queue.emit, service_s=1.0, rate=1, service="normal")

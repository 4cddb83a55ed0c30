import heapq
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.waiting import erlang_c, in_turn, mean_wait, mean_waits, worth_sharing

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)
BUSY = st.floats(0.01, 0.99)


def direct(servers: int, load: float) -> float:
    """Erlang C as it is written, with powers and factorials."""
    full = load**servers / math.factorial(servers) / (1.0 - load / servers)
    return full / (sum(load**k / math.factorial(k) for k in range(servers)) + full)


def simulated(servers: int, arrivals_per_s: float, service_s: float, rows: int) -> float:
    """The mean wait of rows that come at random, each served by who is free first."""
    draw = random.Random(servers)
    free, now, waited = [0.0] * servers, 0.0, 0.0
    for _ in range(rows):
        now += draw.expovariate(arrivals_per_s)
        start = max(now, heapq.heappop(free))
        waited += start - now
        heapq.heappush(free, start + draw.expovariate(1.0 / service_s))
    return waited / rows


@STEADY
@given(servers=st.integers(1, 25), busy=BUSY)
def test_the_recursion_gives_the_formula(servers: int, busy: float) -> None:
    load = servers * busy
    assert erlang_c(servers, load) == pytest.approx(direct(servers, load), rel=1e-9)


@pytest.mark.parametrize("servers", [200, 500, 2_000])
def test_many_servers_neither_overflow_nor_vanish(servers: int) -> None:
    # where the load is close to capacity in standard deviations, the chance has a limit
    # (Halfin and Whitt): 1 / (1 + b * Phi(b) / phi(b)) with the distance b = 1
    load = servers - math.sqrt(servers)
    phi = math.exp(-0.5) / math.sqrt(2 * math.pi)
    limit = 1 / (1 + 0.5 * (1 + math.erf(1 / math.sqrt(2))) / phi)
    assert erlang_c(servers, load) == pytest.approx(limit, rel=0.06)
    assert erlang_c(servers, 0.0) == 0.0
    assert erlang_c(servers, servers + 1.0) == 1.0


@STEADY
@given(arrivals=st.floats(0.1, 1_000.0), busy=BUSY)
def test_one_server_is_the_textbook(arrivals: float, busy: float) -> None:
    service = busy / arrivals
    assert mean_wait(1, arrivals, service) == pytest.approx(busy * service / (1.0 - busy))


@pytest.mark.parametrize(("servers", "busy"), [(1, 0.5), (3, 0.6), (8, 0.7)])
def test_a_simulation_waits_as_long(servers: int, busy: float) -> None:
    expected = mean_wait(servers, servers * busy * 100.0, 0.01)
    seen = simulated(servers, servers * busy * 100.0, 0.01, rows=300_000)
    assert seen == pytest.approx(expected, rel=0.04)


@STEADY
@given(
    lanes=st.integers(1, 40), executors=st.integers(1, 12), service=st.floats(0.001, 1.0), busy=BUSY
)
def test_more_sharing_never_waits_longer(
    lanes: int, executors: int, service: float, busy: float
) -> None:
    waits = mean_waits(lanes, executors, lanes * busy / service, service)
    assert list(waits) == ["fixed", "executor", "shared"]
    assert waits["fixed"] * (1 + 1e-9) >= waits["executor"] >= waits["shared"] * (1 - 1e-9)
    if executors == 1:
        assert waits["executor"] == pytest.approx(waits["shared"])
    if executors >= lanes:
        assert waits["executor"] == pytest.approx(waits["fixed"])


def test_lanes_that_do_not_go_evenly_into_executors() -> None:
    """Seven lanes on three executors are three, two and two, and get rows for as many."""
    waits = mean_waits(7, 3, arrivals_per_s=560.0, service_s=0.01)
    three, two = mean_wait(3, 240.0, 0.01), mean_wait(2, 160.0, 0.01)
    more_even = (1 + 1 / 3) / 2
    assert waits["executor"] == pytest.approx(more_even * (3 / 7 * three + 4 / 7 * two))


def test_the_published_setting() -> None:
    """Measured were 2.07 and 0.516 ms: the theory is of that order, and so is what is gained."""
    waits = mean_waits(lanes=4, executors=1, arrivals_per_s=4 * 350.0, service_s=1 / 450)
    assert waits["fixed"] == pytest.approx(0.00435, rel=1e-2)
    assert waits["shared"] == pytest.approx(direct(4, 4 * 350 / 450) / 400)
    assert 1.0 < waits["fixed"] / 0.00207 < 3.0
    assert 1.0 < waits["shared"] / 0.000516 < 3.0
    assert 3.0 <= waits["fixed"] / waits["shared"] < 4.0


@pytest.mark.parametrize(("queues", "servers", "near"), [(4, 1, 0.03), (10, 1, 0.03), (3, 4, 0.3)])
def test_queues_that_rows_go_round(queues: int, servers: int, near: float) -> None:
    """Exact for one server each; for more, an approximation that errs on the long side."""
    rate = 0.75 * queues * servers * 100.0
    expected = in_turn(queues, servers, rate, 0.01)
    draw = random.Random(3)
    free = [[0.0] * servers for _ in range(queues)]
    now = waited = 0.0
    rows = 300_000
    for n in range(rows):
        now += draw.expovariate(rate)
        queue = free[n % queues]
        start = max(now, queue[0])
        waited += start - now
        heapq.heapreplace(queue, start + draw.expovariate(100.0))
    assert expected == pytest.approx(waited / rows, rel=near)
    assert expected < mean_wait(servers, rate / queues, 0.01), "than at random"


def test_many_queues_that_rows_go_round_see_even_intervals() -> None:
    """D/M/1, whose root is known; and one queue is M/M/c."""
    assert in_turn(1_000, 1, 78_000.0, 0.01) == pytest.approx(0.0147, abs=0.0001)
    assert in_turn(1, 3, 200.0, 0.01) == mean_wait(3, 200.0, 0.01)
    assert in_turn(4, 1, 400.0, 0.01) == math.inf
    assert in_turn(4, 1, 0.0, 0.01) == 0.0


@STEADY
@given(lanes=st.integers(1, 20), executors=st.integers(1, 6), busy=BUSY, gain=st.floats(0.0, 3.0))
def test_the_least_sharing_that_is_good_enough(
    lanes: int, executors: int, busy: float, gain: float
) -> None:
    chosen = worth_sharing(lanes, executors, lanes * busy * 20.0, 0.05, gain)
    waits = mean_waits(lanes, executors, lanes * busy * 20.0, 0.05)
    sojourn = {way: wait + 0.05 for way, wait in waits.items()}
    best = min(sojourn.values())
    ways = ["fixed", "executor", "shared"]
    assert sojourn[chosen] <= best * (1 + gain) * (1 + 1e-12)
    assert all(sojourn[way] > best * (1 + gain) for way in ways[: ways.index(chosen)])


def test_sharing_is_worth_it_at_load_only() -> None:
    assert worth_sharing(8, 2, 8.0, 0.01) == "fixed", "rows hardly wait"
    assert worth_sharing(8, 2, 400.0, 0.01) == "executor"
    assert worth_sharing(8, 2, 720.0, 0.01) == "shared"
    assert worth_sharing(8, 2, 800.0, 0.01) == "fixed", "nothing helps"
    assert worth_sharing(1, 1, 50.0, 0.01) == "fixed"
    assert set(mean_waits(8, 2, 800.0, 0.01).values()) == {math.inf}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: erlang_c(0, 0.5), "servers=0"),
        (lambda: erlang_c(1, -0.5), r"load=-0\.5"),
        (lambda: mean_wait(1, -1.0, 0.1), r"arrivals_per_s=-1\.0"),
        (lambda: mean_wait(1, 1.0, 0.0), r"service_s=0\.0"),
        (lambda: mean_waits(0, 1, 1.0, 0.1), "lanes=0"),
        (lambda: mean_waits(1, 0, 1.0, 0.1), "executors=0"),
        (lambda: worth_sharing(1, 1, 1.0, 0.1, gain=-0.1), r"gain=-0\.1"),
    ],
)
def test_wrong_values_are_refused(wrong: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        wrong()

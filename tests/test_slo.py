import copy
import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from taut.duration import duration
from taut.errors import SloError
from taut.slo import Slo

BOUNDS = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
MEASURES = st.one_of(
    st.sampled_from(["mean", "max", "p50", "p99", "p99.9", "p99.99"]),
    st.decimals(min_value="50", max_value="99.99", places=4).map(lambda percent: f"p{percent}"),
)
SLOS = st.builds(lambda measure, bound: Slo(f"{measure} <= {duration(bound)}"), MEASURES, BOUNDS)


@pytest.mark.parametrize(
    ("text", "quantile", "bound"),
    [
        ("p99 <= 500 ms", 0.99, 0.5),
        ("P99<0.5s", 0.99, 0.5),
        ("  p 99.9  <=1 minute ", 0.999, 60.0),
        ("p50 <= 200us", 0.5, 0.0002),
        ("p99.99 <= 1 h", 0.9999, 3600.0),
        ("Mean < 2 seconds", None, 2.0),
        ("MAX <= 1.5 Sec", 1.0, 1.5),
    ],
)
def test_reads(text: str, quantile: float | None, bound: float) -> None:
    slo = Slo(text)
    assert (slo.quantile, slo.seconds) == (quantile, bound)
    assert Slo.parse(text) == slo


@pytest.mark.parametrize(
    "text",
    [
        "",
        "p99",
        "p99 <= ",
        "p99 <= 500",
        "p99 >= 1 s",
        "p99 == 1 s",
        "p99 <= 5 parsecs",
        "p99 <= 0 s",
        "p99 <= -1 s",
        "p49.9 <= 1 s",
        "p99.991 <= 1 s",
        "p100 <= 1 s",
        "median <= 1 s",
        "p99 <= 1 s <= 2 s",
    ],
)
def test_refuses_and_says_what_would_be_right(text: str) -> None:
    with pytest.raises(SloError) as caught:
        Slo(text)
    assert repr(text) in str(caught.value)
    assert isinstance(caught.value, taut.TautError)
    assert isinstance(caught.value, ValueError)


def test_refuses_what_is_not_text() -> None:
    with pytest.raises(SloError, match=r"slo 0\.5 is not an objective"):
        Slo(0.5)  # type: ignore[arg-type] # what an untyped caller may do


def test_is_a_value() -> None:
    slo = Slo("p99 <= 500 ms")
    assert slo == Slo("P99 < 0.5 s") == Slo(slo)
    assert hash(slo) == hash(Slo("p99<=.5s"))
    assert slo != Slo("p99 <= 501 ms")
    assert slo != Slo("p98 <= 500 ms")
    assert repr(slo) == "Slo('p99 <= 500 ms')"
    assert str(slo) == "p99 <= 500 ms"
    with pytest.raises(FrozenInstanceError):
        slo.seconds = 1.0  # type: ignore[misc] # the point of the test


@given(SLOS)
def test_round_trips(slo: Slo) -> None:
    assert Slo(str(slo)) == slo
    assert eval(repr(slo)) == slo
    assert pickle.loads(pickle.dumps(slo)) == slo
    assert copy.deepcopy(slo) == slo


@given(
    st.lists(st.floats(min_value=0, max_value=10), min_size=1, max_size=300),
    st.sampled_from(["p50", "p90", "p95", "p99", "p99.9", "max"]),
    st.floats(min_value=0.001, max_value=10),
)
def test_met_by_is_the_nearest_rank_quantile(
    latencies: list[float], measure: str, bound: float
) -> None:
    slo = Slo(f"{measure} <= {duration(bound)}")
    assert slo.quantile is not None
    rank = math.ceil(round(slo.quantile * len(latencies), 9))
    assert slo.met_by(latencies) == (sorted(latencies)[rank - 1] <= bound)


def test_met_by_mean() -> None:
    slo = Slo("mean <= 1 s")
    assert slo.met_by([0.0, 2.0])
    assert not slo.met_by([0.5, 2.0])


@pytest.mark.parametrize("text", ["p50 <= 1 s", "max <= 1 s", "mean <= 1 s"])
def test_nothing_is_on_time_and_nan_is_late(text: str) -> None:
    assert Slo(text).met_by([])
    assert not Slo(text).met_by([math.nan])


def test_allows_counts_exactly() -> None:
    assert Slo("p99 <= 1 s").allows(1, 100)
    assert not Slo("p99 <= 1 s").allows(1, 99)
    assert not Slo("p99 <= 1 s").allows(2, 100)
    assert Slo("p99.99 <= 1 s").allows(1, 10_000)
    assert not Slo("max <= 1 s").allows(1, 1_000_000)
    assert Slo("max <= 1 s").allows(0, 0)
    # 0.56 * 100 is 56.00000000000001 in floats, which would round up to rank 57.
    assert Slo("p56 <= 1 s").allows(44, 100)


def test_allows_refuses_what_it_cannot_answer() -> None:
    with pytest.raises(SloError, match="met_by"):
        Slo("mean <= 1 s").allows(0, 1)
    for late, total in [(-1, 5), (6, 5)]:
        with pytest.raises(SloError, match="0 <= late <= total"):
            Slo("p99 <= 1 s").allows(late, total)

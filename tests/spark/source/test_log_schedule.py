from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import DataLost, LogError
from taut.spark.source.logs import open_log
from taut.spark.source.logs.base import ARRIVAL
from taut.spark.source.logs.deal import Deal
from taut.spark.source.logs.schedule import ScheduleLog

RATES = st.integers(1, 3_000_000) | st.floats(1e-4, 1e7) | st.sampled_from([0.1, 1 / 3, 1e-3])


def arrivals(log: ScheduleLog, partition: str, start: int, end: int) -> list[int]:
    times: list[int] = log.read(partition, start, end).column(ARRIVAL).view(pa.int64()).to_pylist()
    return times


@settings(derandomize=True, deadline=None, database=None)
@given(
    rate=RATES,
    start_us=st.integers(0, 2 * 10**15),
    first=st.integers(0, 10**7),
    partitions=st.integers(1, 5),
)
def test_arrivals_are_exact_to_the_microsecond(
    rate: float, start_us: int, first: int, partitions: int
) -> None:
    log = ScheduleLog(start_us / 1e6, rate, partitions)
    partition = partitions - 1
    step = Fraction(1_000_000) / Fraction(str(rate))
    numbers = [offset * partitions + partition for offset in range(first, first + 20)]
    expected = [start_us + (n * step).__floor__() for n in numbers]
    assert arrivals(log, str(partition), first, first + 20) == expected


@settings(derandomize=True, deadline=None, database=None)
@given(
    rate=RATES,
    elapsed_us=st.integers(-5, 10**10),
    total=st.none() | st.integers(0, 1_000),
    how=st.sampled_from(["even", "random"]),
)
def test_a_row_is_there_exactly_from_its_arrival(
    rate: float, elapsed_us: int, total: int | None, how: str
) -> None:
    log = ScheduleLog(0.0, rate, total=total, arrivals=how, clock=lambda: elapsed_us / 1e6)
    rows = log.latest()["0"]
    if rows:
        assert arrivals(log, "0", rows - 1, rows)[0] <= elapsed_us
    if rows != total:
        assert arrivals(log, "0", rows, rows + 1)[0] > elapsed_us
    assert log.at((elapsed_us + 1) / 1e6) == log.latest()


def test_a_rate_of_many_digits_is_exact_too() -> None:
    log = ScheduleLog(0.0, 0.9876543210987654, 3)
    step = Fraction(1_000_000) / Fraction("0.9876543210987654")
    numbers = [offset * 3 + 2 for offset in range(10**9, 10**9 + 5_000)]
    assert arrivals(log, "2", 10**9, 10**9 + 5_000) == [int(n * step) for n in numbers]
    assert 5_000 * log._ratio[1] > 2**63, "numpy's integers are too small for this"


def test_random_arrivals_are_bursty_keep_the_rate_and_never_differ() -> None:
    log = ScheduleLog(10.0, 1_000, arrivals="random")
    times = np.array(arrivals(log, "0", 0, 20_000))
    assert times[0] >= 10_000_000
    assert 29_990_000 < times[-1] <= 30_000_000
    gaps = np.diff(times)
    assert gaps.min() >= 0
    assert 0.9 < gaps.std() / gaps.mean() < 1.1, "as independent senders are"
    again = ScheduleLog(10.0, 1_000, partitions=3, arrivals="random")
    assert arrivals(again, "2", 0, 6_000) == times[2::3][:6_000].tolist()
    assert arrivals(again, "1", 1_234, 2_345) == times[1::3][1_234:2_345].tolist()


def test_rows_lie_in_partitions_in_turn() -> None:
    log = ScheduleLog(0, 1, partitions=3, total=8)
    assert log.latest() == {"0": 3, "1": 3, "2": 2}
    assert log.read("1", 0, 3).column("n").to_pylist() == [1, 4, 7]
    assert ScheduleLog(0, 1, total=8, partitions=3, clock=lambda: 3.5).latest() == {
        "0": 2,
        "1": 1,
        "2": 1,
    }


SKEWS = st.integers(1, 40) | st.floats(1, 50) | st.sampled_from([1.5, 2.5, 3.3, 10, 1e6])


def dealt(partitions: int, skew: float, rows: int) -> list[list[int]]:
    """The rows of each partition, one by one: the first when it has less than its share."""
    ratio = Fraction(str(skew)).limit_denominator(10)
    share = ratio / (ratio + partitions - 1)
    told: list[list[int]] = [[] for _ in range(partitions)]
    turn = 0
    for n in range(rows):
        if len(told[0]) < (n + 1) * share:
            told[0].append(n)
        else:
            told[1 + turn].append(n)
            turn = (turn + 1) % (partitions - 1)
    return told


@settings(derandomize=True, deadline=None, database=None)
@given(
    partitions=st.integers(1, 12),
    skew=SKEWS,
    total=st.integers(0, 400),
    how=st.sampled_from(["even", "random"]),
    elapsed_us=st.integers(-1, 500_000),
)
def test_each_row_lies_in_one_place_and_has_come_when_counting_says_so(
    partitions: int, skew: float, total: int, how: str, elapsed_us: int
) -> None:
    now = elapsed_us / 1e6
    log = ScheduleLog(0.0, 1_000, partitions, total, 0, how, skew, clock=lambda: now)
    plain = ScheduleLog(0.0, 1_000, 1, total, 0, how)
    times = arrivals(plain, "0", 0, total)
    expected = dealt(partitions, skew, total)
    assert sorted(n for each in expected for n in each) == list(range(total))
    for partition, numbers in enumerate(expected):
        rows = log.read(str(partition), 0, len(numbers))
        assert rows.column("n").to_pylist() == numbers
        assert arrivals(log, str(partition), 0, len(numbers)) == [times[n] for n in numbers]
        middle = len(numbers) // 2
        assert log.read(str(partition), middle, len(numbers)).equals(rows.slice(middle))
    come = {
        str(partition): sum(times[n] <= elapsed_us for n in numbers)
        for partition, numbers in enumerate(expected)
    }
    assert log.latest() == log.at(now + 1e-6) == come
    with pytest.raises(DataLost):
        log.read("0", 0, len(expected[0]) + 1)


@settings(derandomize=True, deadline=None, database=None)
@given(partitions=st.integers(2, 50), skew=SKEWS, first=st.integers(0, 10**12))
def test_far_along_a_skewed_log_rows_lie_as_at_its_beginning(
    partitions: int, skew: float, first: int
) -> None:
    deal = Deal.of(partitions, skew)
    counts = deal.counts(first)
    assert sum(counts) == first
    offsets = [np.arange(count, count + 20) for count in counts]
    rows = [deal.row(partition, each) for partition, each in enumerate(offsets)]
    for partition, each in enumerate(rows):
        assert each.tolist() == [deal.row(partition, int(o)) for o in offsets[partition]]
        assert np.all(np.diff(each) > 0)
        assert deal.counts(int(each[0]))[partition] == counts[partition]
        assert deal.counts(int(each[0]) + 1)[partition] == counts[partition] + 1
    following = sorted(int(row) for each in rows for row in each)
    upto = min(int(each[-1]) for each in rows)
    assert following[: upto - first + 1] == list(range(first, upto + 1))


def test_no_skew_is_in_turn() -> None:
    log = ScheduleLog(0, 1_000, partitions=3, total=1_000, skew=1.0)
    assert log == ScheduleLog(0, 1_000, partitions=3, total=1_000)
    assert log.read("2", 0, 333).column("n").to_pylist() == list(range(2, 1_000, 3))
    alone = ScheduleLog(0, 1_000, total=5, skew=10)
    assert alone.read("0", 0, 5).column("n").to_pylist() == [0, 1, 2, 3, 4]


def test_skewed_rows_are_no_clump() -> None:
    log = ScheduleLog(0, 1, partitions=10, total=19, skew=10)
    assert log.latest() == {"0": 10} | {str(p): 1 for p in range(1, 10)}
    assert log.read("0", 0, 10).column("n").to_pylist() == [0, 1, 3, 5, 7, 9, 11, 13, 15, 17]
    half = ScheduleLog(0, 1, partitions=3, total=7, skew=1.5)
    assert half.latest() == {"0": 3, "1": 2, "2": 2}


def test_a_skewed_log_waits_for_the_next_row_wherever_it_falls() -> None:
    time = Virtual(0.0)
    log = time.log(0, 10, partitions=3, skew=2)
    known = log.latest()
    for n in range(1, 9):
        known = log.wait(known, 5.0)
        assert sum(known.values()) == n + 1
    assert time.slept == [pytest.approx(0.1)] * 8


def test_options_carry_the_skew() -> None:
    log = ScheduleLog(5.5, 0.1, 3, 100, 7, "random", 2.5)
    assert open_log(log.options()) == log


@pytest.mark.parametrize("payload", [0, 1, 7, 8, 9, 100])
def test_payload_follows_from_the_number(payload: int) -> None:
    log = ScheduleLog(0, 1, partitions=2, payload=payload)
    values = log.read("0", 0, 50).column("value").to_pylist()
    assert all(len(value) == payload and value.isascii() for value in values)
    assert log.read("0", 20, 30).column("value").to_pylist() == values[20:30]
    other = ScheduleLog(5, 9, partitions=1, payload=payload)
    assert other.read("0", 0, 100).column("value").to_pylist()[::2] == values
    if payload >= 7:
        assert len(set(values)) == 50
        assert len(set("".join(values))) > 20


def test_the_clock_does_not_change_a_range() -> None:
    early, late = (ScheduleLog(100, 10, clock=clock) for clock in (lambda: 0.0, lambda: 1e6))
    assert early.latest() == {"0": 0}
    assert early.read("0", 5, 9).equals(late.read("0", 5, 9))
    assert early.at(101) == late.at(101) == {"0": 10}


class Virtual:
    def __init__(self, now: float) -> None:
        self.now = now
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += seconds

    def log(self, *args: Any, **options: Any) -> ScheduleLog:
        return ScheduleLog(*args, **options, clock=self.clock, sleep=self.sleep)


def test_waits_until_the_next_row_arrives() -> None:
    time = Virtual(100.05)
    log = time.log(100, 10, partitions=2)
    assert log.latest() == {"0": 1, "1": 0}
    assert log.wait({"0": 1, "1": 0}, 5.0) == {"0": 1, "1": 1}
    assert time.slept == [pytest.approx(0.05)]
    assert log.wait({"0": 1}, 5.0) == {"0": 1, "1": 1}, "rows not known of are news"
    assert len(time.slept) == 1


def test_waits_no_longer_than_it_may() -> None:
    time = Virtual(0.0)
    assert time.log(100, 10).wait({"0": 0}, 5.0) == {"0": 0}
    assert time.log(0, 10, total=1).wait({"0": 1}, 7.0) == {"0": 1}
    assert time.log(0, 10).wait({"0": 1_000}, 0.0) == {"0": 121}
    assert time.slept == [5.0, 7.0]


def test_waits_again_when_woken_early() -> None:
    time = Virtual(0.0)
    log = ScheduleLog(1, 1, clock=time.clock, sleep=lambda seconds: time.sleep(seconds / 2))
    assert log.wait({"0": 0}, 5.0) == {"0": 1}
    assert len(time.slept) > 2


def test_rows_beyond_the_total_are_lost() -> None:
    with pytest.raises(DataLost, match="was total larger before"):
        ScheduleLog(0, 1, total=5).read("0", 3, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0}, "rate=0"),
        ({"rate": float("inf")}, "rate=inf"),
        ({"rate": float("nan")}, "rate=nan"),
        ({"start": float("nan")}, "nan"),
        ({"partitions": 0}, "partitions=0"),
        ({"total": -1}, "total=-1"),
        ({"payload": -1}, "payload=-1"),
        ({"arrivals": "poisson"}, "arrivals='poisson': must be one of even, random"),
        ({"skew": 0.9}, "skew=0.9: must be 1"),
        ({"skew": -10}, "skew=-10: must be 1"),
        ({"skew": float("inf")}, "skew=inf: must be 1"),
        ({"skew": float("nan")}, "skew=nan: must be 1"),
        ({"skew": 2e6}, r"skew=2000000.0: must be 1 \(all partitions alike\) to 1,000,000"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LogError, match=message):
        ScheduleLog(**{"start": 0, "rate": 1} | options)


def test_refuses_more_text_than_arrow_holds() -> None:
    with pytest.raises(LogError, match="read fewer"):
        ScheduleLog(0, 1, payload=2**20).read("0", 0, 2**12)

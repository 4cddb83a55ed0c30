from __future__ import annotations

import pytest

from taut.bench.record import BenchError
from taut.bench.reduce.figures import Point, Run, figures, judged
from taut.bench.reduce.sustained import Sustained, line
from taut.spark.reduce.outcome import BatchStats


def batch(number: int, written: float, kept: list[tuple[float, int]], shed: int = 0) -> BatchStats:
    rows = sum(count for _, count in kept)
    on_time = sum(count for deadline, count in kept if deadline >= written)
    return BatchStats(
        batch=number, written=written, rows=rows + shed, processed=rows, readmitted=0, bad=0,
        waiting=0, on_time=on_time, late=rows - on_time, shed={"no time for all": shed},
        hot=0, hot_bytes=0, cold=0, row_us=0.0, cold_us=0.0, predicted=written, began=0.0,
        ended=0.0, deadlines=kept, shed_deadlines=[(15.0, shed)] if shed else [],
    )  # fmt: skip


def test_shares_are_of_the_rows_that_arrived_in_the_measured_time() -> None:
    """Objective 4 s, measured from 10 to 20: deadlines from 14 to 24 count."""
    batches = [
        batch(0, 13.0, [(13.9, 50)]),  # arrived before
        batch(1, 15.0, [(14.5, 20), (16.0, 30)], shed=10),  # the first twenty are late
        batch(2, 19.0, [(23.0, 40), (24.5, 99)]),  # the last ones arrived after
    ]
    run = judged("fifo", Point(0.5, 1.0), 1, batches, 4.0, 10.0, 20.0, rows=100)
    assert (run.on_time, run.processed, run.shed) == pytest.approx((0.7, 0.9, 0.1))
    assert run.batches == 3
    assert run.rows_per_s == pytest.approx((50 + 50 + 139) / 10.0)


def test_rows_at_the_edge_are_shared_out() -> None:
    """A deadline is known to a hundredth of the objective, rounded down."""
    run = judged("fifo", Point(1, 1), 1, [batch(0, 0.0, [(13.98, 100)])], 4.0, 10.0, 20.0, 100)
    assert run.on_time == pytest.approx(0.5)


def test_medians_by_the_names_of_the_contract() -> None:
    runs = [
        Run("edf", Point(0.5, 1.36), n, on_time, 1.0, 0.0, 10.0, 5)
        for n, on_time in enumerate((0.2, 0.9, 0.4))
    ]
    assert figures("words", runs) == {
        "words.edf.m0.5.l1.36.on_time": 0.4,
        "words.edf.m0.5.l1.36.processed": 1.0,
        "words.edf.m0.5.l1.36.shed": 0.0,
        "words.edf.m0.5.l1.36.rows_per_s": 10.0,
    }


def test_what_is_sustained() -> None:
    found = line([(1_000, 0.41), (11_000, 0.51)])
    assert (found.fixed, found.each) == pytest.approx((0.4, 1e-5))
    # batches of 1.6 s have the rows of 1.6 s: 0.4 + 1e-5 * 75,000 * 1.6 = 1.6
    assert found.rate(objective=4.0) == 75_000
    with pytest.raises(BenchError, match=r"2.00 s without any row: an objective of 4 s"):
        Sustained(2.0, 1e-5).rate(4.0)

from __future__ import annotations

import pytest

from taut.bench.lanes.judge import by_lane, judge, pauses
from taut.bench.lanes.notes import Note


def out(n: int, at: float, part: int = 0) -> Note:
    return Note(n, part, 0, -1, at)


def test_a_tuple_counts_from_when_it_was_first_written() -> None:
    written = [out(5, 3.0), out(5, 2.5), out(6, 2.75), out(99, 9.0)]
    worked = [out(5, 2.25), out(5, 2.375), out(6, 2.5), out(99, 1.0), out(99, 1.0)]
    told = judge(written, worked, {5: 2.0, 6: 2.25})
    assert told.latencies == (0.5, 0.5)
    assert (told.duplicates, told.lost, told.extra, told.arrived) == (1, 0, 1, 2)
    assert told.queued_s == 0.25


def test_a_tuple_never_written_is_lost_and_has_no_latency() -> None:
    told = judge([out(1, 4.0)], [out(1, 3.5), out(2, 3.5)], {1: 3.0, 2: 3.0, 3: 3.0})
    assert told.latencies == (1.0,)
    assert (told.duplicates, told.lost, told.extra) == (0, 2, 0)


def test_a_tuple_is_out_when_its_last_output_is() -> None:
    parts = {1: (0, 1), 2: (1,), 3: (0, 1)}.__getitem__
    written = [out(1, 5.0, 0), out(1, 7.0, 1), out(1, 6.0, 1), out(2, 5.5, 1), out(3, 5.0, 1)]
    told = judge(written, [], dict.fromkeys((1, 2, 3), 4.0), parts)
    assert told.latencies == (1.5, 2.0)
    assert (told.duplicates, told.lost) == (1, 1), "one part of 3 is missing"
    assert told.queued_s is None


def test_a_tuple_that_is_dropped_is_not_due_and_too_much_when_it_is_written() -> None:
    parts = {1: (0,), 2: ()}.__getitem__
    told = judge([out(1, 5.0)], [out(1, 4.5), out(2, 4.5)], {1: 4.0, 2: 4.0}, parts)
    assert (told.latencies, told.lost, told.duplicates, told.arrived) == ((1.0,), 0, 0, 2)
    told = judge([out(1, 5.0), out(2, 5.0)], [], {1: 4.0, 2: 4.0}, parts)
    assert (told.latencies, told.duplicates) == ((1.0,), 1)


def test_a_pause_is_until_the_first_tuple_of_the_next_batch_is_written() -> None:
    arrivals = {n: 100 + n / 10 for n in range(100)}
    written = [out(n, at + (0.5 if 105 <= at < 105.3 else 0.01)) for n, at in arrivals.items()]
    assert pauses([105.0], written, arrivals) == pytest.approx((0.31,))
    assert pauses([200.0], written, arrivals) == ()


def test_what_each_lane_wrote() -> None:
    (told,) = by_lane([Note(1, 0, 4, 2, 12.5), Note(9, 0, 0, 0, 13.0)], {1: 12.0}, start=10.0)
    assert told == (4, 2, 2.5, 0.5)

"""The kernel: events in order, randomness by name, and the answers of textbooks."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.sim.kernel import Kernel


@given(st.lists(st.floats(0.0, 100.0), max_size=60))
def test_events_happen_in_the_order_of_their_times_and_then_of_asking(times: list[float]) -> None:
    kernel = Kernel()
    happened: list[tuple[float, int]] = []
    for n, time in enumerate(times):
        kernel.at(time, lambda n: happened.append((kernel.now, n)), n)
        kernel.check()
    assert kernel.run() == len(times)
    assert happened == sorted((time, n) for n, time in enumerate(times))
    kernel.check()


def test_what_is_not_due_yet_waits() -> None:
    kernel = Kernel()
    happened: list[str] = []
    kernel.after(1.0, happened.append, "one")
    kernel.after(3.0, happened.append, "three")
    assert (kernel.run(until=2.0), kernel.now, happened) == (1, 2.0, ["one"])
    assert (kernel.run(), kernel.now, happened) == (1, 3.0, ["one", "three"])


def test_the_past_is_over() -> None:
    kernel = Kernel()
    kernel.run(until=5.0)
    with pytest.raises(ValueError, match=r"an event at 4.0: it is 5.0 already"):
        kernel.at(4.0, print)
    with pytest.raises(ValueError, match="nan"):
        kernel.at(float("nan"), print)


def test_streams_are_told_apart_by_name_and_do_not_disturb_each_other() -> None:
    one, other = Kernel(seed=3), Kernel(seed=3)
    expected = one.stream("a").random(5).tolist()
    other.stream("b").random(1_000)
    assert other.stream("a").random(5).tolist() == expected
    assert Kernel(seed=4).stream("a").random(5).tolist() != expected
    assert Kernel(seed=3).stream("c").random(5).tolist() != expected


def test_streams_are_the_same_on_any_machine() -> None:
    drawn = Kernel(seed=7).stream("machine0/pauses").random(3).tolist()
    assert drawn == [0.2201109127923233, 0.6940566601150173, 0.644293488150633]


def test_an_event_may_ask_for_more() -> None:
    kernel = Kernel()
    ticks = itertools.count()

    def tick(left: int) -> None:
        next(ticks)
        if left:
            kernel.after(1.0, tick, left - 1)

    kernel.after(0.0, tick, 9)
    assert kernel.run() == 10
    assert kernel.now == 9.0
    assert next(ticks) == 10


def test_a_run_does_not_turn_the_clock_back() -> None:
    kernel = Kernel()
    kernel.run(5.0)
    for wrong in (3.0, float("nan")):
        with pytest.raises(ValueError, match=r"it is 5\.0 already"):
            kernel.run(wrong)


def test_a_heap_out_of_order_is_found_out() -> None:
    kernel = Kernel()
    for time in (1.0, 2.0, 3.0):
        kernel.at(time, print)
    kernel.check()
    kernel.heap.reverse()
    with pytest.raises(AssertionError):
        kernel.check()


def test_an_event_that_was_left_behind_is_found_out() -> None:
    kernel = Kernel()
    kernel.at(1.0, print)
    kernel.now = 2.0
    with pytest.raises(AssertionError):
        kernel.check()

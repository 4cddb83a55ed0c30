"""Queues before one link."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from taut.policy.backlog import LargestBacklog, RoundRobinSignal, Signals
from taut.sim.link import jain, poisson, send


@given(
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2), elements=st.integers(0, 3)),
    st.integers(1, 4),
    st.sampled_from([LargestBacklog, RoundRobinSignal, lambda: None]),
)
def test_every_tuple_is_sent_in_order_or_left(
    arrivals: np.ndarray, hold: int, signals: Callable[[], Signals | None]
) -> None:
    sent = send(arrivals, signals(), hold)
    assert len(sent.delays) + sent.left == arrivals.sum()
    assert (sent.delays >= 0).all()
    assert sent.most <= sent.peak <= sent.most + max(1, arrivals.max())
    assert sent.peak <= arrivals.sum()


def test_the_largest_goes_first_and_an_empty_turn_is_lost_in_round_robin() -> None:
    arrivals = np.array([[0, 3], [0, 0], [0, 0], [0, 0]])
    largest = send(arrivals, LargestBacklog(), look=[1, 2, 3, 4])
    assert largest.backlogs.tolist() == [[0, 2], [0, 1], [0, 0], [0, 0]]
    assert largest.delays.tolist() == [0, 1, 2]
    turns = send(arrivals, RoundRobinSignal(), look=[4])
    assert turns.backlogs.tolist() == [[0, 1]]
    assert (turns.delays.tolist(), turns.left, turns.most, turns.peak) == ([1, 3], 1, 3, 3)
    assert (largest.most, largest.peak) == (2, 3), "one of the three is sent in the same slot"


def test_all_at_once_is_the_order_of_arrival_and_no_queue_is_always_first() -> None:
    arrivals = np.array([[1, 2], [1, 1], [0, 0], [0, 0], [0, 0], [0, 0]])
    sent = send(arrivals, None, look=range(1, 7))
    assert sent.backlogs.tolist() == [[0, 2], [1, 2], [1, 1], [1, 0], [0, 0], [0, 0]]
    assert sent.delays.tolist() == [0, 1, 2, 2, 3]
    assert (sent.most, sent.peak, sent.left) == (2, 3, 0)


@given(hnp.arrays(np.int64, (12, 3), elements=st.integers(0, 1)))
def test_who_always_sends_while_something_waits_has_the_same_mean_delay(
    arrivals: np.ndarray,
) -> None:
    arrivals = np.concatenate([arrivals, np.zeros((40, 3), np.int64)])
    largest, at_once = send(arrivals, LargestBacklog()), send(arrivals, None)
    assert largest.left == at_once.left == 0
    assert largest.delays.sum() == at_once.delays.sum()
    assert largest.delays.sum() <= send(arrivals, RoundRobinSignal()).delays.sum()


def test_a_signal_is_kept_for_a_while() -> None:
    arrivals = np.array([[2, 1], [0, 0], [0, 5], [0, 0]])
    assert send(arrivals, LargestBacklog(), hold=4, look=[4]).backlogs.tolist() == [[0, 6]]
    assert send(arrivals, LargestBacklog(), hold=2, look=[4]).backlogs.tolist() == [[0, 4]]


def test_one_queue_is_an_md1() -> None:
    """Poisson arrivals, one tuple a slot: a mean wait of rho / (2 (1 - rho)) slots, in slots.

    Tuples of one slot wait for each other too, and one that finds nobody is sent at once, half a
    slot earlier than in continuous time: rho / (2 (1 - rho)) is what is left.
    """
    arrivals = poisson(np.random.default_rng(1), 400_000, [0.7], 1.0)
    assert send(arrivals, LargestBacklog()).delays.mean() == pytest.approx(0.7 / 0.6, rel=0.02)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=20).filter(any))
def test_jain_is_from_one_over_n_to_one(backlogs: list[int]) -> None:
    assert 1 / len(backlogs) - 1e-9 <= jain(np.array(backlogs)) <= 1 + 1e-9


def test_without_any_backlog_there_is_nothing_to_be_alike() -> None:
    assert math.isnan(jain(np.zeros(3, np.int64)))

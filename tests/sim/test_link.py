"""Queues before one link."""

from __future__ import annotations

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
    st.sampled_from([LargestBacklog, RoundRobinSignal]),
)
def test_every_tuple_is_sent_in_order_or_left(
    arrivals: np.ndarray, hold: int, signals: type[Signals]
) -> None:
    sent = send(arrivals, signals(), hold)
    assert len(sent.delays) + sent.left == arrivals.sum()
    assert (sent.delays >= 0).all()
    assert sent.most <= arrivals.sum()


def test_the_largest_goes_first_and_an_empty_turn_is_lost_in_round_robin() -> None:
    arrivals = np.array([[0, 3], [0, 0], [0, 0], [0, 0]])
    largest = send(arrivals, LargestBacklog(), look=[1, 2, 3, 4])
    assert largest.backlogs.tolist() == [[0, 2], [0, 1], [0, 0], [0, 0]]
    assert largest.delays.tolist() == [0, 1, 2]
    turns = send(arrivals, RoundRobinSignal(), look=[4])
    assert turns.backlogs.tolist() == [[0, 1]]
    assert (turns.delays.tolist(), turns.left, turns.most) == ([1, 3], 1, 3)


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


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=20))
def test_jain_is_from_one_over_n_to_one(backlogs: list[int]) -> None:
    assert 1 / len(backlogs) - 1e-9 <= jain(np.array(backlogs)) <= 1 + 1e-9

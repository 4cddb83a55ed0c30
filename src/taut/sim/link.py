"""Queues that share a link, slot by slot: one tuple a slot, of the queue that has the signal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from taut.policy.backlog import Signals
from taut.sim.draws import Array

Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sent:
    """What came of it.

    Attributes
    ----------
    most
        The largest backlog of any queue, when what comes in a slot has come and none is sent yet.
    delays
        Whole slots from the slot of arrival to the slot it was sent in, of the tuples that were.
    backlogs
        Of every queue, after each of the slots that were to be looked at.
    left
        Tuples that were not sent by the end.
    """

    most: int
    delays: Counts
    backlogs: Counts
    left: int


def poisson(random: Generator, slots: int, rates: Sequence[float], slot_s: float) -> Counts:
    """Tuples that come in each slot to each queue, at so many a second."""
    return random.poisson(np.array(rates) * slot_s, (slots, len(rates))).astype(np.int64)


def send(arrivals: Counts, signals: Signals, hold: int = 1, look: Sequence[int] = ()) -> Sent:
    """Let tuples come, and send one a slot.

    Parameters
    ----------
    arrivals
        By slot and queue.
    signals
        Says which queue may send.
    hold
        Slots that a queue keeps the signal.
    look
        Slots after which to note all backlogs.
    """
    queues = arrivals.shape[1]
    waiting: list[deque[int]] = [deque() for _ in range(queues)]
    sizes = [0] * queues
    looked = frozenset(look)
    delays: list[int] = []
    backlogs: list[list[int]] = []
    most, turn = 0, None
    for slot, coming in enumerate(arrivals.tolist()):
        for queue, n in enumerate(coming):
            if n:
                waiting[queue].extend([slot] * n)
                sizes[queue] += n
                most = max(most, sizes[queue])
        if slot % hold == 0:
            turn = signals.pick(sizes)
        if turn is not None and sizes[turn]:
            delays.append(slot - waiting[turn].popleft())
            sizes[turn] -= 1
        if slot + 1 in looked:
            backlogs.append(sizes.copy())
    assert sizes == [len(queue) for queue in waiting]
    assert len(delays) + sum(sizes) == arrivals.sum()
    return Sent(most, np.array(delays), np.array(backlogs), sum(sizes))


def jain(backlogs: Array | Counts) -> float:
    """How alike backlogs are: 1 when all are, 1/n when one queue has everything; 1 for none.

    >>> jain(np.array([4, 4])), jain(np.array([9, 0, 0])), jain(np.array([0, 0]))
    (1.0, 0.3333333333333333, 1.0)
    """
    squares = float((backlogs.astype(float) ** 2).sum())
    return float(backlogs.sum()) ** 2 / (len(backlogs) * squares) if squares else 1.0

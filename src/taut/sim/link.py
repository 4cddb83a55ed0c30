"""Queues that share a link, slot by slot: one tuple a slot, of the queue that has the signal."""

from __future__ import annotations

import math
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
        The largest backlog of any queue that a slot has left to the next.
    peak
        The same within slots: when what comes in one has come and none of it is sent yet.
    delays
        Whole slots from the slot of arrival to the slot it was sent in, of the tuples that were.
    backlogs
        Of every queue, after each of the slots that were to be looked at.
    left
        Tuples that were not sent by the end.
    """

    most: int
    peak: int
    delays: Counts
    backlogs: Counts
    left: int


def poisson(random: Generator, slots: int, rates: Sequence[float], slot_s: float) -> Counts:
    """Tuples that come in each slot to each queue, at so many a second."""
    return random.poisson(np.array(rates) * slot_s, (slots, len(rates))).astype(np.int64)


def send(
    arrivals: Counts, signals: Signals | None, hold: int = 1, look: Sequence[int] = ()
) -> Sent:
    """Let tuples come, and send one a slot.

    Parameters
    ----------
    arrivals
        By slot and queue.
    signals
        Says which queue may send; None where all may at once, so that the link has everything and
        sends it in the order it came. Of one slot, each queue comes first in turn.
    hold
        Slots that a queue keeps the signal.
    look
        Slots after which to note all backlogs.
    """
    queues = arrivals.shape[1]
    waiting: list[deque[int]] = [deque() for _ in range(queues)]
    line: deque[int] = deque()
    sizes = [0] * queues
    looked = frozenset(look)
    delays: list[int] = []
    backlogs: list[list[int]] = []
    most, peak, turn = 0, 0, None
    for slot, coming in enumerate(arrivals.tolist()):
        grown = [queue for queue, n in enumerate(coming) if n]
        for queue in grown:
            waiting[queue].extend([slot] * coming[queue])
            sizes[queue] += coming[queue]
            peak = max(peak, sizes[queue])
        if signals is None:
            for queue in sorted(grown, key=lambda queue: (queue - slot) % queues):
                line.extend([queue] * coming[queue])
            turn = line.popleft() if line else None
        elif slot % hold == 0:
            turn = signals.pick(sizes)
        if turn is not None and sizes[turn]:
            delays.append(slot - waiting[turn].popleft())
            sizes[turn] -= 1
        for queue in grown:
            most = max(most, sizes[queue])
        if slot + 1 in looked:
            backlogs.append(sizes.copy())
    assert sizes == [len(queue) for queue in waiting]
    assert signals is not None or len(line) == sum(sizes)
    assert len(delays) + sum(sizes) == arrivals.sum()
    assert most <= peak
    return Sent(most, peak, np.array(delays), np.array(backlogs), sum(sizes))


def jain(backlogs: Array | Counts) -> float:
    """How alike backlogs are: 1 when all are, 1/n when one queue has everything.

    Without any backlog the index is nothing over nothing, and no number.

    >>> jain(np.array([4, 4])), jain(np.array([9, 0, 0])), jain(np.array([0, 0]))
    (1.0, 0.3333333333333333, nan)
    """
    squares = float((backlogs.astype(float) ** 2).sum())
    return float(backlogs.sum()) ** 2 / (len(backlogs) * squares) if squares else math.nan

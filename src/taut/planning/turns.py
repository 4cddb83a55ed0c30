"""How long a batch waits for its turn, where several queries take turns on one cluster.

Every query starts a batch at its own interval, and ``turns`` batches run at once. Seen from one
query, the others' batches come at intervals that have nothing to do with its own: it finds all
turns taken as often as they are, and waits for the first to end, and for those that were there
before it (:func:`taut.planning.queueing.gg_wait`). Batches that come at intervals cannot pile up as
those can that come at random: each of the others is there once at most. When turns are taken
nearly all the time, what has piled up is a Brownian bridge, and has a bound that G/G/c does not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from taut.planning.quantile import Floats
from taut.planning.queueing import Moments, gg_wait
from taut.policy.waiting import erlang_c

_NODES, _WEIGHTS = (each / 2.0 for each in np.polynomial.legendre.leggauss(24))
_NODES += 0.5
_FULL = 0.999
"""Of all turns, what others take at most when a wait is asked for: more cannot last."""
_NONE = Moments(0.0, 0.0)
_UNIFORM = 1.0 / 3.0
_BRIDGE = 4.0 / math.pi - 1.0
"""Squared coefficients of variation: of what is left of a batch, and of what has piled up."""


@dataclass(frozen=True, slots=True)
class Load:
    """The batches of one query: a turn of ``takes`` is needed at every interval (seconds)."""

    interval: float
    takes: Moments

    @property
    def share(self) -> float:
        """Of its time, what the query has a turn for."""
        return self.takes.mean / self.interval

    @property
    def square(self) -> float:
        """The second moment of what a batch takes."""
        return self.takes.variance + self.takes.mean**2


@dataclass(frozen=True, slots=True)
class Wait:
    """For a turn: none, unless all are taken; then as long as a gamma distribution has it.

    Attributes
    ----------
    busy
        The chance that all turns are taken.
    then
        The wait in that case (seconds).
    """

    busy: float = 0.0
    then: Moments = _NONE

    @property
    def mean(self) -> float:
        """On average, of all batches."""
        return self.busy * self.then.mean

    def quantiles(self, shares: Floats) -> Floats:
        """What these shares of batches wait at most.

        >>> Wait(0.5, Moments(2.0, 4.0)).quantiles(np.array([0.3, 0.75])).round(3).tolist()
        [0.0, 1.386]
        """
        if not self.mean:
            return np.zeros_like(shares)
        shape = 1.0 / self.then.scv
        waited = np.maximum(0.0, (shares - 1.0 + self.busy) / self.busy)
        found: Floats = special.gammaincinv(shape, waited) * self.then.mean / shape
        return found


def wait_for(others: Sequence[Load], turns: int) -> Wait:
    """How long a batch waits for one of so many turns, which others take as well.

    >>> wait_for([Load(2.0, Moments(0.5, 0.0))], 2)
    Wait(busy=0.0, then=Moments(mean=0.0, variance=0.0))
    >>> one = wait_for([Load(2.0, Moments(0.5, 0.0))], 1)  # a quarter of the time, then half of it
    >>> one.busy, round(one.then.mean, 2)
    (0.25, 0.25)
    """
    if turns < 1:
        raise ValueError(f"turns={turns}: at least 1 is needed")
    if len(others) < turns:
        return Wait()
    rate = sum(1.0 / other.interval for other in others)
    mean = sum(other.share for other in others) / rate
    square = sum(other.square / other.interval for other in others) / rate
    mean_at_most = min(mean, _FULL * turns / rate)
    queue = _NONE
    if len(others) > turns:
        service = Moments(mean_at_most, max(0.0, square - mean**2))
        queue = gg_wait(between([other.interval for other in others]), service, turns)
    # by chance as in M/M/c, but each of the others is there once at most
    busy = min(erlang_c(turns, rate * mean_at_most), _together(others, queue.mean, turns))
    if busy <= 0.0:
        return Wait()
    rest = square / mean / (turns + 1.0)
    plain = rest + queue.mean
    piled = math.sqrt(math.pi / 8.0 * sum(other.square for other in others)) / turns
    bound = 1.0 / math.hypot(1.0, busy * plain / piled)
    scv = (_UNIFORM * rest**2 + queue.variance) / plain**2
    scv = bound**2 * scv + (1.0 - bound**2) * _BRIDGE
    then = bound * plain
    return Wait(busy, Moments(then, scv * then**2))


def between(intervals: Sequence[float]) -> Moments:
    """From one to the next of what comes at all of these intervals, each at any time of its own.

    Exactly: at a random moment the next is more than t away with the chance that none of them
    falls into t, which is a product; and the mean of that is half of what the square is to the
    mean.

    >>> between([2.0])
    Moments(mean=2.0, variance=0.0)
    >>> round(between([1.0] * 2).scv, 6), round(between([1.0] * 4).scv, 6)
    (0.333333, 0.6)
    """
    every = np.array(intervals)
    first = float(every.min())
    mean = 1.0 / float((1.0 / every).sum())
    none = np.prod(1.0 - first * _NODES[:, None] / every, axis=1)
    ahead = first * float(none @ _WEIGHTS)
    return Moments(mean, max(0.0, 2.0 * mean * ahead - mean**2))


def _together(others: Sequence[Load], queue: float, turns: int) -> float:
    """The chance that as many of the others are there at once as there are turns, or more."""
    fewer = np.zeros(turns)
    fewer[0] = 1.0
    for other in others:
        there = min(1.0, (other.takes.mean + queue) / other.interval)
        fewer[1:] = fewer[1:] * (1.0 - there) + fewer[:-1] * there
        fewer[0] *= 1.0 - there
    return max(0.0, 1.0 - float(fewer.sum()))

"""Which settings bear the highest rate: all are tried, and the best of them by turns. Pure.

A machine that others use as well is another one after some minutes, and a JVM gets faster for as
long. So the rates of two settings are found in turns, a run of one and a run of the other, and not
one after the other; and several times over, each time with another one first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from statistics import median
from typing import NamedTuple

from taut.bench.rounds import order
from taut.planning.settings import Settings

STEP = 1.05
"""Rates are told apart if one is so many times the other."""
_FIRST_STEP, _LONGEST_STEP = 1.1, 1.5
_LOOKS = 12
_TENTH = 0.1
_LOWER = 3
"""Times that the rate is halved at which settings are compared that were too late."""


class Took(NamedTuple):
    """What a run took; or more, if it was so late that it was ended."""

    seconds: float
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Screened:
    """Settings at the plan's rate, once; if that was too much, at lower ones until one was not."""

    settings: Settings
    took: Took
    at_less: tuple[Took, ...] = ()

    @property
    def last(self) -> Took:
        """At the lowest rate that was tried."""
        return self.at_less[-1] if self.at_less else self.took

    @property
    def place(self) -> tuple[int, bool, float]:
        """What it is ordered by: the lower the rate that was needed, the further behind."""
        return len(self.at_less), self.last.ended, self.last.seconds


@dataclass(frozen=True, slots=True)
class Reached:
    """Settings, and the highest rate at which they were on time in each round; 0 for never."""

    settings: Settings
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The median of the rounds."""
        return median(self.rates)


def screen(
    took: Callable[[Settings, float], Took],
    every: Sequence[Settings],
    start: float,
    best_of: Callable[[Sequence[Screened]], Sequence[Screened]],
) -> list[Screened]:
    """All of them once, the best first.

    Runs that were ended all took about the same, so those are tried again at lower rates, until
    the best of them are known.
    """
    seen = [Screened(each, took(each, start)) for each in every]
    for level in range(1, _LOWER + 1):
        seen.sort(key=lambda each: each.place)
        if not any(each.last.ended for each in best_of(seen)):
            break
        rate = start / 2.0**level
        seen = [
            replace(each, at_less=(*each.at_less, took(each.settings, rate)))
            if each.last.ended
            else each
            for each in seen
        ]
    return sorted(seen, key=lambda each: each.place)


def climb(start: float) -> Generator[float, bool, float]:
    """Rates to try, to be told whether each was on time; the highest that was, to a step.

    Steps become longer until the rate lies between two that were tried, then shorter. What is late
    at a tenth of the first rate as well is given up, with 0.

    >>> trying = climb(100.0)
    >>> round(next(trying)), round(trying.send(True)), round(trying.send(False))
    (100, 110, 105)
    """
    met, missed, step, rate = 0.0, inf, _FIRST_STEP, start
    for nth in range(_LOOKS):
        if missed <= STEP * met * (1.0 + 1e-9):
            break
        if (yield rate):
            met = rate
        else:
            missed = rate
        if nth == 1 and not met and not (yield _TENTH * start):
            break
        if met and missed < inf:
            rate = sqrt(met * missed)
        else:
            rate = rate * step if met else rate / step
            step = min(_LONGEST_STEP, step * step)
    return met


def by_turns(
    on_time: Callable[[Settings, float], bool], climbs: dict[Settings, float]
) -> dict[Settings, float]:
    """Each climbs from its rate, one run of each after the other, until all know theirs."""
    reached = {}
    trying = {settings: climb(start) for settings, start in climbs.items()}
    rates = {settings: next(each) for settings, each in trying.items()}
    while rates:
        for settings in list(rates):
            try:
                rates[settings] = trying[settings].send(on_time(settings, rates[settings]))
            except StopIteration as end:
                reached[settings] = end.value
                del rates[settings]
    return reached


def contest(
    on_time: Callable[[Settings, float, int], bool],
    entrants: Sequence[Settings],
    start: float,
    rounds: int,
) -> list[Reached]:
    """The highest rates of all, in so many rounds; the first entrant first, then the best.

    In the first round all begin at ``start``, then where they were in the one before.
    """
    begins = dict.fromkeys(entrants, start)
    rates: dict[Settings, list[float]] = {each: [] for each in entrants}
    turns = list(order(list(begins), rounds))
    for nth in range(1, rounds + 1):

        def judged(settings: Settings, rate: float, nth: int = nth) -> bool:
            return on_time(settings, rate, nth)

        now = [settings for round_, settings in turns if round_ == nth]
        for settings, rate in by_turns(judged, {each: begins[each] for each in now}).items():
            rates[settings].append(rate)
            begins[settings] = rate or begins[settings]
    mine, *others = (Reached(each, tuple(rates[each])) for each in entrants)
    return [mine, *sorted(others, key=lambda each: -each.rate)]

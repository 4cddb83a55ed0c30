"""Other settings near the plan's rate, each between two runs of the plan's own. Pure.

A machine that others use as well has rates that differ by a third within minutes. Of runs that
follow each other, what changes slowly does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from taut.planning.settings import Settings

ROUNDS = 3
"""After the first, which says only what is tried again."""
_NEARER = 3
"""Settings, those that came out best. Of many, one does so by chance: what it took then is left
out."""


class Took(NamedTuple):
    """What a run took; or more, if it was so late that it was ended."""

    seconds: float
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Beside:
    """What settings took, as a multiple of what the plan's did: the median of so many rounds.

    ``at_least``: the run was so late that it was ended early.
    """

    settings: Settings
    ratio: float
    rounds: int
    at_least: bool = False


def beside(
    took: Callable[[Settings, int], Took], mine: Settings, others: Sequence[Settings]
) -> list[Beside]:
    """Each of the others, the best first; those that were tried more than once before the rest.

    ``took`` lets settings run in some round, and says what they took. One that was ended is later
    than all that were not: what it had by then says nothing, if the plan's were slow beside it.

    >>> def took(settings, nth):
    ...     return Took(float(settings.lanes))
    >>> [(each.settings.lanes, each.ratio) for each in beside(took, Settings(2), [Settings(3)])]
    [(3, 1.5)]
    """
    if not others:
        return []
    before = took(mine, 0).seconds

    def compared(other: Settings, nth: int) -> tuple[bool, float]:
        nonlocal before
        its, last = took(other, nth), before
        before = took(mine, nth).seconds
        return its.ended, 2.0 * its.seconds / (last + before)

    first = {each: compared(each, 0) for each in others}
    nearer = sorted(others, key=first.__getitem__)[:_NEARER]
    again: dict[Settings, list[tuple[bool, float]]] = {each: [] for each in nearer}
    for nth in range(1, ROUNDS + 1):
        for each in nearer:
            again[each].append(compared(each, nth))
    seen = {each: [once] for each, once in first.items()} | again
    told = []
    for settings, rounds in seen.items():
        ended, ratio = sorted(rounds)[len(rounds) // 2]
        told.append(Beside(settings, ratio, len(rounds), ended))
    return sorted(told, key=lambda each: (-each.rounds, each.at_least, each.ratio))

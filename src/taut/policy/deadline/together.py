"""Which rows of a batch to work on when all of its results are out together, at its end.

A micro-batch is written as a whole: a row is done when the last one is. So a row that is worked on
makes all others later, and one whose deadline lies before the end is late however early its turn
was. Each choice takes groups of rows, the moment work begins, and how long after the last row the
batch is written; it returns how many rows of each group are worked on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from taut.policy.deadline.groups import Alike

Choice = Callable[[Sequence[Alike], float, float], list[int]]


def fifo(groups: Sequence[Alike], now: float, after: float) -> list[int]:
    """All of them, late or not."""
    return [group.rows for group in groups]


def edf(groups: Sequence[Alike], now: float, after: float) -> list[int]:
    """Shuffle batch by shuffle batch, the earliest deadline first; late rows are left out.

    A row is left out when its deadline is over by its turn, whatever it costs and whatever follows.
    """
    due: dict[int, float] = {}
    for group in groups:
        due[group.batch] = min(due.get(group.batch, math.inf), group.deadline)
    ends, kept = now + after, [0] * len(groups)
    for _, _, n in sorted((due[g.batch], g.deadline, n) for n, g in enumerate(groups)):
        group = groups[n]
        left = group.deadline - ends
        if left > 0.0:
            kept[n] = _fitting(group.rows, group.cost, left, begun=True)
            ends += kept[n] * group.cost
    return kept


def dover(groups: Sequence[Alike], now: float, after: float) -> list[int]:
    """Row by row, the earliest deadline first; those that end too late at their turn are left out.

    What is left of D-over where rows are all worth the same.
    """
    ends, kept = now + after, [0] * len(groups)
    for _, n in sorted((group.deadline, n) for n, group in enumerate(groups)):
        group = groups[n]
        left = group.deadline - ends
        if left >= 0.0:
            kept[n] = _fitting(group.rows, group.cost, left)
            ends += kept[n] * group.cost
    return kept


def cost_aware(groups: Sequence[Alike], now: float, after: float) -> list[int]:
    """As many rows as can be on time together; of as many, those that are out soonest.

    For every deadline that the end of the batch could keep, the cheapest rows with deadlines from
    there on are as many as fit. O(g log g + d c) for g groups, d deadlines and c costs.

    Examples
    --------
    Ten rows of 1 s each would all be out at 10, and late; six of them can be on time.

    >>> cost_aware([Alike(4.0, 1.0, 4), Alike(6.0, 1.0, 6)], now=0.0, after=0.0)
    [0, 6]
    """
    by_deadline = sorted(range(len(groups)), key=lambda n: groups[n].deadline)
    due: dict[float, int] = {}
    best: dict[float, int] = {}
    most, first = 0, math.inf
    for end, same in groupby(reversed(by_deadline), key=lambda n: groups[n].deadline):
        left = end - after - now
        if left < 0.0:
            break
        for n in same:
            due[groups[n].cost] = due.get(groups[n].cost, 0) + groups[n].rows
        fits = _cheapest(due, left)
        total = sum(fits.values())
        if total >= most:
            most, first, best = total, end, fits
    kept = [0] * len(groups)
    for n in by_deadline:
        group = groups[n]
        if group.deadline >= first:
            # of equals those with the least time: the others may still be on time in a later batch
            kept[n] = min(group.rows, best.get(group.cost, 0))
            best[group.cost] = best.get(group.cost, 0) - kept[n]
    return kept


def ends_at(groups: Sequence[Alike], kept: Sequence[int], now: float, after: float) -> float:
    """When the batch is written if so many rows of each group are worked on."""
    return now + after + sum(n * group.cost for n, group in zip(kept, groups, strict=True))


def _cheapest(rows: Mapping[float, int], left: float) -> dict[float, int]:
    """How many rows of each cost are done in the time that is left, the cheapest first."""
    fits = {}
    for cost in sorted(rows):
        fits[cost] = _fitting(rows[cost], cost, left)
        left -= fits[cost] * cost
        if fits[cost] < rows[cost]:
            break
    return fits


def _fitting(rows: int, cost: float, left: float, *, begun: bool = False) -> int:
    """How many rows end within the time that is left, or have begun by then."""
    if rows * cost <= left:
        return rows
    # by a millionth of a row: what was written as 0.3 / 0.1 is three rows
    fits = math.ceil(left / cost - 1e-6) if begun else math.floor(left / cost + 1e-6)
    return max(0, min(rows, fits))


CHOICES: Mapping[str, Choice] = {
    "fifo": fifo,
    "edf": edf,
    "cost-aware": cost_aware,
    "dover": dover,
}
"""By name."""

"""Which rows of a batch to work on when all of its results are out together, at its end.

A micro-batch is written as a whole: a row is done when the last one is. So a row that is worked on
makes all others later, and one whose deadline lies before the end is late however early its turn
was. Each choice takes groups of rows, the moment work begins, and how long after the last row the
batch is written; it returns how many rows of each group are worked on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

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
            kept[n] = _fitting(group, left, begun=True)
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
            kept[n] = _fitting(group, left)
            ends += kept[n] * group.cost
    return kept


def cost_aware(groups: Sequence[Alike], now: float, after: float) -> list[int]:
    """As many rows as can be on time together; of as many, those that are out soonest.

    For every deadline that the end of the batch could keep, the cheapest rows with deadlines from
    there on are as many as fit. O(d g) for d deadlines and g groups.

    Examples
    --------
    Ten rows of 1 s each would all be out at 10, and late; six of them can be on time.

    >>> cost_aware([Alike(4.0, 1.0, 4), Alike(6.0, 1.0, 6)], now=0.0, after=0.0)
    [0, 6]
    """
    cheapest = sorted(range(len(groups)), key=lambda n: (groups[n].cost, groups[n].deadline))
    most, best = 0, [0] * len(groups)
    for end in sorted({group.deadline for group in groups}):
        left = end - after - now
        if left < 0.0:
            continue
        kept, total = [0] * len(groups), 0
        for n in cheapest:
            group = groups[n]
            if group.deadline < end:
                continue
            fits = _fitting(group, left)
            kept[n] = fits
            total += fits
            left -= fits * group.cost
            if fits < group.rows:
                break
        if total > most:
            most, best = total, kept
    return best


def ends_at(groups: Sequence[Alike], kept: Sequence[int], now: float, after: float) -> float:
    """When the batch is written if so many rows of each group are worked on."""
    return now + after + sum(n * group.cost for n, group in zip(kept, groups, strict=True))


def on_time(groups: Sequence[Alike], kept: Sequence[int], now: float, after: float) -> int:
    """How many of the rows that are worked on are on time."""
    end = ends_at(groups, kept, now, after)
    # a nanosecond more: the last digit of a sum makes no row late
    return sum(n for n, group in zip(kept, groups, strict=True) if group.deadline >= end - 1e-9)


def _fitting(group: Alike, left: float, *, begun: bool = False) -> int:
    """How many rows of a group end within the time that is left, or have begun by then."""
    if group.rows * group.cost <= left:
        return group.rows
    # by a millionth of a row: what was written as 0.3 / 0.1 is three rows
    rows = left / group.cost
    fits = math.ceil(rows - 1e-6) if begun else math.floor(rows + 1e-6)
    return max(0, min(group.rows, fits))


CHOICES: Mapping[str, Choice] = {
    "fifo": fifo,
    "edf": edf,
    "cost-aware": cost_aware,
    "dover": dover,
}
"""By name."""

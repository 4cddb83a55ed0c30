"""What a profile tries: which settings, and how many rows a batch has. No Spark.

Profiling on Spark (:mod:`taut.spark.planning.profiling`) and in the simulator try the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from taut.planning.profile import Sample
from taut.planning.settings import Cluster, Settings

CUT = 2
"""Batches at the start of a query that are not taken: it starts workers and opens state stores."""
BATCHES = 6
"""Taken of each query."""
SECONDS = 78.0
"""That a profile takes, its warm-up included."""
_SHORTEST_S, _LONGEST_S = 0.4, 2.0
"""What the rows of a large batch should take."""
_SPREAD = 5
"""How many times the rows of a small batch a middle one has, and of that a large one."""


def mixtures(cluster: Cluster) -> list[Settings]:
    """As many tasks as slots, and one; between them half as many, where that is another number.

    And few lanes with many reducers, and the reverse: both are more than what each does alone. And
    twice as many reducers as slots: they take less if one of them has many more rows than others.
    """
    slots = cluster.slots
    half = max(1, slots // 2)
    tried = [(slots, slots), (1, 1), (1, slots), (slots, 2 * slots), (slots, 1), (half, half)]
    return [Settings(lanes, reducers) for lanes, reducers in dict.fromkeys(tried)]


def trials(cluster: Cluster, large: int) -> list[Settings]:
    """What is tried, in that order, the cap being the rows of a batch.

    Large batches at all settings; small ones where lanes and reducers are most and fewest; and at
    the first a size between them, for rows of small batches may cost less than those of large ones.
    """
    most, least, *others = mixtures(cluster)
    middle, small = (max(1, large // _SPREAD**power) for power in (1, 2))
    tried = [
        most.but(cap=large),
        most.but(cap=middle),
        most.but(cap=small),
        least.but(cap=large),
        least.but(cap=small),
        *(other.but(cap=large) for other in others),
    ]
    return list(dict.fromkeys(tried))


def guesses(rate: float | None) -> tuple[int, int]:
    """Rows of batches while it warms up: a quarter of a second of them, and two."""
    return (10_000, 80_000) if rate is None else (max(1, round(rate / 4)), max(2, round(2 * rate)))


def largest(
    warm: Sequence[Sample], objective: float | None = None, *, windowed: bool = False
) -> int:
    """Rows of a large batch: as many as can be on time, or that take as long as all else.

    With batches one after another, a row is out after two of them at the latest, and the result
    of a window after three: a batch may take that part of the objective.

    >>> few = Sample(1, 1, 1_000, 0, 0, {"plan": 0.52})
    >>> many = Sample(1, 1, 11_000, 0, 0, {"plan": 0.72})
    >>> largest([few, few, many]), largest([few, few, many], 3.0)
    (25000, 50000)
    """
    few, many = (pick(warm, key=lambda sample: sample.rows) for pick in (min, max))
    if many.rows < 2 * few.rows:
        # the source gives what it gives: take that
        return _SPREAD**2 * few.rows
    each = max(1e-9, (many.total - few.total) / (many.rows - few.rows))
    fixed = max(0.0, few.total - each * few.rows)
    wanted = fixed if objective is None else objective / (3.0 if windowed else 2.0) - fixed
    rows = min(_LONGEST_S, max(_SHORTEST_S, fixed, wanted)) / each
    # rows that seem to cost nothing, on a machine with other things to do, are no reason for more
    return max(_SPREAD**2, round(min(rows, _SPREAD**2 * many.rows)))

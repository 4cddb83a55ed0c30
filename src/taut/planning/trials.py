"""What a profile tries: which settings, and how many rows a batch has. No Spark.

Profiling on Spark (:mod:`taut.spark.planning.profiling`) and in the simulator try the same.
"""

from __future__ import annotations

from collections.abc import Sequence

from taut.planning.profile import Sample
from taut.planning.settings import Cluster, Settings

CUT = 2
"""Batches at the start of a query that are not taken: it starts workers and opens state stores."""
BATCHES = 12
"""Taken of each query."""
_SHORTEST_S, _LONGEST_S = 0.4, 2.5
"""What the rows of a large batch should take."""
_SPREAD = 8
"""How many times the rows of a small batch a large one has."""


def runs(cluster: Cluster) -> list[Settings]:
    """As many tasks as slots, and one; between them half as many, where that is another number.

    Map and reduce are fitted apart, as if one lane with many reducers took what each does. On Spark
    that was 22 % more: see ``docs/plan.md``.
    """
    slots = cluster.slots
    return [Settings(tasks, tasks) for tasks in dict.fromkeys((slots, 1, max(1, slots // 2)))]


def guesses(rate: float | None) -> tuple[int, int]:
    """Rows of batches while it warms up: a quarter of a second of them, and two."""
    return (10_000, 80_000) if rate is None else (max(1, round(rate / 4)), max(2, round(2 * rate)))


def sizes(warm: Sequence[Sample]) -> tuple[int, int]:
    """Of small and of large batches, so that the rows of a large one take as long as all else.

    >>> few = Sample(1, 1, 1_000, 0, 0, {"plan": 0.52})
    >>> many = Sample(1, 1, 11_000, 0, 0, {"plan": 0.72})
    >>> sizes([few, few, many])
    (3125, 25000)
    """
    few, many = (pick(warm, key=lambda sample: sample.rows) for pick in (min, max))
    if many.rows < 2 * few.rows:
        # the source gives what it gives: take that
        return few.rows, _SPREAD * few.rows
    each = max(1e-9, (many.total - few.total) / (many.rows - few.rows))
    fixed = max(0.0, few.total - each * few.rows)
    large = min(_LONGEST_S, max(_SHORTEST_S, fixed)) / each
    # rows that seem to cost nothing, on a machine with other things to do, are no reason for more
    large = min(large, _SPREAD * many.rows)
    return max(1, int(large / _SPREAD)), max(_SPREAD, round(large))

"""Which rows of a batch a reducer works on: costs and deadlines as the policies take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut.policy.deadline import CHOICES, Alike
from taut.policy.deadline.together import ends_at
from taut.spark.reduce.job import MICRO

Numbers = np.ndarray[Any, Any]
First = Callable[[Numbers, int, bool], Numbers]
"""Takes places of rows, how many are wanted, and whether of few keys; gives so many of them."""

COLDEST = 4
"""Classes of cold rows: of keys that come once, twice, four times, and more often in a batch."""
_PROBED = 2
"""Percent of the latest rows that are worked on where all seem to be too late."""
_STEPS = 50
"""Of deadlines, in an objective."""


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds that a row takes, that a state takes which is not in memory, and that are fixed."""

    row: float
    cold: float
    fixed: float = 0.0

    def of(self, kind: int) -> float:
        """Of a row of a class; rows of one key share what fetching its state takes."""
        return self.row + (self.cold / 2 ** (kind - 1) if kind else 0.0)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which rows are worked on, when they will be out, and how long they might take still."""

    kept: Numbers
    """True for each row that is."""
    predicted: float
    spare: float


def classes(times: Numbers, cold: Numbers) -> Numbers:
    """The class of each key from how often it comes in the batch, and whether it is cold."""
    octave = np.frexp(np.maximum(times, 1))[1]
    return np.where(cold, np.minimum(octave, COLDEST), 0)


def choose(
    policy: str,
    arrivals_us: Numbers,
    kinds: Numbers,
    codes: Numbers,
    batches: Numbers,
    objective: float,
    begins: float,
    after: float,
    costs: Costs,
    first_of: First | None = None,
) -> Chosen:
    """Decide over the rows of a batch, given in the order they came.

    Parameters
    ----------
    policy
        A name out of :data:`taut.policy.deadline.CHOICES`.
    arrivals_us, kinds, codes, batches
        Of each row: its arrival, its class, its key's number, its shuffle batch.
    objective
        Seconds from arrival until a row must be out.
    begins, after
        When work begins, and how long after its end the batch is out.
    first_of
        Which of rows that are alike; without it those that came first.
    """
    bound = round(objective * MICRO)
    unit = max(1, bound // _STEPS)
    # all that is late anyway is alike, and so is what has time without end
    least = int(begins * MICRO) // unit - 1
    steps = np.clip((arrivals_us + bound) // unit - least, 0, 3 * _STEPS)
    group = steps * (COLDEST + 1) + kinds
    if policy == "edf":
        group += batches * ((COLDEST + 1) * (3 * _STEPS + 1))
    found, first, which, sizes = np.unique(
        group, return_index=True, return_inverse=True, return_counts=True
    )
    # of rows that are taken for alike the first one's deadline counts
    alike = [
        Alike(
            due / MICRO,
            costs.of(code % (COLDEST + 1)),
            rows,
            code // ((COLDEST + 1) * (3 * _STEPS + 1)),
        )
        for code, due, rows in zip(
            found.tolist(), (arrivals_us[first] + bound).tolist(), sizes.tolist(), strict=True
        )
    ]
    behind = after + costs.fixed
    counts = CHOICES[policy](alike, begins, behind)
    probing = not any(counts)
    if probing:
        # what rows cost is only known from working on some, and it may have changed
        last = max(range(len(alike)), key=lambda n: (alike[n].deadline, -alike[n].cost))
        counts[last] = max(1, alike[last].rows * _PROBED // 100)
    predicted = ends_at(alike, counts, begins, behind)
    due = min(a.deadline for a, n in zip(alike, counts, strict=True) if n)
    # where nobody can be kept waiting, rows that wait get a part of the time
    spare = objective / 4.0 - behind if probing else due - predicted
    take = first_of or (lambda at, many, by_key: _first(at, many, codes if by_key else None))
    kept = _rows(np.array(counts), sizes, which, kinds, take)
    return Chosen(kept, predicted, max(0.0, spare))


def _rows(
    counts: Numbers, sizes: Numbers, which: Numbers, kinds: Numbers, first_of: First
) -> Numbers:
    """Rows out of how many of each group: the first, or those of as few cold keys as can be."""
    kept: Numbers = (counts == sizes)[which]
    for group in np.flatnonzero((counts > 0) & (counts < sizes)).tolist():
        rows = np.flatnonzero(which == group)
        kept[first_of(rows, int(counts[group]), bool(kinds[rows[0]]))] = True
    return kept


def _first(at: Numbers, many: int, codes: Numbers | None) -> Numbers:
    """The first of them as they came."""
    return at[:many] if codes is None else at[np.argsort(codes[at], kind="stable")][:many]

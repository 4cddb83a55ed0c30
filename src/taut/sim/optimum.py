"""The most rows that can be on time for one who knows all that will come: by trying every set."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby

from numpy.random import Generator

from taut.policy.deadline import Job

Come = Sequence[tuple[float, Job]]
"""Rows, and when each reaches the reducer."""
ROWS = 10
"""Of an instance: few enough to try every set of them."""


def optimum(rows: Come) -> int:
    """The most that can be on time. O(2^n n).

    For a set, when it can be done at the earliest: from that of each set with a row less.

    Examples
    --------
    It waits for what has not come yet.

    >>> optimum([(0.0, Job(1, 10.0, 5.0)), (1.0, Job(2, 2.0, 1.0)), (2.0, Job(3, 3.0, 1.0))])
    3
    """
    done = [0.0] + [math.inf] * (2 ** len(rows) - 1)
    for some, ended in enumerate(done):
        if ended == math.inf:
            continue
        for n, (at, job) in enumerate(rows):
            if not some >> n & 1:
                end = max(ended, at) + job.cost
                if end <= job.deadline + 1e-9:
                    done[some | 1 << n] = min(done[some | 1 << n], end)
    return max(some.bit_count() for some, end in enumerate(done) if end < math.inf)


def instance(random: Generator, load: float, constraint: float, ratio: float) -> Come:
    """Ten rows in two to five batches a second apart, three in ten so many times as expensive."""
    batches = int(random.integers(2, 6))
    cheap = load * batches / ROWS / (0.7 + 0.3 * ratio)
    rows = []
    for n in range(ROWS):
        came = batches * random.random()
        cost = cheap * (ratio if random.random() < 0.3 else 1.0)
        rows.append((float(int(came) + 1), Job(n, came + constraint, cost)))
    return rows


def batches(rows: Come) -> list[tuple[float, list[Job]]]:
    """Rows that come together."""
    in_order = sorted(rows, key=lambda row: row[0])
    return [(at, [job for _, job in some]) for at, some in groupby(in_order, lambda row: row[0])]

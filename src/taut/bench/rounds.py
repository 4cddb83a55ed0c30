"""Rounds: what runs when, and quantiles of what was seen. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence


def order(variants: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Which variant runs when: all of them in each round, another one first each time.

    Examples
    --------
    >>> list(order(["a", "b"], 2))
    [(1, 'a'), (1, 'b'), (2, 'b'), (2, 'a')]
    """
    for index in range(rounds):
        turn = index % len(variants)
        for variant in (*variants[turn:], *variants[:turn]):
            yield index + 1, variant


def quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile of sorted values.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.99)
    (2.0, 4.0)
    """
    # Rounded first: 0.07 * 100 is above 7 in floats and would give the next rank.
    rank = math.ceil(round(share * len(ordered), 9))
    return ordered[max(rank, 1) - 1]

"""Rounds: what runs when, and quantiles of what was seen. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TypeVar

Variant = TypeVar("Variant")


def order(variants: Sequence[Variant], rounds: int) -> Iterator[tuple[int, Variant]]:
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


def medians(
    summaries: Mapping[tuple[int, str], Mapping[str, float]],
    stock: str,
    ratios: Mapping[str, str],
    prefix: str = "",
) -> dict[str, float]:
    """Figures of all rounds from those of each: medians, and ratios to the stock variant.

    Ratios are taken within a round; a figure that a round lacks is left out of its median.

    Parameters
    ----------
    summaries
        Figures by round and variant.
    ratios
        What a ratio is called, and the figure it is of.

    Examples
    --------
    >>> told = {(1, "a"): {"ms": 4.0}, (1, "b"): {"ms": 2.0}, (2, "a"): {"ms": 8.0}, (2, "b"): {}}
    >>> medians(told, "a", {"time": "ms"})
    {'a.ms': 6.0, 'b.ms': 2.0, 'ratio.b.time': 2.0}
    """
    told: dict[str, float] = {}
    for variant in dict.fromkeys(variant for _, variant in summaries):
        mine = {round_: each for (round_, v), each in summaries.items() if v == variant}
        for name in dict.fromkeys(name for each in mine.values() for name in each):
            values = [each[name] for each in mine.values() if name in each]
            told[f"{prefix}{variant}.{name}"] = round(median(values), 4)
        for ratio, name in ratios.items():
            values = [
                against[name] / each[name]
                for round_, each in mine.items()
                if variant != stock
                and each.get(name)
                and name in (against := summaries.get((round_, stock), {}))
            ]
            if values:
                told[f"ratio.{variant}.{ratio}"] = round(median(values), 4)
    return told

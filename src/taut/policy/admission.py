"""How much of what waits the next batch takes, and from which partitions.

The limits mean what they mean in Spark's Kafka source: a most, spread over the partitions in
proportion to what waits in each unless told otherwise (:mod:`taut.policy.backlog`); a least, below
which a batch waits, but not for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

Offsets = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch may take.

    Attributes
    ----------
    most
        Offsets a batch at most; None for all that wait.
    least
        Offsets below which no batch starts; 0 for none.
    patience
        Seconds after which one starts all the same.
    """

    most: int | None = None
    least: int = 0
    patience: float = 900.0

    def __post_init__(self) -> None:
        if self.most is not None and self.most < 1:
            raise ValueError(f"maxOffsetsPerTrigger={self.most}: at least 1 is needed")
        if self.least < 0:
            raise ValueError(f"minOffsetsPerTrigger={self.least}: must not be negative")
        if self.most is not None and self.least > self.most:
            raise ValueError(
                f"minOffsetsPerTrigger={self.least} is above maxOffsetsPerTrigger={self.most}"
            )
        if not self.patience >= 0.0:
            raise ValueError(f"maxTriggerDelay={self.patience} s: must not be negative")

    def capped(self, most: int) -> Limits:
        """The same with another most; the least gives way to it.

        >>> Limits(most=100, least=50).capped(20)
        Limits(most=20, least=20, patience=900.0)
        """
        return replace(self, most=most, least=min(self.least, most))


def backlog(start: Offsets, latest: Offsets) -> dict[str, int]:
    """Offsets that wait in each partition; one that is new waits from its beginning.

    >>> backlog({"a": 2}, {"a": 5, "b": 1})
    {'a': 3, 'b': 1}
    """
    return {p: max(0, end - start.get(p, 0)) for p, end in latest.items()}


def proportional(waiting: Mapping[str, int], most: int) -> dict[str, int]:
    """Shares of ``most`` in proportion to what waits: whole, never more than waits, all spent.

    >>> proportional({"a": 90, "b": 10, "c": 0}, 10)
    {'a': 9, 'b': 1, 'c': 0}
    """
    total = sum(waiting.values())
    if total <= most:
        return dict(waiting)
    shares = {p: size * most // total for p, size in waiting.items()}
    # what rounding down has left goes to the largest remainders
    rest = most - sum(shares.values())
    by_remainder = sorted(waiting, key=lambda p: (-(waiting[p] * most % total), p))
    for partition in by_remainder[:rest]:
        shares[partition] += 1
    return shares


Spend = Callable[[Mapping[str, int], int], dict[str, int]]
"""How many of the offsets that wait in each partition a batch takes, when it may be so many."""


def admit(
    start: Offsets, latest: Offsets, limits: Limits, waited: float, spend: Spend = proportional
) -> dict[str, int]:
    """The end of the next batch that starts at ``start``; ``start`` itself when none should.

    ``waited`` is the time since the last batch. Partitions that ``latest`` does not know (any
    more) keep their offset.
    """
    waiting = backlog(start, latest)
    total = sum(waiting.values())
    if total < limits.least and waited < limits.patience:
        return dict(start)
    taken = waiting if limits.most is None else spend(waiting, limits.most)
    return dict(start) | {p: start.get(p, 0) + n for p, n in taken.items()}

"""When lanes are paused: a seeded stream of times, the same for every variant of a round. Pure."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from taut.bench.record import BenchError
from taut.duration import seconds

_SHORTEST, _LONGEST = 1 / 3, 5 / 3
"""Of the mean: pauses are as likely to have any length between."""


class Pause(NamedTuple):
    """A lane stands still from ``begin``, so long; in seconds."""

    begin: float
    lane: int
    length: float

    @property
    def end(self) -> float:
        """When it goes on."""
        return self.begin + self.length


@dataclass(frozen=True, slots=True)
class Pauses:
    """How often lanes are paused, and for how long.

    Attributes
    ----------
    every_s
        Mean time that a lane runs between two pauses; it is exponential, so that pauses come
        without regard to each other.
    mean_s
        Mean length of a pause; it is a third of that to five thirds, any as likely as another.
    """

    every_s: float
    mean_s: float

    def __post_init__(self) -> None:
        if not 0.0 < self.mean_s < self.every_s:
            raise BenchError(
                f"pauses of {self.mean_s} s every {self.every_s} s: both must be above zero, and "
                "lanes must run longer than they pause"
            )

    @classmethod
    def parse(cls, text: str) -> Pauses | None:
        """From ``every,mean``; None from ``0``.

        >>> Pauses.parse("3.5 s, 60 ms")
        Pauses(every_s=3.5, mean_s=0.06)
        >>> Pauses.parse("0") is None
        True
        """
        if text.strip() == "0":
            return None
        every, comma, mean = text.partition(",")
        try:
            if not comma:
                raise ValueError("a comma is missing")
            return cls(_seconds(every), _seconds(mean))
        except ValueError as error:
            raise BenchError(
                f"pauses {text!r}: every so long, and for how long, such as '3.5s,60ms', or 0 for "
                f"none ({error})"
            ) from error

    def of(self, lanes: int, seed: int) -> Iterator[Pause]:
        """The pauses of all lanes in the order in which they begin, without end.

        A lane has the same ones however many others there are.

        >>> drawn = Pauses(3.5, 0.06).of(2, seed=1)
        >>> [(pause.lane, round(pause.begin, 1)) for pause, _ in zip(drawn, range(3))]
        [(1, 3.1), (0, 11.1), (1, 11.6)]
        """
        return heapq.merge(*(self._of_lane(lane, seed) for lane in range(lanes)))

    def _of_lane(self, lane: int, seed: int) -> Iterator[Pause]:
        drawn = random.Random(f"{seed} {lane}")
        now = 0.0
        while True:
            now += drawn.expovariate(1.0 / self.every_s)
            pause = Pause(now, lane, self.mean_s * drawn.uniform(_SHORTEST, _LONGEST))
            yield pause
            now = pause.end


def _seconds(text: str) -> float:
    text = text.strip()
    return float(text) if text.replace(".", "", 1).isdigit() else seconds(text)

"""Random times: what they are distributed like, and how they are drawn quickly.

A distribution is a value that says its mean and its squared coefficient of variation. Draws come
from a generator of random numbers by the thousand and are handed out one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Draws(Protocol):
    """A distribution of times in seconds."""

    @property
    def mean(self) -> float:
        """What draws come to on average."""
        ...

    @property
    def scv(self) -> float:
        """Variance over mean squared: 0 for always the same, 1 for exponential."""
        ...

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        ...


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    value: float
    scv = 0.0

    def __post_init__(self) -> None:
        _check("value", self.value)

    @property
    def mean(self) -> float:
        """The value."""
        return self.value

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        return np.full(n, self.value)


@dataclass(frozen=True, slots=True)
class Exponential:
    """As long to go still as ever, however long it has been."""

    mean: float
    scv = 1.0

    def __post_init__(self) -> None:
        _check("mean", self.mean)

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        return random.exponential(self.mean, n)


@dataclass(frozen=True, slots=True)
class Uniform:
    """Anything from nothing to ``most``."""

    most: float = 1.0
    scv = 1.0 / 3.0

    def __post_init__(self) -> None:
        _check("most", self.most)

    @property
    def mean(self) -> float:
        """The middle."""
        return self.most / 2.0

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        return random.random(n) * self.most


@dataclass(frozen=True, slots=True)
class Gamma:
    """At least ``least``; beyond that with any mean and any spread."""

    mean: float
    scv: float
    """Of the whole, ``least`` included."""
    least: float = 0.0

    def __post_init__(self) -> None:
        _check("mean", self.mean)
        _check("least", self.least)
        if self.least >= self.mean:
            raise ValueError(f"least={self.least}: must be below mean={self.mean}")
        if not self.scv > 0.0:
            raise ValueError(f"scv={self.scv}: must be above 0; for no spread take Constant")

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        above = self.mean - self.least
        shape = above * above / (self.scv * self.mean * self.mean)
        return self.least + random.gamma(shape, above / shape, n)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """With a tail: a few draws are many times the mean."""

    mean: float
    scv: float

    def __post_init__(self) -> None:
        _check("mean", self.mean)
        if not self.scv > 0.0:
            raise ValueError(f"scv={self.scv}: must be above 0; for no spread take Constant")

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        variance = math.log1p(self.scv)
        return random.lognormal(math.log(self.mean) - variance / 2.0, math.sqrt(variance), n)


@dataclass(frozen=True, slots=True)
class Geometric:
    """Whole steps, at each of which it happens with the same chance."""

    chance: float
    step: float

    def __post_init__(self) -> None:
        if not 0.0 < self.chance <= 1.0:
            raise ValueError(f"chance={self.chance}: above 0, at most 1")
        _check("step", self.step)

    @property
    def mean(self) -> float:
        """Steps until it happens."""
        return self.step / self.chance

    @property
    def scv(self) -> float:
        """Below 1: steps are never shorter than one."""
        return 1.0 - self.chance

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        return random.geometric(self.chance, n).astype(np.float64) * self.step


@dataclass(frozen=True, slots=True)
class Zipf:
    """Whole steps, up to ``most``: the more steps the rarer, by a power."""

    exponent: float
    most: int
    step: float

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"most={self.most}: at least 1 is needed")
        _check("exponent", self.exponent)
        _check("step", self.step)

    @property
    def mean(self) -> float:
        """Of the steps by their chances."""
        return float(self._steps() @ self.chances()) * self.step

    @property
    def scv(self) -> float:
        """Of the same."""
        return float(self._steps() ** 2 @ self.chances()) * (self.step / self.mean) ** 2 - 1.0

    def chances(self) -> Array:
        """Of one step, of two, and so on."""
        weights = self._steps() ** -self.exponent
        return np.asarray(weights / weights.sum(), np.float64)

    def sample(self, random: Generator, n: int) -> Array:
        """So many of them."""
        below = np.cumsum(self.chances())
        ranks = np.minimum(np.searchsorted(below, random.random(n)), self.most - 1)
        return (ranks + 1.0) * self.step

    def _steps(self) -> Array:
        return np.arange(1.0, self.most + 1.0, dtype=np.float64)


def drawing(draws: Draws, random: Generator, together: int = 1024) -> Callable[[], float]:
    """A function that gives the next draw, of so many drawn together; about 30 ns."""
    drawn = iter(lambda: draws.sample(random, together).tolist(), None)
    return chain.from_iterable(drawn).__next__


def _check(name: str, seconds: float) -> None:
    if not 0.0 <= seconds < math.inf:
        raise ValueError(f"{name}={seconds} s: must not be negative")


NOTHING = Constant(0.0)
"""No time at all."""

"""Waiting, by the theory of queues: G/G/c, the last of many, and where in a batch a row is.

Times are seconds. Everything comes from the first two moments, which can be measured.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from scipy import integrate, stats

from taut.policy.waiting import mean_wait


class Moments(NamedTuple):
    """A mean and a variance; of independent times both add up.

    >>> Moments(1.0, 4.0) + Moments(2.0, 5.0)
    Moments(mean=3.0, variance=9.0)
    """

    mean: float
    variance: float

    @property
    def sd(self) -> float:
        """The standard deviation."""
        return math.sqrt(self.variance)

    @property
    def scv(self) -> float:
        """The squared coefficient of variation: 0 for a constant, 1 for an exponential time."""
        return self.variance / self.mean**2 if self.mean else 0.0

    def __add__(self, other: object) -> Moments:
        if not isinstance(other, Moments):
            return NotImplemented
        return Moments(self.mean + other.mean, self.variance + other.variance)


def gg_wait(between: Moments, service: Moments, servers: int = 1) -> Moments:
    """The wait in a G/G/c queue, from the moments of inter-arrival and service times.

    The mean is Kingman's (Allen and Cunneen's for several servers): that of M/M/c times the mean
    of both squared coefficients of variation. Exact for Poisson arrivals at one server, an upper
    bound for most others. The variance takes the wait for zero when a server is free and for
    exponential otherwise, as it is in heavy traffic.

    Examples
    --------
    >>> gg_wait(Moments(2.0, 4.0), Moments(1.0, 1.0)).mean
    1.0
    >>> gg_wait(Moments(2.0, 4.0), Moments(1.0, 0.0)).mean
    0.5
    >>> gg_wait(Moments(1.0, 1.0), Moments(1.0, 1.0)).mean
    inf
    """
    if not between.mean > 0.0 or not service.mean > 0.0:
        raise ValueError(f"between={between}, service={service}: means must be above zero")
    waits = mean_wait(servers, 1.0 / between.mean, service.mean)
    mean = waits * (between.scv + service.scv) / 2.0 if waits < math.inf else math.inf
    if mean in (0.0, math.inf):
        return Moments(mean, mean)
    # of those that wait at all, as many as in M/M/c, the wait is exponential
    load = service.mean / between.mean
    busy = waits * (servers - load) / service.mean
    return Moments(mean, mean**2 * (2.0 / busy - 1.0))


@lru_cache(maxsize=512)
def normal_max(many: int) -> Moments:
    """The largest of so many independent standard normals, exactly.

    >>> normal_max(1), round(normal_max(2).mean, 4), round(normal_max(100).mean, 3)
    (Moments(mean=0.0, variance=1.0), 0.5642, 2.508)
    """
    if many < 1:
        raise ValueError(f"many={many}: at least 1 is needed")
    if many == 1:
        return Moments(0.0, 1.0)

    def density(x: float) -> float:
        log = math.log(many) + stats.norm.logpdf(x) + (many - 1) * stats.norm.logcdf(x)
        return math.exp(log)

    middle = float(stats.norm.ppf(0.5 ** (1.0 / many)))
    low, high = middle - 12.0, middle + 12.0
    mean, _ = integrate.quad(lambda x: x * density(x), low, high, points=[middle])
    square, _ = integrate.quad(lambda x: x * x * density(x), low, high, points=[middle])
    return Moments(mean, square - mean * mean)


def last_of(one: Moments, many: int) -> Moments:
    """The last of so many, each near normal with these moments: what a whole stage waits for."""
    most = normal_max(many)
    return Moments(one.mean + most.mean * one.sd, one.variance * most.variance)


def position(parts: int, seconds: float) -> Moments:
    """When one of ``parts`` equal parts of a work of ``seconds`` is done, taken at random.

    >>> position(1, 3.0), position(2, 4.0)
    (Moments(mean=3.0, variance=0.0), Moments(mean=3.0, variance=1.0))
    """
    if parts < 1:
        raise ValueError(f"parts={parts}: at least 1 is needed")
    mean = (1.0 + 1.0 / parts) * seconds / 2.0
    return Moments(mean, (1.0 - 1.0 / parts**2) * seconds**2 / 12.0)

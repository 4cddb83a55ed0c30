"""Several queries on one cluster: how many run at once, and how often each starts a batch.

Each query starts a batch at its interval, which waits for one of ``turns`` turns
(:mod:`taut.planning.turns`) and then has its part of the cluster. The longer the interval, the
fewer batches and the less of their fixed cost; so each query has the longest one under its
objective, given how long it waits for others, which depends on theirs. What is looked for is the
number of turns with the most room: the highest factor by which all rates could grow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np

from taut.errors import PlanError
from taut.planning.following import Follower, follow
from taut.planning.latency import InTurns, Latency, Work, shuffled
from taut.planning.phases import Costs, Line
from taut.planning.quantile import Floats
from taut.planning.queueing import Moments
from taut.planning.search import HIGHEST, LADDER, LEAST_ERROR
from taut.planning.settings import Cluster, Settings
from taut.planning.turns import Load, Wait, wait_for
from taut.policy.intervals import Rhythm
from taut.slo import Slo

_SERIES = (*range(10, 17), 18, 20, 22, 25, 28, *range(30, 80, 5), 80, 90)
INTERVALS = tuple(
    round(each * power, 4)
    for power in (1e-3, 1e-2, 1e-1, 1.0)
    for each in _SERIES
    if 0.05 <= each * power <= 30.0
)
"""Seconds from one batch to the next that are tried."""
_ROUNDS = 60
_RATES = 256
_NEAR, _FOLLOWED = 0.8, 3
"""What is followed, of the best by formula: not less than that share of it, nor more of them."""
_ENDLESS = 1e12
"""Rows of a batch for which fixed costs are nothing."""
_TURNS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_STEPS, _CHAINS, _WAITS = 10, 48, 128
"""Batches that are drawn in the search, and different waits for a turn."""


@dataclass(frozen=True, slots=True)
class Member:
    """One of the queries: what its batches cost, its objective, and its rows a second."""

    name: str
    costs: Costs
    slo: Slo
    rate: float


@dataclass(frozen=True, slots=True)
class Blocked:
    """Why it cannot be: the query that is not on time, or that takes most of turns too few."""

    member: int
    full: bool = False


class Way(NamedTuple):
    """How many batches run at once, what each has of the cluster, and the longest interval.

    The latter is the place in ``INTERVALS``.
    """

    turns: int
    part: Cluster
    upto: int


@dataclass(frozen=True, slots=True)
class Arrangement:
    """Who runs how, such that all objectives are met.

    Attributes
    ----------
    growth
        Times the rates that were asked for, at which all objectives are just met.
    settings
        Of each query; the trigger is its interval.
    """

    way: Way
    growth: float
    settings: tuple[Settings, ...]

    @property
    def turns(self) -> int:
        """Batches that run at once."""
        return self.way.turns


class Tasks:
    """The lanes and the reducers with which batches of so many rows take least, on a cluster."""

    def __init__(self, costs: Costs, cluster: Cluster) -> None:
        tasks = [many for many in LADDER if many < cluster.slots] + [cluster.slots]
        more = [2 * cluster.slots] if costs.skew else []
        self._costs = costs
        self._lanes = {many: costs.lines(Settings(many, 1), cluster)["map"] for many in tasks}
        self._reducers: dict[int, Line] = {}
        for many in tasks + more:
            lines = costs.lines(Settings(1, many), cluster)
            self._reducers[many] = sum(lines.values(), Line()) - lines["map"]

    def best(self, rows: float) -> Settings:
        """For batches of so many rows."""
        ratio = self._costs.ratio(rows)

        def least(lines: dict[int, Line]) -> int:
            return min(lines, key=lambda many: float(lines[many].bearing(ratio).at(rows)))

        return Settings(least(self._lanes), least(self._reducers))


class _Runner:
    """One of the queries with its tasks on its part of the cluster."""

    def __init__(
        self, nth: int, member: Member, settings: Settings, part: Cluster, scale: float
    ) -> None:
        self.nth = nth
        self.member = member
        self.settings = settings
        self.work = Work.of(member.costs, settings, part, scale)
        factors = member.costs.factors
        self._of_factors = Moments(float(factors.mean()), float(factors.var()))
        many = _STEPS * _CHAINS
        levels = (np.arange(many) + 0.5) / many
        self._drawn = shuffled(np.quantile(factors, levels), _STEPS)

    def load(self, interval: float, growth: float = 1.0) -> Load:
        """What it has a turn for."""
        rate = growth * self.member.rate
        work = self.work.bearing(rate * interval)
        seconds = float(work.whole.at(rate * interval)) + work.drain * interval
        factor = self._of_factors
        variance = seconds**2 * factor.variance
        if windows := self.member.costs.windows:
            # the results of a window are in one batch, and not in a part of each
            closes = interval / windows.every % 1.0
            variance += (work.closing * factor.mean) ** 2 * closes * (1.0 - closes)
        return Load(interval, Moments(seconds * factor.mean, variance))

    def in_turns(self, interval: float, waits: Floats, growth: float) -> InTurns:
        """With batches at this interval that have these waits for a turn."""
        rate = growth * self.member.rate
        work = self.work.bearing(rate * interval)
        offset = staggered(self.nth, interval)
        return InTurns.drawn(work, rate, interval, offset, waits, self._drawn)

    def longest(self, wait: Wait, growth: float, upto: int) -> int | None:
        """The longest of the intervals up to one, at which it is on time; None if it never is."""
        waits = _waits(wait)
        for nth in range(upto, -1, -1):
            interval = INTERVALS[nth]
            if self._at_least(interval, growth) > self.member.slo.seconds:
                continue
            if self.load(interval, growth).takes.mean + wait.mean > HIGHEST * interval:
                continue
            if self.in_turns(interval, waits, growth).meets(self.member.slo):
                return nth
        return None

    def _at_least(self, interval: float, growth: float) -> float:
        """What the objective bounds is not less than that, however short the waits."""
        share, factors = self.member.slo.quantile, self.member.costs.factors
        rows = growth * self.member.rate * interval
        work = self.work.bearing(rows)
        written = float((work.whole - work.after).at(rows)) * float(factors[0])
        if self.member.costs.windows:
            return interval + written
        return interval * (0.5 if share is None else share) + written


class Together:
    """What is asked: queries with their objectives and rates, on one cluster.

    Parameters
    ----------
    margin
        As in :class:`taut.planning.search.Search`.
    """

    def __init__(self, members: Sequence[Member], cluster: Cluster, *, margin: float = 1.0) -> None:
        if not members:
            raise PlanError("queries: none was given")
        for member in members:
            if not 0.0 < member.rate < math.inf:
                raise PlanError(f"{member.name}: rate={member.rate!r}: rows a second, above zero")
        self.members = tuple(members)
        self.cluster = cluster
        self.margin = margin
        self._tasks: dict[tuple[int, Cluster], Tasks] = {}
        self._made: dict[tuple[int, Settings, Cluster, float], _Runner] = {}

    def best(self) -> Arrangement | None:
        """The arrangement with the most room; None if there is none at any rate.

        A formula ranks them, by how long waits are. Of the best at some numbers of turns all
        batches are followed, which tells how much the rates could grow.
        """
        found: dict[int, Arrangement] = {}
        for way in self.ways():
            most = max((each.growth for each in found.values()), default=0.0)
            here = found[way.turns].growth if way.turns in found else 0.0
            better = self._highest(way, max(here, _NEAR * most))
            if better is not None:
                found[way.turns] = better
        ranked = sorted(found.values(), key=lambda each: -each.growth)
        followed = [replace(each, growth=self._room(each)) for each in ranked[:_FOLLOWED]]
        best = max(followed, key=lambda each: each.growth, default=None)
        return best if best and best.growth else None

    def arrange(self, way: Way, growth: float) -> Arrangement | Blocked:
        """At so many times the rates that were asked for.

        Without waits each has the longest interval under its objective. That makes waits, with
        which some need a shorter one, and so on until none does.
        """
        runners = self._tuned(way.part, growth)
        rungs = [way.upto] * len(runners)
        waits, seen = [Wait()] * len(runners), [Wait(-1.0)] * len(runners)
        late = 0
        for _ in range(_ROUNDS):
            before = list(rungs)
            for nth, runner in enumerate(runners):
                if waits[nth] == seen[nth]:
                    continue
                found = runner.longest(waits[nth], growth, rungs[nth])
                if found is None:
                    return Blocked(nth)
                late = nth if found < rungs[nth] else late
                rungs[nth] = found
            intervals = [INTERVALS[rung] for rung in rungs]
            loads = [
                runner.load(interval, growth)
                for runner, interval in zip(runners, intervals, strict=True)
            ]
            shares = [load.share for load in loads]
            if sum(shares) > HIGHEST * way.turns:
                return Blocked(shares.index(max(shares)), full=True)
            if rungs == before:
                settings = (
                    runner.settings.but(trigger=interval)
                    for runner, interval in zip(runners, intervals, strict=True)
                )
                return Arrangement(way, growth, tuple(settings))
            waits, seen = _waits_of(loads, way.turns), waits
        return Blocked(late)

    def blocked(self, best: Arrangement | None) -> Blocked:
        """Why not at the rates that were asked for, where the best has less, or none was found."""
        way = best.way if best else list(self.ways())[-1]
        growth = 1.0 if best else self._least(way)
        found = self.arrange(way, growth)
        if isinstance(found, Blocked):
            return found
        followed = self._follow(found, growth)
        late = [nth for nth, one in enumerate(followed) if not one.meets(self.members[nth].slo)]
        return Blocked(late[0]) if late else Blocked(0, full=True)

    def feasible(self, turns: int | None = None) -> bool:
        """Whether there is an arrangement, with so many turns, at the rates that were asked for."""
        for way in self.ways():
            if turns in (None, way.turns):
                found = self.arrange(way, 1.0)
                if isinstance(found, Arrangement) and self.meets(found):
                    return True
        return False

    def busy(
        self, arrangement: Arrangement, growth: float = 1.0, scale: float | None = 1.0
    ) -> float:
        """Of all turns, the share that is taken at so many times the rates."""
        shares = (
            runner.load(runner.settings.trigger, growth).share
            for runner in self._runners(arrangement, scale)
        )
        return sum(shares) / arrangement.turns

    def latencies(
        self, arrangement: Arrangement, growth: float = 1.0, scale: float = 1.0
    ) -> list[Latency]:
        """What each is to expect at so many times the rates, and what batches cost by the fit."""
        return [one.predict() for one in self._follow(arrangement, growth, scale)]

    def meets(self, arrangement: Arrangement, growth: float = 1.0) -> bool:
        """Whether all objectives are met at so many times the rates, with the margin."""
        if self.busy(arrangement, growth, None) > HIGHEST:
            return False
        followed = self._follow(arrangement, growth)
        return all(
            one.meets(member.slo) for one, member in zip(followed, self.members, strict=True)
        )

    def but(self, nth: int, slo: Slo) -> Together:
        """The same with another objective for one of them."""
        members = list(self.members)
        members[nth] = replace(members[nth], slo=slo)
        return Together(members, self.cluster, margin=self.margin)

    def ceiling(self, part: Cluster, turns: int) -> float:
        """Times the rates, at which rows alone would take all turns all the time."""
        rows = results = 0.0
        for runner in self._tuned(part, math.inf):
            work = runner.work
            each = work.whole.steepest * work.mean
            if each <= 0.0:
                raise PlanError(
                    f"{runner.member.name}: the profile shows no cost of a row: it needs batches "
                    "of two sizes"
                )
            rows += runner.member.rate * each
            results += work.drain * work.mean
        return max(0.0, turns - results) / rows

    def ways(self) -> Iterator[Way]:
        """What is tried.

        A long batch of one query is a long wait for others, and tasks beside each other slow each
        other down: so intervals may be shorter than objectives allow, and tasks fewer than cores.
        """
        most = min(len(self.members), self.cluster.slots)
        bounds = [member.slo.seconds for member in self.members]
        uptos: list[int] = []
        longest = 2.0 * max(bounds)
        while longest > min(bounds) / 8.0:
            under = [nth for nth, each in enumerate(INTERVALS) if each <= longest]
            if under and under[-1] not in uptos:
                uptos.append(under[-1])
            longest /= 2.0
        for turns in [many for many in _TURNS if many < most] + [most]:
            for part, upto in product(self._parts(turns), uptos or [0]):
                yield Way(turns, part, upto)

    def _parts(self, turns: int) -> list[Cluster]:
        """Of the cluster, for each turn: the whole of it first, then with fewer cores."""
        parts = [self.cluster.part(turns)]
        each = parts[0].cores - parts[0].taken
        while each > 1:
            each = (each + 1) // 2
            taken = self.cluster.taken
            parts.append(replace(self.cluster, cores=taken + turns * each).part(turns))
        return parts

    def _least(self, way: Way) -> float:
        """The lowest growth that is looked at; others are multiples of it."""
        return HIGHEST * self.ceiling(way.part, way.turns) / _RATES

    def _highest(self, way: Way, above: float) -> Arrangement | None:
        """With the highest growth that is above another; None if there is none."""
        step = self._least(way)
        low = math.floor(above / step) if step else _RATES
        high, found = _RATES + 1, None
        # most are no better than what was found: one look instead of a search
        middle = low + 1
        while middle < high:
            looked = self.arrange(way, step * middle)
            if isinstance(looked, Arrangement):
                low, found = middle, looked
            else:
                high = middle
            if found is None and above:
                return None
            middle = (low + high) // 2 if high - low > 1 else high
        return found

    def _room(self, found: Arrangement) -> float:
        """The highest growth at which these settings meet all objectives; 0 if they never do."""
        step = self._least(found.way)
        low, high = 0, _RATES + 1
        # near what the formula says
        middle, stride = round(found.growth / step), 2
        while high - low > 1:
            if self.meets(found, step * middle):
                low = middle
            else:
                high = middle
            stride *= 2
            half = (low + high) // 2
            if high > _RATES:
                middle = min(low + stride, half)
            else:
                middle = half if low else max(high - stride, half)
        return step * low

    def _follow(
        self, arrangement: Arrangement, growth: float, scale: float | None = None
    ) -> list[InTurns]:
        names = [member.name for member in self.members]
        runners = self._runners(arrangement, scale)
        beats = rhythms(names, arrangement.settings).values()
        followers = [
            Follower.of(runner.work, growth * runner.member.rate, rhythm, runner.nth)
            for runner, rhythm in zip(runners, beats, strict=True)
        ]
        return follow(followers, arrangement.turns)

    def _tuned(self, part: Cluster, growth: float) -> list[_Runner]:
        """With the tasks that suit so many times the rates, and the margin."""
        found = []
        for nth, member in enumerate(self.members):
            if (nth, part) not in self._tasks:
                self._tasks[nth, part] = Tasks(member.costs, part)
            objective = min(member.slo.seconds, INTERVALS[-1])
            rows = min(growth * member.rate * objective / 2.0, _ENDLESS)
            found.append(self._runner(nth, self._tasks[nth, part].best(rows), part, None))
        return found

    def _runners(self, arrangement: Arrangement, scale: float | None) -> list[_Runner]:
        return [
            self._runner(nth, settings, arrangement.way.part, scale)
            for nth, settings in enumerate(arrangement.settings)
        ]

    def _runner(self, nth: int, settings: Settings, part: Cluster, scale: float | None) -> _Runner:
        """``scale``: times what batches cost by the fit; None for with the margin."""
        member = self.members[nth]
        if scale is None:
            scale = 1.0 + self.margin * max(LEAST_ERROR, member.costs.error)
        key = nth, settings, part, scale
        if key not in self._made:
            self._made[key] = _Runner(nth, member, settings, part, scale)
        return self._made[key]


def staggered(nth: int, interval: float) -> float:
    """When batches of the nth query are due after each multiple of its interval.

    Those with the same interval, or with one that divides another, would all be due at once.
    """
    return round(interval * (nth * _GOLDEN % 1.0), 3) % interval


def rhythms(names: Sequence[str], settings: Sequence[Settings]) -> dict[str, Rhythm]:
    """When batches of each are due."""
    return {
        name: Rhythm(each.trigger, staggered(nth, each.trigger))
        for nth, (name, each) in enumerate(zip(names, settings, strict=True))
    }


def _waits_of(loads: Sequence[Load], turns: int) -> list[Wait]:
    return [wait_for([*loads[:nth], *loads[nth + 1 :]], turns) for nth in range(len(loads))]


def _waits(wait: Wait) -> Floats:
    """For the batches that are drawn; each chain has one more, the one before its first."""
    if not wait.mean:
        return np.zeros((_STEPS + 1, _CHAINS))
    return wait.quantiles((np.arange(_WAITS) + 0.5) / _WAITS)[_ORDER]


_ORDER = shuffled(
    np.arange((_STEPS + 1) * _CHAINS, dtype=float) % _WAITS, _STEPS + 1, seed=7
).astype(np.intp)

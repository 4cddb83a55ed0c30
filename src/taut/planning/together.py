"""Several queries on one cluster: how many run at once, and how often each starts a batch.

Each query starts a batch at its interval, which waits for one of ``turns`` turns
(:mod:`taut.planning.turns`) and then has its part of the cluster. The longer the interval, the
fewer batches and the less of their fixed cost; so each query has the longest one under its
objective, given how long it waits for others, which depends on theirs. What is looked for is the
number of turns with the most room: the highest factor by which all rates could grow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

from taut.errors import PlanError
from taut.planning.following import Follower, follow
from taut.planning.latency import InTurns, Latency
from taut.planning.runner import INTERVALS, Member, Runner, Tasks, rhythms
from taut.planning.search import HIGHEST
from taut.planning.settings import SPARE, Cluster, Settings
from taut.planning.turns import Load, Wait, wait_for
from taut.slo import Slo

_ROUNDS = 60
_RATES = 256
_NEAR, _FOLLOWED = 0.8, 3
"""What is followed, of the best by formula: not less than that share of it, nor more of them."""
_FEW, _FINE, _COARSE = 6, 2, 4
"""Steps between the longest intervals that are tried, with so few queries and with more."""
_SHORTEST = 6.0
"""Of the shortest objective, the part that the longest interval is not below."""
_ENDLESS = 1e12
"""Rows of a batch for which fixed costs are nothing."""
_TURNS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)


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


class Together:
    """What is asked: queries with their objectives and rates, on one cluster.

    Parameters
    ----------
    margin, spare
        As in :class:`taut.planning.search.Search`.
    """

    def __init__(
        self,
        members: Sequence[Member],
        cluster: Cluster,
        *,
        margin: float = 1.0,
        spare: float = SPARE,
    ) -> None:
        if not members:
            raise PlanError("queries: none was given")
        for member in members:
            if not 0.0 < member.rate < math.inf:
                raise PlanError(f"{member.name}: rate={member.rate!r}: rows a second, above zero")
        self.members = tuple(members)
        self.cluster = cluster
        self.margin = margin
        self.spare = spare
        self._tasks: dict[tuple[int, Cluster], Tasks] = {}
        self._made: dict[tuple[int, Settings, Cluster, float], Runner] = {}

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
        enough = [each for each in followed if each.growth >= 1.0 and self._sound(each)]
        # short of what was asked for only where no other way has as much
        sound = enough or list(self._as_asked()) or [each for each in followed if each.growth < 1.0]
        best = max(sound, key=lambda each: each.growth, default=None)
        return best if best and best.growth else None

    def _sound(self, found: Arrangement) -> bool:
        """Whether what holds at higher rates holds at those that were asked for.

        Windows and intervals both go by the clock: batches that take less may be those that just
        do not see the end of a window.
        """
        followed = self._follow(found, 1.0, 1.0)
        return self.meets(found) and all(
            one.meets(member.slo) for one, member in zip(followed, self.members, strict=True)
        )

    def _as_asked(self) -> Iterator[Arrangement]:
        """For the rates that were asked for and no higher ones."""
        for way in self.ways():
            found = self.arrange(way, 1.0)
            if isinstance(found, Arrangement) and self._sound(found):
                yield found
                return

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
        if best is None:
            return self._never()
        found = self.arrange(best.way, 1.0)
        if isinstance(found, Blocked):
            return found
        followed = self._follow(found, 1.0)
        late = [nth for nth, one in enumerate(followed) if not one.meets(self.members[nth].slo)]
        return Blocked(late[0]) if late else Blocked(0, full=True)

    def _never(self) -> Blocked:
        """At no rate: one that cannot even alone, or that most ways to arrange them fail at."""
        if len(self.members) == 1:
            return Blocked(0)
        for nth, member in enumerate(self.members):
            if self._of([member]).best() is None:
                return Blocked(nth)
        looked = (self.arrange(way, self._least(way)) for way in self.ways())
        why = Counter(found for found in looked if isinstance(found, Blocked))
        return why.most_common(1)[0][0] if why else Blocked(0)

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

    def bearable(self, arrangement: Arrangement) -> list[float]:
        """Times what all batches cost, up to which those of each query do not grow without end.

        All turns may be taken, or the one that is the most that a query has.
        """
        growths = (
            runner.work.at(member.rate).growth(member.rate)
            for runner, member in zip(self._runners(arrangement, 1.0), self.members, strict=True)
        )
        busy = self.busy(arrangement)
        return [max(1.0, HIGHEST / max(busy, growth)) for growth in growths]

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
        return self._of(members)

    def _of(self, members: Sequence[Member]) -> Together:
        return Together(members, self.cluster, margin=self.margin, spare=self.spare)

    def ceiling(self, part: Cluster, turns: int) -> float:
        """Times the rates, at which rows alone would take all turns all the time."""
        rows = results = 0.0
        for runner in self._tuned(part, math.inf):
            work = runner.work.at(runner.member.rate)
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
        bounds = [member.slo.seconds for member in self.members]
        steps = range(len(INTERVALS) - 1, -1, -_FINE if len(self.members) <= _FEW else -_COARSE)
        longest = max(bounds), INTERVALS[0]
        uptos = [nth for nth in steps if min(bounds) / _SHORTEST < INTERVALS[nth] <= max(longest)]
        most = min(len(self.members), self.cluster.slots)
        for turns in [many for many in _TURNS if many < most] + [most]:
            for part, upto in product(self._parts(turns), uptos or [0]):
                yield Way(turns, part, upto)

    def _parts(self, turns: int) -> list[Cluster]:
        """Of the cluster, for each turn: the whole of it first, then with fewer cores."""
        parts = [self.cluster.part(turns)]
        each = parts[0].cores - parts[0].taken
        less = 2 if len(self.members) <= _FEW else 4
        while each > 1:
            each = math.ceil(each / less)
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

    def _tuned(self, part: Cluster, growth: float) -> list[Runner]:
        """With the tasks that suit so many times the rates, and the margin."""
        found = []
        for nth, member in enumerate(self.members):
            if (nth, part) not in self._tasks:
                self._tasks[nth, part] = Tasks(member.costs, part)
            objective = min(member.slo.seconds, INTERVALS[-1])
            rows = min(growth * member.rate * objective / 2.0, _ENDLESS)
            found.append(self._runner(nth, self._tasks[nth, part].best(rows), part, None))
        return found

    def _runners(self, arrangement: Arrangement, scale: float | None) -> list[Runner]:
        return [
            self._runner(nth, settings, arrangement.way.part, scale)
            for nth, settings in enumerate(arrangement.settings)
        ]

    def _runner(self, nth: int, settings: Settings, part: Cluster, scale: float | None) -> Runner:
        """``scale``: times what batches cost by the fit; None for with the margin."""
        member = self.members[nth]
        if scale is None:
            scale = 1.0 + self.margin * max(self.spare, member.costs.error_at(settings))
        key = nth, settings, part, scale
        if key not in self._made:
            self._made[key] = Runner(nth, member, settings, part, scale)
        return self._made[key]


def _waits_of(loads: Sequence[Load], turns: int) -> list[Wait]:
    return [wait_for([*loads[:nth], *loads[nth + 1 :]], turns) for nth in range(len(loads))]

"""Queries that share turns, batch by batch: the object that grants them on Spark grants them here.

Nothing is taken from the model but what a batch costs.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from taut.planning.phases import Line
from taut.planning.profile import Windows
from taut.planning.quantile import Spans
from taut.planning.runner import Member, rhythms
from taut.planning.together import Arrangement
from taut.policy.intervals import Intervals
from taut.policy.turns import Turns
from taut.policy.view import QueryView


@dataclass
class _Running:
    member: Member
    whole: Line
    after: Line
    read: float
    """Up to when rows have been read."""
    seen: float
    """Up to when windows that ended were seen by the batch before."""
    spans: list[tuple[float, float, float]] = field(default_factory=list)
    took: float = 0.0

    def batch(self, now: float, factor: float, kept: bool) -> float:
        """Start one; tells when it ends."""
        costs, gathered = self.member.costs, now - self.read
        rows = self.member.rate * gathered
        windows = costs.windows
        ratio = 0.0 if windows else costs.ratio(rows)
        ended = [] if windows is None else _ended(windows, self.seen, self.read)
        out = costs.most_out * len(ended)
        seconds = (self.whole.bearing(ratio).at(rows) + self.whole.out * out) * factor
        written = seconds - self.after.bearing(ratio).at(rows) * factor
        if kept:
            if windows is None:
                self.spans.append((written, gathered, gathered))
            self.spans += [(now + written - end, 0.0, 1.0) for end in ended]
            self.took += seconds
        self.seen, self.read = self.read, now
        return now + float(seconds)

    def latencies(self) -> Spans:
        low, width, rows = (np.array(column) for column in zip(*self.spans, strict=True))
        return Spans(low, width, rows)


def _ended(windows: Windows, after: float, upto: float) -> list[float]:
    """Ends of windows that a batch sees, whose rows reach from one time to another."""
    first, last = (
        math.floor((at - windows.delay - windows.phase) / windows.every) for at in (after, upto)
    )
    return [nth * windows.every + windows.phase for nth in range(first + 1, last + 1)]


def simulate(
    members: Sequence[Member],
    arrangement: Arrangement,
    *,
    growth: float = 1.0,
    seconds: float = 2_000.0,
    seed: int = 3,
) -> tuple[list[Spans], float]:
    """Latencies of each query, and the share of all turns that was taken."""
    random = np.random.default_rng(seed)
    names = [member.name for member in members]
    policy = Intervals(rhythms(names, arrangement.settings))
    turns = Turns(policy, concurrency=arrangement.turns, hold_limit=math.inf)
    running: dict[str, _Running] = {}
    for member, settings in zip(members, arrangement.settings, strict=True):
        lines = member.costs.lines(settings, arrangement.way.part)
        whole = sum(lines.values(), Line())
        grown = Member(member.name, member.costs, member.slo, growth * member.rate)
        running[member.name] = _Running(grown, whole, lines["after"], 0.0, 0.0)
        turns.add(member.name, 0.0)
        assert not turns.planned(member.name, 0.0)

    def views(held: Sequence[str]) -> list[QueryView]:
        return [
            QueryView(name, turns.since(name), turns.last_turn(name), 0.0, 0.0, 0.0)
            for name in held
        ]

    now, warm = 0.0, 0.1 * seconds
    ends: list[tuple[float, str]] = []
    while now < seconds:
        granted, again = turns.grant(now, views)
        turns.check()
        for name in granted:
            factor = float(random.choice(running[name].member.costs.factors))
            heapq.heappush(ends, (running[name].batch(now, factor, now > warm), name))
        if ends and (again is None or ends[0][0] <= again):
            now, name = heapq.heappop(ends)
            turns.written(name, now, None)
        else:
            assert again is not None
            now = again
    taken = sum(each.took for each in running.values()) / (0.9 * seconds)
    return [each.latencies() for each in running.values()], taken / arrangement.turns

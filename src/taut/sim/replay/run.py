"""Replay a recorded run under other policies, and set what comes out beside what did."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np

from taut.policy import POLICIES
from taut.policy.turns import Turns
from taut.sim.kernel import Kernel
from taut.sim.queries.microbatch import Running
from taut.sim.replay.costs import Contended, Pace
from taut.sim.replay.past import pasts
from taut.sim.replay.query import Past, Replayed
from taut.watch.recorded import Recorded, RunError

STOCK = "spark-default"
"""No gate: every query runs as fast as it can, as Spark does by itself."""
_FAR = 0.25
"""Of what was recorded: a replay of the same policy that is further off is not to be relied on."""
_PATIENCE = 4.0
"""A policy gets so many times the length of the run to bring out what was recorded."""


class Figures(msgspec.Struct, frozen=True):
    """Latencies in seconds; ``on_time`` counts those with an objective, None if there are none.

    ``missing`` results were not out when the replay gave up; they are late.
    """

    results: int
    bounded: int
    on_time: int | None
    mean: float
    p50: float
    p90: float
    p99: float
    max: float
    missing: int = 0

    @property
    def share(self) -> float | None:
        """Of the results with an objective that were on time."""
        return None if self.on_time is None else self.on_time / self.bounded


class Outcome(msgspec.Struct, frozen=True):
    """What a policy has brought: over all queries, and for each."""

    policy: str
    all: Figures | None
    queries: dict[str, Figures]
    batches: int


class Replay(msgspec.Struct, frozen=True):
    """A run as recorded, and as it would have been.

    Attributes
    ----------
    slowed
        By how much each batch more at a time slows all down.
    assumed
        Whether that is what is usual, since the record cannot tell.
    most
        Batches at a time that were recorded.
    notes
        What a reader should know before believing it.
    """

    run: str
    policy: str
    concurrency: int
    recorded: Outcome
    outcomes: tuple[Outcome, ...]
    slowed: float
    assumed: bool
    most: int
    notes: tuple[str, ...]

    def outcome(self, policy: str) -> Outcome | None:
        """Of a policy, if it was replayed."""
        return next((each for each in self.outcomes if each.policy == policy), None)


def known_policies() -> list[str]:
    """What can be replayed."""
    return [*POLICIES, STOCK]


def check_policies(names: Sequence[str]) -> None:
    """Refuse what is no policy, or named twice."""
    for name in names:
        if name not in known_policies():
            raise RunError(f"policy {name!r} is not known; one of: {', '.join(known_policies())}")
        if names.count(name) > 1:
            raise RunError(f"policy {name!r} is named twice")
    if not names:
        raise RunError(f"no policy is named; one or more of: {', '.join(known_policies())}")


def replay(
    recorded: Recorded,
    policies: Sequence[str],
    *,
    concurrency: int | None = None,
    after: float = 0.0,
    told: Callable[[str], None] = lambda policy: None,
) -> Replay:
    """Replay a run under each policy.

    Parameters
    ----------
    policies
        Names, as :func:`known_policies` has them.
    concurrency
        Turns at a time; as recorded unless given.
    after
        Seconds into the run; results of windows that ended before are left out of the figures.
    told
        Called with each policy before it is replayed.
    """
    check_policies(policies)
    pace, past, left_out = pasts(recorded)
    turns_at_a_time = recorded.run.concurrency if concurrency is None else concurrency
    length = max(1.0, recorded.ends - recorded.begins)
    was = _as_recorded(recorded, past, after)
    if after > 0.0 and was.all is None:
        raise RunError(
            f"after={after:g}: no result ended so late into the run, which was recorded for "
            f"{length:.0f} s"
        )
    outcomes = []
    for policy in policies:
        told(policy)
        turns = None
        if policy != STOCK:
            turns = Turns(
                POLICIES[policy](),
                concurrency=turns_at_a_time,
                hold_limit=recorded.run.hold_limit,
            )
        outcomes.append(_run(policy, past, pace, turns, length, after))
    return Replay(
        recorded.run.run,
        recorded.run.policy,
        turns_at_a_time,
        was,
        tuple(outcomes),
        pace.slowed,
        pace.assumed,
        pace.most,
        (
            *(_doubts(was, outcomes) if concurrency in (None, recorded.run.concurrency) else ()),
            *_notes(recorded, pace, policies, past, turns_at_a_time, after),
            *left_out,
        ),
    )


def _run(
    policy: str,
    past: Sequence[Past],
    pace: Pace,
    turns: Turns | None,
    length: float,
    after: float,
) -> Outcome:
    kernel = Kernel()
    running = Running([Replayed(each) for each in past], Contended(kernel, pace), turns, kernel)
    running.begin()
    kernel.run(length)
    while not running.past(length) and kernel.now < (1.0 + _PATIENCE) * length:
        kernel.run(kernel.now + 1.0)
    running.check()
    out = {name: dict(query.out) for name, query in running.queries.items()}
    batches = sum(query.batches for query in running.queries.values())
    return _outcome(policy, past, out, batches, after)


def _as_recorded(recorded: Recorded, past: Sequence[Past], after: float) -> Outcome:
    out = {each.name: {result.end: result.out for result in each.results} for each in past}
    batches = sum(len(recorded.batches[each.name]) for each in past)
    return _outcome(recorded.run.policy, past, out, batches, after)


def _outcome(
    policy: str,
    past: Sequence[Past],
    out: Mapping[str, Mapping[float, float]],
    batches: int,
    after: float,
) -> Outcome:
    rows = {
        each.name: [
            (result.end, result.limit, out[each.name].get(result.end, math.inf))
            for result in each.results
            if result.end >= after
        ]
        for each in past
    }
    queries = {name: _figures(found) for name, found in rows.items() if found}
    together = [row for found in rows.values() for row in found]
    return Outcome(policy, _figures(together) if together else None, queries, batches)


def _figures(rows: Sequence[tuple[float, float, float]]) -> Figures:
    ends, limits, outs = np.array(rows).T
    came = np.isfinite(outs)
    latencies = (outs - ends)[came]
    bounded = np.isfinite(limits)
    # a millionth: both sides are differences of the same large numbers
    on_time = int((bounded & (outs <= limits + 1e-6)).sum())
    p50, p90, p99 = (
        float(np.quantile(latencies, share, method="inverted_cdf")) if came.any() else math.nan
        for share in (0.5, 0.9, 0.99)
    )
    return Figures(
        len(rows),
        int(bounded.sum()),
        on_time if bounded.any() else None,
        float(latencies.mean()) if came.any() else math.nan,
        p50,
        p90,
        p99,
        float(latencies.max()) if came.any() else math.nan,
        int((~came).sum()),
    )


def _doubts(was: Outcome, outcomes: Sequence[Outcome]) -> list[str]:
    """Whether the policy that was recorded comes out too far from what was."""
    again = next((each.all for each in outcomes if each.policy == was.policy), None)
    if again is None or was.all is None:
        return []
    if again.missing or _off(was.all.mean, again.mean) > _FAR:
        return [
            f"Do not rely on this replay: {was.policy}, which was recorded, comes out too far from "
            "what it was, and the others may be as far off"
        ]
    if _off(was.all.p99, again.p99) > _FAR:
        return [
            f"Do not rely on p99 and max here: those of {was.policy}, which was recorded, come out "
            "too far from what they were"
        ]
    return []


def _off(was: float, got: float) -> float:
    """By what share; anything is far from nothing."""
    return abs(got / was - 1.0) if was > 0.0 else math.inf if got > 0.0 else 0.0


def _notes(
    recorded: Recorded,
    pace: Pace,
    policies: Sequence[str],
    past: Sequence[Past],
    concurrency: int,
    after: float,
) -> list[str]:
    notes = []
    if pace.assumed:
        notes.append(
            "nearly always as many batches ran side by side, so that the record cannot tell how "
            f"much they slow each other down: what is usual on {pace.cores:g} cores is assumed"
        )
    at_a_time = len(past) if STOCK in policies else min(len(past), concurrency)
    if not pace.assumed and at_a_time > pace.most:
        notes.append(
            f"up to {at_a_time} batches at a time, {pace.most} were recorded: how much they slow "
            "each other down is extrapolated"
        )
    windows, rows = (
        sum(
            result.end >= after
            for each in past
            if (each.slide is not None) is windowed
            for result in each.results
        )
        for windowed in (True, False)
    )
    if windows and rows:
        notes.append(
            f"results are {windows:,} windows and {rows:,} rows of queries without windows, one "
            "each second: --by-query tells them apart"
        )
    if recorded.missing:
        notes.append(f"{recorded.missing} records were left out of the trace while it was written")
    return notes

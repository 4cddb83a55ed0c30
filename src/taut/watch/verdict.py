"""Whether an objective is met, and what a query waits for: plain functions over plain values."""

from __future__ import annotations

import math
from typing import NamedTuple

from taut.duration import duration
from taut.slo import Slo
from taut.watch.records import SlackParts

MET, AT_RISK, MISSED = "met", "at risk", "missed"
NO_OBJECTIVE, NO_DATA, FAILED = "no objective", "no data", "failed"

_NEAR = 0.9
"""Of the objective: from there on it is at risk."""
_AT_WORK = ("held", "planned", "running")


def measured(
    slo: Slo | None, objective: float | None, observed: float | None, results: int, late: int
) -> str:
    """What the last results say: of a quantile the counts decide, which are exact.

    Parameters
    ----------
    slo
        As stated; None where only its seconds are known: then nothing may be late.
    observed
        Its measure; None where only counts are known: then nothing may be late by a mean.
    results, late
        How many there were.
    """
    if objective is None:
        return NO_OBJECTIVE
    if not results:
        return NO_DATA
    if slo is not None and slo.quantile is not None:
        missed = not slo.allows(late, results)
    elif slo is not None and observed is not None:
        missed = observed > objective
    else:
        missed = late > 0
    if missed:
        return MISSED
    return AT_RISK if observed is not None and observed > _NEAR * objective else MET


def verdict(
    said: str,
    now: float,
    objective: float | None,
    due: float | None,
    slack: SlackParts | None,
    state: str,
) -> str:
    """What the last results say, and what is known of the one to come.

    One that is not out when it had to be is late, whenever it comes: at risk, and a miss once it
    is late by the objective again. While there are no rows to read nothing is due. Whatever a query
    has met until then, once it has failed nothing more comes of it.

    Parameters
    ----------
    due
        When the result to come could first be out, if that is known.
    """
    if state == "failed":
        return FAILED
    if objective is None or said == MISSED or state not in _AT_WORK:
        return said
    late_by = -math.inf if due is None else now - due - objective
    if late_by > objective:
        return MISSED
    short = state != "running" and slack is not None and slack.value < slack.cost
    return AT_RISK if late_by > 0 or short else said


def budget(slo: Slo | None, results: int, late: int) -> float | None:
    """Share that is left of the results that may be late; None where no share is stated.

    >>> budget(Slo("p99 <= 1 s"), 1_000, 5)
    0.5
    >>> budget(Slo("max <= 1 s"), 1_000, 0), budget(Slo("max <= 1 s"), 1_000, 2)
    (1.0, -2.0)
    """
    if slo is None or slo.quantile is None:
        return None
    if late == 0:
        return 1.0
    allowed = (1.0 - slo.quantile) * results
    # rounded, as 1 - 0.9 is not quite a tenth; the sum makes -0 a 0
    return round(1.0 - late / allowed, 9) + 0.0 if allowed > 0 else -float(late)


class Turnout(NamedTuple):
    """Turns that run, queries that wait for one, and turns at a time."""

    running: int
    waiting: int
    concurrency: int


def waiting_for(
    state: str,
    now: float,
    due: float | None,
    turns: Turnout,
    *,
    error: str | None = None,
    windowed: bool = False,
) -> str:
    """One plain sentence.

    >>> waiting_for("held", 10.0, 12.5, Turnout(running=0, waiting=1, concurrency=2))
    'Its next window, expected to be complete in 2.5 s.'
    """
    plain = {
        "failed": f"Nothing: it has failed ({error}).",
        "ended": "Nothing: it has ended.",
        "running": "The batch that runs.",
        "waiting for data": "Rows to read: its sources have none.",
    }
    if state in plain:
        return plain[state]
    if due is not None and due > now:
        return f"Its next window, expected to be complete in {_about(due - now)}."
    if turns.running >= turns.concurrency:
        beside = f", and {turns.waiting - 1} more wait" if turns.waiting > 1 else ""
        return f"A turn: {turns.running} of {turns.concurrency} run{beside}."
    if due is not None:
        return f"Its turn: its next window has been due for {_about(now - due)}."
    return "Its first window." if windowed else "Its turn: the policy lets rows gather first."


def _about(seconds: float) -> str:
    return duration(round(seconds, 1 if seconds < 60 else 0))

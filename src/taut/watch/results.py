"""What came out with a batch and how it counts: one reading for the board and for the report."""

from __future__ import annotations

import numpy as np

from taut.errors import SloError
from taut.slo import Slo
from taut.watch.records import Batch, Reduced, Started

MOST_RESULTS = 1_200
"""Of one batch: what came out beyond that is not told apart."""
_APART = 0.05


def stated(started: Started) -> Slo | None:
    """The objective as it was stated; None where there is none, or none that can be read."""
    if started.slo is None:
        return None
    try:
        return Slo(started.slo)
    except SloError:
        return None


def same_life(before: Started | None, ended: bool, started: Started) -> bool:
    """Whether a query that is told to have started is the one before, with more known of it.

    Parameters
    ----------
    before
        What was told when it started; None if nothing was, or with 0 for a time not yet known.
    ended
        Whether it has ended: then another was started under its name.
    """
    return not ended and (before is None or before.at in (0.0, started.at))


def held_from(batch: Batch, before: Batch | None, held_since: float | None) -> float:
    """Since when a query had waited to be let go for a batch.

    Parameters
    ----------
    before
        The batch before it: only the first of a turn waits.
    held_since
        Of the turn that it was granted; None where it took none, and so was not held.
    """
    if held_since is None or (before is not None and before.granted == batch.granted):
        return batch.begun
    return held_since


def ends(batch: Batch, window: tuple[float, float, float] | None) -> np.ndarray:
    """The ends of the windows that came out, the last ones if there are very many."""
    named = np.asarray(batch.ends[-MOST_RESULTS:], dtype=np.float64)
    more = min(batch.windows, MOST_RESULTS) - len(named)
    if more <= 0 or window is None or not len(named):
        return named
    # a batch names its last windows only; those before ended a slide apart
    before = named[0] - window[1] * np.arange(more, 0, -1)
    return np.concatenate([before, named])


def spread(batch: Batch) -> np.ndarray:
    """Latencies of rows that came evenly over the time in which the batch's input arrived.

    None where that is not known: to call such rows on time would be a guess.
    """
    if not batch.input_known:
        return np.zeros(0)
    fastest = batch.written - batch.planned
    points = min(MOST_RESULTS, max(1, round(batch.input / _APART)))
    return fastest + batch.input * (np.arange(points) + 0.5) / points


def rows_reduced(reduced: Reduced) -> tuple[int, int]:
    """Rows of a reduce, and how many of them missed: late, or shed so that others are not.

    >>> rows_reduced(Reduced(0.0, "q", 0, on_time=50, late=3, shed={"deadline passed": 47}))
    (100, 50)
    """
    missed = reduced.late + sum(reduced.shed.values())
    return reduced.on_time + missed, missed


def source_name(query: str, source: str) -> str:
    """How a source is called: after its query, where that has one only."""
    return f"{query}/{source}" if source else query

"""The records of a run: what a trace holds, line by line, and what a board is fed with.

One small record for each decision, each batch and each look at a source. Times are seconds since
the epoch by the driver's clock, durations are seconds. Written as JSON lines, each with its
``kind``; fields that have their default are left out.
"""

from __future__ import annotations

from typing import Any

import msgspec

VERSION = 1
"""Of the format. A reader refuses a newer one."""


class _Record(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    """What all records share."""


class Run(_Record, tag="run", frozen=True):
    """What runs, and where: the first record of every file of a trace."""

    at: float
    run: str
    policy: str
    concurrency: int
    hold_limit: float
    version: int = VERSION
    machine: dict[str, Any] = {}


class Started(_Record, tag="started", frozen=True):
    """A query was started.

    Attributes
    ----------
    slo, objective, quantile
        What was stated ("p99 <= 1 s"), its seconds, and its quantile (None for a mean).
    window
        Length, slide and start, where it is known by now.
    resident
        Tasks that its sources keep for good; then it takes no turns.
    """

    at: float
    query: str
    slo: str | None = None
    objective: float | None = None
    quantile: float | None = None
    window: tuple[float, float, float] | None = None
    resident: int = 0


class Ended(_Record, tag="ended", frozen=True):
    """A query has ended, or failed with an error."""

    at: float
    query: str
    error: str | None = None


class SlackParts(msgspec.Struct, frozen=True):
    """Seconds that a query could still be left alone, and what they were made of."""

    value: float
    due: float
    earliest: float
    latest: float
    cost: float


class Turn(_Record, tag="turn", frozen=True):
    """A decision: a query may run.

    Attributes
    ----------
    held_since
        Since when it had waited for that.
    until
        ``batch`` or ``swept``: how long the turn lasts.
    why
        ``policy``, ``hold limit``, ``planned`` (its first batch, or data after none) or ``open``
        (the policy has failed, everything runs).
    """

    at: float
    query: str
    held_since: float
    until: str
    why: str
    slack: SlackParts | None = None


class Batch(_Record, tag="batch", frozen=True):
    """A batch whose rows are out.

    Attributes
    ----------
    batch
        Its number.
    granted, begun, planned, run, written
        When its turn was granted; when the query was let go; when its offsets were fetched; when
        its rows could first be asked for (its plan was made); when they were out.
    input
        Seconds of arrivals that it read: rows came between ``planned - input`` and ``planned``.
    watermark
        That it ran with.
    ends
        Ends of the windows that came out with it, the last ones if there are many; none for a
        query without a window.
    windows, late
        How many windows came out, and how many of them past their objective.
    delay
        Seconds after its end at which a window can first be complete, as expected now: it is due
        then, and on time until the objective after that.
    goes_on
        Whether its turn went on: no waiting before the batch that follows.
    input_known
        Whether ``input`` is known: it is not of the first batch that there is. Its rows may have
        waited for any time, and are not counted.
    """

    query: str
    batch: int
    granted: float
    begun: float
    planned: float
    run: float
    written: float
    input: float = 0.0
    watermark: float = 0.0
    ends: tuple[float, ...] = ()
    windows: int = 0
    late: int = 0
    delay: float = 0.0
    goes_on: bool = False
    input_known: bool = True


class Lane(msgspec.Struct, frozen=True):
    """A lane as it stands: rows and chunks done, seconds at work, and since when its open chunk."""

    lane: int
    place: str
    rows: int = 0
    chunks: int = 0
    busy: float = 0.0
    open_since: float | None = None
    replays: int = 0


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """A chunk that is done: who had it, when it was handed out and done, and whether once more."""

    lane: int
    chunk: int
    rows: int
    claimed: float
    done: float
    again: bool = False
    kept: bool = True


class Source(_Record, tag="source", frozen=True):
    """How a Taut source stands, about once a second.

    Attributes
    ----------
    issued, replayed, timeout, shares
        As in :class:`taut.Stats`.
    backlog
        Rows by log partition that have arrived and are not taken.
    chunks, left_out
        Done since the record before, and how many more there were.
    lanes_left_out
        How many more lanes there are.
    source
        Which of them, where a query has several.
    unit
        What ``backlog``, and the rows of lanes and chunks, count: ``rows``, or ``bytes`` of a log
        of files, whose offsets are bytes.
    """

    at: float
    query: str
    issued: int = 0
    replayed: int = 0
    timeout: float | None = None
    shares: dict[str, float] = {}
    backlog: dict[str, int] = {}
    lanes: tuple[Lane, ...] = ()
    chunks: tuple[Chunk, ...] = ()
    left_out: int = 0
    lanes_left_out: int = 0
    source: str = ""
    unit: str = "rows"


class Reduced(_Record, tag="reduced", frozen=True):
    """A batch of a reduce; as :class:`taut.spark.reduce.outcome.BatchStats`."""

    at: float
    query: str
    batch: int
    objective: float | None = None
    rows: int = 0
    processed: int = 0
    waiting: int = 0
    on_time: int = 0
    late: int = 0
    bad: int = 0
    shed: dict[str, int] = {}
    hot: int = 0
    hot_bytes: int = 0
    cold: int = 0
    began: float = 0.0
    ended: float = 0.0
    predicted: float = 0.0


class Expected(_Record, tag="expected", frozen=True):
    """What a plan expects of a query, and what was seen: now and then while it runs."""

    at: float
    query: str
    measure: str
    seconds: float
    low: float
    high: float
    observed: float | None = None
    rate: float = 0.0
    planned_rate: float = 0.0
    phases: dict[str, float] = {}


class LeftOut(_Record, tag="left out", frozen=True):
    """Records that are missing from a trace here, and why."""

    at: float
    records: int
    why: str


Record = Run | Started | Ended | Turn | Batch | Source | Reduced | Expected | LeftOut

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Record).decode

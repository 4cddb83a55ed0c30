"""What a look at the board shows: the one value behind the live page, the metrics and a report."""

from __future__ import annotations

from typing import Any

import msgspec

from taut.watch.records import Lane, SlackParts


class Quantiles(msgspec.Struct, frozen=True):
    """Latencies (seconds) of the last two minutes, unless said otherwise, and how many they are."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class Bar(msgspec.Struct, frozen=True, array_like=True):
    """A batch on the timeline: held from, let go, plan made, written; batch; windows; late."""

    held: float
    begun: float
    run: float
    written: float
    batch: int
    windows: int
    late: int


class QueryNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A query as it stands.

    Attributes
    ----------
    state
        As in :class:`taut.Status`: held, running, planned, waiting for data, ended, failed.
    verdict
        ``met``, ``at risk``, ``missed``, ``no objective`` or ``no data``: the measure that the
        objective is about, over the last two minutes, against it. At risk: the result to come is
        late or has less slack than it costs, or the measure is within a tenth of the objective.
        Missed as well: the result to come is late by the objective again. ``failed``: it has.
    waiting_for
        One plain sentence.
    due
        When its next window that is not out is expected to be complete (epoch seconds).
    slack
        Until its next result is late, less the work that is still to come: of a turn that is under
        way, what is left of it. None without an objective.
    observed
        The objective's own measure (its quantile, or the mean) over the last two minutes. Windows
        are measured from when they were due, as the objective is; in ``latency`` from their end.
        None for a reduce, of which only counts are known.
    results, late
        Windows that came out; of a query without a window, moments at which rows came, about 50 ms
        apart; of a reduce, rows. And how many of them were late; of a reduce, or were shed.
    on_time, budget
        Share of results on time since the start; share of the results that may be late by the
        objective that is left: 1 is untouched, below 0 is overdrawn. None without an objective,
        and before the first result.
    latencies
        (written, latency) of the last results, for the picture: from when each was due, as the
        objective counts; at most 240.
    whole
        As ``latency``, since the start.
    phases
        Seconds a batch over the last two minutes: ``held`` until it was let go, ``planning`` until
        its rows could be asked for, ``running`` until they were out.
    """

    name: str
    state: str
    verdict: str
    waiting_for: str
    since: float
    slo: str | None = None
    objective: float | None = None
    window: tuple[float, float, float] | None = None
    due: float | None = None
    awaited: float | None = None
    slack: SlackParts | None = None
    latency: Quantiles | None = None
    observed: float | None = None
    on_time: float | None = None
    budget: float | None = None
    results: int = 0
    late: int = 0
    batches: int = 0
    held_seconds: float = 0.0
    error: str | None = None
    bars: tuple[Bar, ...] = ()
    latencies: tuple[tuple[float, float], ...] = ()
    phases: dict[str, Quantiles] = {}
    whole: Quantiles | None = None


class SourceNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Taut source as it stands.

    Attributes
    ----------
    busy
        Share of the last ten seconds or so that each lane was at work.
    stragglers
        Lanes that have been at their chunk for longer than nearly all chunks took.
    history
        (at, rows waiting, rows a second).
    unit
        What an offset of its log is: ``rows``, or ``bytes`` in a log of files. Counted in it are
        ``issued``, ``replayed``, ``backlog``, ``history`` and the lanes' ``rows``; ``timeout`` is
        for one of it.
    chunk, lane_chunks
        Seconds that chunks took, of all lanes and of each, over the last two minutes.
    """

    query: str
    at: float
    issued: int = 0
    replayed: int = 0
    cost: float = 0.0
    timeout: float | None = None
    lanes: tuple[Lane, ...] = ()
    busy: tuple[float, ...] = ()
    stragglers: tuple[int, ...] = ()
    shares: dict[str, float] = {}
    share_history: tuple[tuple[float, dict[str, float]], ...] = ()
    backlog: dict[str, int] = {}
    history: tuple[tuple[float, int, float], ...] = ()
    chunk: Quantiles | None = None
    lane_chunks: dict[int, Quantiles] = {}
    unit: str = "rows"


class ReduceNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reduce as it stands; ``history`` has (written, on time, late, shed) of each batch."""

    query: str
    at: float
    objective: float | None = None
    rows: int = 0
    on_time: int = 0
    late: int = 0
    waiting: int = 0
    shed: dict[str, int] = {}
    hot: int = 0
    hot_bytes: int = 0
    cold: int = 0
    history: tuple[tuple[float, int, int, int], ...] = ()


class PlanNow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A planned query: what was expected, phase by phase, and what was seen."""

    query: str
    at: float
    measure: str
    expected: float
    low: float
    high: float
    observed: float | None = None
    rate: float = 0.0
    planned_rate: float = 0.0
    phases: dict[str, float] = {}


class Snapshot(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything at one moment (epoch seconds).

    Attributes
    ----------
    concurrency
        Turns that may run at a time; 0 where queries take none, so that nothing limits them.
    running
        Turns that run.
    notes
        What a person should know, in plain sentences: a policy that failed, a trace with gaps.
    overhead
        Share of one core that Taut itself has used: deciding, holding and watching.
    """

    at: float
    run: str
    policy: str
    concurrency: int
    started: float
    machine: dict[str, Any] = {}
    running: int = 0
    queries: tuple[QueryNow, ...] = ()
    sources: tuple[SourceNow, ...] = ()
    reduces: tuple[ReduceNow, ...] = ()
    plans: tuple[PlanNow, ...] = ()
    notes: tuple[str, ...] = ()
    overhead: float = 0.0


encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder(Snapshot).decode

"""A snapshot as Prometheus reads it.

Nothing is counted here: every scrape makes its samples from one snapshot, so that the page, the
report and the metrics cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from taut.watch.snapshot import PlanNow, Quantiles, QueryNow, ReduceNow, Snapshot, SourceNow

Samples = Iterable[tuple[tuple[str, ...], float | None]]
"""Label values and a value; None where there is none yet, which is no sample."""

VERDICTS = ("met", "at risk", "missed", "failed", "no objective", "no data")
_GAUGE, _COUNTER = GaugeMetricFamily, CounterMetricFamily


class _Of(NamedTuple):
    """A metric: its type, name, help and labels, and how its samples come out of a snapshot."""

    kind: type[GaugeMetricFamily] | type[CounterMetricFamily]
    name: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[Snapshot], Samples]


def _query(value: Callable[[QueryNow], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda seen: (((q.name,), value(q)) for q in seen.queries)


def _source(value: Callable[[SourceNow], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda seen: (((s.query,), value(s)) for s in seen.sources)


def _offsets(value: Callable[[SourceNow], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda seen: (((s.query, s.unit), value(s)) for s in seen.sources)


def _reduce(value: Callable[[ReduceNow], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda seen: (((r.query,), value(r)) for r in seen.reduces)


def _plan(value: Callable[[PlanNow], float | None]) -> Callable[[Snapshot], Samples]:
    return lambda seen: (((p.query, p.measure), value(p)) for p in seen.plans)


def _quantiles(of: Quantiles | None, *labels: str) -> Samples:
    if of is not None:
        yield (*labels, "0.5"), of.p50
        yield (*labels, "0.9"), of.p90
        yield (*labels, "0.99"), of.p99
        yield (*labels, "0.999"), of.p999
        yield (*labels, "1"), of.max


def _latencies(seen: Snapshot) -> Samples:
    for q in seen.queries:
        yield from _quantiles(q.latency, q.name)


def _phases(seen: Snapshot) -> Samples:
    for q in seen.queries:
        for phase, took in q.phases.items():
            yield from _quantiles(took, q.name, phase)


def _chunks(seen: Snapshot) -> Samples:
    for s in seen.sources:
        yield from _quantiles(s.chunk, s.query)


def _verdicts(seen: Snapshot) -> Samples:
    for q in seen.queries:
        for verdict in dict.fromkeys((*VERDICTS, q.verdict)):
            yield (q.name, verdict), float(q.verdict == verdict)


def _states(seen: Snapshot) -> Samples:
    return (((q.name, q.state), 1.0) for q in seen.queries)


def _lanes(seen: Snapshot) -> Samples:
    for s in seen.sources:
        for lane, busy in zip(s.lanes, s.busy, strict=False):
            yield (s.query, str(lane.lane), lane.place), busy


def _backlog(seen: Snapshot) -> Samples:
    for s in seen.sources:
        for partition, offsets in s.backlog.items():
            yield (s.query, partition, s.unit), offsets


def _shares(seen: Snapshot) -> Samples:
    return (((s.query, to), share) for s in seen.sources for to, share in s.shares.items())


def _outcomes(seen: Snapshot) -> Samples:
    for r in seen.reduces:
        yield (r.query, "on_time"), r.on_time
        yield (r.query, "late"), r.late
        yield (r.query, "shed"), sum(r.shed.values())


def _shed(seen: Snapshot) -> Samples:
    return (((r.query, why), rows) for r in seen.reduces for why, rows in r.shed.items())


def _keys(seen: Snapshot) -> Samples:
    for r in seen.reduces:
        yield (r.query, "hot"), r.hot
        yield (r.query, "cold"), r.cold


def _planned(seen: Snapshot) -> Samples:
    return (((p.query, phase), took) for p in seen.plans for phase, took in p.phases.items())


_Q = ("query",)
_P = ("query", "measure")
_U = ("query", "unit")
_UNIT = "in offsets of its log, which are what unit says: rows, or bytes of files"

METRICS: tuple[_Of, ...] = (
    # The run.
    _Of(_GAUGE, "taut_run_info", "What runs: its id and its policy.", ("run", "policy"),
        lambda seen: [((seen.run, seen.policy), 1.0)]),
    _Of(_GAUGE, "taut_run_start_timestamp_seconds", "When the run began.", (),
        lambda seen: [((), seen.started)]),
    _Of(_GAUGE, "taut_run_turns", "Turns under way now.", (),
        lambda seen: [((), seen.running)]),
    _Of(_GAUGE, "taut_run_turns_limit", "Turns that may be under way at once.", (),
        lambda seen: [((), seen.concurrency or None)]),
    _Of(_GAUGE, "taut_overhead_ratio",
        "Share of one core that Taut itself has used: deciding, holding and watching.", (),
        lambda seen: [((), seen.overhead)]),
    # Queries.
    _Of(_GAUGE, "taut_query_verdict", "1 for the verdict that holds now, 0 for the others.",
        ("query", "verdict"), _verdicts),
    _Of(_GAUGE, "taut_query_state", "1 for the state that the query is in.", ("query", "state"),
        _states),
    _Of(_GAUGE, "taut_query_latency_seconds",
        "Latency of results over the last two minutes, from a window's end or a row's arrival, by "
        "quantile; 1 is the maximum.",
        ("query", "quantile"), _latencies),
    _Of(_GAUGE, "taut_query_latency_mean_seconds",
        "Mean latency of results over the last two minutes, from a window's end or a row's "
        "arrival.", _Q,
        _query(lambda q: None if q.latency is None else q.latency.mean)),
    _Of(_GAUGE, "taut_query_phase_seconds",
        "Time a batch was held, planning and running over the last two minutes, by quantile.",
        ("query", "phase", "quantile"), _phases),
    _Of(_GAUGE, "taut_query_observed_seconds",
        "What the objective bounds, as seen over the last two minutes: from when a window was "
        "due (its end and its rows' usual delay), or from a row's arrival.", _Q,
        _query(lambda q: q.observed)),
    _Of(_GAUGE, "taut_query_objective_seconds", "The bound that the objective states.", _Q,
        _query(lambda q: q.objective)),
    _Of(_GAUGE, "taut_query_on_time_ratio", "Share of results on time since the start.", _Q,
        _query(lambda q: q.on_time)),
    _Of(_GAUGE, "taut_query_error_budget_ratio",
        "Share left of the results that may be late; below 0 it is overdrawn.", _Q,
        _query(lambda q: q.budget)),
    _Of(_GAUGE, "taut_query_slack_seconds",
        "How long the query could still be left alone, or take beyond what is expected while it "
        "runs; below 0 its next result is expected to be late. Of queries with an objective.", _Q,
        _query(lambda q: None if q.slack is None else q.slack.value)),
    _Of(_GAUGE, "taut_query_due_timestamp_seconds",
        "When the next window is expected to be complete.", _Q, _query(lambda q: q.due)),
    _Of(_COUNTER, "taut_query_held_seconds_total", "Time that the query was held.", _Q,
        _query(lambda q: q.held_seconds)),
    _Of(_COUNTER, "taut_query_batches_total", "Batches whose rows are out.", _Q,
        _query(lambda q: q.batches)),
    _Of(_COUNTER, "taut_query_results_total", "Results that came out.", _Q,
        _query(lambda q: q.results)),
    _Of(_COUNTER, "taut_query_late_results_total", "Results past their objective.", _Q,
        _query(lambda q: q.late)),
    # Sources.
    _Of(_GAUGE, "taut_source_backlog_rows", f"What has arrived and is not taken, {_UNIT}.",
        ("query", "partition", "unit"), _backlog),
    _Of(_GAUGE, "taut_source_lane_busy_ratio", "Share of the time that a lane is at work.",
        ("query", "lane", "place"), _lanes),
    _Of(_GAUGE, "taut_source_chunk_seconds",
        "Time that chunks took over the last two minutes, by quantile; 1 is the maximum.",
        ("query", "quantile"), _chunks),
    _Of(_GAUGE, "taut_source_open_chunks", "Chunks that lanes work on.", _Q,
        _source(lambda s: sum(lane.open_since is not None for lane in s.lanes))),
    _Of(_GAUGE, "taut_source_stragglers", "Lanes whose open chunk is overdue.", _Q,
        _source(lambda s: len(s.stragglers))),
    _Of(_GAUGE, "taut_source_share_ratio", "Share of the work that goes to each.", ("query", "to"),
        _shares),
    _Of(_GAUGE, "taut_source_replay_cost_ratio",
        "What was handed out once more, as a share of what was handed out first.", _Q,
        _source(lambda s: s.cost)),
    _Of(_GAUGE, "taut_source_replay_timeout_seconds",
        "Time after which a chunk is overdue, for each offset: a row, or a byte, as unit says.",
        _U, _offsets(lambda s: s.timeout)),
    _Of(_COUNTER, "taut_source_issued_rows_total", f"What was handed to lanes, {_UNIT}.", _U,
        _offsets(lambda s: s.issued)),
    _Of(_COUNTER, "taut_source_replayed_rows_total",
        f"What was handed to lanes once more, {_UNIT}.", _U, _offsets(lambda s: s.replayed)),
    # Reduces.
    _Of(_COUNTER, "taut_reduce_rows_total", "Rows by what became of them.", ("query", "outcome"),
        _outcomes),
    _Of(_COUNTER, "taut_reduce_shed_rows_total", "Rows sent to the side output, by reason.",
        ("query", "reason"), _shed),
    _Of(_GAUGE, "taut_reduce_waiting_rows", "Rows put off to the next batch.", _Q,
        _reduce(lambda r: r.waiting)),
    _Of(_GAUGE, "taut_reduce_keys", "Keys in the workers' memory (hot) and in the store (cold).",
        ("query", "tier"), _keys),
    _Of(_GAUGE, "taut_reduce_hot_bytes", "Memory that the hot keys take.", _Q,
        _reduce(lambda r: r.hot_bytes)),
    # Plans.
    _Of(_GAUGE, "taut_plan_expected_latency_seconds", "What the plan expects.", _P,
        _plan(lambda p: p.expected)),
    _Of(_GAUGE, "taut_plan_low_latency_seconds", "The low end of what the plan expects.", _P,
        _plan(lambda p: p.low)),
    _Of(_GAUGE, "taut_plan_high_latency_seconds", "The high end of what the plan expects.", _P,
        _plan(lambda p: p.high)),
    _Of(_GAUGE, "taut_plan_observed_latency_seconds", "What was seen of it.", _P,
        _plan(lambda p: p.observed)),
    _Of(_GAUGE, "taut_plan_phase_seconds", "Where the plan expects the time to go.",
        ("query", "phase"), _planned),
    _Of(_GAUGE, "taut_plan_planned_rows_per_second", "The rate that was planned for.", _P,
        _plan(lambda p: p.planned_rate)),
    _Of(_GAUGE, "taut_plan_rows_per_second", "The rate that was seen.", _P,
        _plan(lambda p: p.rate)),
)  # fmt: skip


class _Seen(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        for metric in METRICS:
            family = metric.kind(metric.name, metric.help, labels=metric.labels)
            for labels, value in metric.samples(self._snapshot):
                if value is not None:
                    family.add_metric(labels, value)
            if family.samples:
                yield family


def exposition(snapshot: Snapshot, accept: str = "") -> tuple[bytes, str]:
    """The metrics of a snapshot and their media type, in the format that is accepted.

    >>> from taut.watch.snapshot import Snapshot
    >>> now = Snapshot(at=9.0, run="r1", policy="least-slack", concurrency=2, started=4.0)
    >>> text, kind = exposition(now)
    >>> print(text.decode().splitlines()[2])
    taut_run_info{policy="least-slack",run="r1"} 1.0
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Seen(snapshot))
    encoder, media_type = choose_encoder(accept)
    return encoder(registry), media_type

"""What Prometheus reads: the snapshot's own numbers, under names that keep its rules."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain
from tests.watch.scenes import Scene

from taut.watch.board import Board
from taut.watch.metrics import METRICS, exposition
from taut.watch.records import Ended, Run, Started
from taut.watch.snapshot import QueryNow, Snapshot

START = 1_794_900_000.0
NOW = START + 4000
DOCS = Path(__file__).parents[2] / "docs" / "watch.md"
SEEN = Scene(START).at(NOW)
UNITS = ("_seconds", "_ratio", "_rows", "_bytes", "_info", "_per_second")
PLAIN = {"taut_query_verdict", "taut_query_state", "taut_run_turns", "taut_run_turns_limit",
         "taut_source_open_chunks", "taut_source_stragglers", "taut_reduce_keys"}  # fmt: skip


def samples(snapshot: Snapshot = SEEN) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text, _ = exposition(snapshot)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in read_plain(text.decode())
        for sample in family.samples
    }


def value(name: str, /, **labels: str) -> float:
    return samples()[name, frozenset(labels.items())]


def test_the_numbers_are_those_of_the_snapshot() -> None:
    query = SEEN.queries[0]
    source, reduce, plan = SEEN.sources[0], SEEN.reduces[0], SEEN.plans[0]
    assert query.latency is not None
    assert query.slack is not None
    assert plan.observed is not None
    name = query.name
    assert value("taut_query_latency_seconds", query=name, quantile="0.99") == query.latency.p99
    assert value("taut_query_latency_seconds", query=name, quantile="1") == query.latency.max
    assert value("taut_query_objective_seconds", query=name) == query.objective
    assert value("taut_query_observed_seconds", query=name) == query.observed
    assert value("taut_query_on_time_ratio", query=name) == query.on_time
    assert value("taut_query_error_budget_ratio", query=name) == query.budget
    assert value("taut_query_held_seconds_total", query=name) == query.held_seconds
    assert value("taut_query_slack_seconds", query=name) == query.slack.value
    assert value("taut_query_batches_total", query=name) == query.batches
    assert value("taut_query_results_total", query=name) == query.results
    assert value("taut_query_late_results_total", query=name) == query.late
    for partition, rows in source.backlog.items():
        labels = {"query": source.query, "partition": partition, "unit": "rows"}
        assert value("taut_source_backlog_rows", **labels) == rows
    for lane, busy in zip(source.lanes, source.busy, strict=True):
        labels = {"query": source.query, "lane": str(lane.lane), "place": lane.place}
        assert value("taut_source_lane_busy_ratio", **labels) == busy
    assert value("taut_source_replay_cost_ratio", query=source.query) == source.cost
    labels = {"query": source.query, "unit": "rows"}
    assert value("taut_source_issued_rows_total", **labels) == source.issued
    assert value("taut_source_replayed_rows_total", **labels) == source.replayed
    assert value("taut_source_replay_timeout_seconds", **labels) == source.timeout
    for to, share in source.shares.items():
        assert value("taut_source_share_ratio", query=source.query, to=to) == share
    shed = sum(reduce.shed.values())
    assert value("taut_reduce_rows_total", query=reduce.query, outcome="on_time") == reduce.on_time
    assert value("taut_reduce_rows_total", query=reduce.query, outcome="shed") == shed
    for reason, rows in reduce.shed.items():
        at = value("taut_reduce_shed_rows_total", query=reduce.query, reason=reason)
        assert at == rows
    labels = {"query": plan.query, "measure": plan.measure}
    assert value("taut_plan_expected_latency_seconds", **labels) == plan.expected
    assert value("taut_plan_observed_latency_seconds", **labels) == plan.observed


def test_without_turns_there_is_no_limit_to_tell() -> None:
    seen = msgspec.structs.replace(SEEN, concurrency=0)
    names = {name for name, _ in samples(seen)}
    assert "taut_run_turns_limit" not in names
    assert "taut_run_turns" in names


def test_phases_and_chunks_by_quantile() -> None:
    query, source = SEEN.queries[0], SEEN.sources[0]
    assert set(query.phases) == {"held", "planning", "running"}
    for phase, took in query.phases.items():
        labels = {"query": query.name, "phase": phase}
        assert value("taut_query_phase_seconds", **labels, quantile="0.99") == took.p99
        assert value("taut_query_phase_seconds", **labels, quantile="1") == took.max
    assert source.chunk is not None
    labels = {"query": source.query}
    assert value("taut_source_chunk_seconds", **labels, quantile="0.5") == source.chunk.p50
    assert value("taut_source_chunk_seconds", **labels, quantile="1") == source.chunk.max


def test_offsets_that_are_bytes_are_not_called_rows() -> None:
    seen = Scene(START, unit="bytes").at(NOW)
    metered = [(name, dict(labels)) for (name, labels), _ in samples(seen).items()]
    units = {name: labels["unit"] for name, labels in metered if "unit" in labels}
    assert units == dict.fromkeys(
        (
            "taut_source_backlog_rows",
            "taut_source_issued_rows_total",
            "taut_source_replayed_rows_total",
            "taut_source_replay_timeout_seconds",
        ),
        "bytes",
    )
    for metric in METRICS:
        assert ("unit" in metric.labels) == ("offset" in metric.help), metric.name
        if metric.name.startswith("taut_source"):
            assert ("_rows" not in metric.name) or "unit" in metric.labels, metric.name


def test_the_docs_have_every_metric_with_its_labels() -> None:
    told = {}
    for line in DOCS.read_text().splitlines():
        if line.startswith("| `taut_"):
            _, names, labels, *_ = line.split("|")
            for name in re.findall(r"`(\w+)`", names):
                assert name not in told, name
                told[name] = tuple(re.findall(r"\w+", labels))
    assert told == {metric.name: metric.labels for metric in METRICS}


def test_exactly_one_verdict_holds() -> None:
    for query in SEEN.queries:
        held = [
            dict(labels)["verdict"]
            for (name, labels), holds in samples().items()
            if name == "taut_query_verdict" and dict(labels)["query"] == query.name and holds
        ]
        assert held == [query.verdict]


def test_the_alerts_of_the_docs_fire_for_a_query_that_has_failed() -> None:
    board = Board()
    board.observe(Run(0.0, "r", "least-slack", concurrency=2, hold_limit=60.0))
    board.observe(Started(0.0, "q", "p99 <= 1 s", 1.0, 0.99))
    board.observe(Ended(5.0, "q", "the sink said no"))
    seen = samples(board.snapshot(6.0))
    asked = re.findall(r'expr: (taut_query_verdict)\{verdict="([a-z ]+)"\} == 1', DOCS.read_text())
    assert {verdict for _, verdict in asked} == {"missed", "failed"}
    fire = [
        verdict
        for name, verdict in asked
        if seen[name, frozenset({("query", "q"), ("verdict", verdict)})] == 1.0
    ]
    assert fire == ["failed"]
    assert not any(name == "taut_query_error_budget_ratio" for name, _ in seen), "none is known"


def test_names_keep_the_rules() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"taut_[a-z]+(_[a-z]+)*", metric.name)
        counter = metric.kind.__name__.startswith("Counter")
        assert counter == metric.name.endswith("_total"), metric.name
        unit = metric.name.removesuffix("_total")
        known = (
            metric.name in PLAIN or unit.endswith(UNITS) or re.search("_(batches|results)$", unit)
        )
        assert known, metric.name
        assert not unit.endswith(("_count", "_sum", "_bucket"))
        assert re.fullmatch(r"\S.*\.", metric.help), metric.name
        assert all(re.fullmatch("[a-z]+", label) for label in metric.labels)


def test_every_metric_has_help_and_type_and_is_there_once() -> None:
    text = exposition(SEEN)[0].decode()
    families = list(read_plain(text))
    assert {family.name for family in families} == {
        metric.name.removesuffix("_total") for metric in METRICS
    }
    assert all(family.documentation and family.type in ("gauge", "counter") for family in families)
    keys = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(keys) == len(set(keys))


def test_openmetrics_too() -> None:
    text, media_type = exposition(SEEN, "application/openmetrics-text; version=1.0.0")
    assert media_type.startswith("application/openmetrics-text")
    assert len(list(read_open(text.decode()))) == len(METRICS)


@pytest.mark.parametrize("name", ['quote"d', "back\\slash", "new\nline", "größe", "{a=b}"])
def test_names_of_queries_are_anything(name: str) -> None:
    query = QueryNow(name, "held", "met", "", START, objective=1.0)
    seen = Snapshot(NOW, "r", "least-slack", 2, START, queries=(query,))
    assert samples(seen)["taut_query_objective_seconds", frozenset({("query", name)})] == 1.0


def test_what_is_not_known_is_no_sample() -> None:
    query = QueryNow("new", "planned", "no data", "its first batch", START)
    seen = Snapshot(NOW, "r", "least-slack", 2, START, queries=(query,))
    names = {name for name, _ in samples(seen)}
    assert "taut_query_batches_total" in names
    assert names.isdisjoint({"taut_query_objective_seconds", "taut_query_latency_seconds"})

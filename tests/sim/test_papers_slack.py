"""Least slack in the published experiments: what it does, and that the pages say just that."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from taut.sim.papers import EXPERIMENTS, Effort, Found
from taut.sim.papers import slack as experiments
from taut.sim.papers.experiment import Figures
from taut.sim.papers.show import remarks
from taut.sim.papers.slack import LRB, NYT, SATURATED, SLOWER, YSB, latency_notes, spark_queries
from taut.sim.papers.slack_notes import at_points, lowest, managed, order

BLIND = ("default", "fcfs", "round-robin", "highest-rate")
"""Those that look at no window."""


@cache
def found_by(name: str, scale: float) -> Found:
    """What an experiment shows; several tests look at the same run."""
    return EXPERIMENTS[name].run(Effort(scale=scale))


def test_least_slack_is_ahead_of_all_that_look_at_no_window() -> None:
    """In a short run; when overload lasts, all are late."""
    for many, means in at_points(found_by("slack-ysb", 0.2).figures, "mean_s").items():
        ahead = 1.0 if many == "80" else 0.9
        assert means["least-slack"] < ahead * min(means[name] for name in BLIND), many


def test_nothing_is_missed_within_what_the_cores_can_do() -> None:
    found = found_by("slack-ysb", 0.2)
    missed = at_points(found.figures, "missed_percent")
    assert {value for many in ("20", "40") for value in missed[many].values()} == {0.0}
    (told,) = [note for note in found.notes if note.startswith("Overload")]
    assert told.startswith("Overload, at 60 and 80 queries")
    assert "in a run of 18 s after 8 s" in told


def test_windows_count_although_sources_are_held() -> None:
    """As many under every policy, however few are let in."""
    effort, queries = Effort(scale=0.3), YSB.queries(80, Effort())
    runs = [YSB.run(name, queries, effort) for name in ("default", "fcfs", "least-slack")]
    assert {len(run.latencies) for run in runs} == {80 * 9}
    assert all(run.memory[-1] > 0.8 for run in runs)
    assert all(run.mean > run.inside.mean() for run in runs)


def test_memory_management_matters_once_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "GIGABYTES", 2.0)
    effort = Effort(scale=0.1)
    managed, plain = (
        YSB.run(name, YSB.queries(60, effort), effort)
        for name in ("least-slack", "least-slack, no memory")
    )
    assert not np.array_equal(managed.latencies, plain.latencies)
    assert managed.throughput > 1.03 * plain.throughput


def test_where_memory_management_can_change_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert YSB.notes == LRB.notes == ()
    assert "has nothing to change" in NYT.notes[0]
    monkeypatch.setattr(experiments, "GIGABYTES", 2.0)
    effort = Effort(scale=0.1)
    one, other = (
        NYT.run(name, NYT.queries(60, effort), effort).mean
        for name in ("least-slack", "least-slack, no memory")
    )
    assert one == pytest.approx(other, rel=0.01)


def test_queries_on_spark_are_unlike() -> None:
    found = found_by("slack-spark", 0.1)
    for figure in ("mean_s", "p99_s"):
        for told in at_points(found.figures, figure).values():
            # a batch reads all that waits: then the first to come is the next in the round
            assert told["fcfs"] == pytest.approx(told["round-robin"])
            del told["fcfs"]
            assert len(set(told.values())) == len(told)
    assert any(note.startswith("fcfs and round-robin are the same") for note in found.notes)
    queries = spark_queries(32)
    assert len({query.fixed for query in queries}) == 32
    assert np.mean([query.fixed for query in queries]) == pytest.approx(0.2, abs=0.03)
    assert spark_queries(32) == queries != spark_queries(32, seed=2)


@pytest.mark.parametrize("many", ["8", "16", "24", "32"])
def test_on_spark_least_slack_has_the_lowest_mean(many: str) -> None:
    told = at_points(found_by("slack-spark", 0.1).figures, "mean_s")[many]
    assert told["least-slack"] < 1.02 * min(told.values())
    assert told["least-slack"] < 0.5 * min(told[name] for name in BLIND)


def test_nodes_are_said_not_to_talk() -> None:
    experiment = EXPERIMENTS["slack-nodes"]
    assert "do not talk" in experiment.title
    (said,) = remarks(experiment, Found({}))
    assert "whole queries are dealt to nodes" in said


@pytest.mark.parametrize("name", ["slack-ysb", "slack-lrb", "slack-nyt"])
def test_no_figure_is_shown_as_published_that_was_worked_out_of_others(name: str) -> None:
    assert "p99_s" not in EXPERIMENTS[name].published["60/least-slack"]


def test_what_the_model_is_given_is_said() -> None:
    given = found_by("slack-ysb", 0.2).notes[0]
    assert given.startswith("Given to the model, not found by it")
    assert f"{SATURATED:.0f} queries" in given
    assert f"{SLOWER} times" in given


def test_intervals_hold_what_they_say() -> None:
    for key, told in found_by("slack-interval", 1.0).figures.items():
        wanted = float(key.rpartition("-")[2])
        assert told["inside_percent"] == pytest.approx(wanted, abs=1.5)


# Notes follow from figures


def table(figure: str, **by_policy: list[float]) -> Figures:
    """A figure at 20, 40, ... queries."""
    return {
        f"{20 * n + 20}/{name.replace('_', '-')}": {figure: value}
        for name, values in by_policy.items()
        for n, value in enumerate(values)
    }


def test_who_is_lowest_is_said() -> None:
    figures = table("x", fcfs=[1.0, 2.0, 3.0], streambox=[1.1, 1.0, 2.0], least_slack=[0.5, 1.5, 2])
    figures |= table("x", default=[4.0, 4.0, 2.01])
    assert lowest(figures, "x", "mean") == (
        "The lowest mean: at 20 queries least slack; at 60 queries streambox, default and least "
        "slack alike; at 40 queries streambox (1 against 1.5)."
    )


def test_whether_the_order_is_that_published_is_said() -> None:
    figures = table("x", a=[1.0], b=[2.0], least_slack=[3.0])
    assert order(figures, figures, "x", "20") == "The order of x at 20 queries is that published."
    other = table("x", a=[1.0], b=[2.0], least_slack=[0.5])
    assert order(figures, other, "x", "20") == (
        "From the lowest x at 20 queries to the highest, 200 % above it: a, b and least-slack; "
        "published least-slack, a and b."
    )


def test_what_memory_management_changes_is_said() -> None:
    figures = {
        "60/least-slack": {"p99_s": 8.0, "mean_s": 3.0},
        "60/least-slack, no memory": {"p99_s": 10.0, "mean_s": 2.0},
    }
    said = managed(figures, {"p99": ("60", "p99_s"), "the mean": ("60", "mean_s")})
    assert said.endswith(": p99 20 % lower and the mean 50 % higher.")


def test_overload_is_said_where_there_is_any() -> None:
    figures = found_by("slack-ysb", 0.2).figures
    with_it, without = (
        " ".join(latency_notes(figures, beyond, {}, Effort())) for beyond in (["80"], [])
    )
    assert "Overload, at 80 queries" in with_it
    assert "in a run of 90 s after 30 s" in with_it
    assert "Overload" not in without

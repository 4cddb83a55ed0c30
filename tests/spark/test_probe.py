"""What the probe makes of Spark's facts, without Spark."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from taut.policy.slack import LeastSlack
from taut.policy.turns import Turn
from taut.policy.view import Slack
from taut.spark.probe import BatchFacts, BatchReader, Probe, ProgressFacts
from taut.spark.window import Shape, Window

SHAPE = Shape(Window(10.0, 10.0), watermark=True, session=False, stateful=True)


def nothing() -> None:
    return None


def turn(probe: Probe, at: float, watermark: float, took: float = 0.2) -> None:
    probe.resumed(at)
    probe.planned(BatchFacts(at, watermark), nothing)
    probe.written(at + took)
    probe.check()


def live(turns: int, delay: float = 0.5) -> Probe:
    """A query whose stream's front is ``delay`` behind the clock, run when each window is due."""
    probe = Probe("q", SHAPE, objective=1.0)
    watermark = 0.0
    for i in range(turns):
        at = 1_000.0 + 10.0 * i + delay + 0.01
        turn(probe, at, watermark)
        watermark = at - delay
        turn(probe, at + 0.2, watermark)
        watermark = at + 0.2 - delay
    return probe


def test_learns_window_ends_delay_and_latency() -> None:
    probe = live(20)
    assert probe.next_end() == 1_200.0
    (stream,) = probe.view(1_195.0, 1_191.0, 1_190.0).streams
    assert stream.sweep == 1_200.0
    assert stream.delay.mean == pytest.approx(0.5, abs=0.01)
    assert stream.delay.deviation < 0.05
    assert probe.latency == pytest.approx(0.5 + 0.01 + 0.2 + 0.2)
    assert probe.windows == 19, "the first watermark only tells where the stream stands"
    assert probe.late == 0


def test_counts_what_came_later_than_the_objective() -> None:
    probe = live(5)
    turn(probe, 1_055.0, 1_040.4)
    turn(probe, 1_055.2, 1_054.5)
    assert probe.late == 1


def test_cost_is_learned_with_its_parts() -> None:
    view = live(20).view(1_195.0, 1_191.0, 1_190.0)
    assert view.batch_cost == pytest.approx(0.2, abs=0.01)
    assert view.batches == 2
    assert view.cost >= 2 * view.batch_cost


def test_a_stream_that_catches_up_is_due_at_once() -> None:
    probe = Probe("q", SHAPE, objective=1.0)
    watermark = 0.0
    for i in range(6):
        turn(probe, 100_000.0 + i, watermark)
        watermark = 10_000.0 + 600.0 * i
    now = 100_010.0
    (stream,) = probe.view(now, now, now).streams
    assert stream.sweep + stream.delay.mean <= now


def test_a_first_start_on_a_backlog_does_not_spoil_the_delay() -> None:
    probe = Probe("q", SHAPE, objective=1.0)
    turn(probe, 100_000.0, 0.0)
    turn(probe, 100_000.3, 64_000.0)
    watermark = 100_000.0
    for i in range(1, 20):
        at = 100_000.0 + 10.0 * i + 0.5
        turn(probe, at, watermark)
        watermark = at - 0.5
    (stream,) = probe.view(100_200.0, 100_191.0, 100_190.0).streams
    assert stream.delay.mean == pytest.approx(0.5, abs=0.1)


def test_without_a_window_the_oldest_unread_row_counts() -> None:
    probe = Probe("q", Shape(None, False, False, False), objective=2.0)
    turn(probe, 100.0, 0.0)
    view = probe.view(103.0, 100.2, 100.0)
    assert view.streams == ()
    assert view.oldest == 100.0
    assert view.batches == 1


def test_while_a_turn_lasts_only_what_is_left_of_it_is_taken_off() -> None:
    """The window that ends at 1,200 and is due at 1,200.5 is out at 1,200.9, on time by far."""
    probe, policy = live(20), LeastSlack()
    cost = probe.view(1_200.5, 1_191.0, 1_190.0).batch_cost
    assert cost == pytest.approx(0.2, abs=0.01)

    def shown(now: float, turn: Turn) -> Slack:
        view = probe.view(now, now, now)
        return probe.at_work(now, view, turn, policy.slack(now, view))

    held = policy.slack(1_200.5, probe.view(1_200.5, 1_191.0, 1_190.0))
    assert held.cost >= 2 * cost, "of a held query all of it"
    turn = Turn(1_200.51, "swept", 1_200.0, "policy", 1_191.0)
    probe.resumed(1_200.51)
    just_begun = shown(1_200.52, turn)
    assert just_begun.value == pytest.approx(held.value, abs=0.06)
    probe.planned(BatchFacts(1_200.52, 1_190.21), nothing)
    turn.in_batch = True
    assert probe.emits() is None, "it reads"
    assert shown(1_200.62, turn).cost == pytest.approx(2 * cost - 0.11, abs=0.02)
    probe.written(1_200.71)
    turn.in_batch, turn.batches = False, 1
    probe.planned(BatchFacts(1_200.72, 1_200.02), nothing)
    turn.in_batch = True
    assert probe.emits() == pytest.approx(1_200.5, abs=0.01), "not the window after"
    values = [shown(1_200.72 + step / 20, turn) for step in range(4)]
    assert all(each.value == pytest.approx(values[0].value, abs=0.02) for each in values)
    assert values[0].value == pytest.approx(1_201.5 - 1_200.9, abs=0.03), "as it comes out"
    assert [each.cost for each in values] == sorted((e.cost for e in values), reverse=True)
    hangs = shown(1_201.6, turn)
    assert hangs.cost == 0.0, "never below none"
    assert hangs.value == pytest.approx(-0.1, abs=0.01)
    decides = policy.slack(1_201.6, probe.view(1_201.6, 0.0, 0.0))
    assert decides.cost == pytest.approx(2 * cost), "as before"


def test_rows_at_work_have_waited_since_they_came() -> None:
    probe, policy = Probe("q", Shape(None, False, False, False), objective=2.0), LeastSlack()
    for at in (100.0, 101.0, 102.0, 103.0):
        turn(probe, at, 0.0)
    probe.resumed(105.0)
    probe.planned(BatchFacts(105.0, 0.0), nothing)
    view = probe.view(105.1, 105.1, 105.1)
    runs = Turn(105.0, "batch", None, "policy", 103.2, in_batch=True)
    slack = probe.at_work(105.1, view, runs, policy.slack(105.1, view))
    assert slack.due == pytest.approx(105.0), "the oldest came at 103"
    assert slack.cost == pytest.approx(0.1, abs=0.01)
    waits = probe.at_work(105.1, view, None, policy.slack(105.1, view))
    assert waits.cost == pytest.approx(0.2, abs=0.01), "it waits for its turn"


def test_rows_and_selectivity_are_sampled() -> None:
    probe = Probe("q", SHAPE, objective=1.0)
    seen = ProgressFacts(rows_in=5_000, rows_out=100, state_bytes=7)
    for i in range(20):
        at = 1_000.0 + 5.0 * i
        probe.resumed(at)
        probe.planned(BatchFacts(at, max(0.0, at - 5.0)), lambda: seen)
        probe.written(at + 0.2)
    assert probe.state_bytes == 7
    (operator,) = probe.view(1_100.0, 1_095.2, 1_095.0).operators
    assert operator.queued == pytest.approx(5_000, rel=0.01)
    assert operator.selectivity == pytest.approx(0.02)


def test_what_is_out_is_told() -> None:
    probe = live(20)
    probe.resumed(1_202.0)
    probe.planned(BatchFacts(1_202.1, 1_190.2), nothing)
    out = probe.written(1_202.4)
    assert (out.begun, out.planned) == (1_202.0, 1_202.1)
    assert out.windows == 0
    probe.planned(BatchFacts(1_202.6, 1_201.6), nothing)
    out = probe.written(1_202.8)
    assert (out.begun, out.windows, out.late) == (1_202.4, 1, 1)
    assert out.after == 1_190.2
    assert out.upto == 1_201.6
    assert out.delay == pytest.approx(0.5, abs=0.1)


def test_rows_that_spark_was_looking_for_have_not_waited() -> None:
    probe = Probe("q", Shape(None, False, False, False), objective=2.0)
    turn(probe, 100.0, 0.0)
    probe.planned(BatchFacts(160.0, 0.0), nothing, fresh=True)
    assert probe.written(160.5).arrived_over == 0.0
    assert probe.latency == pytest.approx(0.5)
    turn(probe, 163.0, 0.0)
    assert probe.latency == pytest.approx(3.2)


def test_rows_that_came_before_a_restart_have_waited() -> None:
    probe = Probe("q", Shape(None, False, False, False), objective=1.0)
    probe.goes_on_after(BatchFacts(100.0, 0.0))
    probe.resumed(3_700.0)
    # it is loose until its first batch: Spark has not looked for its rows while it was down
    probe.planned(BatchFacts(3_700.0, 0.0), nothing, fresh=True)
    assert probe.written(3_702.0).arrived_over == 3_600.0
    assert probe.latency == pytest.approx(3_602.0)
    turn(probe, 3_703.0, 0.0)
    assert probe.latency == pytest.approx(3.2)


def test_windows_that_ended_before_a_restart_count() -> None:
    probe = Probe("q", SHAPE, objective=1.0)
    probe.goes_on_after(BatchFacts(100.0, 80.0))
    probe.resumed(3_700.0)
    probe.planned(BatchFacts(3_700.0, 101.0), nothing, fresh=True)
    out = probe.written(3_702.0)
    assert (out.after, out.upto, out.windows, out.late) == (80.0, 101.0, 2, 2)
    probe.check()


def test_windows_of_batches_that_were_not_seen_are_not_those_of_the_next() -> None:
    probe = live(3)
    probe.goes_on_after(BatchFacts(1_055.0, 1_052.0))
    probe.planned(BatchFacts(1_060.6, 1_060.1), nothing)
    out = probe.written(1_061.0)
    assert (out.after, out.upto, out.windows) == (1_052.0, 1_060.1, 1)
    assert out.arrived_over == pytest.approx(5.6)
    probe.check()


def test_how_long_the_first_rows_have_waited_is_not_known() -> None:
    probe = Probe("q", Shape(None, False, False, False), objective=1.0)
    assert probe.written(99.0).arrived_over is None, "its facts could not be read"
    probe.planned(BatchFacts(100.0, 0.0), nothing, fresh=True)
    assert probe.written(100.5).arrived_over is None
    assert probe.latency is None
    turn(probe, 103.0, 0.0)
    assert probe.latency == pytest.approx(3.2)


def test_a_checkpoint_that_cannot_be_read_says_nothing() -> None:
    reader = BatchReader.__new__(BatchReader)
    reader.execution = SimpleNamespace()  # of a Spark that has no such log
    assert reader.before(0) is None
    assert reader.before(7) is None

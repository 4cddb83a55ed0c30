"""D1 to D4 in two thousand histories; and that the histories would show it if they did not hold."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from tests.spark.source.simulated import Wrong, main, play

from taut.policy.sharing import SharedByExecutor
from taut.spark.source.dealt import Batch
from taut.spark.source.protocol import Answer, Joined, Report

SEEDS = 2_000
Patch = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("first", range(0, SEEDS, 250))
def test_every_row_comes_once_whatever_happens(first: int) -> None:
    for seed in range(first, first + 250):
        play(seed)


def test_a_seed_is_one_history() -> None:
    runs = [play(seed) for seed in (7, 7)]
    assert runs[0].steps == runs[1].steps
    assert runs[0].now == runs[1].now


def test_soak_tells_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "5", "--first", "100"]) == 0
    assert "5 seeds" in capsys.readouterr().out


def both_emit(patch: pytest.MonkeyPatch) -> None:
    """D3 broken: the loser of a chunk emits too."""
    good = Batch.report

    def bad(self: Batch, message: Report, now: float) -> Any:
        answer = good(self, message, now)
        if isinstance(answer, Answer) and message.done:
            return Answer(message.done, answer.chunks, answer.wait)
        return answer

    patch.setattr(Batch, "report", bad)


def nothing_again(patch: pytest.MonkeyPatch) -> None:
    """D2 broken: a retried task does not emit again what its lane had finished."""
    good = Batch.join

    def bad(self: Batch, message: Any, now: float) -> Any:
        answer = good(self, message, now)
        return Joined([]) if isinstance(answer, Joined) else answer

    patch.setattr(Batch, "join", bad)


def old_attempts_count(patch: pytest.MonkeyPatch) -> None:
    """D2 broken: an attempt that was given up still finishes chunks."""
    good = Batch.report

    def bad(self: Batch, message: Report, now: float) -> Any:
        lane = self._lanes.get(message.lane)
        if lane is not None and message.attempt < lane.attempt:
            return good(self, as_attempt(message, lane.attempt), now)
        return good(self, message, now)

    patch.setattr(Batch, "report", bad)


def as_attempt(message: Report, attempt: int) -> Report:
    return Report(
        message.batch, message.lane, attempt, message.asked, message.done, message.seconds
    )


def silence_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """D4 broken: what a dead attempt had open stays with it."""
    patch.setattr(Batch, "_give_back", lambda self, number, lane: lane.open.clear())


def answers_not_kept(patch: pytest.MonkeyPatch) -> None:
    """A report that comes twice takes two chunks, of which the lane hears of one."""
    good = Batch.report

    def bad(self: Batch, message: Report, now: float) -> Any:
        lane = self._lanes.get(message.lane)
        if lane is not None:
            lane.answers.clear()
            lane.asked = 0
        return good(self, message, now)

    patch.setattr(Batch, "report", bad)


def waits_for_who_waits_for_it(patch: pytest.MonkeyPatch) -> None:
    """A lane keeps its slot until others have taken their shares, for which they need a slot."""
    patch.setattr(SharedByExecutor, "lingers", True)


@pytest.mark.parametrize(
    "fault",
    [
        both_emit,
        nothing_again,
        old_attempts_count,
        silence_is_ignored,
        answers_not_kept,
        waits_for_who_waits_for_it,
    ],
    ids=lambda f: f.__name__,
)
def test_a_fault_is_found(fault: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    with pytest.raises(Wrong, match="seed"):
        deque(map(play, range(400)), maxlen=0)

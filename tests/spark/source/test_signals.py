"""The board of the lanes of an executor: slots, files and processes that die."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from taut.policy.backlog import LargestBacklog
from taut.spark.source.egress import SharedGate
from taut.spark.source.signals import SLOTS, Board

PROCESSES = multiprocessing.get_context("spawn")
KEY, EXECUTOR = "a query", "host:1"
FOR_EVER = 2**62
"""A time, in ns, after all that a test may see."""


def join_and_stay(folder: Path, many: int, orders: Connection) -> None:
    board = Board(KEY, EXECUTOR, folder)
    board.say(many, FOR_EVER)
    orders.send(board.slot)
    orders.recv()


def leave_a_dead_lane(folder: Path, many: int = 100) -> int:
    """The slot of a lane that was killed with so many rows."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=join_and_stay, args=(folder, many, theirs), daemon=True)
    process.start()
    slot: int = ours.recv()
    process.kill()
    process.join()
    return slot


def test_rows_of_a_dead_lane_get_no_signal(tmp_path: Path) -> None:
    agent, other = (Board(KEY, EXECUTOR, tmp_path) for _ in range(2))
    dead = leave_a_dead_lane(tmp_path)
    other.say(3, FOR_EVER)
    assert agent.waiting(0) == {other.slot: 3, dead: 100}
    agent.signal = dead
    SharedGate(agent, LargestBacklog).give()
    assert agent.signal == other.slot
    assert agent.waiting(0) == {other.slot: 3}
    agent.leave()
    other.leave()


def test_slots_of_dead_lanes_are_used_again(tmp_path: Path) -> None:
    first = Board(KEY, EXECUTOR, tmp_path)
    dead = leave_a_dead_lane(tmp_path)
    second = Board(KEY, EXECUTOR, tmp_path)
    assert (first.slot, dead, second.slot) == (0, 1, 1)
    assert second.waiting(0) == {}
    first.leave()
    third = Board(KEY, EXECUTOR, tmp_path)
    assert third.slot == 0
    second.leave()
    third.leave()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")
def test_a_process_that_got_the_id_of_another_is_not_taken_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("taut.spark.source.signals._started", lambda pid: 1)
        old = Board(KEY, EXECUTOR, tmp_path)
        assert old.alive(old.slot)
    assert not old.alive(old.slot)
    new = Board(KEY, EXECUTOR, tmp_path)
    assert new.slot == old.slot
    new.leave()
    assert list(tmp_path.iterdir()) == []


def test_executors_and_queries_have_boards_of_their_own(tmp_path: Path) -> None:
    names = [(KEY, EXECUTOR), (KEY, "host:2"), ("another query", EXECUTOR)]
    made = [Board(*name, tmp_path) for name in names]
    made[0].say(5, FOR_EVER)
    made[0].signal = made[0].slot
    assert [board.slot for board in made] == [0, 0, 0]
    assert [board.waiting(0) for board in made] == [{0: 5}, {}, {}]
    assert [board.signal for board in made] == [0, None, None]
    assert all(board.stand(1) for board in made)
    for board in made:
        board.leave()


def test_files_are_for_their_owner_and_gone_with_the_last_lane(tmp_path: Path) -> None:
    boards = [Board(KEY, EXECUTOR, tmp_path) for _ in range(2)]
    assert boards[0].stand(1)
    assert [path.stat().st_mode & 0o777 for path in tmp_path.iterdir()] == [0o600, 0o600]
    boards[0].leave()
    boards[0].leave()
    assert len(list(tmp_path.iterdir())) == 2
    boards[1].leave()
    assert list(tmp_path.iterdir()) == []


def join_and_leave(folder: Path, times: int, done: Connection) -> None:
    for n in range(times):
        board = Board(KEY, EXECUTOR, folder)
        mark = os.getpid() * times + n
        board.say(mark, mark, mark)
        board.check()
        assert board.waiting(0)[board.slot] == board.since(board.slot) == mark
        board.leave()
    done.send(True)


def test_lanes_that_join_while_the_last_one_leaves(tmp_path: Path) -> None:
    pipes = [PROCESSES.Pipe() for _ in range(3)]
    processes = [
        PROCESSES.Process(target=join_and_leave, args=(tmp_path, 500, theirs), daemon=True)
        for _, theirs in pipes
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert all(ours.recv() for ours, _ in pipes)
    assert list(tmp_path.iterdir()) == []


def test_a_board_whose_lanes_were_all_killed_is_removed_by_the_next(tmp_path: Path) -> None:
    leave_a_dead_lane(tmp_path)
    (left,) = tmp_path.iterdir()
    used = Board("a third", EXECUTOR, tmp_path)
    assert not left.exists()
    assert used.path.exists()
    Board("a fourth", EXECUTOR, tmp_path).leave()
    used.check()
    used.leave()


def test_a_board_that_is_full(tmp_path: Path) -> None:
    made = [Board(KEY, EXECUTOR, tmp_path) for _ in range(SLOTS)]
    with pytest.raises(OSError, match=f"all {SLOTS} slots are taken"):
        Board(KEY, EXECUTOR, tmp_path)
    for board in made:
        board.leave()


def test_a_disk_that_is_full_is_seen_before_it_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 512)
    with pytest.raises(OSError, match="No space left"):
        Board(KEY, EXECUTOR, tmp_path)
    assert list(tmp_path.iterdir()) == []

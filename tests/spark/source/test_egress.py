"""Lanes that share an egress: who has the signal, with real processes, without Spark."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.conftest import wait_until

from taut.policy.backlog import LargestBacklog, RoundRobinSignal
from taut.spark.source import egress
from taut.spark.source.egress import Outbox, SharedGate, gate
from taut.spark.source.signals import Board

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])
KEY, EXECUTOR = "a query", "host:1"
FOR_EVER = 2**62
"""A time, in ns, after all that a test may see."""
SECOND = 10**9


def rows(start: int, many: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(start, start + many))})


def numbers(batches: Sequence[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


# -- lanes in processes of their own -------------------------------------------------------------


class Journal:
    """What lanes have written, one line after another, from all processes."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "journal"
        self.path.touch()

    def add(self, lines: str) -> None:
        with self.path.open("a") as file:
            file.write(lines)

    def of(self, who: str) -> list[int]:
        """The rows that a lane has written."""
        lines = (line.split() for line in self.path.read_text().splitlines())
        return [int(line[2]) for line in lines if line[:2] == ["row", who]]

    @property
    def writes(self) -> list[str]:
        """When writes have begun and ended."""
        return [x for x in self.path.read_text().splitlines() if not x.startswith("row")]


def run_process(folder: Path, who: str, orders: Connection, how: str, tau: float) -> None:
    """A lane that does what it is told; its sink waits while there is a file hold-WHO."""
    journal = Journal(folder)

    def sink(batch: pa.RecordBatch) -> None:
        journal.add(f"begin {who}\n")
        wait_until(lambda: not (folder / f"hold-{who}").exists())
        journal.add("".join(f"row {who} {n}\n" for n in batch.column("n").to_pylist()))
        journal.add(f"end {who}\n")

    orders.recv()  # lanes join in the order in which they are asked, not in which they start
    outbox = Outbox(sink, gate(KEY, EXECUTOR, how, tau, folder / "board"))
    orders.send(os.getpid())
    while (order := orders.recv())[0] != "close":
        if order[0] == "put":
            outbox.put(rows(*order[1:]))
        if order[0] == "flush":
            outbox.flush()
        outbox.check()
        orders.send("done")
    outbox.close()
    orders.send("closed")


class Process:
    """A lane in a process of its own."""

    def __init__(self, folder: Path, who: str, how: str, tau: float) -> None:
        self.who = who
        self.held = folder / f"hold-{who}"
        self._orders, theirs = PROCESSES.Pipe()
        self._process = PROCESSES.Process(
            target=run_process, args=(folder, who, theirs, how, tau), daemon=True
        )
        self._process.start()
        theirs.close()

    def join(self) -> None:
        self._orders.send("join")
        self.pid: int = self._orders.recv()

    def put(self, start: int, many: int) -> None:
        self._say("put", start, many)

    def flush(self) -> None:
        self._say("flush")

    def close(self) -> None:
        if self._process.is_alive():
            self._say("close")
        self._process.join()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def _say(self, *order: Any) -> None:
        self._orders.send(order)
        assert self._orders.recv()

    def end(self) -> None:
        if self._process.is_alive():
            os.kill(self.pid, signal.SIGCONT)
        self._process.kill()
        self._process.join()
        self._orders.close()


class Executor:
    """Lanes that share a board, and a slot on it for the test."""

    def __init__(self, folder: Path) -> None:
        (folder / "board").mkdir()
        self.folder = folder
        self.journal = Journal(folder)
        self.board = Board(KEY, EXECUTOR, folder / "board")
        self.lanes: list[Process] = []

    def start(self, names: str, how: str = "largest-backlog", tau: float = 60.0) -> list[Process]:
        """Lanes with these names, one letter each, in the slots after the test's own."""
        self.lanes = [Process(self.folder, who, how, tau) for who in names]
        for lane in self.lanes:
            lane.join()
        return self.lanes

    def slot(self, lane: Process) -> int:
        return self.lanes.index(lane) + self.board.slot + 1

    def occupy(self) -> None:
        """The test has the signal and more rows than all lanes, and is heard for ever."""
        self.board.signal = self.board.slot
        self.board.say(1_000_000, FOR_EVER)

    def free(self) -> None:
        self.board.say(0, FOR_EVER)

    def waiting(self) -> dict[int, int]:
        return {slot: n for slot, n in self.board.waiting(0).items() if slot != self.board.slot}

    def wait_for(self, waiting: dict[Process, int]) -> None:
        expected = {self.slot(lane): many for lane, many in waiting.items()}
        wait_until(lambda: self.waiting() == expected)


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    made = Executor(tmp_path)
    yield made
    for lane in made.lanes:
        lane.end()
    made.board.check()
    made.board.leave()


@pytest.mark.parametrize(
    ("how", "order"), [("largest-backlog", "acdb"), ("round-robin", "abcd"), ("all", None)]
)
def test_lanes_write_one_at_a_time(executor: Executor, how: str, order: str | None) -> None:
    lanes = {lane.who: lane for lane in executor.start("abcd", how)}
    lanes["a"].held.touch()
    lanes["a"].put(0, 1)
    wait_until(lambda: executor.journal.writes == ["begin a"])
    for who, many in [("b", 3), ("c", 9), ("d", 6)]:
        lanes[who].put(0, many)
    if order is None:  # nobody waits for the one that is held
        for who in "bcd":
            lanes[who].flush()
        assert executor.journal.of("a") == []
        return
    executor.wait_for({lanes["a"]: 1, lanes["b"]: 3, lanes["c"]: 9, lanes["d"]: 6})
    assert executor.journal.writes == ["begin a"]
    lanes["a"].held.unlink()
    for lane in lanes.values():
        lane.flush()
    expected = [f"{what} {who}" for who in order for what in ("begin", "end")]
    assert executor.journal.writes == expected
    assert [executor.journal.of(who) for who in "abcd"] == [
        list(range(many)) for many in (1, 3, 9, 6)
    ]
    for lane in lanes.values():
        lane.close()
    assert executor.board.agent is None
    assert executor.board.beat == 0


def test_the_signal_goes_on_while_a_write_is_under_way(executor: Executor) -> None:
    a, b = executor.start("ab", tau=0.02)
    a.held.touch()
    a.put(0, 3)
    wait_until(lambda: executor.journal.writes == ["begin a"])
    b.put(0, 5)
    b.flush()  # more than the other one has
    assert executor.journal.writes == ["begin a", "begin b", "end b"]
    a.held.unlink()
    a.flush()
    assert executor.journal.of("a") == [0, 1, 2]


def test_rows_of_many_puts_stay_in_order(executor: Executor) -> None:
    lanes = executor.start("abc", tau=0.01)
    for start in range(0, 300, 3):
        for lane in lanes:
            lane.put(start, 3)
    for lane in lanes:
        lane.flush()
    assert [executor.journal.of(lane.who) for lane in lanes] == 3 * [list(range(300))]


def test_an_agent_is_killed(executor: Executor) -> None:
    a, b, c = executor.start("abc", tau=0.5)
    executor.occupy()
    a.put(0, 50)
    wait_until(lambda: executor.board.agent == executor.slot(a))
    a.held.touch()
    executor.free()  # and so the agent's own lane has the signal
    wait_until(lambda: executor.journal.writes == ["begin a"])
    b.put(0, 5)
    c.put(0, 3)
    executor.wait_for({a: 50, b: 5, c: 3})
    a.kill()
    b.flush()
    c.flush()
    assert executor.journal.of("b") + executor.journal.of("c") == [0, 1, 2, 3, 4, 0, 1, 2]
    assert executor.journal.of("a") == []
    assert executor.board.agent in (executor.slot(b), executor.slot(c))


def test_lanes_go_on_without_an_agent_that_cannot_be_replaced(executor: Executor) -> None:
    a, b, c = executor.start("abc", tau=0.5)
    executor.occupy()
    a.put(0, 50)
    wait_until(lambda: executor.board.agent == executor.slot(a))
    os.kill(a.pid, signal.SIGSTOP)  # it is the agent still, and says nothing
    b.put(0, 5)
    c.put(0, 3)
    b.flush()
    c.flush()
    assert executor.board.agent == executor.slot(a)
    assert executor.board.signal == executor.board.slot
    os.kill(a.pid, signal.SIGCONT)
    executor.free()
    a.flush()
    assert executor.journal.of("a") == list(range(50))


def test_a_lane_is_killed_that_has_the_signal(executor: Executor) -> None:
    a, b = executor.start("ab", tau=0.1)
    executor.occupy()
    a.put(0, 5)
    wait_until(lambda: executor.board.agent == executor.slot(a))
    b.held.touch()
    b.put(0, 50)
    executor.free()
    wait_until(lambda: "begin b" in executor.journal.writes)
    b.kill()
    a.flush()
    a.put(5, 5)
    a.flush()
    assert executor.journal.of("a") == list(range(10))
    assert executor.journal.of("b") == []


# -- the signal, by a clock of the test -------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[list[Board]]:
    """Three lanes of one executor, in slots 0 to 2."""
    made = [Board(KEY, EXECUTOR, tmp_path) for _ in range(3)]
    yield made
    for board in made:
        if board.joined:
            board.check()
        board.leave()
    assert list(tmp_path.iterdir()) == []


def test_the_agent_gives_the_signal_by_the_policy(boards: list[Board], clock: Clock) -> None:
    for board, many in zip(boards, (4, 9, 7), strict=True):
        board.say(many, clock.now)
    largest = SharedGate(boards[0], LargestBacklog, clock=clock)
    boards[0].signal = 1
    largest.give()
    assert boards[2].signal == 1
    boards[1].say(0, clock.now)
    largest.give()
    assert boards[2].signal == 2
    in_turn = SharedGate(boards[0], RoundRobinSignal, clock=clock)
    given = []
    for _ in range(4):
        in_turn.give()
        given.append(boards[1].signal)
    assert given == [0, 2, 0, 2]  # the one without rows is passed over


def test_equal_backlogs_go_in_turn(boards: list[Board], clock: Clock) -> None:
    for board in boards:
        board.say(4, clock.now)
    agent = SharedGate(boards[0], LargestBacklog, clock=clock)
    given = []
    for _ in range(6):
        agent.give()
        given.append(boards[0].signal)
    assert given == [0, 1, 2, 0, 1, 2]


def test_nobody_waits_and_nobody_is_given_the_signal(boards: list[Board], clock: Clock) -> None:
    SharedGate(boards[0], LargestBacklog, clock=clock).give()
    assert boards[0].signal is None
    assert boards[0].beat == clock.now


def test_a_lane_alone_has_the_signal_at_once(boards: list[Board], clock: Clock) -> None:
    gates = [SharedGate(board, LargestBacklog, clock=clock) for board in boards]
    for alone, board in zip(gates, boards, strict=True):
        alone.waits(1)
        assert alone.open()
        assert board.signal == board.slot
        alone.waits(0)
    assert boards[0].agent is None


def test_a_lane_waits_for_one_that_writes_and_then_for_a_larger_one(
    boards: list[Board], clock: Clock
) -> None:
    gates = [SharedGate(board, LargestBacklog, 3600.0, clock) for board in boards]
    for one, many in zip(gates, (1, 2, 3), strict=True):
        one.waits(many)
        assert one.open() == (many == 1)
    gates[0].waits(0)
    assert not gates[1].open()
    assert gates[2].open()
    gates[2].waits(0)
    assert gates[1].open()
    for one in gates:
        one.close()


def test_a_lane_that_is_not_heard_is_passed_over(boards: list[Board], clock: Clock) -> None:
    hung, agent = boards[0], SharedGate(boards[1], LargestBacklog, clock=clock)
    hung.say(100, clock.now)
    hung.signal = hung.slot
    agent.waits(3)
    clock.now += SECOND // 2
    agent.give()
    assert hung.signal == hung.slot
    clock.now += SECOND
    agent.waits(3)
    agent.give()
    assert hung.signal == boards[1].slot


def test_a_lane_with_little_to_write_is_not_starved(boards: list[Board], clock: Clock) -> None:
    small, agent = (SharedGate(board, LargestBacklog, clock=clock) for board in boards[:2])
    boards[2].signal = 2
    small.waits(1)
    boards[1].beat = FOR_EVER
    boards[2].say(100, FOR_EVER)
    given = []
    for _ in range(12):
        assert small.open() == (boards[0].signal == 0)
        agent.give()
        boards[1].beat = FOR_EVER
        given.append(boards[0].signal)
        clock.now += SECOND // 10
    assert given == 11 * [2] + [0]


def test_without_an_agent_one_lane_is_elected(boards: list[Board], clock: Clock) -> None:
    a, b = (SharedGate(board, LargestBacklog, 3600.0, clock) for board in boards[:2])
    boards[2].signal = 2
    boards[2].say(100, FOR_EVER)
    a.waits(1)
    b.waits(1)
    assert not a.open()
    assert not b.open()
    assert boards[2].agent == 0
    clock.now += 6 * 3600 * SECOND  # it is not heard, and yet there
    assert b.open()
    assert boards[2].agent == 0
    a.close()
    assert not b.open()
    assert boards[2].agent == 1
    b.close()


class Failing:
    def pick(self, backlogs: Sequence[int]) -> int | None:
        raise ArithmeticError("no idea")


def test_a_policy_that_fails_stops_nobody(
    boards: list[Board], caplog: pytest.LogCaptureFixture
) -> None:
    written: list[pa.RecordBatch] = []
    outbox = Outbox(written.append, SharedGate(boards[0], Failing))
    for n in range(10):
        outbox.put(rows(n))
    outbox.flush()
    outbox.close()
    assert numbers(written) == list(range(10))
    assert len(caplog.records) == 1
    assert "its gate failed: ArithmeticError('no idea')" in caplog.text


def test_a_policy_that_fails_in_the_agent_leaves_all_free(
    boards: list[Board], caplog: pytest.LogCaptureFixture
) -> None:
    boards[2].signal = 2
    boards[2].say(100, FOR_EVER)
    agent = SharedGate(boards[0], Failing, 0.01)
    other = SharedGate(boards[1], LargestBacklog, 0.01)
    agent.waits(1)
    other.waits(1)
    assert not agent.open()
    wait_until(lambda: "the policy failed: ArithmeticError" in caplog.text)
    wait_until(other.open)
    assert boards[2].signal == 2
    agent.close()


# -- gates ----------------------------------------------------------------------------------------


def test_without_a_board_lanes_write_when_they_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(egress, "_warned", False)
    missing = tmp_path / "missing"
    written: list[pa.RecordBatch] = []
    for n in range(2):
        outbox = Outbox(written.append, gate(KEY, EXECUTOR, "largest-backlog", folder=missing))
        outbox.put(rows(n))
        outbox.flush()
        outbox.close()
    assert numbers(written) == [0, 1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "egress=largest-backlog: lanes write when they like, without a board" in caplog.text
    assert str(missing) in caplog.text


@pytest.mark.parametrize(
    ("how", "tau", "told"),
    [
        (
            "largest",
            0.05,
            "egress='largest' is not known; one of: all, buffered, round-",
        ),
        ("round-robin", 0.0, r"tau=0.0 s: more than 0 is needed"),
    ],
)
def test_a_gate_that_makes_no_sense(how: str, tau: float, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        gate(KEY, EXECUTOR, how, tau, tmp_path)
    assert list(tmp_path.iterdir()) == []

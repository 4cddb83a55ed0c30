"""Chunks that are issued twice: who gets them, who counts, and what a loser hears."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from taut.errors import Abandoned
from taut.policy.chunking import FixedSize
from taut.policy.dealing import Dispatch
from taut.policy.sharing import Range
from taut.policy.timeout import AdaptiveTimeout, NoReplay, Replay, Replication
from taut.spark.source.connection import Place
from taut.spark.source.dealt import Batch
from taut.spark.source.lane import run_lane
from taut.spark.source.logs.schedule import ScheduleLog
from taut.spark.source.operators import Chain
from taut.spark.source.protocol import Answer, Beat, Chunk, Heard, Join, Report
from taut.spark.source.pulse import Pulse
from taut.spark.source.server import Server

ROWS = 100


class At(AdaptiveTimeout):
    """A timeout of so many seconds a row from the start."""

    def __init__(self, seconds: float) -> None:
        super().__init__(fewest=1_000_000)
        self._timeout = seconds


class Lanes:
    """Lanes of one batch, asked by hand, by a clock of their own."""

    def __init__(
        self,
        dispatch: str,
        replay: Replay,
        executors: str,
        rows: int = ROWS,
        chunk: int = 10,
        joined: int | None = None,
    ) -> None:
        chunking = FixedSize(chunk, claims_per_second=1e9)
        sharing = Dispatch(dispatch).sharing(len(executors), chunking)
        self.batch = Batch(sharing, chunking, silence=5.0, wait=0.0, replay=replay)
        self.batch.add([Range("0", 0, rows)], 0.0)
        self.batch.close()
        self.now = 0.0
        self.asked = dict.fromkeys(range(len(executors)), 0)
        self._executors = executors
        for lane in range(len(executors) if joined is None else joined):
            self.join(lane)

    def join(self, lane: int) -> None:
        self.batch.join(Join("1", lane, 0, self._executors[lane]), self.now)

    def ask(self, lane: int, *done: Chunk) -> Answer:
        ids = tuple(chunk.id for chunk in done)
        report = Report("1", lane, 0, self.asked[lane], ids, 0.01)
        self.asked[lane] += 1
        answer = self.batch.report(report, self.now)
        self.batch.check()
        assert isinstance(answer, Answer)
        return answer

    def chunk(self, lane: int, *done: Chunk) -> Chunk:
        (chunk,) = self.ask(lane, *done).chunks
        return chunk

    def finish(self, lane: int, *done: Chunk) -> list[Chunk]:
        """Let a lane take and finish all that it is given; give what counts."""
        counts: list[Chunk] = []
        while True:
            answer = self.ask(lane, *done)
            counts += [chunk for chunk in done if chunk.id in answer.emit]
            done = answer.chunks
            if not done:
                return counts


def test_an_overdue_chunk_goes_to_a_lane_that_has_nothing_else_to_do() -> None:
    lanes = Lanes("shared", At(0.1), "ab")
    slow = lanes.chunk(0)
    lanes.now = 0.9
    done = lanes.finish(1)
    assert sum(c.end - c.start for c in done) == ROWS - 10, "not yet: its timeout is 10 x 0.1 s"
    assert lanes.batch.waits(1, lanes.now)
    lanes.now = 1.0
    assert not lanes.batch.waits(1, lanes.now)
    assert lanes.chunk(1) == slow
    assert (lanes.batch.issued, lanes.batch.replayed) == (ROWS + 10, 10)
    assert lanes.ask(1, slow).emit == (slow.id,)
    assert lanes.batch.over
    assert lanes.batch.beat(Beat("1", 0, 0), lanes.now) == Heard((slow.id,))
    assert lanes.ask(0, slow) == Answer((), (), None), "too late: it counts nothing, and ends"


def test_who_is_first_counts_though_it_was_overdue() -> None:
    lanes = Lanes("shared", At(0.01), "ab", rows=10)
    slow = lanes.chunk(0)
    lanes.now = 1.0
    assert lanes.chunk(1) == slow
    assert lanes.ask(0, slow).emit == (slow.id,)
    assert lanes.batch.losers == [1]
    assert lanes.batch.losers == [], "told once"
    assert lanes.ask(1, slow) == Answer((), (), None)


def test_once_more_and_no_oftener() -> None:
    lanes = Lanes("shared", At(0.01), "abc", rows=10)
    slow = lanes.chunk(0)
    lanes.now = 1.0
    assert lanes.chunk(1) == slow
    lanes.now = 100.0
    assert lanes.ask(2).chunks == ()


def test_a_lane_on_another_executor_goes_first() -> None:
    lanes = Lanes("shared", At(0.01), "aab", rows=10)
    slow = lanes.chunk(0)
    assert lanes.batch.waits(1, 0.0)
    assert lanes.batch.waits(2, 0.0)
    lanes.now = 0.5
    assert lanes.batch.waits(1, lanes.now), "lane 2 is idle, and further away"
    assert lanes.chunk(2) == slow


def test_one_on_the_same_executor_does_where_no_other_is_idle() -> None:
    lanes = Lanes("shared", At(0.01), "aab", rows=20)
    slow, busy = lanes.chunk(0), lanes.chunk(2)
    lanes.now = 0.5
    assert busy != slow
    assert lanes.chunk(1) == slow


@pytest.mark.parametrize("timeout", [0.01, 5.0])
def test_it_goes_in_the_end_though_who_should_take_it_does_not_come(timeout: float) -> None:
    lanes = Lanes("shared", At(timeout / 10), "aab", rows=10)
    slow = lanes.chunk(0)
    assert lanes.batch.waits(2, 0.0)
    lanes.now = timeout + 0.5
    assert lanes.ask(1).chunks == (), "lane 2 is further away"
    lanes.now = timeout + 1.2
    assert lanes.chunk(1) == slow


def test_nobody_waits_for_an_idle_lane_that_has_fallen_silent() -> None:
    lanes = Lanes("shared", At(1e9), "aab", rows=10)
    slow = lanes.chunk(0)
    assert lanes.batch.waits(2, 0.0)
    lanes.now = 6.0
    for alive in (0, 1):
        lanes.batch.beat(Beat("1", alive, 0), lanes.now)
    lanes.batch.look(lanes.now)
    lanes.batch._replay = At(0.0)
    lanes.batch._due = [(lanes.now, slow.id)]
    assert lanes.chunk(1) == slow


def test_what_is_overdue_and_left_over_is_issued_once_more_and_no_oftener() -> None:
    lanes = Lanes("shared", At(0.01), "abc", rows=10)
    slow = lanes.chunk(0)
    lanes.now = 1.0
    assert lanes.batch.ring(lanes.now) == 1, "and nobody asks"
    lanes.now = 6.0
    for alive in (1, 2):
        lanes.batch.beat(Beat("1", alive, 0), lanes.now)
    lanes.batch.look(lanes.now)
    assert lanes.chunk(1) == slow
    assert lanes.ask(2).chunks == ()
    assert (lanes.batch.issued, lanes.batch.replayed) == (10, 0)


def test_what_went_to_another_as_overdue_is_not_left_over_as_well() -> None:
    """Before all lanes have joined, lanes with rows of their own may not take over, only replay."""
    lanes = Lanes("fixed", At(0.01), "abc", rows=10, joined=2)
    slow, own = lanes.chunk(0), lanes.chunk(1)
    lanes.now = 6.0
    lanes.batch.beat(Beat("1", 1, 0), lanes.now)
    lanes.batch.look(lanes.now)
    assert lanes.chunk(1, own) == slow
    lanes.join(2)
    assert slow not in lanes.finish(2)
    assert lanes.batch.replayed == slow.end - slow.start


@pytest.mark.parametrize("dispatch", ["fixed", "even", "balance"])
def test_rows_that_wait_for_a_late_lane_go_to_others_at_no_cost(dispatch: str) -> None:
    lanes = Lanes(dispatch, At(0.1), "ab")
    slow = lanes.chunk(0)
    assert sum(c.end - c.start for c in lanes.finish(1)) == ROWS // 2
    lanes.now = 1.0
    rest = lanes.finish(1)
    assert sum(c.end - c.start for c in rest) == ROWS // 2
    assert slow in rest
    assert lanes.batch.replayed == 10, "the one that it had begun with"
    assert lanes.batch.over


def test_a_lane_that_reports_again_keeps_its_rows() -> None:
    lanes = Lanes("fixed", At(0.1), "ab")
    slow = lanes.chunk(0)
    lanes.finish(1)
    lanes.now = 1.0
    lanes.chunk(0, slow)
    assert lanes.ask(1).chunks == ()


@pytest.mark.parametrize("dispatch", ["fixed", "executor", "balance"])
def test_what_a_silent_lane_had_is_done_by_others(dispatch: str) -> None:
    """Nobody ends before all is done, so a lane whose place is gone for good is not waited for."""
    lanes = Lanes(dispatch, At(1e9), "ab")
    lanes.chunk(0)
    mine = lanes.chunk(1)
    lanes.now = 6.0
    lanes.batch.beat(Beat("1", 1, 0), lanes.now)
    lanes.batch.look(lanes.now)
    assert sum(c.end - c.start for c in lanes.finish(1, mine)) == ROWS
    assert lanes.batch.over


def test_without_replay_lanes_end_when_their_own_rows_are_done() -> None:
    lanes = Lanes("fixed", NoReplay(), "ab")
    lanes.chunk(0)
    lanes.finish(1)
    assert lanes.ask(1) == Answer((), (), None)
    lanes = Lanes("fixed", At(1e9), "ab")
    lanes.chunk(0)
    lanes.finish(1)
    assert lanes.ask(1) == Answer((), (), 0.0), "else they stay to help"


def test_a_chunk_issued_before_there_was_a_timeout_has_one_when_there_is() -> None:
    replay = AdaptiveTimeout(period=1.0, fewest=1)
    lanes = Lanes("shared", replay, "ab", rows=40)
    slow = lanes.chunk(0)
    quick = lanes.chunk(1)
    lanes.now = 0.5
    rest = lanes.finish(1, quick)
    lanes.batch.look(lanes.now)
    assert lanes.batch.alarm is None, "the first period is not over"
    lanes.now = 1.5
    lanes.batch.look(lanes.now)
    assert replay.timeout is not None
    assert lanes.batch.alarm is not None, "though nothing is issued and nothing finishes"
    lanes.now = 100.0
    assert len(rest) == 3
    assert lanes.chunk(1) == slow


def test_idle_lanes_are_told_of_an_overdue_chunk_whoever_sees_it_first() -> None:
    lanes = Lanes("fixed", At(0.01), "abc", rows=90)
    lanes.chunk(0)
    lanes.chunk(1)
    assert not lanes.batch.rang
    lanes.now = 0.5
    assert lanes.batch.ring(0.05) == 0
    assert lanes.chunk(2), "it has rows of its own, and takes those"
    assert lanes.batch.ring(lanes.now) == 0, "seen already"
    assert lanes.batch.rang
    assert not lanes.batch.rang, "told once"


def test_a_lane_that_thaws_hears_that_its_chunk_was_done() -> None:
    lanes = Lanes("shared", At(1e9), "ab", rows=10)
    slow = lanes.chunk(0)
    lanes.now = 6.0
    lanes.batch.beat(Beat("1", 1, 0), lanes.now)
    lanes.batch.look(lanes.now)
    assert lanes.chunk(1) == slow
    assert lanes.ask(1, slow).emit == (slow.id,)
    assert lanes.batch.beat(Beat("1", 0, 0), lanes.now) == Heard((slow.id,))
    assert (lanes.batch.issued, lanes.batch.replayed) == (10, 0), "taken over, not issued twice"


def test_without_replay_too_the_chunk_of_a_silent_lane_goes_to_who_is_dealt_rows() -> None:
    lanes = Lanes("balance", NoReplay(), "ab")
    slow, mine = lanes.chunk(0), lanes.chunk(1)
    lanes.now = 6.0
    lanes.batch.beat(Beat("1", 1, 0), lanes.now)
    lanes.batch.look(lanes.now)
    done = lanes.finish(1, mine)
    assert slow in done
    assert lanes.batch.over


class Knowing(Pulse):
    """A pulse that has heard of a chunk before anybody worked on it."""

    def __init__(self, *lost: int) -> None:
        super().__init__(Place(("127.0.0.1", 1), "token", "1"), 0, 0)
        self._lost = frozenset(lost)


def test_a_chunk_that_is_known_to_be_lost_is_not_begun_with() -> None:
    pulse = Knowing(7)
    assert pulse.lost(7)
    assert pulse.work(7, lambda: pytest.fail("worked on for nothing")) is None
    assert pulse.work(8, lambda: "rows") == "rows"


def test_nobody_is_interrupted_after_an_error() -> None:
    pulse = Knowing()

    def fails() -> None:
        raise KeyError("the function's own")

    with pytest.raises(KeyError):
        pulse.work(7, fails)
    pulse._lost = frozenset({7})
    pulse.interrupt(None)  # raises nothing


def test_an_abandoned_of_a_functions_own_is_no_loss() -> None:
    def function() -> None:
        raise Abandoned("by itself")

    with pytest.raises(Abandoned, match="by itself"):
        Knowing(7).work(8, function)


def test_no_import_is_interrupted() -> None:
    """In a process of its own, where the signal comes in the middle of importing something."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["imported", "None"], done.stderr


IMPORTING = """
import os, signal, sys, time, types
from taut.spark.source import pulse
from taut.spark.source.connection import Place

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "slow_to_import":
            os.kill(os.getpid(), signal.SIGUSR1)  # in the middle of the import
            time.sleep(0.001)
        return None

made = pulse.Pulse(Place(("127.0.0.1", 1), "token", "1", replays=True), 0, 0)
pulse._arm(made)
sys.meta_path.insert(0, Slow())

def function():
    made._lost = frozenset([7])
    try:
        import slow_to_import
    except ImportError:
        print("imported", flush=True)
    time.sleep(60)  # interrupted a little later

print(made.work(7, function))
"""


def test_every_fifth_chunk_is_issued_twice_at_once() -> None:
    lanes = Lanes("shared", Replication(0.2), "ab", rows=1_000)
    held: dict[int, tuple[Chunk, ...]] = {0: (), 1: ()}
    counts: list[int] = []
    while not lanes.batch.over:
        for lane, done in held.items():
            answer = lanes.ask(lane, *done)
            counts += answer.emit
            held[lane] = answer.chunks
    assert lanes.batch.replayed == 200
    assert sorted(counts) == list(range(100))


def test_without_others_nothing_is_issued_twice() -> None:
    lanes = Lanes("shared", Replication(1.0), "a")
    assert sum(c.end - c.start for c in lanes.finish(0)) == ROWS
    assert lanes.batch.replayed == 0


# -- on sockets, with processes ------------------------------------------------------------------

LOG = ScheduleLog(start=0.0, rate=1_000.0, partitions=2, total=400)
STUCK = """
import sys, time, threading
from taut.spark.source.connection import Place
from taut.spark.source.lane import run_lane
from taut.spark.source.logs.schedule import ScheduleLog
from taut.spark.source.operators import Chain

host, port, token, how = sys.argv[1:]
log = ScheduleLog(start=0.0, rate=1_000.0, partitions=2, total=400)

def stuck(batch):
    print("stuck", flush=True)
    if how == "main":
        threading.Event().wait(600)
    else:  # in a thread no signal is handled: it works on
        sys.stdin.readline()
    return batch

place = Place((host, int(port)), token, "1", beat=0.05, replays=True)
def run():
    rows = [b.num_rows for b in run_lane(place, 0, 0, log, Chain().map(stuck, on="batch"))]
    print("ended", sum(rows), flush=True)

if how == "main":
    run()
else:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
"""


@pytest.mark.parametrize("how", ["main", "thread"])
def test_a_lane_that_is_stuck_is_interrupted_when_another_has_done_its_chunk(
    how: str, eventually: Callable[..., None]
) -> None:
    server = Server()
    chunking = FixedSize(50, claims_per_second=1e9)
    batch = Batch(
        Dispatch("shared").sharing(2, chunking), chunking, silence=5.0, wait=0.0, replay=At(0.001)
    )
    batch.add([Range(p, 0, n) for p, n in LOG.latest().items()])
    batch.close()
    server.do(lambda distributor: distributor.open("1", batch))
    host, port = server.address
    command = [sys.executable, "-c", STUCK, host, str(port), server.token, how]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as stuck:
        try:
            assert stuck.stdout is not None
            assert stuck.stdin is not None
            assert stuck.stdout.readline() == "stuck\n"
            place = Place(server.address, server.token, "1", beat=0.05, replays=True)
            rows = Counter(
                n for b in run_lane(place, 1, 0, LOG, Chain()) for n in b.column("n").to_pylist()
            )
            assert rows == Counter(range(400)), "all of them, those of the stuck lane too"
            if how == "thread":
                stuck.stdin.write("\n")
                stuck.stdin.flush()
            assert stuck.stdout.readline() == "ended 0\n"
            assert stuck.wait(timeout=60) == 0
        finally:
            stuck.kill()
            server.close()
    assert batch.replayed == 50


def test_lanes_under_replication_give_each_row_once() -> None:
    server = Server()
    chunking = FixedSize(5, claims_per_second=1e9)
    batch = Batch(
        Dispatch("fixed").sharing(4, chunking),
        chunking,
        silence=5.0,
        wait=0.0,
        replay=Replication(0.5),
    )
    batch.add([Range(p, 0, n) for p, n in LOG.latest().items()])
    batch.close()
    server.do(lambda distributor: distributor.open("1", batch))
    place = Place(server.address, server.token, "1", beat=0.05, replays=True)

    def take(lane: int) -> list[int]:
        batches = run_lane(place, lane, 0, LOG, Chain())
        return [n for b in batches for n in b.column("n").to_pylist()]

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(take, range(4)))
    server.close()
    assert Counter(n for share in shares for n in share) == Counter(range(400))
    assert batch.replayed > 0

"""The distributor over a day, by a clock of its own."""

from __future__ import annotations

import pickle
from collections import Counter

from taut.policy.chunking import Guided
from taut.policy.sharing import Range, SharedQueue
from taut.spark.source.dealt import Batch
from taut.spark.source.distributor import Distributor
from taut.spark.source.protocol import Ask, Emit, Pause, Script, Work, lane

LANES = 4
HOURS = 24
BATCH_S = 60
ROWS_PER_S = 4


class Day:
    """Resident batches of a minute, a row a chunk; in each one a task is lost and tried again."""

    def __init__(self) -> None:
        self.distributor = Distributor()
        self.now = 0.0
        self.chunks = 0
        self.peak = 0

    def hour(self) -> None:
        for _ in range(3_600 // BATCH_S):
            self.batch()

    def batch(self) -> None:
        begin = int(self.now) * ROWS_PER_S
        end = begin + BATCH_S * ROWS_PER_S
        key = str(begin)
        chunking = Guided(1, 1_000, share=1.0, longest=0.01)
        batch = Batch(SharedQueue(LANES, chunking), chunking, silence=5.0, wait=0.1)
        self.distributor.open(key, batch)
        lanes = {n: lane(key, n, 0, "here") for n in range(LANES)}
        emitted: dict[int, list[int]] = {n: [] for n in lanes}
        given: dict[int, object] = dict.fromkeys(lanes)
        for second in range(BATCH_S):
            first = begin + second * ROWS_PER_S
            batch.add([Range("0", first, first + ROWS_PER_S)])
            if second == BATCH_S // 2:
                lanes[0], emitted[0], given[0] = lane(key, 0, 1, "there"), [], None
            if second == BATCH_S - 1:
                batch.close()
            self.run(lanes, given, emitted)
            self.now += 1.0
        self.run(lanes, given, emitted)
        assert not lanes
        rows = Counter(row for each in emitted.values() for row in each)
        assert rows == Counter(range(begin, end))
        self.peak = max(self.peak, len(pickle.dumps(self.distributor)))
        self.distributor.forget(key)

    def run(
        self,
        lanes: dict[int, Script],
        given: dict[int, object],
        emitted: dict[int, list[int]],
    ) -> None:
        """Let the lanes go on, a chunk each in turn, until all wait or have ended."""
        while sum(self.step(n, lanes, given, emitted) for n in list(lanes)):
            pass

    def step(
        self,
        number: int,
        lanes: dict[int, Script],
        given: dict[int, object],
        emitted: dict[int, list[int]],
    ) -> bool:
        """Let a lane go on until it has emitted a chunk, or has to wait, or ends."""
        while True:
            try:
                action = lanes[number].send(given[number])  # type: ignore[arg-type] # any reply
            except StopIteration:
                del lanes[number]
                return False
            given[number] = 0.005
            if isinstance(action, Ask):
                given[number] = self.distributor.answer(action.message, self.now)
            elif isinstance(action, Work):
                self.chunks += 1
            elif isinstance(action, Emit):
                emitted[number] += range(action.chunk.start, action.chunk.end)
                return True
            elif isinstance(action, Pause):
                return False


def test_a_day_of_chunks_leaves_nothing_behind() -> None:
    day = Day()
    day.hour()
    after_an_hour, peak = len(pickle.dumps(day.distributor)), day.peak
    for _ in range(HOURS - 1):
        day.hour()
    assert day.now == HOURS * 3_600
    assert day.chunks >= HOURS * 3_600 * ROWS_PER_S / 4
    assert len(day.distributor) == 0
    counts = 2 * 8  # what was issued, and issued twice: numbers that grow
    assert len(pickle.dumps(day.distributor)) <= after_an_hour + counts
    # rows have larger numbers later in the day: a byte or two each
    assert day.peak <= 1.1 * peak

"""The distributor and its lanes under virtual time, on a network and machines that misbehave.

One seed is one history: messages are delayed, doubled, dropped and overtaken; lanes die, freeze
and come back after they were given up; finished output is lost and tasks run again; the driver
stops and replays its batch. What must hold is checked after every step. Run a million histories
with ``make soak``; a seed that fails is printed and fails again.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from taut.policy.chunking import Chunking, FixedSize, Guided
from taut.policy.dealing import DISPATCHES, Dispatch
from taut.policy.sharing import Range
from taut.policy.timeout import AdaptiveTimeout, NoReplay, Replay, Replication
from taut.spark.source.dealt import Batch
from taut.spark.source.distributor import Distributor
from taut.spark.source.protocol import (
    Ask,
    Beat,
    Chunk,
    Emit,
    Heard,
    LaneRefused,
    Pause,
    Reply,
    Request,
    Script,
    Work,
    lane,
)
from taut.spark.source.tally import Tally

SILENCE, BEAT, RESEND = 3.0, 1.0, 0.5


@dataclass(eq=False)
class Task:
    """One attempt of a lane: its process, what it has emitted, and what became of it."""

    lane: int
    attempt: int
    executor: str
    script: Script
    driver: int
    emitted: list[Chunk] = field(default_factory=list)
    ended: bool = False
    failed: bool = False
    frozen_until: float = 0.0
    waits_for: int | None = None
    works_on: tuple[int, int] | None = None


class Wrong(AssertionError):
    """A history in which something did not hold."""


class World:
    """One history of one query, from its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        rng = self.rng
        self.now = 0.0
        self.steps = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._attempts = itertools.count()
        self.lanes = rng.randint(1, 6)
        self.executors = rng.randint(1, 3)
        self.sharing = rng.choice(DISPATCHES)
        self.dispatch = Dispatch(self.sharing, period=rng.choice([0.2, 5.0]))
        self.replay = self.any_replay()
        self.trouble = rng.choice([0.0, 0.02, 0.1])
        self.resident = rng.random() < 0.3
        self.driver = 0
        self.histories = 0
        self.slots = rng.randint(1, self.lanes)
        self.running: set[Task] = set()
        self.pending: deque[Task] = deque()
        self.tasks: dict[int, Task] = {}
        self.succeeded: dict[int, Task] = {}
        self.batches_left = rng.randint(1, 3)
        self.distributor = Distributor()
        self.watched = seed % 2 == 0
        self.lost = 0

    def any_replay(self) -> Replay:
        share = self.rng.choice([0.2, 1.0])
        fewest, budget = self.rng.choice([1, 10]), self.rng.choice([0.1, 1.0])
        return self.rng.choice(
            [NoReplay(), Replication(share), AdaptiveTimeout(0.1, fewest, budget)]
        )

    # -- the world's clock -----------------------------------------------------------------

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + seconds, next(self._order), action))

    def run(self) -> None:
        """Until every batch is committed."""
        self.begin_batch()
        while self.batches_left:
            if not self._queue:
                raise Wrong("nothing happens any more, and the batch is not over")
            self.now, _, action = heapq.heappop(self._queue)
            action()
            self.steps += 1
            if self.steps > 60_000:
                raise Wrong("it goes on for ever")
        if len(self.distributor) > 1:
            raise Wrong("committed batches were not forgotten")

    # -- Spark -----------------------------------------------------------------------------

    def begin_batch(self) -> None:
        rng = self.rng
        self.ranges = [
            Range(str(p), at, at + rng.randint(1, 120))
            for p, at in enumerate(rng.randint(0, 1_000) for _ in range(rng.randint(1, 4)))
        ]
        if rng.random() < 0.05:
            self.ranges = []
        self.start_batch()

    def start_batch(self) -> None:
        """Plan the batch and start its tasks; again after the driver was restarted."""
        rng = self.rng
        self.key = f"{self.driver}-{self.batches_left}"
        fixed = FixedSize(rng.randint(1, 40), claims_per_second=rng.choice([1.0, 30.0, 4_000.0]))
        chunking: Chunking = fixed if rng.random() < 0.5 else Guided(4, 60)
        sharing = self.dispatch.sharing(self.lanes, chunking)
        self.tally = Tally()
        self.tally.wanted = self.watched
        self.batch = Batch(
            sharing, chunking, silence=SILENCE, wait=0.05, replay=self.replay, tally=self.tally
        )
        self.distributor.open(self.key, self.batch)
        if self.resident:
            self.arrive(list(self.ranges))
        else:
            self.batch.add(self.ranges, self.now)
            self.batch.close()
        self.running.clear()
        self.pending.clear()
        self.tasks.clear()
        self.succeeded.clear()
        for number in range(self.lanes):
            self.start_task(number, rng.random() * 0.2)
        self.look(self.driver)
        if rng.random() < self.trouble:
            self.after(rng.random() * 5, lambda at=self.driver, key=self.key: self.restart(at, key))

    def arrive(self, rest: list[Range]) -> None:
        """Resident: rows come in while lanes run."""
        driver, key = self.driver, self.key

        def more() -> None:
            if (driver, key) != (self.driver, self.key):
                return
            if not rest:
                self.batch.close()
                return
            first, left = rest.pop().cut(self.rng.randint(1, 30))
            if left is not None:
                rest.append(left)
            self.batch.add([first], self.now)
            self.after(self.rng.random() * 0.1, more)

        more()

    def start_task(self, number: int, delay: float) -> None:
        attempt = next(self._attempts)
        executor = str(self.rng.randrange(self.executors))
        script = lane(self.key, number, attempt, executor)
        task = Task(number, attempt, executor, script, self.driver)
        self.tasks[number] = task
        self.after(delay, lambda: self.queue_task(task))

    def queue_task(self, task: Task) -> None:
        if task.driver == self.driver:
            self.pending.append(task)
            self.fill_slots()

    def fill_slots(self) -> None:
        """As many tasks run as there are slots, in the order in which they came."""
        while self.pending and len(self.running) < self.slots:
            task = self.pending.popleft()
            self.running.add(task)
            self.after(0.0, lambda task=task: self.step(task, None))
            self.after(BEAT, lambda task=task: self.beat(task))
            if self.rng.random() < 5 * self.trouble:
                self.after(self.rng.expovariate(1.0), lambda task=task: self.misfortune(task))

    def free_slot(self, task: Task) -> None:
        self.running.discard(task)
        self.fill_slots()

    def end_task(self, task: Task) -> None:
        task.ended = True
        self.free_slot(task)
        if self.tasks.get(task.lane) is not task or task.driver != self.driver:
            return
        self.succeeded[task.lane] = task
        if self.rng.random() < self.trouble:
            # its output is lost with its machine: Spark runs the task again
            del self.succeeded[task.lane]
            self.start_task(task.lane, 0.1)
        elif len(self.succeeded) == self.lanes:
            self.commit()

    def fail_task(self, task: Task) -> None:
        """Spark gives an attempt up, whether its process is dead or not, and tries again."""
        if self.tasks.get(task.lane) is task and not task.ended and task.driver == self.driver:
            self.free_slot(task)
            self.start_task(task.lane, 0.05 + self.rng.random())

    def commit(self) -> None:
        self.verify()
        self.distributor.forget(self.key)
        self.batches_left -= 1
        if self.batches_left:
            self.begin_batch()

    def restart(self, driver: int, key: str) -> None:
        """The driver stops in the middle of a batch; the next one replays it."""
        if (driver, key) != (self.driver, self.key) or not self.batches_left:
            return
        self.driver += 1
        self.distributor = Distributor()
        self.dispatch = Dispatch(self.sharing, period=0.2)
        self.start_batch()

    def verify(self) -> None:
        """Every row of the batch was emitted exactly once by the attempts that count."""
        seen = sorted(
            (c.partition, c.start, c.end) for task in self.succeeded.values() for c in task.emitted
        )
        expected = sorted((r.partition, r.start, r.end) for r in self.ranges)
        joined: list[tuple[str, int, int]] = []
        for partition, start, end in seen:
            if joined and joined[-1][0] == partition and start < joined[-1][2]:
                raise Wrong(f"rows [{start}, {joined[-1][2]}) of {partition} came twice")
            if joined and joined[-1][0] == partition and joined[-1][2] == start:
                joined[-1] = (partition, joined[-1][1], end)
            else:
                joined.append((partition, start, end))
        if joined != expected:
            raise Wrong(f"emitted {joined}, the batch was {expected}")
        self.verify_told(sum(r.size for r in self.ranges), len(seen))
        self.histories += 1

    def verify_told(self, rows: int, chunks: int) -> None:
        """What is told of the lanes adds up to the batch."""
        told = self.distributor.standing(self.tally).told({}, self.now, self.now)
        counted = [sum(lane.rows for lane in told.lanes), sum(lane.chunks for lane in told.lanes)]
        if counted != [rows, chunks]:
            raise Wrong(f"lanes tell of {counted} rows and chunks: {rows}, {chunks} were emitted")
        kept = [chunk.rows for chunk in told.chunks if chunk.kept]
        if self.watched and not told.left_out and (sum(kept), len(kept)) != (rows, chunks):
            raise Wrong(f"{len(kept)} chunks of {sum(kept)} rows are told: not {chunks}, {rows}")
        if told.backlog:
            raise Wrong(f"rows are told to wait: {told.backlog}")

    # -- a lane's process and the network -----------------------------------------------------

    def misfortune(self, task: Task) -> None:
        if task.ended or task.failed:
            return
        kind = self.rng.choice(["die", "die", "freeze", "zombie"])
        if kind == "die":
            task.failed = True
            self.after(self.rng.random() * 2, lambda: self.fail_task(task))
        else:
            task.frozen_until = self.now + self.rng.expovariate(0.3)
            if kind == "zombie":
                self.after(self.rng.random() * 4, lambda: self.fail_task(task))

    def alive(self, task: Task) -> bool:
        return not task.failed and not task.ended

    def when_awake(self, task: Task, action: Callable[[], None]) -> None:
        self.after(max(0.0, task.frozen_until - self.now), action)

    def step(self, task: Task, given: Reply | float | None) -> None:
        """Run the lane's script up to its next action."""
        if not self.alive(task):
            return
        if task.frozen_until > self.now:
            self.when_awake(task, lambda: self.step(task, given))
            return
        try:
            action = next(task.script) if given is None else task.script.send(given)
        except StopIteration:
            self.end_task(task)
            return
        except LaneRefused:
            task.failed = True
            self.fail_task(task)
            return
        self.act(task, action)

    def act(self, task: Task, action: object) -> None:
        rng = self.rng
        if isinstance(action, Ask):
            self.send(task, action, 0)
        elif isinstance(action, Work):
            slow = rng.choice([0.01, 0.01, 0.05, 1.0])
            work = (action.chunk.id, next(self._order))
            task.works_on = work
            self.after(rng.expovariate(1 / slow), lambda: self.done(task, work))
        elif isinstance(action, Emit):
            task.emitted.append(action.chunk)
            self.after(0.0, lambda: self.step(task, 0.0))
        else:
            assert isinstance(action, Pause)
            self.after(action.seconds, lambda: self.step(task, 0.0))

    def done(self, task: Task, work: tuple[int, int]) -> None:
        """The chunk is finished, or given up because another lane has finished it."""
        if task.works_on == work:
            task.works_on = None
            self.step(task, 0.1)

    def hear(self, task: Task, reply: Reply) -> None:
        """What a lane works on may have been lost to another."""
        if isinstance(reply, Heard) and task.works_on and task.works_on[0] in reply.lost:
            self.lost += 1
            self.done(task, task.works_on)

    def send(self, task: Task, action: Ask, tries: int) -> None:
        """A request that gets no answer in time is sent again, as over a new connection."""
        if not self.alive(task):
            return
        waiting = next(self._order)
        task.waits_for = waiting

        def answered(reply: Reply) -> None:
            if task.waits_for == waiting and self.alive(task):
                task.waits_for = None
                self.step(task, reply)

        def again() -> None:
            if task.waits_for == waiting:
                if task.frozen_until > self.now:
                    self.when_awake(task, again)
                else:
                    self.send(task, action, tries + 1)

        copies = 2 if self.rng.random() < self.trouble else 1
        for _ in range(copies):
            self.carry(lambda: self.deliver(task, action.message, answered))
        self.after(RESEND, again)

    def deliver(self, task: Task, message: Request, answered: Callable[[Reply], None]) -> None:
        if task.driver != self.driver:
            return
        reply = self.distributor.answer(message, self.now)
        self.batch.check()
        self.carry(lambda: answered(reply))

    def carry(self, action: Callable[[], None]) -> None:
        if self.rng.random() >= self.trouble:
            late = self.rng.random() < self.trouble
            self.after(self.rng.expovariate(1.0 if late else 1_000.0), action)

    def beat(self, task: Task) -> None:
        if not self.alive(task) or task.driver != self.driver:
            return
        if task.frozen_until > self.now:
            self.when_awake(task, lambda: self.beat(task))
            return
        message = Beat(self.key, task.lane, task.attempt)
        self.carry(lambda: self.deliver(task, message, lambda reply: self.hear(task, reply)))
        self.after(BEAT, lambda: self.beat(task))

    def look(self, driver: int) -> None:
        if driver == self.driver and self.batches_left:
            self.distributor.look(self.now)
            self.batch.check()
            self.after(0.5, lambda: self.look(driver))


def play(seed: int) -> World:
    """One history; raises with its seed when something does not hold."""
    world = World(seed)
    try:
        world.run()
    except AssertionError as error:
        told = f"seed {seed}: {error} (sharing {world.sharing}, {world.lanes} lanes, "
        raise Wrong(told + f"trouble {world.trouble}, at {world.now:.3f} s)") from error
    return world


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args(arguments)
    begun = time.monotonic()
    batches = steps = 0
    for done, seed in enumerate(range(given.first, given.first + given.seeds), 1):
        world = play(seed)
        batches += world.histories
        steps += world.steps
        if done % 10_000 == 0 or done == given.seeds:
            rate = done / (time.monotonic() - begun)
            left = (given.seeds - done) / rate
            print(
                f"{done:,} seeds, {batches:,} batches, {steps:,} steps, {left:,.0f} s left",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Rows that wait: they take no time from those that come, and are not misread."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.spark.reduce.stores import EPOCH, World
from tests.spark.reduce.test_overload import PROCESS, READMIT, Stream, Work

from taut.errors import JobError
from taut.spark.reduce import keyed
from taut.spark.reduce.terms import WAITED, Terms


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    keyed.forget()
    yield
    keyed.forget()


@pytest.mark.parametrize("budget", [math.inf, 6_000.0], ids=["memory enough", "too little"])
def test_those_that_come_are_on_time_behind_those_that_waited(budget: float) -> None:
    work, roomy = Work(0.0005), budget == math.inf
    world = World(work.job(), Terms(1.0, budget=budget, **PROCESS), clock=work.clock,
                  cold_takes=0.002)  # fmt: skip
    stream = Stream(world, 4_000.0, key=lambda n: f"k{n * 7 % 300}")
    while world.now < 8.0:
        stream.batch()
    assert len(world.store.read_head().waiting) > 3
    worked = 0
    for n in range(8):
        now = world.now
        told = world.batch([(now, "k1", -n, now - 0.2)])
        (stats,) = told.stats
        assert stats.kept == 1
        worked += stats.readmitted
        assert world.clock.now <= EPOCH + now + 0.85, "it was due after 0.8 s"
        # what a state outside memory takes depends on whether another has to make room
        assert stats.predicted == pytest.approx(world.clock.now, abs=0.1 if roomy else 0.25)
    assert worked > 8 * 0.4 / 0.0105, "and the time was not left unused"


def test_what_waits_is_not_put_by_anew_where_there_is_no_time() -> None:
    work = Work(0.001)
    world = World(work.job(), Terms(1.0, **PROCESS), clock=work.clock)
    stream = Stream(world, 3_000.0)
    while world.now < 4.0:
        stream.batch()
    head = world.store.read_head()
    world.attempt([(world.now, "k1", -n, world.now - 0.1) for n in range(5_000)])
    again = world.store.read_head().waiting
    assert len(again) == len(head.waiting) + 1
    assert again[:-1] == head.waiting, "one place more, and the others as they were"


def test_what_waits_with_another_type_is_named() -> None:
    work = Work(0.002)
    world = World(work.job(), Terms(1.0, **PROCESS), clock=work.clock)
    stream = Stream(world, 2_000.0)
    while world.now < 2.0:
        stream.batch()
    assert world.waiting()
    world.job = work.job(value="double", output="key string, value double")
    with pytest.raises(
        JobError,
        match=r"job 'work': \d+ rows wait that were put by with key string, value int64, and now "
        "it is key string, value double: start it with key= and value= as they were",
    ):
        world.attempt()


@pytest.mark.parametrize(
    "terms", [Terms(1.0), Terms(1.0, "fifo"), Terms(), Terms(1.0, late="fail")], ids=str
)
def test_what_waits_is_not_forgotten_where_rows_wait_no_longer(terms: Terms) -> None:
    work = Work(0.002)
    world = World(work.windows("1 s"), Terms(1.0, **READMIT), clock=work.clock)
    stream = Stream(world, 2_000.0)
    while world.now < 2.0:
        stream.batch()
    assert len(world.waiting()) > 100
    world.terms = terms
    world.batch()
    for _ in range(100):
        world.batch()
    assert world.waiting() == []
    world.batch((), watermark=100.0)
    told = world.told
    done = Counter(value for _, value in told.results) + Counter(r["value"] for r in told.shed)
    assert done == Counter(row[2] for row in stream.given)
    assert {row["reason"] for row in told.shed} <= {WAITED}
    assert bool(told.shed) == terms.chooses, "all of them count where none is late"


# -- windows ---------------------------------------------------------------------------------------


def test_windows_that_are_closed_in_a_batch_are_part_of_what_it_takes() -> None:
    work = Work(0.0001)

    def finalize(key: str, window: Any, state: list[int]) -> list[Any]:
        work.clock.pass_(0.002)
        return [(key, value) for value in state]

    job = work.job(
        update=lambda time, key, value, state: ([*state, value], None),
        init=lambda key, window: [],
        finalize=finalize,
        state=list[int],
        window="1 s",
    )
    world = World(job, Terms(1.0), clock=work.clock)
    closed = 0
    for n in range(60):
        now = world.now
        rows = [(now, f"k{key}", n, now) for key in range(150)]
        told = world.batch(rows, watermark=now - 0.3)
        if told.results:
            closed += 1
            assert world.now - now > 0.3
            if closed > 2:
                assert told.stats[0].predicted == pytest.approx(world.clock.now, abs=0.05)
        elif closed > 2:
            assert told.stats[0].predicted == pytest.approx(world.clock.now, abs=0.05)
        world.clock.pass_(0.1)
    assert closed > 4
    head = world.store.read_head()
    assert head.close_cost.value == pytest.approx(0.002, rel=0.05)
    assert head.row_cost.value < 0.0005, "rows are not charged for it"


def test_rows_are_put_aside_that_closing_windows_leaves_no_time_for() -> None:
    work = Work(0.001)

    def finalize(key: str, window: Any, state: int) -> list[Any]:
        work.clock.pass_(0.004)
        return [(key, state)]

    world = World(
        work.job(finalize=finalize, window="1 s"), Terms(1.0), clock=work.clock
    )  # fmt: skip
    on_time = []
    for _ in range(40):
        now = world.now
        rows = [(now, f"k{key % 150}", key, now - 0.1) for key in range(500)]
        told = world.batch(rows, watermark=now - 0.3)
        due = sum(n for at, n in told.stats[0].deadlines if at >= world.clock.now - 0.011)
        on_time.append(due / max(1, told.stats[0].kept))
    assert min(on_time[20:]) == 1.0
    assert any(row for row in world.told.shed)

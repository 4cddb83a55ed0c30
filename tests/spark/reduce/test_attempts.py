"""An attempt that fails leaves no trace, in whichever worker and however far it came."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.reduce.stores import Clock, Lost, Row, Told, Workers, World, short_log

from taut.errors import JobError
from taut.spark.reduce import keyed
from taut.spark.reduce.job import Job
from taut.spark.reduce.terms import Stats, Terms

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=40)


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    keyed.forget()
    yield
    keyed.forget()


class Killed(BaseException):
    """As if the worker were killed."""


class Fragile:
    """Functions that change their state in place, take time, and may fail after some rows."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.rows_left: int | None = None
        self.error: type[BaseException] = ValueError

    def _step(self) -> None:
        self.clock.pass_(0.05)
        if self.rows_left is not None:
            self.rows_left -= 1
            if self.rows_left < 0:
                raise self.error

    def update(self, time: float, key: str, value: int, state: list[int]) -> Any:
        state.append(value)
        self._step()
        return state, [(key, len(state))]

    def update_many(self, times: Any, key: str, values: Any, state: list[int]) -> Any:
        state.extend(values.tolist())
        self._step()
        return state, [(key, len(state))]

    def job(self, form: str) -> Job:
        given_: dict[str, Any] = {
            "init": lambda key, window=None: [],
            "output": "key string, n bigint",
            "state": list[int],
            "name": "fragile",
        }
        if form == "many":
            return Job(update_many=self.update_many, **given_)
        if form == "windows":
            given_ |= {
                "window": ("3 s", "2 s"),
                "finalize": lambda key, window, state: [(key, n) for n in state],
            }
        return Job(update=self.update, **given_)


TERMS = {
    "time enough": Terms(1_000.0, budget=900.0),
    "aside": Terms(1.0, budget=900.0),
    "process": Terms(1.0, late="process", patience=math.inf, budget=900.0),
    "readmit": Terms(1.0, patience=3.0),
}
BATCH = st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9)), max_size=25)
FAULTS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "new"]),
        st.sampled_from(["lost", "store", "rows", "killed"]),
        st.integers(0, 30),
    ),
    max_size=2,
)
HISTORY = st.lists(
    st.tuples(st.sampled_from(["one", "two", "new"]), BATCH, FAULTS), min_size=2, max_size=10
)


def comparable(told: Told) -> tuple[Any, ...]:
    stats = [{f: getattr(each, f) for f in Stats.__struct_fields__} for each in told.stats]
    return told.results, told.shed, sorted(told.timers), stats


def fail(world: World, fragile: Fragile, how: str, after: int, rows: list[Row]) -> None:
    """One attempt that comes to nothing."""
    if how == "store":
        for store in world.stores.values():
            store.calls_left = after
    elif how != "lost":
        fragile.rows_left = after
        fragile.error = ValueError if how == "rows" else Killed
    watermark = None if world.job.incremental else world.now - 1.0
    with suppress(JobError, Killed, Lost):
        world.attempt(rows, watermark)
    fragile.rows_left = None
    for store in world.stores.values():
        store.calls_left = None
    world.rollback()


@pytest.mark.parametrize("form", ["plain", "many", "windows"])
@pytest.mark.parametrize("terms", TERMS.values(), ids=TERMS)
@STEADY
@given(history=HISTORY)
def test_as_if_nothing_had_happened(
    form: str, terms: Terms, history: list[tuple[str, Any, list[tuple[str, str, int]]]]
) -> None:
    fragile, steady = Fragile(), Fragile()
    workers = Workers()
    world = World(fragile.job(form), terms, clock=fragile.clock)
    other = World(steady.job(form), terms, clock=steady.clock)
    number = 0
    with short_log():
        for at, (worker, batch, faults) in enumerate(history):
            now = world.now
            rows = [(now - ago / 10, f"k{key}", 100 * at + n, now - ago / 5)
                    for n, (key, ago) in enumerate(batch)]  # fmt: skip
            began = world.clock.now
            for place, how, after in faults:
                number += 1
                where = f"new {number}" if place == "new" else place
                workers.run(where, lambda h=how, a=after, r=rows: fail(world, fragile, h, a, r))
                world.clock.now = began
            number += 1
            where = f"new {number}" if worker == "new" else worker
            watermark = None if world.job.incremental else now - 1.0
            told = workers.run(where, lambda r=rows, w=watermark: world.batch(r, w))
            same = workers.run("steady", lambda r=rows, w=watermark: other.batch(r, w))
            assert comparable(told) == comparable(same)
            assert world.states() == other.states()
            assert world.waiting() == other.waiting()
            ours, its = world.store.read_head(), other.store.read_head()
            assert (ours.cold, ours.floor, ours.batches) == (its.cold, its.floor, its.batches)
            assert (ours.row_cost, ours.cold_cost) == (its.row_cost, its.cold_cost)
            assert world.store.colds == other.store.colds


@pytest.mark.parametrize("form", ["plain", "many", "windows"])
def test_a_task_that_is_lost_at_any_call_of_the_store(form: str) -> None:
    fragile = Fragile()
    terms = Terms(2.0, late="process", patience=math.inf, budget=1_100.0)
    world = World(fragile.job(form), terms, clock=fragile.clock)
    with short_log():
        for batch in range(8):
            now = world.now
            rows = [(now, f"k{n % 8}", 100 * batch + n, now - n / 20) for n in range(30)]
            before, waited = world.states(), world.waiting()
            lost = 0
            while True:
                world.clock.now = began = world.clock.now
                for store in world.stores.values():
                    store.calls_left = lost
                try:
                    world.attempt(rows, None if world.job.incremental else now - 1.0)
                except Lost:
                    world.rollback()
                    world.clock.now = began
                    for store in world.stores.values():
                        store.calls_left = None
                    assert (world.states(), world.waiting()) == (before, waited)
                    lost += 1
                else:
                    break
            assert lost > 3
            world.store.calls_left = None
            world.rollback()
            world.clock.now = began
            world.batch(rows, None if world.job.incremental else now - 1.0)
    if world.job.incremental:
        held = sorted(value for state in world.states().values() for value in state)
        given_ = [100 * batch + n for batch in range(8) for n in range(30)]
        assert sorted(held + world.waiting()) == given_


def test_a_function_that_fails_halfway_leaves_the_batch_to_be_tried_again() -> None:
    fragile = Fragile()
    world = World(fragile.job("plain"), Terms(), clock=fragile.clock)
    world.batch([(0.0, "a", 1, 0.0), (0.0, "b", 1, 0.0)])
    rows = [(1.0, "a", 2, 1.0), (1.0, "b", 2, 1.0), (1.0, "a", 3, 1.0)]
    fragile.rows_left = 1
    with pytest.raises(JobError, match=r"job 'fragile': update failed with ValueError"):
        world.attempt(rows)
    world.rollback()
    fragile.rows_left = None
    world.batch(rows)
    assert world.states() == {"a": [1, 2, 3], "b": [1, 2]}


def test_a_batch_tried_by_two_workers_at_once() -> None:
    # the copy of the one that lost is of its own mark, and is not used though it has the same rows
    fragile, workers = Fragile(), Workers()
    world = World(fragile.job("plain"), Terms(), clock=fragile.clock)
    workers.run("one", lambda: world.batch([(0.0, "a", 1, 0.0)]))
    rows = [(1.0, "a", 2, 1.0)]
    workers.run("two", lambda: world.attempt(rows))
    world.rollback()
    workers.run("one", lambda: world.batch(rows))
    before = world.store.calls["read"]
    workers.run("two", lambda: world.attempt([(2.0, "b", 1, 2.0)]))
    assert world.store.calls["read"] - before == 2, "it reads all there is"
    world.rollback()
    assert world.states() == {"a": [1, 2]}

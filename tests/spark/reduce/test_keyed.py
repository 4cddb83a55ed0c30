"""States in memory and outside it: nothing is lost, nothing of another attempt is used."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.reduce.stores import (
    Clock,
    DictStore,
    Workers,
    check,
    cold,
    hot,
    short_log,
    states,
)

from taut.errors import JobError
from taut.spark.reduce import keyed
from taut.spark.reduce.codec import Codec
from taut.spark.reduce.job import Job
from taut.spark.reduce.keyed import Keyed, Memory, size_of

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)
KEY = size_of("k00", b"\x01")
"""Bytes that a key of these tests takes, with a small number for a state."""


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    keyed.forget()
    yield
    keyed.forget()


def tally(**changes: Any) -> Job:
    given_ = {
        "init": lambda key: 0,
        "update": lambda time, key, value, state: (state + value, None),
        "output": "n bigint",
        "name": "tally",
        "state": int,
    }
    return Job(**{**given_, **changes})


TALLY = tally()
CODEC = Codec(TALLY)


def name(n: int) -> str:
    return f"k{n:02}"


def apply(
    store: DictStore,
    come: Mapping[str, int],
    gone: Sequence[str] = (),
    budget: float = math.inf,
) -> Keyed:
    """One attempt at a batch that adds to states, and ends some."""
    run = Keyed(store, CODEC, "tally", budget)
    run.fetch([*come, *gone])
    for key, n in come.items():
        run.states[key] = run.states.get(key, 0) + n
    run.commit(come, [key for key in gone if key not in come])
    run.save()
    run.check()
    return run


def batch(
    store: DictStore,
    come: Mapping[str, int],
    gone: Sequence[str] = (),
    budget: float = math.inf,
) -> Keyed:
    """And it is out."""
    run = apply(store, come, gone, budget)
    check(store, TALLY, budget)
    store.commit()
    return run


# -- against a plain dict ------------------------------------------------------------------------

COMES = st.dictionaries(st.integers(0, 15).map(name), st.integers(1, 5), max_size=6)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two", "new"]),
        COMES,
        st.sets(st.integers(0, 15).map(name), max_size=3),
        st.sampled_from(["out", "out", "out", "lost", "halfway"]),
    ),
    max_size=25,
)


def same_as(store: DictStore, other: DictStore) -> None:
    """Two stores hold the same, and will be decided on in the same way."""
    mine, its = store.read_head(), other.read_head()
    assert (mine.cold, mine.floor, mine.batches) == (its.cold, its.floor, its.batches)
    assert hot(store, TALLY).states == hot(other, TALLY).states
    counts = list(hot(store, TALLY).counts.items())
    assert counts == list(hot(other, TALLY).counts.items())
    assert cold(store, TALLY) == cold(other, TALLY)


@pytest.mark.parametrize("budget", [math.inf, 3.5 * KEY])
@STEADY
@given(steps=STEPS)
def test_any_worker_after_any_failure_goes_on_as_if_nothing_had_happened(
    steps: list[tuple[str, dict[str, int], set[str], str]], budget: float
) -> None:
    store, steady, plain = DictStore(), DictStore(), dict[str, int]()
    workers = Workers()
    with short_log():
        for at, (worker, come, gone, ends) in enumerate(steps):
            place = f"new {at}" if worker == "new" else worker
            ending = sorted(gone - come.keys())
            if ends == "halfway":
                # written to, and then the task is gone: its copy with it
                workers.run(place, lambda c=come: half(store, c, budget))
                store.rollback()
                continue
            if ends == "lost":
                workers.run(place, lambda c=come, e=ending: apply(store, c, e, budget))
                store.rollback()
                continue
            workers.run(place, lambda c=come, e=ending: batch(store, c, e, budget))
            workers.run("steady", lambda c=come, e=ending: batch(steady, c, e, budget))
            for key in ending:
                plain.pop(key, None)
            for key, n in come.items():
                plain[key] = plain.get(key, 0) + n
            assert states(store, TALLY) == plain
            same_as(store, steady)


def half(store: DictStore, come: Mapping[str, int], budget: float) -> None:
    run = Keyed(store, CODEC, "tally", budget)
    run.fetch(come)
    for key in come:
        run.states[key] = -1
    run.hold(b"rows", 1, 0)
    run.commit(come)


# -- copies ----------------------------------------------------------------------------------------


def reads(store: DictStore) -> int:
    """Places of the log that a batch without rows reads in this worker."""
    before = store.calls["read"]
    Keyed(store, CODEC, "tally").save()
    return store.calls["read"] - before


def test_a_worker_with_a_copy_reads_nothing_and_one_that_is_behind_what_is_new() -> None:
    store, workers = DictStore(), Workers()
    for n in range(6):
        workers.run("one", lambda n=n: batch(store, {name(n): 1}))
    assert workers.run("one", lambda: reads(store)) == 0
    assert workers.run("two", lambda: reads(store)) == 6, "all of it"
    workers.run("one", lambda: batch(store, {name(7): 1}))
    workers.run("one", lambda: batch(store, {name(8): 1}))
    assert workers.run("two", lambda: reads(store)) == 2, "what came since"


def test_a_copy_that_is_older_than_the_base_is_not_used() -> None:
    store, workers = DictStore(), Workers()
    with short_log():
        workers.run("two", lambda: batch(store, {"a": 1}))
        for _ in range(8):
            workers.run("one", lambda: batch(store, {"a": 1, "b": 1}))
        assert store.read_head().base
        head = store.read_head()
        places = len(head.base) + len(head.deltas)
        assert workers.run("two", lambda: reads(store)) == places
        assert workers.run("two", lambda: Keyed(store, CODEC, "tally").states) == {"a": 9, "b": 8}


def test_a_copy_as_of_the_base_is_used() -> None:
    store, workers = DictStore(), Workers()
    with short_log():
        while not store.read_head().base:
            workers.run("two", lambda: batch(store, {"a": 1, "b": 1, "c": 1}))
        assert len(store.read_head().base) > 1, "the base is of several parts"
        workers.run("one", lambda: batch(store, {"a": 1}))
        assert workers.run("two", lambda: reads(store)) == 1


def test_a_copy_of_an_attempt_that_is_lost_is_not_used() -> None:
    store = DictStore()
    batch(store, {"a": 1})
    apply(store, {"a": 100})
    store.rollback()
    assert Keyed(store, CODEC, "tally").states == {"a": 1}


def test_what_a_batch_that_fails_did_to_the_copy_is_gone_with_it() -> None:
    store = DictStore()
    batch(store, {"a": 1})
    Keyed(store, CODEC, "tally").states["a"] = 100
    assert Keyed(store, CODEC, "tally").states == {"a": 1}


def test_two_reducers_and_two_jobs_of_a_worker_are_kept_apart() -> None:
    one, two = DictStore(), DictStore()
    batch(one, {"a": 1})
    batch(two, {"a": 5})
    assert Keyed(one, CODEC, "tally").states == {"a": 1}
    assert Keyed(two, CODEC, "tally").states == {"a": 5}


def test_the_first_batch_tried_again_begins_anew() -> None:
    store = DictStore()
    apply(store, {"a": 1})
    store.rollback()
    batch(store, {"a": 1})
    assert states(store, TALLY) == {"a": 1}


def test_a_worker_keeps_copies_of_those_it_served_last() -> None:
    stores = [DictStore() for _ in range(keyed._COPIES + 3)]
    for store in stores:
        batch(store, {"a": 1})
    assert len(keyed._copies) == keyed._COPIES
    assert reads(stores[-1]) == 0
    assert reads(stores[0]) == 1
    assert len(keyed._copies) == keyed._COPIES


def test_an_attempt_without_rows_that_is_lost_leaves_no_trace() -> None:
    # counts are halved then, and the mark stays: the copy would be an era ahead of the store
    store, other, workers = DictStore(), DictStore(), Workers()
    with short_log(_ERA=2):
        for _ in range(3):
            for worker, each in (("one", store), ("other", other)):
                workers.run(
                    worker, lambda s=each: batch(s, {"a": 3, "b": 9, "c": 9}, (), 2.5 * KEY)
                )
        assert store.read_head().floor > 0
        workers.run("one", lambda: apply(store, {}, (), 2.5 * KEY))
        store.rollback()
        for worker, each in (("one", store), ("other", other)):
            workers.run(worker, lambda s=each: batch(s, {"d": 5}, (), 2.5 * KEY))
        same_as(store, other)


# -- the log ---------------------------------------------------------------------------------------


def test_a_batch_writes_one_delta_and_the_head() -> None:
    store = DictStore()
    for n in range(keyed._LONGEST_LOG):
        before = store.calls.copy()
        batch(store, {name(n % 40): 1, name(n % 7): 1})
        made = store.calls - before
        assert (made["write"], made["set_head"], made["drop"]) == (1, 1, 0)
    before = store.calls.copy()
    batch(store, {name(1): 1})
    assert (store.calls - before)["drop"] == keyed._LONGEST_LOG, "and now and then a base"
    assert len(store.log) == 1


def test_a_batch_that_changes_nothing_writes_no_delta() -> None:
    store = DictStore()
    batch(store, {"a": 1})
    mark = store.read_head().mark
    before = store.calls["write"]
    batch(store, {})
    assert store.calls["write"] == before
    assert store.read_head().mark == mark
    assert store.read_head().batches == 2


def test_the_log_is_no_longer_than_twice_what_it_says() -> None:
    store = DictStore()
    with short_log(_LEAST_BASE=1_000, _LONGEST_LOG=1_000):
        for n in range(200):
            batch(store, {name(n * 7 % 50): 1, name(n * 3 % 50): 1})
            head = store.read_head()
            base = sum(at.size for at in head.base)
            assert sum(at.size for at in head.deltas) <= max(1_000, base)
            assert sum(map(len, store.log.values())) <= 1_000 + 2 * base


def test_keys_that_are_gone_are_gone_from_memory_store_and_log() -> None:
    store = DictStore()
    budget = 4 * KEY
    batch(store, {name(n): 1 for n in range(8)}, (), budget)
    out, inside = next(iter(cold(store, TALLY))), next(iter(hot(store, TALLY).states))
    batch(store, {}, (out, inside), budget)
    keyed.forget()
    assert {out, inside}.isdisjoint(states(store, TALLY))
    assert len(states(store, TALLY)) == 6


# -- rows that wait --------------------------------------------------------------------------------


def test_rows_are_put_by_and_taken_once() -> None:
    store = DictStore()
    run = Keyed(store, CODEC, "tally")
    run.hold(b"one", 3, 17)
    run.hold(b"two", 4, 18)
    run.commit({})
    run.save()
    run.check()
    store.commit()
    run = Keyed(store, CODEC, "tally")
    first, second = run.head.waiting
    assert (second.rows, second.oldest_us) == (4, 18)
    assert run.held(first) == b"one"
    assert run.head.waiting == [second]
    assert list(store.log.values()) == [b"two"]
    run.check()
    store.rollback()
    assert Keyed(store, CODEC, "tally").held(first) == b"one", "the attempt was lost"


# -- memory ----------------------------------------------------------------------------------------


def test_memory_is_never_over_its_budget_and_cold_keys_are_counted() -> None:
    store, draw = DictStore(), np.random.default_rng(3)
    budget = 20 * KEY
    plain: dict[str, int] = {}
    for _ in range(150):
        come = {name(int(n)): 1 for n in draw.integers(0, 60, 10)}
        run = batch(store, come, (), budget)
        assert run.memory.used <= budget
        assert run.head.cold == len(store.colds)
        for key in come:
            plain[key] = plain.get(key, 0) + 1
    assert states(store, TALLY) == plain
    assert run.head.cold == len(plain) - len(run.states) > 30


def test_keys_that_come_often_stay_in_memory() -> None:
    store, draw = DictStore(), np.random.default_rng(5)
    keys = 300
    share = 1.0 / np.arange(1, keys + 1)
    order = draw.permutation(keys)
    budget = keys // 4 * (KEY + 5)
    sought = rows = 0
    for at in range(200):
        drawn = order[draw.choice(keys, 150, p=share / share.sum())]
        names, times = np.unique(drawn, return_counts=True)
        come = {f"key {n}": int(t) for n, t in zip(names.tolist(), times.tolist(), strict=True)}
        run = Keyed(store, CODEC, "tally", budget)
        found = run.fetch(come)
        if at >= 100:
            sought += found
            rows += len(drawn)
        for key, n in come.items():
            run.states[key] = run.states.get(key, 0) + n
        run.commit(come)
        run.save()
        run.check()
        store.commit()
    hottest = {f"key {n}" for n in order[: keys // 10].tolist()}
    assert hottest <= run.states.keys()
    # the 75 hottest of 300 keys have 0.78 of the rows: no choice could seek much less than 0.2
    assert sought / rows < 0.25
    check(store, TALLY, budget)


def test_keys_that_came_often_long_ago_make_room() -> None:
    store = DictStore()
    budget = 5 * KEY
    with short_log(_ERA=4):
        for _ in range(10):
            batch(store, {name(n): 4 for n in range(4)}, (), budget)
        for _ in range(40):
            batch(store, {name(n): 1 for n in range(10, 14)}, (), budget)
    assert hot(store, TALLY).states.keys() == {name(n) for n in range(10, 14)}


def test_a_key_that_comes_once_is_not_worth_another() -> None:
    store = DictStore()
    budget = 4 * KEY
    for n in range(10):
        batch(store, {name(0): 5, name(1): 5, name(2): 5, name(10 + n): 1}, (), budget)
    assert {name(0), name(1), name(2)} <= hot(store, TALLY).states.keys()
    before = store.calls["write"]
    batch(store, {name(30): 1}, (), budget)
    assert name(30) in cold(store, TALLY)
    assert store.calls["write"] == before, "memory has not changed"


def test_a_key_that_comes_again_and_again_gets_into_memory() -> None:
    store = DictStore()
    budget = 4 * KEY
    batch(store, {name(n): 5 + n for n in range(5)}, (), budget)
    assert store.read_head().floor == 6
    for _ in range(7):
        assert name(9) not in hot(store, TALLY).states
        batch(store, {name(9): 1}, (), budget)
    assert name(9) in hot(store, TALLY).states, "what it came before is not forgotten"


def test_room_that_has_become_free_is_used_again() -> None:
    store = DictStore()
    budget = 5 * KEY
    batch(store, {name(n): 9 for n in range(8)}, (), budget)
    assert store.read_head().floor == 9
    inside = [*hot(store, TALLY).states]
    batch(store, {}, inside, budget)
    assert store.read_head().cold == 8 - len(inside)
    batch(store, {name(20): 1, name(21): 1}, (), budget)
    assert hot(store, TALLY).states.keys() >= {name(20), name(21)}


def test_a_state_that_grows_is_counted_as_it_is() -> None:
    text = tally(init=lambda key: "", state=str)
    store, codec = DictStore(), Codec(text)
    for n in range(1, 30):
        run = Keyed(store, codec, "tally", 5_000)
        run.fetch(["long"])
        run.states["long"] = "x" * 100 * n
        run.commit({"long": 1})
        run.save()
        run.check()
        assert run.memory.used == size_of("long", codec.state("long", "x" * 100 * n))
    store.commit()
    run = Keyed(store, codec, "tally", 5_000)
    run.fetch(["long"])
    run.states["long"] = "x" * 5_000
    with pytest.raises(
        JobError,
        match=r"job 'tally': the state of key 'long' takes \d+ bytes, and "
        r"memory= gives a reducer 5000: give it more, or keep less",
    ):
        run.commit({"long": 1})
    store.rollback()
    assert len(Keyed(store, codec, "tally", 5_000).states["long"]) == 2_900


def test_keys_count_with_all_they_hold() -> None:
    data = b"\x01"
    short, long = size_of("k", data), size_of("k" * 1_000, data)
    assert long - short == 999
    assert size_of(("k" * 1_000, 5), data) - size_of(("k", 5), data) == 999
    assert size_of(("k", 5), data) > short


def test_a_state_is_the_same_for_a_worker_with_a_copy_and_one_without() -> None:
    of = tally(init=lambda key: {}, state=dict[str, float])
    store, codec, workers = DictStore(), Codec(of), Workers()

    def add(state: dict[str, float]) -> str:
        run = Keyed(store, codec, "tally")
        before = repr(run.states.get("k"))
        run.states["k"] = state
        run.commit({"k": 1})
        run.save()
        store.commit()
        return before

    def seen() -> str:
        return repr(Keyed(store, codec, "tally").states["k"])

    workers.run("one", lambda: add({"a": 1}))
    assert workers.run("one", seen) == workers.run("new", seen) == "{'a': 1.0}"
    with short_log(_LONGEST_LOG=0):
        workers.run("one", lambda: add({"a": 2, "b": 2.5}))
        workers.run("one", lambda: check(store, of))
    assert workers.run("one", seen) == workers.run("new", seen) == "{'a': 2.0, 'b': 2.5}"


def test_a_state_that_would_come_back_as_another_is_not_stored() -> None:
    of = tally(init=lambda key: [], state=list[int])
    store, codec = DictStore(), Codec(of)
    for state in ([1], [3.5]):
        run = Keyed(store, codec, "tally")
        run.states["k"] = state
        if state == [1]:
            run.commit({"k": 1})
            run.save()
            store.commit()
            continue
        with pytest.raises(JobError, match=r"key 'k' is \[3.5\] .* Expected `int`, got `float`"):
            run.commit({"k": 1})
    store.rollback()
    assert states(store, of) == {"k": [1]}


def test_a_key_that_is_fetched_and_not_changed_stays_outside() -> None:
    store = DictStore()
    budget = 3 * KEY
    batch(store, {name(n): 1 for n in range(6)}, (), budget)
    before = cold(store, TALLY)
    run = Keyed(store, CODEC, "tally", budget)
    assert run.fetch([*before, "unknown"]) == len(before) + 1
    assert run.fetch(before) == 0, "they are here now"
    run.commit({})
    run.save()
    run.check()
    check(store, TALLY, budget)
    assert cold(store, TALLY) == before


def test_without_keys_outside_memory_none_is_sought() -> None:
    store = DictStore()
    batch(store, {"a": 1})
    run = Keyed(store, CODEC, "tally")
    assert run.fetch(["a", "b"]) == 0
    assert not run.is_cold("b")
    assert store.calls["cold"] == 0


def test_what_the_store_takes_is_measured() -> None:
    clock = Clock(0.0)
    store = DictStore(clock, cold_takes=0.5)
    batch(store, {name(n): 1 for n in range(6)}, (), 3 * KEY)
    asked = store.calls["set_cold"] + store.calls["cold"] + store.calls["drop_cold"]
    run = Keyed(store, CODEC, "tally", 3 * KEY, clock)
    sought = run.fetch(cold(store, TALLY))
    assert run.cold_seconds == 0.5 * sought
    for key in cold(store, TALLY):
        run.states[key] += 1
    run.commit(dict.fromkeys(cold(store, TALLY), 1))
    now = store.calls["set_cold"] + store.calls["cold"] + store.calls["drop_cold"]
    assert run.cold_seconds == 0.5 * (now - asked)


def test_memory_counts_what_it_holds() -> None:
    memory = Memory()
    memory.put("a", 1, 4.0, 10)
    memory.put("a", 2, 5.0, 30)
    memory.put("b", 1, 1.0, 5)
    memory.age(2)
    memory.check()
    assert (memory.used, memory.counts) == (35, {"a": 1.25, "b": 0.25})
    memory.age(1)
    assert memory.counts == {"a": 1.25, "b": 0.25}, "time does not run back"
    memory.remove("a")
    memory.remove("none")
    memory.check()
    assert memory.used == 5


# -- windows ---------------------------------------------------------------------------------------

WINDOWED = tally(
    init=lambda key, window: 0, finalize=lambda key, window, state: [state], window="1 s"
)


def test_windows_that_are_over_are_found_in_and_outside_memory() -> None:
    store, codec = DictStore(), Codec(WINDOWED)
    budget = 4.0 * size_of((name(0), 5), b"\x01")
    run = Keyed(store, codec, "tally", budget)
    named = [(name(n), end) for n in range(5) for end in (5, 6)]
    for key in named:
        run.states[key] = key[1]
    run.commit(dict.fromkeys(named, 1))
    run.save()
    check(store, WINDOWED, budget)
    store.commit()
    run = Keyed(store, codec, "tally", budget)
    assert 0 < len(run.states) < 5
    due = run.closing(5)
    assert sorted(due) == [((name(n), 5), 5) for n in range(5)]
    run.commit({}, [key for key, _ in due])
    run.save()
    run.check()
    check(store, WINDOWED, budget)
    assert states(store, WINDOWED) == {(name(n), 6): 6 for n in range(5)}
    assert Keyed(store, codec, "tally", budget).closing(5) == []

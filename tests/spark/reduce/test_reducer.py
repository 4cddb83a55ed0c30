"""With time enough: what a plain fold gives. And what goes wrong is named, or put aside."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.reduce.stores import EPOCH, Row, World

from taut.errors import JobError
from taut.policy.deadline import CHOICES
from taut.spark.reduce import keyed
from taut.spark.reduce.job import MICRO, Job
from taut.spark.reduce.terms import CLOSED, Terms
from taut.workloads.reduce import sessions, windowed_words, words
from taut.workloads.reduce.fold import fold

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=40)
DELAY = 20.0
"""Seconds that times may lie before the latest one that was seen."""


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    keyed.forget()
    yield
    keyed.forget()


def spelled(**changes: Any) -> Job:
    """Puts values one after the other, and out: what comes depends on the order."""
    given_ = {
        "init": lambda key, window=None: "",
        "update": lambda time, key, value, state: (f"{state} {value}", [(key, f"{state} {value}")]),
        "output": "key string, seen string",
        "name": "spelled",
    }
    return Job(**{**given_, **changes})


def spelled_windows(window: str | tuple[str, ...]) -> Job:
    return spelled(
        window=window,
        update=lambda time, key, value, state: (f"{state} {value}", None),
        finalize=lambda key, window, state: [(key, f"{window} {state}")],
    )


JOBS = {
    "plain": words(3),
    "many": words(3, vectorised=True),
    "in order": spelled(),
    "sessions": sessions("10 s"),
    "mapped": spelled(map=lambda time, key, value: [(key[:1], value), (f"{value}", 7)]),
    "tumbling": spelled_windows("7 s"),
    "sliding": spelled_windows(("10 s", "4 s", "1 s")),
    "tumbling, many": windowed_words("7 s", vectorised=True),
    "sliding, many": windowed_words("10 s", slide="4 s", vectorised=True),
}


@st.composite
def batches_of(draw: st.DrawFn, numbers: bool) -> list[list[Row]]:
    """Batches of rows whose times are out of order, and whose arrivals are in a batch too."""
    made, latest = [], DELAY
    for _ in range(draw(st.integers(1, 6))):
        rows = []
        for _ in range(draw(st.integers(0, 12))):
            latest += draw(st.integers(0, 24)) / 8
            time = latest - draw(st.integers(0, 8 * int(DELAY) - 1)) / 8
            key = draw(st.integers(0, 9))
            arrival = latest + draw(st.integers(-8, 0)) / 8
            rows.append((time, key if numbers else f"k{key}", draw(st.integers(0, 4)), arrival))
        made.append(rows)
    return made


def in_order(batches: list[list[Row]]) -> list[tuple[float, Any, Any]]:
    """The rows as they are folded: batch by batch, by arrival."""
    return [
        (EPOCH + time, key, value)
        for rows in batches
        for time, key, value, _ in sorted(rows, key=lambda row: row[3])
    ]


@pytest.mark.parametrize("name", JOBS)
@STEADY
@given(
    data=st.data(),
    reducers=st.sampled_from([1, 3]),
    pieces=st.sampled_from([1, 3]),
    tight=st.booleans(),
)
def test_every_policy_gives_what_a_fold_gives(
    name: str, data: st.DataObject, reducers: int, pieces: int, tight: bool
) -> None:
    job = JOBS[name]
    batches = data.draw(batches_of(numbers=name == "sessions"))
    outputs, states = fold(job, in_order(batches))
    budget = 800.0 if tight else math.inf
    for policy in CHOICES:
        terms = Terms(1_000.0, policy, budget=budget)
        world = World(job, terms, reducers=reducers, pieces=pieces)
        latest = 0.0
        for rows in batches:
            latest = max([latest, *(row[0] for row in rows)])
            world.clock.now = max(world.clock.now, EPOCH + latest)
            told = world.batch(rows, None if job.incremental else latest - DELAY)
            assert sum(stats.kept for stats in told.stats) == sum(s.rows for s in told.stats)
        if job.incremental:
            assert world.states() == states
        else:
            ends = {(key, round(window.end * MICRO)): s for (key, window), s in states.items()}
            open_ = {
                place: state
                for place, state in ends.items()
                if place[1] > round((EPOCH + latest - DELAY) * MICRO)
            }
            assert world.states() == open_
            world.batch((), latest + 100.0)
            assert world.states() == {}
        assert Counter(world.told.results) == Counter(outputs)
        assert world.told.shed == []


def test_memory_that_is_short_sends_keys_out() -> None:
    world = World(words(3), Terms(budget=800.0))
    rows = [(0.0, f"k{n % 9}", 1, 0.0) for n in range(30)]
    told = world.batch(rows)
    assert (told.stats[0].hot, told.stats[0].cold) == (3, 6)
    assert 0 < told.stats[0].hot_bytes <= 800
    again = world.batch(rows)
    assert again.stats[0].sought == 6
    assert again.stats[0].cold == 6


def test_a_budget_smaller_than_a_state_is_named() -> None:
    world = World(spelled(), Terms(budget=220.0))
    world.batch([(0.0, "a", 1, 0.0)])
    with pytest.raises(
        JobError,
        match=r"job 'spelled': the state of key 'a' takes \d+ bytes, .* gives a reducer 220",
    ):
        world.batch([(0.0, "a", 10**9, 0.0)] * 3)
    world.rollback()
    assert world.states() == {"a": " 1"}


# -- windows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", CHOICES)
@pytest.mark.parametrize("objective", [5.0, math.inf])
def test_a_row_whose_windows_are_all_closed_goes_aside(policy: str, objective: float) -> None:
    world = World(spelled_windows(("10 s", "5 s")), Terms(objective, policy))
    world.batch([(3.0, "a", 1, 0.0), (12.0, "a", 2, 0.0)], watermark=11.0)
    assert [(key, text[-2:]) for key, text in world.told.results] == [("a", " 1")] * 2
    told = world.batch([(1.0, "a", 3, 0.0), (4.0, "b", 4, 0.0)])
    assert [(row["value"], row["reason"]) for row in told.shed] == [(3, CLOSED), (4, CLOSED)]
    told = world.batch([(8.0, "a", 5, 0.0), (2.0, "a", 6, 0.0)])
    assert [(row["value"], row["reason"]) for row in told.shed] == [(6, CLOSED)]
    (stats,) = told.stats
    assert (stats.rows, stats.kept, stats.shed) == (2, 1, {CLOSED: 1})
    told = world.batch((), watermark=100.0)
    assert sorted(text.rsplit(")")[-1] for _, text in told.results) == ["  2", "  2 5"]


def test_windows_are_closed_once_the_watermark_has_passed_their_end() -> None:
    world = World(windowed_words("5 s"), Terms())
    told = world.batch([(4.9995, "a", 1, 0.0), (5.0, "a", 1, 0.0)], watermark=4.999)
    assert told.results == [], "one at 4.9995 s may still come"
    assert told.timers == [round((EPOCH + end) * 1_000) - 1 for end in (5.0, 10.0)]
    told = world.batch([(4.9999, "a", 1, 0.0)], watermark=5.0)
    assert told.results == [("a", EPOCH + 5.0, 2)]
    assert told.timers == []
    assert world.batch((), watermark=50.0).results == [("a", EPOCH + 10.0, 1)]
    assert all(store.read_head().timers == [] for store in world.stores.values())


def test_each_row_counts_once_however_many_windows_it_is_in() -> None:
    world = World(windowed_words("12 s", slide="3 s"), Terms(objective=10.0))
    told = world.batch([(float(n), "a", 1, 0.0) for n in range(5)])
    (stats,) = told.stats
    assert (stats.rows, stats.kept) == (5, 5)
    assert sum(rows for _, rows in stats.deadlines) == 5
    world.batch((), watermark=100.0)
    assert sum(row[2] for row in world.told.results) == 5 * 4


# -- what fails ------------------------------------------------------------------------------------


def add(time: float, key: Any, value: int, state: int) -> tuple[int, Any]:
    if value == 13:
        raise ValueError("13 is not counted")
    return state + value, [(key, state + value)]


def added(**changes: Any) -> Job:
    given_ = {
        "init": lambda key, window=None: 0,
        "update": add,
        "output": "key string, total bigint",
        "name": "added",
    }
    return Job(**{**given_, **changes})


ROWS = [(1.0, "a", 1, 2.0), (2.0, "b", 13, 3.0), (3.0, "a", 13, 4.0), (4.0, "b", 2, 5.0)]


def test_a_row_on_which_update_fails_is_named_and_nothing_is_kept_of_the_batch() -> None:
    world = World(added())
    world.batch([(0.0, "a", 5, 0.0)])
    with pytest.raises(
        JobError,
        match=r"job 'added': update failed with ValueError: 13 is not counted; on row \{'time': "
        r"1700000002.0, 'key': 'b', 'value': 13, 'arrival': 1700000003.0\}\. "
        r"on_error='side-output' puts such rows aside and goes on",
    ):
        world.batch(ROWS)
    world.rollback()
    assert world.states() == {"a": 5}


def test_rows_that_fail_are_not_on_time() -> None:
    world = World(added(), Terms(keep_bad=True, objective=100.0))
    told = world.batch(ROWS)
    assert (told.stats[0].kept, told.stats[0].bad, told.stats[0].results) == (4, 2, 2)
    assert [(round(at - EPOCH), n) for at, n in told.stats[0].deadlines] == [(102, 1), (105, 1)]


def test_rows_on_which_update_fails_go_aside_and_the_others_on() -> None:
    world = World(added(), Terms(keep_bad=True, objective=100.0))
    told = world.batch(ROWS)
    assert told.results == [("a", 1), ("b", 2)]
    assert world.states() == {"a": 1, "b": 2}, "as before the row"
    assert [(row["key"], row["value"], row["reason"]) for row in told.shed] == [
        ("b", 13, "update failed with ValueError: 13 is not counted"),
        ("a", 13, "update failed with ValueError: 13 is not counted"),
    ]
    assert told.shed[0]["row"] == (
        "{'time': 1700000002.0, 'key': 'b', 'value': 13, 'arrival': 1700000003.0}"
    )
    assert (told.stats[0].kept, told.stats[0].bad) == (4, 2)
    told = world.batch([(5.0, "c", 13, 5.0), (6.0, "a", 13, 6.0)])
    assert (told.results, len(told.shed)) == ([], 2)
    assert world.states() == {"a": 1, "b": 2}


def test_a_key_outside_memory_on_which_update_fails_stays_as_it_was() -> None:
    world = World(added(), Terms(keep_bad=True, budget=480.0))
    world.batch([(0.0, f"k{n}", n, 0.0) for n in range(8)])
    told = world.batch([(0.0, f"k{n}", 13, 0.0) for n in range(8)])
    assert told.stats[0].bad == 8
    assert world.states() == {f"k{n}": n for n in range(8)}


def test_rows_of_a_key_on_which_update_many_fails_go_aside_together() -> None:
    def many(times: Any, key: str, values: Any, state: int) -> tuple[int, Any]:
        if 13 in values:
            raise ValueError("13 is not counted")
        return state + int(values.sum()), None

    world = World(added(update=None, update_many=many), Terms(keep_bad=True))
    told = world.batch([*ROWS, (5.0, "c", 3, 5.0)])
    assert world.states() == {"c": 3}
    assert sorted(row["value"] for row in told.shed) == [1, 2, 13, 13]


def test_a_state_that_update_changed_in_place_before_it_failed_is_the_same_everywhere() -> None:
    def append(time: float, key: str, value: int, state: list[int]) -> tuple[list[int], None]:
        state.append(value)
        if value == 13:
            raise ValueError
        return state, None

    world = World(added(update=append, init=lambda key: [], state=list[int]), Terms(keep_bad=True))
    world.batch([(0.0, "a", 1, 0.0), (0.0, "b", 1, 0.0)])
    world.batch([(0.0, "a", 13, 0.0), (0.0, "b", 2, 0.0)])
    world.check()
    here = world.batch([(0.0, "a", 3, 0.0)])
    assert here.shed == []
    keyed.forget()
    world.batch([(0.0, "a", 4, 0.0)])
    assert world.states() == {"a": [1, 13, 3, 4], "b": [1, 2]}


@pytest.mark.parametrize(
    ("update", "said"),
    [
        (lambda t, k, v, s: s, r"update failed with TypeError: .*\(it should return the state"),
        (lambda t, k, v, s: None, r"update failed with TypeError: .*as in: return state, \[\]"),
        (lambda t, k, v, s: (s, 5), "update failed with TypeError: 'int' object is not iterable"),
        (lambda t, k, v, s: (s, [(k,)]), r"update gave the row \('a',\): a tuple of 2 is needed"),
        (lambda t, k, v, s: (s, (k, v)), "update gave the row 'a': a tuple of 2 is needed"),
        (lambda t, k, v, s: (s, [(v, v)]), r"update gave 1 \(int\) for output 'key': string"),
        (lambda t, k, v, s: ((s, s), None), r"key 'a' is \(0, 0\) \(tuple\): say state="),
        (lambda t, k, v, s: (add, None), "the state of key 'a', <function .*cannot be stored"),
    ],
)
def test_what_update_must_not_give(update: Any, said: str) -> None:
    world = World(added(update=update))
    with pytest.raises(JobError, match=f"job 'added': .*{said}"):
        world.batch([(0.0, "a", 1, 0.0)])
    world.rollback()
    assert world.states() == {}


def test_a_state_of_another_type_than_in_the_checkpoint_is_named() -> None:
    world = World(added(state=int))
    world.batch([(0.0, "a", 1, 0.0)])
    keyed.forget()
    world.job = added(state=list[int])
    with pytest.raises(JobError, match=r"job 'added': a stored state is no list\[int\]: .*state="):
        world.attempt([(0.0, "b", 1, 0.0)])


def test_also_by_a_worker_that_has_a_copy() -> None:
    world = World(added(state=int))
    world.batch([(0.0, "a", 1, 0.0)])
    world.job = added(state=list[int])
    with pytest.raises(JobError, match=r"job 'added': a stored state is no list\[int\]"):
        world.attempt([(0.0, "a", 1, 0.0)])
    world.rollback()
    world.job = added()
    world.batch([(0.0, "a", 1, 0.0)])
    assert world.states() == {"a": 2}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (spelled(), spelled(key="binary"), "has str keys, and now it is bytes keys"),
        (
            spelled_windows("7 s"),
            spelled_windows("8 s"),
            "has str keys in windows of 7 s every 7 s, from 0 s on, and now it is str keys in "
            "windows of 8 s",
        ),
        (spelled_windows("7 s"), spelled_windows(("7 s", "2 s")), "every 2 s"),
        (spelled(), spelled_windows("7 s"), "now it is str keys in windows"),
    ],
)
def test_keys_that_would_not_find_their_states_are_refused(
    before: Job, after: Job, said: str
) -> None:
    world = World(before)
    world.batch([(0.0, "a", 1, 0.0)])
    world.job = after
    row = (0.0, b"a" if after.key == "binary" else "a", 1, 0.0)
    with pytest.raises(JobError, match=f"job 'spelled': its checkpoint .*{said}.*as they were"):
        world.attempt([row])
    world.rollback()
    world.job = before
    world.batch([(0.0, "a", 1, 0.0)])
    assert list(world.states().values()) == [" 1 1"]


def test_a_window_on_which_finalize_fails_is_named_or_goes_aside() -> None:
    def finalize(key: str, window: Any, state: int) -> list[Any]:
        if key == "b":
            raise ZeroDivisionError("no b")
        return [(key, state)]

    failing = added(window="5 s", finalize=finalize, update=lambda t, k, v, s: (s + v, None))
    rows = [(1.0, "a", 1, 0.0), (2.0, "b", 2, 0.0), (8.0, "b", 3, 0.0)]
    world = World(failing)
    world.batch(rows)
    with pytest.raises(
        JobError,
        match=r"job 'added': finalize failed with ZeroDivisionError: no b; on \{'key': 'b', "
        r"'window': \(1700000000.0, 1700000005.0\), 'state': 2\}\. on_error='side-output'",
    ):
        world.batch((), watermark=6.0)
    world.rollback()
    assert len(world.states()) == 3

    world = World(failing, Terms(keep_bad=True))
    world.batch(rows)
    told = world.batch((), watermark=6.0)
    assert told.results == [("a", 1)]
    (aside,) = told.shed
    assert aside["reason"] == "finalize failed with ZeroDivisionError: no b"
    assert "'state': 2" in aside["row"]
    assert aside["key"] == "b"
    assert world.states() == {("b", round((EPOCH + 10.0) * MICRO)): 3}


def test_finalize_that_gives_rows_that_do_not_fit() -> None:
    wrong = added(window="5 s", finalize=lambda key, window, state: [(key, key)])
    world = World(wrong)
    world.batch([(1.0, "a", 1, 0.0)])
    with pytest.raises(
        JobError, match=r"job 'added': finalize gave 'a' \(str\) for output 'total'"
    ):
        world.batch((), watermark=6.0)


def test_rows_that_cannot_be_mapped_are_told_with_the_batch() -> None:
    world = World(added(), Terms(keep_bad=True))
    told = world.batch([(0.0, None, 1, 0.0), (None, "a", 2, 0.0), (0.0, "a", 3, 0.0)])
    assert sorted(row["reason"] for row in told.shed) == [
        "the row has no key",
        "the row has no time",
    ]
    assert told.results == [("a", 3)]


@STEADY
@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 20), st.sampled_from("ab"), st.integers(0, 5)),
                 max_size=12),
        min_size=1, max_size=4,
    ),
    form=st.sampled_from(["update", "update_many"]),
    in_place=st.booleans(),
    tight=st.booleans(),
)  # fmt: skip
def test_a_row_that_fails_in_one_of_its_windows_counts_in_none(
    batches: list[list[tuple[int, str, int]]], form: str, in_place: bool, tight: bool
) -> None:
    def update(times: Any, key: str, given_: Any, state: list[int]) -> tuple[list[int], Any]:
        if not in_place:
            state = list(state)
        for value in given_:
            state.append(int(value))
            # it depends on what the window has
            if value % 6 == 3 and len(state) > 2:
                raise ValueError("no three there")
        return state, None

    functions = {"update_many": update}
    if form == "update":
        functions = {"update": lambda t, k, v, s: update(None, k, [v], s)}  # type: ignore[dict-item]  # another form
    windows = ("6 s", "2 s")
    sliding = Job(
        init=lambda key, window: [], state=list[int], output="key string, end double, value bigint",
        window=windows, name="sliding", **functions,
        finalize=lambda key, window, state: [(key, window.end, value) for value in state],
    )  # fmt: skip
    world = World(sliding, Terms(keep_bad=True, budget=900.0 if tight else math.inf))
    values, number = [], 0
    for batch in batches:
        rows = []
        for time, key, value in batch:
            number += 1
            rows.append((float(time), key, 6 * number + value, float(number)))
        values += [row[2] for row in rows]
        world.batch(rows)
        keyed.forget()
    world.batch((), watermark=1_000.0)
    aside = Counter(row["value"] for row in world.told.shed)
    counted = Counter(value for _, _, value in world.told.results)
    assert set(aside.values()) <= {1}
    for value in values:
        assert (aside[value], counted[value]) in ((1, 0), (0, 3)), value
    assert len(aside) == sum(stats.bad for stats in world.told.stats)

"""Rows into states: what functions get, what they may give, and what becomes of a failure."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import JobError
from taut.spark.reduce.fold import Folded, Work, as_array, as_columns, finalized, fold
from taut.spark.reduce.job import MICRO, Job, Span

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)


def job(**changes: Any) -> Job:
    given_: dict[str, Any] = {
        "init": lambda key, window=None: 0,
        "output": "word string, n bigint",
        "name": "sums",
    }
    if "update_many" not in changes:
        given_["update"] = add
    return Job(**{**given_, **changes})


def add(time: float, key: Any, value: int, state: int) -> tuple[int, list[Any]]:
    if value < 0:
        raise ValueError(f"{value} is below 0")
    return state + value, [(key, state + value)]


def add_many(times: Any, key: Any, values: Any, state: int) -> tuple[int, list[Any]]:
    if (values < 0).any():
        raise ValueError("below 0")
    return state + int(values.sum()), [(key, state + int(values.sum()))]


def run(of: Job, rows: list[tuple[Any, Any]], states: dict[Any, Any], kind: Any = None) -> Folded:
    """Fold pairs of name and value; the n-th row is of second n."""
    names = list(dict.fromkeys(name for name, _ in rows))
    codes = np.array([names.index(name) for name, _ in rows], np.int64)
    times = np.arange(len(rows), dtype=np.int64) * MICRO
    values = pa.array([value for _, value in rows], kind or of.value_type)
    return fold(of, Work(names, codes, times, values), states)


def test_functions_get_seconds_keys_values_and_states() -> None:
    seen: list[Any] = []

    def update(*given_: Any) -> tuple[int, None]:
        seen.append(given_)
        return given_[3] + 1, None

    states = {"a": 5}
    done = run(job(update=update), [("a", 1), ("b", None), ("a", 3)], states)
    assert seen == [(0.0, "a", 1, 5), (1.0, "b", None, 0), (2.0, "a", 3, 6)]
    assert states == {"a": 7, "b": 1}
    assert done.changed == {"a": 2, "b": 1}
    assert (done.out, done.places, done.bad) == ([], [], {})


def test_functions_of_windows_get_the_key_alone_and_begin_with_the_window() -> None:
    begun: list[Any] = []

    def init(key: str, window: Span) -> int:
        begun.append((key, window))
        return 0

    of = job(init=init, window="2 s", finalize=lambda key, window, state: [(key, int(window.end))])
    states: dict[Any, Any] = {}
    done = run(of, [(("a", 2 * MICRO), 1), (("a", 4 * MICRO), 1), (("a", 4 * MICRO), 1)], states)
    assert begun == [("a", Span(0.0, 2.0)), ("a", Span(2.0, 4.0))]
    assert states == {("a", 2 * MICRO): 1, ("a", 4 * MICRO): 2}
    assert done.out == [("a", 1), ("a", 1), ("a", 2)]
    assert finalized(of, ("a", 4 * MICRO), 2) == [("a", 4)]
    none = job(init=init, window="2 s", finalize=lambda *_: None)
    assert finalized(none, ("a", 4 * MICRO), 2) == []


def test_a_function_on_arrays_gets_the_rows_of_a_key_in_order() -> None:
    seen: list[Any] = []

    def update(times: Any, key: Any, values: Any, state: int) -> tuple[int, Any]:
        seen.append((times.tolist(), key, values.tolist(), values.dtype))
        return state + len(values), ((key, int(v)) for v in values)

    states = {"b": 10}
    done = run(job(update_many=update), [("a", 5), ("b", 6), ("a", 7)], states)
    assert seen == [([0.0, 2.0], "a", [5, 7], np.int64), ([1.0], "b", [6], np.int64)]
    assert states == {"a": 2, "b": 11}
    assert done.out == [("a", 5), ("a", 7), ("b", 6)]
    assert done.places == [2, 2, 1], "they come with the last of their rows"


@pytest.mark.parametrize(
    ("kind", "values", "dtype"),
    [
        (pa.int32(), [1, 2], np.int32),
        (pa.float64(), [1.5, 2.5], np.float64),
        (pa.bool_(), [True, False], np.bool_),
        (pa.int64(), [1, None], np.object_),
        (pa.string(), ["a", None], np.object_),
        (pa.list_(pa.int64()), [[1, 2], [3, 4]], np.object_),
        (pa.list_(pa.int64()), [[1, 2]], np.object_),
        (pa.struct([("a", pa.int64())]), [{"a": 1}, {"a": 2}], np.object_),
        (pa.timestamp("us"), [datetime.datetime(2024, 1, 1)] * 2, np.object_),
        (pa.int64(), [], np.int64),
        (pa.string(), [], np.object_),
    ],
)
def test_values_as_arrays(kind: pa.DataType, values: list[Any], dtype: Any) -> None:
    array = as_array(pa.array(values, kind))
    assert array.dtype == dtype
    assert array.shape == (len(values),)
    assert array.tolist() == values


# -- failures --------------------------------------------------------------------------------------


def test_a_row_that_fails_changes_nothing_and_the_others_go_on() -> None:
    states = {"a": 1}
    done = run(job(), [("a", 1), ("a", -1), ("b", -1), ("a", 5)], states)
    assert states == {"a": 7}
    assert done.out == [("a", 2), ("a", 7)]
    assert done.places == [0, 3]
    assert done.bad == dict.fromkeys([1, 2], "update failed with ValueError: -1 is below 0")
    assert done.changed == {"a": 2}


def test_rows_of_a_failure_halfway_do_not_come_out() -> None:
    def update(time: float, key: str, value: int, state: int) -> Any:
        def rows() -> Any:
            yield key, 1
            if value < 0:
                raise ValueError("no more")

        return state + 1, rows()

    states: dict[Any, Any] = {}
    done = run(job(update=update), [("a", 1), ("a", -1), ("a", 1)], states)
    assert (done.out, done.places) == ([("a", 1)] * 2, [0, 2])
    assert states == {"a": 2}
    assert [*done.bad] == [1]


def test_where_a_function_on_arrays_fails_all_rows_of_the_key_do() -> None:
    states = {"a": 1, "b": 1}
    done = run(job(update_many=add_many), [("a", 1), ("b", 2), ("a", -1)], states)
    assert states == {"a": 1, "b": 3}
    assert done.bad == dict.fromkeys([0, 2], "update_many failed with ValueError: below 0")
    assert done.changed == {"a": 0, "b": 1}


@pytest.mark.parametrize("given_", [None, 3, (1,), (1, [], 2)])
@pytest.mark.parametrize("form", ["update", "update_many"])
def test_what_is_no_pair_of_state_and_rows(given_: Any, form: str) -> None:
    done = run(job(**{form: lambda time, key, value, state: given_}), [("a", 1)], {})
    assert done.bad[0].startswith(f"{form} failed with ")
    assert done.bad[0].endswith("(it should return the state and rows, as in: return state, [])")


def test_init_that_fails() -> None:
    done = run(job(init=lambda key: 1 // 0), [("a", 1)], {})
    assert done.bad == {
        0: "update failed with ZeroDivisionError: integer division or modulo by zero"
    }
    assert done.changed == {}


@pytest.mark.parametrize("form", ["update", "update_many"])
def test_a_state_changed_in_place_before_a_failure_is_stored_as_it_is_in_memory(form: str) -> None:
    def update(time: Any, key: Any, value: Any, state: list[int]) -> Any:
        state.append(1)
        raise ValueError

    states: dict[Any, Any] = {"a": [0]}
    of = job(**{form: update}, state=list[int], init=lambda key: [])
    done = run(of, [("a", 1), ("b", 1)], states)
    assert states == {"a": [0, 1]}
    assert done.changed == {"a": 0}, "or another worker would go on with another state"


@STEADY
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 5)), max_size=30),
    st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)),
)
def test_as_row_by_row(rows: list[tuple[str, int]], before: dict[str, int]) -> None:
    states, plain = dict(before), dict(before)
    done = run(job(), rows, states)
    out = []
    for name, value in rows:
        if value >= 0:
            plain[name] = plain.get(name, 0) + value
            out.append((name, plain[name]))
    assert states == plain
    assert done.out == out
    assert [*done.bad] == [at for at, (_, value) in enumerate(rows) if value < 0]
    many = dict(before)
    good = [row for row in rows if row[1] >= 0]
    run(job(update_many=add_many), good, many)
    assert many == plain


# -- rows that come out ----------------------------------------------------------------------------


def test_rows_by_column() -> None:
    words, totals = as_columns(job(), [("a", 1), ["b", None]], "update")
    assert (words.to_pylist(), totals.to_pylist()) == (["a", "b"], [1, None])
    (totals,) = as_columns(job(output="n bigint"), [1, (2,)], "update")
    assert totals.to_pylist() == [1, 2]
    assert [len(column) for column in as_columns(job(), [], "update")] == [0, 0]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("a",), r"update gave the row \('a',\): a tuple of 2 is needed, for output word, n"),
        ("ab", "update gave the row 'ab': a tuple of 2 is needed"),
        (("a", 1, 2), r"update gave the row \('a', 1, 2\): a tuple of 2"),
        (None, "update gave the row None: a tuple of 2"),
        (
            ("a", "b"),
            r"update gave 'b' \(str\) for output 'n': int64 is needed; in row \('a', 'b'\)",
        ),
        ((1, 1), r"update gave 1 \(int\) for output 'word': string is needed; in row \(1, 1\)"),
        (("a", 1.5), r"update gave 1.5 \(float\) for output 'n'"),
    ],
)
def test_rows_that_do_not_fit_are_named(row: Any, said: str) -> None:
    with pytest.raises(JobError, match=f"job 'sums': {said}"):
        as_columns(job(), [("good", 1), row], "update")


def test_a_column_that_takes_no_nulls() -> None:
    strict = job(output="n bigint not null")
    with pytest.raises(JobError, match=r"gave None \(NoneType\) for output 'n': int64 not null is"):
        as_columns(strict, [None], "finalize")


@pytest.mark.parametrize("many", [False, True])
def test_text_is_no_list_of_rows(many: bool) -> None:
    def update(time: Any, key: Any, value: Any, state: int) -> tuple[int, str]:
        return state, "abc"

    form: dict[str, Any] = {"update_many": update} if many else {"update": update}
    job = Job(init=lambda key: 0, output="word string", **form)
    work = Work(["a"], np.zeros(1, np.int64), np.zeros(1, np.int64), pa.array([1]))
    (reason,) = fold(job, work, {}).bad.values()
    assert "'abc' are no rows: a list of them is needed" in reason

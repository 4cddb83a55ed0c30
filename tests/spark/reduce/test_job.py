"""What a job may be, the order of several, and the arithmetic of windows."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import JobError, TautError
from taut.spark.reduce.job import MICRO, Job, Span, Windows, is_plain, order
from taut.spark.window import Window
from taut.workloads.reduce import windowed_words, words

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=300)


def nothing(*_: Any) -> int:
    return 0


def same(time: float, key: Any, value: Any, state: Any) -> tuple[Any, None]:
    return state, None


GOOD: dict[str, Any] = {"init": nothing, "update": same, "output": "n bigint"}


def job(**changes: Any) -> Job:
    return Job(**{**GOOD, **changes})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": "two words"}, "name='two words': letters, digits and _ are needed"),
        ({"name": ""}, "name='': letters"),
        ({"name": 7}, "name=7: letters"),
        ({"update": None}, "either update or update_many is needed, and not both"),
        ({"update_many": same}, "either update or update_many is needed, and not both"),
        ({"finalize": nothing}, "finalize is called at the end of a window: window= is missing"),
        ({"window": "3 s"}, r"window= needs finalize\(key, window, state\)"),
        ({"init": 0}, "init=0: a function is needed"),
        ({"update": "sum"}, "update='sum': a function is needed"),
        ({"map": [1]}, r"map=\[1\]: a function is needed"),
        ({"window": "3 s", "finalize": 3}, "finalize=3: a function is needed"),
        ({"update": None, "update_many": 1}, "update_many=1: a function is needed"),
        ({"after": "words"}, "after='words': map= is needed, to make keys of its rows"),
        ({"key": "double"}, "key='double': text, bytes, whole numbers, .* make one of them in map"),
        ({"key": "array<int>"}, "key='array<int>': text, bytes"),
        ({"key": "decimal(5,2)"}, r"key='decimal\(5,2\)': text"),
        ({"key": "sting"}, "key: .*sting"),
        ({"value": "bigit"}, "value: .*bigit"),
        ({"output": "n bigit"}, "output: .*bigit"),
        ({"output": "n bigint, n int"}, "output: .*a name comes twice"),
        ({"output": {}}, r"output={}: at least one column is needed"),
        ({"output": 5}, "output: schema 5: text such as"),
        ({"window": "3 moons", "finalize": nothing}, "3 moons"),
        ({"window": ("2 s", "3 s"), "finalize": nothing}, "slide must be above 0 and at most"),
        ({"window": (), "finalize": nothing}, r"window=\(\): give a length"),
        ({"window": Window(1.0005, 1.0005), "finalize": nothing}, "1.0005 s: whole milliseconds"),
    ],
)
def test_refusals_name_what_was_given_and_what_would_be_right(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(TautError, match=said):
        job(**changes)


@pytest.mark.parametrize(
    "key",
    ["string", "binary", "int", "bigint", "boolean", "date", "timestamp", "timestamp_ntz"],
)
def test_keys_of_every_exact_type(key: str) -> None:
    assert job(key=key).key_type in (
        pa.string(), pa.binary(), pa.int32(), pa.int64(), pa.bool_(), pa.date32(),
        pa.timestamp("us", "UTC"), pa.timestamp("us"),
    )  # fmt: skip


def test_a_job_is_pickled_without_what_is_read_from_it() -> None:
    plain = words(3)
    assert plain.schema.names == ["word", "total"]
    again = pickle.loads(pickle.dumps(plain))
    assert again.schema == plain.schema
    assert (again.key_type, again.value_type) == (pa.string(), pa.int64())
    windowed = pickle.loads(pickle.dumps(windowed_words("30 s", slide="10 s")))
    assert windowed.windows.slide_us == 10 * MICRO
    assert not windowed.incremental


def test_which_states_are_kept_as_they_are() -> None:
    assert all(map(is_plain, (1, 1.5, "a", b"a", True, None)))
    assert not any(map(is_plain, ((1,), [1], {"a": 1}, {1}, nothing, np.int64(1))))


# -- order -------------------------------------------------------------------------------------


def named(name: str, after: str | None = None) -> Job:
    return job(name=name, after=after, map=None if after is None else nothing)


def names(levels: list[list[Job]]) -> list[list[str]]:
    return [[each.name for each in level] for level in levels]


def test_jobs_by_level() -> None:
    given_ = [named("d", "b"), named("b", "a"), named("a"), named("c", "a"), named("e")]
    assert names(order(given_)) == [["a", "e"], ["b", "c"], ["d"]]
    assert names(order([named("a")])) == [["a"]]


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ([], "no job was given"),
        ([named("a"), named("a")], "two jobs are called 'a': give each a name="),
        ([named("a"), named("b", "x")], "job 'b': after='x': there are a, b"),
        ([named("a", "a")], "jobs a wait for each other"),
        ([named("a"), named("b", "d"), named("c", "b"), named("d", "c")], "jobs b, c, d wait"),
    ],
)
def test_orders_that_there_are_not(jobs: list[Job], said: str) -> None:
    with pytest.raises(JobError, match=said):
        order(jobs)


# -- windows -----------------------------------------------------------------------------------

MILLIS = st.integers(1, 60_000)
WINDOWS = st.builds(
    lambda length, slide, start: Windows(
        Window(length / 1e3, min(slide, length) / 1e3, start / 1e3)
    ),
    MILLIS,
    MILLIS,
    st.integers(-100_000, 100_000),
)


def by_definition(windows: Windows, time_us: int) -> list[int]:
    """Ends of all windows [start + i slide, start + i slide + length) that hold a time."""
    start, length = round(windows.window.start * MICRO), windows.length_us
    slide = windows.slide_us
    near = (time_us - start) // slide
    reach = length // slide + 2
    begins = (start + i * slide for i in range(near - reach, near + reach))
    return [begin + length for begin in begins if begin <= time_us < begin + length]


@STEADY
@given(WINDOWS, st.integers(-(10**9), 10**9) | st.integers(0, 2 * 10**15))
def test_the_windows_of_a_time_are_those_of_the_definition(windows: Windows, time_us: int) -> None:
    first = windows.first_end(time_us)
    ends = [first + i * windows.slide_us for i in range(windows.most)]
    held = [end for end in ends if windows.holds(end, time_us)]
    assert held == by_definition(windows, time_us)
    assert first - windows.slide_us <= time_us < first


@STEADY
@given(WINDOWS, st.lists(st.integers(-(10**12), 10**15), min_size=1, max_size=20))
def test_arrays_of_times_are_as_one_by_one(windows: Windows, times: list[int]) -> None:
    together = windows.first_end(np.array(times, np.int64))
    assert together.tolist() == [windows.first_end(time) for time in times]


def test_edges_belong_to_the_window_that_they_begin() -> None:
    windows = Windows(Window(10.0, 10.0, 3.0))
    assert windows.first_end(13 * MICRO - 1) == 13 * MICRO
    assert windows.first_end(13 * MICRO) == 23 * MICRO
    assert windows.span(23 * MICRO) == Span(13.0, 23.0)
    assert (windows.most, Windows(Window(10.0, 4.0)).most) == (1, 3)


def test_columns_that_taut_adds_are_taken() -> None:
    with pytest.raises(JobError, match="output: 'taut_time' is a name of Taut's"):
        Job(init=lambda key: 0, update=lambda *row: (0, None), output="taut_time bigint")

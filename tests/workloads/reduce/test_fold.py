from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.spark.reduce.job import Job, Span, Windows
from taut.spark.window import Window
from taut.workloads.reduce.fold import fold, spans


def gather(time: float, key: str, value: int, state: list[int]) -> tuple[list[int], None]:
    return [*state, value], None


def windowed(window: str | tuple[str, ...]) -> Job:
    return Job(
        init=lambda key, window: [],
        update=gather,
        finalize=lambda key, window, state: [(key, window.start, window.end, sum(state))],
        output="key string, start double, end double, total bigint",
        state=list[int],
        window=window,
    )


def test_updates_come_in_the_order_of_the_rows() -> None:
    job = Job(
        init=lambda key: "",
        update=lambda time, key, value, state: (state + str(value), [(key, state + str(value))]),
        output="key string, seen string",
    )
    outputs, states = fold(job, [(2.0, "a", 1), (1.0, "a", 2), (3.0, "b", 3)])
    assert outputs == [("a", "1"), ("a", "12"), ("b", "3")]
    assert states == {"a": "12", "b": "3"}


def test_nothing_comes_of_nothing() -> None:
    assert fold(windowed("10 s"), []) == ([], {})


def test_map_may_give_none_one_or_many_rows_which_keep_their_time() -> None:
    job = Job(
        map=lambda time, key, value: [(f"{key}{i}", i) for i in range(value)],
        init=lambda key: 0.0,
        update=lambda time, key, value, state: (max(state, time), None),
        output="key string",
    )
    _, states = fold(job, [(1.0, "a", 0), (2.0, "b", 1), (3.0, "c", 2)])
    assert states == {"b0": 2.0, "c0": 3.0, "c1": 3.0}


def test_bare_values_and_no_rows_at_all() -> None:
    job = Job(
        init=lambda key: 0,
        update=lambda time, key, value, state: (state + value, [state + value] if value else None),
        output="total bigint",
    )
    assert fold(job, [(0.0, "a", 1), (0.0, "a", 0), (0.0, "a", 2)])[0] == [(1,), (3,)]


def test_update_many_gets_arrays_of_one_row() -> None:
    seen = []

    def many(times, key, values, state):  # type: ignore[no-untyped-def]  # arrays of any kind
        seen.append((times.tolist(), key, values.tolist(), values.dtype.kind))
        return state + 1, [(key, state + 1)]

    job = Job(init=lambda key: 0, update_many=many, output="key string, n bigint")
    assert fold(job, [(1.5, "a", 7), (2.5, "a", 8)]) == ([("a", 1), ("a", 2)], {"a": 2})
    assert seen == [([1.5], "a", [7], "i"), ([2.5], "a", [8], "i")]


def test_tumbling_windows_hold_their_start_and_not_their_end() -> None:
    rows = [(10.0, "a", 1), (9.999999, "a", 2), (20.0, "a", 4), (0.0, "a", 8), (20.5, "b", 16)]
    outputs, states = fold(windowed("10 s"), rows)
    assert outputs == [
        ("a", 0.0, 10.0, 10),
        ("a", 10.0, 20.0, 1),
        ("a", 20.0, 30.0, 4),
        ("b", 20.0, 30.0, 16),
    ]
    assert states["a", Span(0.0, 10.0)] == [2, 8]


def test_windows_come_in_order_of_their_ends_then_of_their_first_rows() -> None:
    rows = [(25.0, "x", 1), (5.0, "z", 2), (5.0, "a", 3), (24.0, "a", 4)]
    outputs, _ = fold(windowed("10 s"), rows)
    assert [(key, end) for key, _, end, _ in outputs] == [
        ("z", 10.0),
        ("a", 10.0),
        ("x", 30.0),
        ("a", 30.0),
    ]


def test_sliding_windows_with_a_start() -> None:
    rows = [(11.0, "a", 1), (13.0, "a", 2), (13.5, "a", 4)]
    # windows of 5 s every 2 s that start at ..., 5, 7, 9, 11, 13, ...
    outputs, _ = fold(windowed(("5 s", "2 s", "1 s")), rows)
    assert [row[1:] for row in outputs] == [
        (7.0, 12.0, 1),
        (9.0, 14.0, 7),
        (11.0, 16.0, 7),
        (13.0, 18.0, 6),
    ]


@given(
    st.integers(-(10**9), 4 * 10**15),
    st.integers(1, 60_000),
    st.integers(1, 60_000),
    st.integers(0, 60_000),
)
def test_windows_are_those_that_the_job_counts_with(
    at: int, one_ms: int, other_ms: int, start_ms: int
) -> None:
    slide_ms, length_ms = sorted((one_ms, other_ms))
    slide_ms = max(slide_ms, length_ms // 50)
    windows = Windows(Window(length_ms / 1e3, slide_ms / 1e3, start_ms / 1e3))
    held = spans(windows, at / 1e6)
    first = windows.first_end(at)
    ends = [first + i * windows.slide_us for i in range(windows.most)]
    assert held == [windows.span(end) for end in ends if windows.holds(end, at)]
    for span in held:
        assert round(span.start * 1e6) <= at < round(span.end * 1e6)
    assert length_ms // slide_ms <= len(held) <= windows.most


def test_an_error_of_the_job_is_the_folds() -> None:
    job = Job(
        init=lambda key: 0,
        update=lambda time, key, value, state: (1 // value, None),
        output="n bigint",
    )
    with pytest.raises(ZeroDivisionError):
        fold(job, [(0.0, "a", 0)])

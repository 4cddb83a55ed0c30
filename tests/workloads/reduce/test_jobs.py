from __future__ import annotations

import pickle
from collections import Counter

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.spark.reduce.job import Job
from taut.workloads import WorkloadError
from taut.workloads.reduce import Session, sessions, split_words, windowed_words, words
from taut.workloads.reduce.fold import fold

JOBS = [
    words(),
    words(10, lines=True),
    words(10, vectorised=True),
    windowed_words(),
    windowed_words("10 s", slide="5 s", vectorised=True),
    sessions(),
]


@pytest.mark.parametrize("job", JOBS, ids=repr)
def test_a_job_can_be_pickled_without_help(job: Job) -> None:
    again = pickle.loads(pickle.dumps(job))
    assert again.schema == job.schema
    assert again.init("a", *[None] * (job.window is not None)) == job.init("a")


@pytest.mark.parametrize("job", JOBS, ids=repr)
def test_a_state_survives_its_type(job: Job) -> None:
    state = job.init("a")
    packed = msgspec.msgpack.encode(state)
    assert msgspec.msgpack.decode(packed, type=job.state) == state


def test_a_word_comes_out_at_each_multiple_of_the_threshold() -> None:
    rows = [(float(i), "even" if i % 2 == 0 else "odd", 1) for i in range(13)]
    outputs, states = fold(words(threshold=3), rows)
    assert outputs == [("even", 3), ("odd", 3), ("even", 6), ("odd", 6)]
    assert states == {"even": 7, "odd": 6}


def test_each_multiple_passed_at_once_is_a_row() -> None:
    outputs, states = fold(words(threshold=10), [(0.0, "a", 9), (1.0, "a", 25), (2.0, "a", 0)])
    assert outputs == [("a", 10), ("a", 20), ("a", 30)]
    assert states == {"a": 34}


@given(
    st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=8),
    st.integers(1, 12),
    st.integers(0, 100),
)
def test_both_forms_of_the_count_give_the_same_however_rows_are_cut(
    batches: list[list[int]], threshold: int, before: int
) -> None:
    plain, many = words(threshold).update, words(threshold, vectorised=True).update_many
    assert plain is not None
    assert many is not None
    state, rows = before, []
    state_many, rows_many = before, []
    for batch in batches:
        for n in batch:
            state, out = plain(0.0, "a", n, state)
            rows += out or []
        times = np.zeros(len(batch))
        state_many, out = many(times, "a", np.array(batch, dtype=np.int64), state_many)
        rows_many += out or []
    assert (state_many, rows_many) == (state, rows)
    assert type(state_many) is int, "a number of numpy's cannot be kept"
    assert [total for _, total in rows] == [
        total for total in range(before + 1, state + 1) if total % threshold == 0
    ]


def test_lines_are_split_into_words_in_lower_case() -> None:
    line = "Don't  panic: it’s 42, über-easy_ #go!"  # noqa: RUF001  # a true apostrophe
    found = [word for word, _ in split_words(0.0, None, line)]
    assert found == ["don't", "panic", "it’s", "42", "über", "easy_", "go"]  # noqa: RUF001
    assert split_words(0.0, None, " ... ") == []
    outputs, _ = fold(words(2, lines=True), [(0.0, None, "a b A"), (1.0, None, "B")])
    assert outputs == [("a", 2), ("b", 2)]


@pytest.mark.parametrize("vectorised", [False, True])
def test_words_by_window(vectorised: bool) -> None:
    rows = [(1.0, "a", 1), (29.999999, "b", 1), (2.0, "a", 1), (30.0, "a", 1)]
    outputs, _ = fold(windowed_words("30 s", vectorised=vectorised), rows)
    assert outputs == [("a", 30.0, 2), ("b", 30.0, 1), ("a", 60.0, 1)]


def test_a_session_is_over_when_its_user_comes_back_after_the_gap() -> None:
    clicks = [(0.0, 1, 5), (30.0, 1, 5), (10.0, 2, 5), (60.000001, 1, 6), (61.0, 1, 7)]
    outputs, states = fold(sessions("30 s"), clicks)
    assert outputs == [(1, 0.0, 30.0, 2)]
    assert states == {1: Session(60.000001, 61.0, 2), 2: Session(10.0, 10.0, 1)}


@pytest.mark.parametrize("at", [1_790_000_000.000001, 1_790_000_000.100003, 893_964_000.999999])
def test_the_gap_is_exact_to_the_microsecond(at: float) -> None:
    def came(later_us: int) -> float:
        return (round(at * 1e6) + later_us) / 1e6

    for later_us, over in ((30_000_000, 0), (30_000_001, 1)):
        outputs, _ = fold(sessions("30 s"), [(came(0), 1, 0), (came(later_us), 1, 0)])
        assert len(outputs) == over


def test_clicks_out_of_order_do_not_break_a_session() -> None:
    clicks = [(100.0, 1, 0), (140.0, 1, 0), (125.0, 1, 0), (160.0, 1, 0), (135.0, 1, 0)]
    outputs, states = fold(sessions("30 s"), clicks)
    assert outputs == [(1, 100.0, 100.0, 1)]
    assert states == {1: Session(125.0, 160.0, 4)}
    outputs, states = fold(sessions("30 s"), [*clicks, (94.0, 1, 0)])
    assert outputs[1:] == [(1, 94.0, 94.0, 1)], "from longer ago: a session by itself"
    assert states == {1: Session(125.0, 160.0, 4)}


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 3)), max_size=60))
def test_every_click_is_in_one_session(clicks: list[tuple[int, int]]) -> None:
    outputs, states = fold(sessions("30 s"), [(float(t), user, 0) for t, user in clicks])
    counted: Counter[int] = Counter()
    for user, began, ended, number in outputs:
        assert began <= ended
        counted[user] += number
    for user, state in states.items():
        counted[user] += state.clicks
    assert counted == Counter(user for _, user in clicks)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 3)), max_size=60))
def test_in_order_sessions_are_those_cut_at_the_gaps(clicks: list[tuple[int, int]]) -> None:
    rows = [(float(t), user, 0) for t, user in sorted(clicks)]
    outputs, states = fold(sessions("30 s"), rows)
    got = sorted([*outputs, *((user, *msgspec.structs.astuple(s)) for user, s in states.items())])
    expected = []
    for user in {user for _, user in clicks}:
        run: list[float] = []
        for time in [t for t, who, _ in rows if who == user]:
            if run and time - run[-1] > 30.0:
                expected.append((user, run[0], run[-1], len(run)))
                run = []
            run.append(time)
        expected.append((user, run[0], run[-1], len(run)))
    assert got == sorted(expected)


@pytest.mark.parametrize(
    ("make", "option"),
    [
        (lambda: words(0), "threshold=0"),
        (lambda: words(2.5), "threshold=2.5"),
        (lambda: windowed_words("soon"), "length='soon'"),
        (lambda: windowed_words("10 s", slide="0 s"), "slide='0 s'"),
        (lambda: sessions("0 s"), "gap='0 s'"),
        (lambda: sessions(None), "gap=None"),
    ],
)
def test_refuses(make, option: str) -> None:  # type: ignore[no-untyped-def]  # any of the jobs
    with pytest.raises(WorkloadError, match=option):
        make()

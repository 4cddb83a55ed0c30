"""Keys and states as bytes, and back as they were."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import JobError
from taut.spark.reduce.codec import Codec, Cold, Part
from taut.spark.reduce.job import Job

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)


def job(**changes: Any) -> Job:
    given_ = {
        "init": lambda key, window=None: 0,
        "update": lambda time, key, value, state: (state, None),
        "output": "n bigint",
        "name": "sums",
    }
    return Job(**{**given_, **changes})


def windowed(**changes: Any) -> Job:
    return job(window="1 s", finalize=lambda key, window, state: [], **changes)


class Visit(msgspec.Struct, frozen=True):
    clicks: int
    pages: tuple[str, ...] = ()


@dataclasses.dataclass
class Both:
    low: float
    high: float | None = None


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
)


@STEADY
@given(PLAIN)
def test_plain_states_come_back_as_they_were(state: object) -> None:
    codec = Codec(job())
    again = codec.read_state(codec.state("k", state))
    assert again == state
    assert type(again) is type(state)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (list[int], [1, 2]),
        (tuple[int, str], (1, "a")),
        (dict[str, float], {"a": 1.5}),
        (set[int], {1, 2}),
        (Visit, Visit(3, ("a", "b"))),
        (Both, Both(1.0)),
        (float, 0),
        (int | None, None),
        (list[Visit], [Visit(1)]),
        (datetime.datetime, datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)),
    ],
)
def test_states_of_a_stated_type_come_back_as_they_were(kind: Any, state: Any) -> None:
    codec = Codec(job(state=kind))
    assert codec.read_state(codec.state("k", state)) == state


@pytest.mark.parametrize(
    ("state", "suggested"),
    [
        ((1, 2), r"state=tuple\[int, int\]"),
        ([1], r"state=list\[int\]"),
        ({1}, r"state=set\[int\]"),
        ({"a": 1}, r"state=dict\[str, int\]"),
        (Visit(1), "state=Visit"),
        (Both(1.0), "state=Both"),
    ],
)
def test_states_that_would_come_back_as_something_else_need_their_type(
    state: Any, suggested: str
) -> None:
    with pytest.raises(
        JobError, match=r"job 'sums': the state of key 'k' is .* say state= .*" + suggested
    ):
        Codec(job()).state("k", state)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (lambda: 1, "function"),
        (np.int64(3), r"numpy\.int64"),
        (2**70, r"ints < -2\*\*63"),
        (object(), "object"),
    ],
)
@pytest.mark.parametrize("kind", [None, int])
def test_states_that_cannot_be_stored(state: Any, said: str, kind: Any) -> None:
    with pytest.raises(
        JobError, match=f"job 'sums': the state of key 'k', .*, cannot be stored: .*({said})"
    ):
        Codec(job(state=kind)).state("k", state)


@pytest.mark.parametrize(
    ("kind", "state"), [(int, 1.5), (int, "a"), (list[int], (1, 2)), (Visit, Both(1.0)), (str, 3)]
)
def test_a_state_that_is_not_what_was_stated_is_refused_before_it_is_stored(
    kind: Any, state: Any
) -> None:
    codec = Codec(job(state=kind))
    with pytest.raises(JobError, match=r"job 'sums': the state of key 'k' is .*, and state="):
        codec.state("k", state)


def test_a_type_that_states_cannot_have() -> None:
    with pytest.raises(JobError, match=r"job 'sums': state=.*: "):
        Codec(job(state=dict[list[int], int] | set[int] | list[int]))


def test_a_state_of_another_type_than_it_was_stored_with() -> None:
    stored = Codec(job(state=list[int])).state("k", [1])
    with pytest.raises(
        JobError, match=r"job 'sums': a stored state is no <class 'int'>: .* was state= another"
    ):
        Codec(job(state=int)).read_state(stored)


def test_keys_of_another_type_than_they_were_stored_with() -> None:
    before, now = Codec(job(key="string")), Codec(job(key="bigint"))
    with pytest.raises(
        JobError, match=r"job 'sums': a stored key is no bigint: .* was key= .* another"
    ):
        now.read_key(before.key("a"))
    part = before.part(Part(["a"], [b""], [1.0], [], 0))
    with pytest.raises(JobError, match=r"job 'sums': a stored key"):
        now.read_part(part)
    with pytest.raises(JobError, match=r"job 'sums': a stored key .* window= another"):
        Codec(windowed()).read_key(before.key("a"))


KEYS = [
    ("string", ["", "tea", "\u00e9\U0001f600", "a\x00b"]),
    ("binary", [b"", b"\xff\x00"]),
    ("boolean", [True, False]),
    ("tinyint", [-128, 127]),
    ("bigint", [-(2**63), 0, 2**63 - 1]),
    ("date", [datetime.date(1, 1, 1), datetime.date(2024, 2, 29)]),
    ("timestamp", [datetime.datetime(2024, 1, 2, 3, 4, 5, 678901, datetime.UTC)]),
    ("timestamp_ntz", [datetime.datetime(2024, 1, 2, 3, 4, 5, 678901)]),
]


@pytest.mark.parametrize(("kind", "keys"), KEYS)
def test_keys_come_back_as_they_were(kind: str, keys: list[Any]) -> None:
    plain, in_windows = Codec(job(key=kind)), Codec(windowed(key=kind))
    for key in keys:
        again = plain.read_key(plain.key(key))
        assert (again, type(again)) == (key, type(key))
        assert in_windows.read_key(in_windows.key((key, -5))) == (key, -5)
    part = Part(keys, [b"x"] * len(keys), [0.5] * len(keys), keys[:1], 3)
    again = plain.read_part(plain.part(part))
    assert again == part
    pairs = [(key, 10**15) for key in keys]
    assert in_windows.read_part(in_windows.part(Part(pairs, [], [], [], 0))).keys == pairs


def test_states_outside_memory() -> None:
    codec = Codec(job())
    assert codec.read_cold(codec.cold(Cold(b"abc", 0.25, 7))) == Cold(b"abc", 0.25, 7)

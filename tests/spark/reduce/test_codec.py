"""Keys and states as bytes, and back as they were."""

from __future__ import annotations

import collections
import dataclasses
import datetime
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import JobError
from taut.spark.reduce.codec import Codec, Cold, Part
from taut.spark.reduce.job import Job
from taut.spark.reduce.same import exact, same

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


class Pair(NamedTuple):
    low: int
    high: int


@dataclasses.dataclass(eq=False)
class Loose:
    n: Any


def kept(codec: Codec, state: Any) -> bytes:
    """A state as bytes; what a worker goes on with is what another one reads."""
    states = {"k": state}
    data = codec.keep("k", states)
    again = codec.read_state(data)
    assert same(states["k"], again)
    assert codec.stored(states["k"]) == data, "and it is stored again as it was"
    assert codec.state("k", state) == data
    return data


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
    again = codec.read_state(kept(codec, state))
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
        (dict[str, float], {"a": 1}),
        (float, float("nan")),
        (list[float], [1.5, float("nan")]),
        (int | None, None),
        (int | float, 3),
        (Pair, Pair(1, 2)),
        (Loose, Loose(3)),
        (frozenset[str], frozenset("ab")),
        (dict[str, datetime.date], {"a": datetime.date(2024, 1, 2)}),
        (list, [1, "a", [None, 2.5], {"b": b"c"}]),
        (list[Visit], [Visit(1)]),
        (datetime.datetime, datetime.datetime(2024, 1, 2, tzinfo=datetime.UTC)),
    ],
)
def test_states_of_a_stated_type_come_back_as_they_were(kind: Any, state: Any) -> None:
    codec = Codec(job(state=kind))
    for _ in range(2):
        again = codec.read_state(kept(codec, state))
        assert same(state, again)
        assert isinstance(state, int) or type(again) is type(state)


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


ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (lambda: 1, "function"),
        (2**70, r"ints < -2\*\*63"),
        (object(), "object"),
        (ENDLESS, "recursion"),
    ],
)
@pytest.mark.parametrize("kind", [None, int])
def test_states_that_cannot_be_stored(state: Any, said: str, kind: Any) -> None:
    with pytest.raises(
        JobError, match=f"job 'sums': the state of key 'k', .*, cannot be stored: .*({said})"
    ):
        Codec(job(state=kind)).state("k", state)


@pytest.mark.parametrize("state", [np.int64(3), np.float32(0.5), np.bool_(True), np.str_("a")])
def test_numbers_of_arrays_are_kept_as_plain_ones(state: Any) -> None:
    states = {"k": state}
    codec = Codec(job())
    assert codec.read_state(codec.keep("k", states)) == state.item()
    assert type(states["k"]) is type(state.item())


NAIVE = datetime.datetime(2024, 1, 2)
EAST = datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("kind", "state", "comes_back"),
    [
        (int, 1.5, "Expected `int`"),
        (int, "a", "Expected `int`"),
        (int, True, "Expected `int`"),
        (list[int], (1, 2), r"\[1, 2\] \(list\)"),
        (Visit, Both(1.0), "missing required field"),
        (Visit, Visit(2.5), r"Expected `int`, got `float` - at `\$.clicks`"),  # type: ignore[arg-type]  # wrong on purpose
        (str, 3, "Expected `str`"),
        (list, [(1, 2)], r"\[\[1, 2\]\] \(list\)"),
        (dict, {"a": NAIVE}, r"\{'a': '2024-01-02T00:00:00'\}"),
        (dict, {"a": {1}}, r"\{'a': \[1\]\}"),
        (dict[str, int], collections.Counter("ab"), r"\(dict\)"),
        (dict[str, dict[str, int]], {"a": collections.defaultdict(int)}, r"\(dict\)"),
        (tuple[int, int], Pair(1, 2), r"\(1, 2\) \(tuple\)"),
        (list[float], [2**53 + 1], "9007199254740992"),
        (datetime.datetime, EAST, "2024, 1, 1, 22, 0"),
        (Loose, Loose((1,)), r"\[1\]"),
    ],
)
def test_a_state_that_is_not_what_was_stated_is_refused_before_it_is_stored(
    kind: Any, state: Any, comes_back: str
) -> None:
    codec = Codec(job(state=kind))
    with pytest.raises(
        JobError, match=rf"job 'sums': the state of key 'k' is .*, and state=.*{comes_back}"
    ):
        codec.state("k", state)


@pytest.mark.parametrize(
    ("kind", "fine", "wrong"),
    [
        (list[int], [1], [3.5]),
        (list, [1], [(1, 2)]),
        (dict, {"a": 1}, {"a": NAIVE}),
        (dict, {"a": 1}, {"a": {1}}),
        (set[int], {1}, {"a"}),
        (Visit, Visit(1), Visit(1, ["a"])),  # type: ignore[arg-type]  # wrong on purpose
        (Both, Both(1.0), Both("a")),  # type: ignore[arg-type]  # wrong on purpose
        (float | list[int], 1.5, [1.5]),
        (int | None, None, False),
    ],
)
def test_every_state_is_looked_at_not_the_first_alone(kind: Any, fine: Any, wrong: Any) -> None:
    codec = Codec(job(state=kind))
    kept(codec, fine)
    with pytest.raises(JobError, match=r"job 'sums': the state of key 'k' is .*, and state="):
        codec.state("k", wrong)
    kept(codec, fine)


def test_what_a_worker_goes_on_with_is_what_it_has_stored() -> None:
    """Equal is not the same: a state that passes for what was stated becomes it at once."""
    codec = Codec(job(state=dict[str, float]))
    states: dict[str, Any] = {"k": {}}
    codec.keep("k", states)
    shared = {"a": 1}
    states["k"] = shared
    codec.keep("k", states)
    assert repr(states["k"]) == "{'a': 1.0}"
    states["k"] = collections.Counter("ab")
    with pytest.raises(JobError, match="come back as"):
        codec.keep("k", states)
    assert states["k"] is not shared


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True), (1.0, 1), ([1], [True]), ([1], [1, 1]), ([], ()), ({1: 2}, {1: 2.5}),
        ({1: 2}, {True: 2}), ({1}, {True}), ({1}, {1, 2}), ({1}, frozenset({1})),
        (Both(1.0), Both(2.0)), (Both(1.0), Visit(1)), (Pair(1, 2), (1, 2)),
        ("a", b"a"), (2**53 + 1, float(2**53)), (EAST, EAST.astimezone(datetime.UTC)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)  # fmt: skip
def test_what_is_not_the_same(one: Any, other: Any) -> None:
    assert not same(one, other)
    assert same(one, one)
    assert same(other, other)


class Tree(msgspec.Struct):
    n: int
    below: list[Tree] = []


class Doubled(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        self.n *= 2


@pytest.mark.parametrize(
    ("kind", "states"),
    [
        (Visit, [Visit(1), Visit(3, ("a", "b"))]),
        (Both, [Both(1.0), Both(1.0, 2.0)]),
        (tuple[int, str], [(1, "a")]),
        (tuple[int, ...], [(), (1, 2)]),
        (list[Visit], [[], [Visit(1, ("a",))]]),
        (dict[str, list[int | None]], [{}, {"a": [1, None]}]),
        (set[str], [{"a"}]),
    ],
)
def test_states_of_the_stated_types_need_no_reading_back(kind: Any, states: list[Any]) -> None:
    look = exact(kind)
    assert look is not None
    assert all(map(look, states))
    wrong = Visit("1")  # type: ignore[arg-type]  # on purpose
    assert not any(map(look, ["a", 1, [2.5], [wrong], (2.5,), (1, 2.5), {"a": [2.5]}, {1}, wrong]))


Odd = msgspec.defstruct("Odd", [("class", int)])


@pytest.mark.parametrize(
    "kind",
    [Tree, Doubled, Odd, Pair, Loose, list, tuple[()], dict[str, Any], datetime.datetime,
     Visit | None, Annotated[int, msgspec.Meta(ge=0)], list[datetime.date]],
)  # fmt: skip
def test_states_whose_types_do_not_tell_are_read_back(kind: Any) -> None:
    assert exact(kind) is None


def test_a_type_that_changes_what_it_is_given_is_refused() -> None:
    with pytest.raises(JobError, match=r"is Doubled\(n=4\) .* come back as Doubled\(n=8\)"):
        Codec(job(state=Doubled)).state("k", Doubled(2))
    kept(Codec(job(state=Tree)), Tree(1, [Tree(2), Tree(3, [Tree(4)])]))
    kept(Codec(job(state=Odd)), Odd(1))
    kept(Codec(job(state=Annotated[int, msgspec.Meta(ge=0)])), 3)
    with pytest.raises(JobError, match="Expected `int` >= 0"):
        Codec(job(state=Annotated[int, msgspec.Meta(ge=0)])).state("k", -3)


def test_a_type_that_states_cannot_have() -> None:
    with pytest.raises(JobError, match=r"job 'sums': state=.*: "):
        Codec(job(state=dict[list[int], int] | set[int] | list[int]))


def test_a_state_of_another_type_than_it_was_stored_with() -> None:
    stored = kept(Codec(job(state=list[int])), [1])
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

"""Which of rows that are alike: the same ones, in whichever order they came."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.spark.reduce.blobs import Rows
from taut.spark.reduce.ties import Ties

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)
Row = tuple[int, int, Any, Any]
"""Time, arrival, key and value."""


def rows_of(given_: list[Row], key: pa.DataType, value: pa.DataType) -> Rows:
    kinds = {"time": pa.int64(), "arrival": pa.int64(), "key": key, "value": value}
    columns = [*zip(*given_, strict=True)] if given_ else [()] * 4
    schema = pa.schema(kinds.items())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds.values(), strict=True)]
    return Rows([pa.RecordBatch.from_arrays(arrays, schema=schema)], schema)


def first(
    given_: list[Row],
    many: int,
    by_key: bool,
    turn: int = 7,
    key: pa.DataType = pa.string(),  # noqa: B008 - types are not changed
    value: pa.DataType = pa.int64(),  # noqa: B008 - types are not changed
) -> list[Row]:
    rows = rows_of(given_, key, value)
    at = Ties(rows, np.arange(len(given_)), turn).first(np.arange(len(given_)), many, by_key)
    assert len(set(at.tolist())) == many
    return [given_[place] for place in at.tolist()]


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 2)),
    min_size=1,
    max_size=20,
)


@STEADY
@given(data=st.data(), rows=ROWS, by_key=st.booleans(), turn=st.integers(0, 2**60))
def test_they_do_not_depend_on_the_order(
    data: st.DataObject, rows: list[Row], by_key: bool, turn: int
) -> None:
    many = data.draw(st.integers(1, len(rows)))
    others = data.draw(st.permutations(rows))
    taken = first(rows, many, by_key, turn)
    assert Counter(taken) == Counter(first(others, many, by_key, turn))
    left = Counter(rows) - Counter(taken)
    if by_key:
        assert len({row[2] for row in taken} & {row[2] for row in left}) <= 1, "of few keys"
    elif left:
        assert max(row[1] for row in taken) <= min(row[1] for row in left), "the first to arrive"


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [0.5, -1.0, 3.25, 0.5]),
        (pa.int64(), [3, None, 1, 2]),
        (pa.string(), ["b", None, "a", "a"]),
        (pa.list_(pa.int64()), [[2], [1, 2], None, []]),
        (pa.struct([("n", pa.int64())]), [{"n": 2}, None, {"n": 1}, {"n": None}]),
    ],
    ids=str,
)
def test_values_of_any_type(kind: pa.DataType, values: list[Any]) -> None:
    rows: list[Row] = [(0, 0, "a", value) for value in values]
    for many in (1, 2, 3):
        taken = first(rows, many, False, value=kind)
        again = first(rows[::-1], many, False, value=kind)
        assert sorted(map(repr, taken)) == sorted(map(repr, again))


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (pa.int64(), [5, -7, 2**62, 0]),
        (pa.bool_(), [True, False, True, True]),
        (pa.binary(), [b"", b"\xff", b"a", b"a"]),
        (pa.date32(), [5, 9, 1, 2]),
        (pa.timestamp("us", "UTC"), [5, 9, 1, 2]),
    ],
    ids=str,
)
def test_keys_of_any_type(kind: pa.DataType, keys: list[Any]) -> None:
    rows: list[Row] = [(0, 0, key, 1) for key in keys]
    for by_key in (False, True):
        taken = first(rows, 2, by_key, key=kind)
        assert Counter(taken) == Counter(first(rows[::-1], 2, by_key, key=kind))


def test_it_is_not_always_the_same_keys_that_are_left_out() -> None:
    rows: list[Row] = [(0, 0, f"word {n}", n) for n in range(40)]
    counted = Counter(
        row[2]
        for turn in range(1_790_000_000_000_000, 1_790_000_400_000_000, 1_000_000)
        for row in first(rows, 20, False, turn)
    )
    assert len(counted) == 40
    assert min(counted.values()) > 100, "of 400 batches each half is taken in about 200"


def test_some_of_the_rows_are_meant() -> None:
    given_: list[Row] = [(0, 0, key, n) for n, key in enumerate("abab")]
    ties = Ties(rows_of(given_, pa.string(), pa.int64()), np.array([3, 2, 0]), 7)
    taken = set(ties.first(np.array([0, 1, 2]), 2, True).tolist())
    assert taken in ({1, 2}, {0, 2}), "those of a, or that of b and the lesser of a"

"""Rows to keys and values, to the reducers that have those keys; nothing is lost on the way."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.reduce.stores import EPOCH, TIME, arrow, packed_by

from taut.errors import JobError
from taut.spark.reduce.blobs import (
    BEAT,
    PACKED,
    RESULT,
    ROWS,
    SHED,
    STATS,
    Packed,
    Rows,
    from_columns,
    pack,
    result_schema,
    row_schema,
    shed_schema,
    to_batch,
    unpack,
)
from taut.spark.reduce.job import MICRO, Job
from taut.spark.reduce.mapper import Mapper, spread

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)


def job(**changes: Any) -> Job:
    given_ = {
        "init": lambda key, window=None: 0,
        "update": lambda time, key, value, state: (state, None),
        "output": "word string, n bigint",
        "name": "sums",
    }
    return Job(**{**given_, **changes})


def rows_of(packed: Sequence[Packed], of: Job) -> list[tuple[Any, ...]]:
    """Time, key, value and arrival of rows for reducers."""
    found = []
    for one in packed:
        if one.kind == ROWS:
            batch = unpack(one.blob, row_schema(of))
            assert batch.num_rows == one.rows
            found += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    micros = round(EPOCH * MICRO)
    return [((t - micros) / MICRO, k, v, (a - micros) / MICRO) for t, a, k, v in found]


def bad_of(packed: Sequence[Packed], of: Job) -> list[dict[str, Any]]:
    return [
        row
        for one in packed
        if one.kind == SHED
        for row in unpack(one.blob, shed_schema(of)).to_pylist()
    ]


# -- spread ----------------------------------------------------------------------------------------

PINNED = [
    (pa.array(["", "tea", "coffee", "\u00e9t\u00e9", "tea"]), [0, 6, 6, 3, 6]),
    (pa.array([b"", b"tea", b"\xff\x00"]), [0, 6, 0]),
    (pa.array([0, 1, 2, -1, 2**62, 7], pa.int64()), [0, 6, 4, 2, 4, 4]),
    (pa.array([0, 1, 2, -1, 7], pa.int32()), [0, 6, 4, 2, 4]),
    (pa.array([True, False]), [6, 0]),
    (pa.array([datetime.date(1970, 1, 2), datetime.date(2024, 2, 29)]), [6, 5]),
    (pa.array([1, 1_700_000_000_000_000], pa.timestamp("us", "UTC")), [6, 3]),
    (pa.array([1, 1_700_000_000_000_000], pa.timestamp("us")), [6, 3]),
]


@pytest.mark.parametrize(("keys", "reducers"), PINNED, ids=lambda given: str(given)[:20])
def test_where_a_key_goes_is_the_same_for_ever(keys: pa.Array, reducers: list[int]) -> None:
    # checkpoints hold the states of keys where they went: another spread would lose them
    assert spread(keys, 7).tolist() == reducers


@pytest.mark.parametrize(
    "keys",
    [
        pa.array([f"word {n}" for n in range(4_000)]),
        pa.array(range(4_000), pa.int64()),
        pa.array(range(0, 4_000 * 1_024, 1_024), pa.int64()),
        pa.array(range(-2_000, 2_000), pa.int32()),
        pa.array([1_700_000_000_000_000 + n * MICRO for n in range(4_000)], TIME),
        pa.array([bytes([n % 256, n // 256]) for n in range(4_000)]),
    ],
    ids=["text", "numbers", "even", "below-0", "times", "bytes"],
)
@pytest.mark.parametrize("among", [2, 3, 8, 200])
def test_every_reducer_gets_its_share_of_keys(keys: pa.Array, among: int) -> None:
    shares = np.bincount(spread(keys, among), minlength=among)
    assert len(shares) == among
    assert shares.min() > 0
    assert shares.max() <= 4_000 / among * 1.2 + 20


# -- rows ----------------------------------------------------------------------------------------

KEYS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=3)
ROW = st.tuples(
    st.integers(0, 100).map(float), KEYS, st.integers(-5, 5), st.integers(0, 100).map(float)
)


@STEADY
@given(st.lists(ROW, max_size=30), st.integers(1, 5), st.integers(1, 4))
def test_every_row_goes_to_the_reducer_of_its_key_in_order(
    rows: list[Any], reducers: int, pieces: int
) -> None:
    ids = tuple(range(3, 3 + reducers))
    plain = job()
    packed = packed_by(Mapper((plain,), ids), rows, EPOCH, pieces)
    assert Counter(rows_of(packed, plain)) == Counter(rows)
    went: dict[str, int] = {}
    for one in packed:
        assert one.stamp == round(EPOCH * MICRO)
        for _, key, _, _ in rows_of([one], plain):
            assert went.setdefault(key, one.reducer) == one.reducer
    for reducer in ids:
        mine = sorted((one for one in packed if one.reducer == reducer), key=lambda one: one.seq)
        there = rows_of(mine, plain)
        assert there == [row for row in rows if went[row[1]] == reducer]
    assert len({one.seq for one in packed}) == len(packed)


def test_a_map_may_give_none_one_or_many_and_rows_keep_their_times() -> None:
    words = job(map=lambda time, key, line: ((word, time) for word in line.split()), value="double")
    rows = [(1.0, None, "a b", 5.0), (2.0, None, "", 6.0), (3.0, None, "c", 7.0)]
    packed = packed_by(Mapper((words,), (0, 1)), rows, EPOCH)
    assert sorted(rows_of(packed, words)) == [
        (1.0, "a", EPOCH + 1.0, 5.0),
        (1.0, "b", EPOCH + 1.0, 5.0),
        (3.0, "c", EPOCH + 3.0, 7.0),
    ]


def test_several_jobs_each_get_the_rows() -> None:
    plain, mapped = job(), job(name="other", map=lambda time, key, value: [(key, value), ("x", 1)])
    mapper = Mapper((plain, mapped), (0,))
    packed = packed_by(mapper, [(0.0, "a", 3, 0.0)], EPOCH)
    assert [(one.job, one.rows) for one in packed] == [("sums", 1), ("other", 2)]


def test_columns_of_another_type_are_turned_or_refused() -> None:
    def through(key: Any, value: Any, of: Job) -> list[tuple[Any, ...]]:
        batch = arrow([(0.0, "a", 1, 0.0)], EPOCH, job())
        columns = {"key": pa.array([key]), "value": pa.array([value])}
        arrays = [columns.get(name, batch.column(name)) for name in batch.schema.names]
        made = Mapper((of,), (0,)).first(
            iter([pa.RecordBatch.from_arrays(arrays, batch.schema.names)])
        )
        return rows_of(
            [p for b in made for p in from_columns(c.to_pylist() for c in b.columns)], of
        )

    assert through(7, 1, job())[0][1:3] == ("7", 1)
    assert through("a", 2.0, job())[0][2] == 2
    assert through("a", True, job())[0][2] == 1
    assert through("a", 3, job(value="double"))[0][2] == 3.0
    assert through("a", 0.1, job(value="float"))[0][2] == pytest.approx(0.1)
    assert through("a", "12", job())[0][2] == 12
    day = datetime.date(2024, 2, 29)
    assert through(day, 1, job(key="timestamp"))[0][1].date() == day
    for key, value, of, said in (
        ("abc", 1, job(key="bigint"), r"the key 'abc' \(string\) is no int64"),
        (1.5, 1, job(key="bigint"), r"the key 1.5 \(double\) is no int64"),
        ("a", 1.5, job(), r"the value 1.5 \(double\) is no int64; say what values are, or make"),
        ("a", float("nan"), job(), r"the value nan \(double\) is no int64"),
        ("a", 2**40, job(value="int"), "is no int32"),
        ("a", 2**53 + 1, job(value="double"), "is no double"),
        ("a", 2, job(value="boolean"), r"the value 2 \(int64\) is no bool"),
        ("a", Decimal("1.5"), job(), "the value Decimal.* is no int64"),
        ("a", datetime.datetime(2024, 2, 29, 12), job(value="date"), "is no date32"),
    ):
        with pytest.raises(JobError, match=f"job 'sums': .*{said}.*; on row .*'value'"):
            through(key, value, of)
    for value, of in (([1], job()), (day, job()), (1, job(value="timestamp"))):
        with pytest.raises(JobError, match=r"the values are .*say what they are, or make them so"):
            through("a", value, of)


def test_values_that_would_be_cut_go_aside_and_the_others_go_on() -> None:
    plain = job(key="bigint")
    batch = arrow([(float(n), "1", n, 0.0) for n in range(4)], EPOCH, job())
    columns = {"key": pa.array([1.0, 1.2, 1.9, 2.0]), "value": pa.array([1.0, 2.0, 3.0, 4.5])}
    arrays = [columns.get(name, batch.column(name)) for name in batch.schema.names]
    mapper = Mapper((plain,), (0,), keep_bad=True)
    made = mapper.first(iter([pa.RecordBatch.from_arrays(arrays, batch.schema.names)]))
    packed = [one for b in made for one in from_columns(c.to_pylist() for c in b.columns)]
    assert rows_of(packed, plain) == [(0.0, 1, 1, 0.0)]
    assert [row["reason"].split(";")[0] for row in bad_of(packed, plain)] == [
        "the key 1.2 (double) is no int64",
        "the key 1.9 (double) is no int64",
        "the value 4.5 (double) is no int64",
    ]


@pytest.mark.parametrize("rows", [[], [(0.0, "a", 1, 0.0)]])
def test_reducers_hear_of_a_batch_once_a_task(rows: list[Any]) -> None:
    mapper = Mapper((job(),), (3, 4), beats=True)
    packed = packed_by(mapper, rows * 4, EPOCH, pieces=4)
    beats = [one.reducer for one in packed if one.kind == BEAT]
    assert beats == ([3, 4] if rows else [])


def test_rows_keep_their_shuffle_batch_and_can_be_taken_again() -> None:
    plain = job()
    packed = packed_by(Mapper((plain,), (0,)), [(1.0, "a", n, 1.0) for n in range(5)], EPOCH, 3)
    rows = Rows([unpack(one.blob, row_schema(plain)) for one in packed], row_schema(plain))
    assert rows.batches.tolist() == [0, 0, 1, 1, 2]
    assert rows.take(np.array([4, 1])).column("value").to_pylist() == [4, 1]
    none = Rows([], row_schema(plain))
    assert (len(none), len(none.keys)) == (0, 0)


# -- rows that cannot be reduced -----------------------------------------------------------------


def explode(time: float, key: Any, value: int) -> list[tuple[Any, Any]]:
    if value == 1:
        raise ZeroDivisionError("one")
    return [(key, value)]


def halfway(time: float, key: Any, value: int) -> Any:
    yield key, value
    if value == 1:
        raise ZeroDivisionError("one")


ROW_1 = (0.0, "a", 1, 0.0)
PAIRS = "pairs of key and value are needed"
BAD = [
    ({}, (0.0, None, 1, 0.0), "the row has no key"),
    ({}, (None, "a", 1, 0.0), "the row has no time"),
    ({}, (0.0, "a", 1, None), "the row has no arrival"),
    *(
        ({"map": made}, ROW_1, reason)
        for made, reason in (
            (explode, "map failed with ZeroDivisionError: one"),
            (halfway, "map failed with ZeroDivisionError: one"),
            (
                lambda t, k, v: [(None if v % 2 else k, v)],
                "map gave None .NoneType. for a key: string not null is needed",
            ),
            (lambda t, k, v: [(v, v)] if v == 1 else [], "map gave 1 .int. for a key: string"),
            (lambda t, k, v: [(k, "x" if v == 1 else v)], "map gave 'x' .str. for a value: int64"),
            (lambda t, k, v: [(k, v), (k, 1.5)] if v == 1 else [], "map gave 1.5 .float."),
            (lambda t, k, v: None if v == 1 else [], f"map failed with TypeError.*{PAIRS}"),
            (lambda t, k, v: [(k, v, v)] if v == 1 else [], f"map failed with ValueError.*{PAIRS}"),
            (lambda t, k, v: [(k, 2**63)] if v == 1 else [], "map gave 9223372036854775808"),
        )
    ),
]


@pytest.mark.parametrize(("changes", "row", "reason"), BAD)
def test_a_row_that_cannot_be_mapped_is_named(
    changes: dict[str, Any], row: Any, reason: str
) -> None:
    wrong = job(**changes)
    rows = [(5.0, "good", 2, 6.0), row]
    with pytest.raises(JobError) as caught:
        packed_by(Mapper((wrong,), (0,)), rows, EPOCH)
    assert caught.match(f"job 'sums': {reason}")
    assert caught.match(r"on row \{'time': .*'value': 1, .*\. on_error='side-output' puts such")


@pytest.mark.parametrize(("changes", "row", "reason"), BAD)
def test_a_row_that_cannot_be_mapped_goes_aside_and_the_others_go_on(
    changes: dict[str, Any], row: Any, reason: str
) -> None:
    wrong = job(**changes)
    good = [(5.0, "good", 2, 6.0), (7.0, "better", 4, 8.0)]
    mapper = Mapper((wrong,), (8, 9), keep_bad=True)
    packed = packed_by(mapper, [good[0], row, good[1]], EPOCH)
    alone = [one for each in good for one in packed_by(mapper, [each], EPOCH)]
    assert sorted(rows_of(packed, wrong)) == sorted(rows_of(alone, wrong)), "as without it"
    (aside,) = bad_of(packed, wrong)
    assert re.match(reason, aside["reason"])
    assert (aside["deadline"], aside["predicted"]) == (None, None)
    assert (aside["time"] is None) == (row[0] is None)
    assert (aside["arrival"] is None) == (row[3] is None)
    shown = eval(aside["row"])
    assert (shown["key"], shown["value"]) == (row[1], row[2]), "the row can be read again"


def test_a_row_with_several_faults_goes_aside_once() -> None:
    plain = job()
    packed = packed_by(Mapper((plain,), (0,), keep_bad=True), [(None, None, 1, None)], EPOCH)
    assert [row["reason"] for row in bad_of(packed, plain)] == ["the row has no time"]
    assert rows_of(packed, plain) == []


# -- chains ----------------------------------------------------------------------------------------


def result(of: Job, rows: list[tuple[Any, ...]], reducer: int = 5) -> Packed:
    columns = [*zip(*rows, strict=True)]
    schema = result_schema(of)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    blob = pack(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return Packed(reducer, RESULT, of.name, 0, 0, len(rows), 77, blob)


def test_what_comes_out_is_passed_on_and_given_to_those_that_take_it() -> None:
    first = job(name="first", output="word string, n bigint, cost decimal(5,2)")
    seen: list[Any] = []

    def rekey(time: float, key: Any, row: tuple[Any, ...]) -> list[tuple[str, int]]:
        seen.append((time, key, row))
        return [(row[0][0], row[1])]

    second = job(name="second", after="first", map=rekey)
    third = job(name="third", after="first", map=lambda time, key, row: [])
    other = job(name="other", after="second", map=rekey)
    mapper = Mapper((second, third), (1, 2), earlier=(first, second, third, other), beats=True)
    micros = round(EPOCH * MICRO)
    given_ = [
        result(first, [("tea", 1, Decimal("1.50"), micros, micros + 5)]),
        Packed(5, SHED, "first", 0, 1, 1, 77, b"aside"),
        Packed(5, STATS, "first", 0, 2, 1, 77, b"stats"),
        Packed(5, BEAT, "", 0, 3, 0, 77, b""),
        result(second, [("x", 2, micros, micros)]),
    ]
    made = list(mapper.further(iter([to_batch(given_[:2]), to_batch(given_[2:])])))
    assert all(batch.schema == PACKED for batch in made)
    packed = [one for batch in made for one in from_columns(c.to_pylist() for c in batch.columns)]
    assert [one for one in packed if one in given_] == given_, "all is passed on as it was"
    new = [one for one in packed if one not in given_]
    assert [(one.job, one.rows) for one in new if one.kind == ROWS] == [("second", 1)]
    assert [one.reducer for one in new if one.kind == BEAT] == [1, 2]
    assert seen == [(EPOCH, None, ("tea", 1, Decimal("1.50")))]
    (row,) = rows_of(new, second)
    assert row[:3] == (0.0, "t", 1)
    assert {one.stamp for one in new} == {77}


def test_a_row_of_another_job_that_cannot_be_mapped_is_named() -> None:
    first = job(name="first")
    rows = [("tea", 1, 0, 0)]
    second = job(
        name="second", after="first", map=lambda time, key, row: explode(time, key, row[1])
    )
    batches = [to_batch([result(first, rows)])]
    with pytest.raises(JobError, match=r"job 'second': map failed .*'value': \('tea', 1\)"):
        list(Mapper((second,), (0,), earlier=(first,)).further(iter(batches)))
    made = Mapper((second,), (0,), earlier=(first,), keep_bad=True).further(iter(batches))
    packed = [one for batch in made for one in from_columns(c.to_pylist() for c in batch.columns)]
    (aside,) = bad_of(packed, second)
    assert "'value': ('tea', 1)" in aside["row"]

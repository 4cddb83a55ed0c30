from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import TautError
from taut.spark.ddl import columns
from taut.spark.source.logs.base import ADDED, ARRIVAL, OFFSET, PARTITION
from taut.spark.source.operators import Chain, OperatorError
from taut.spark.values import Misfit, to_arrow, to_python

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=100)

START = datetime(2026, 1, 1, tzinfo=UTC)
DATA = pa.schema([("n", pa.int64()), ("s", pa.string())])
SCHEMA = pa.schema([*DATA, *ADDED])

Row = dict[str, Any]


def rows_of(*data: Row) -> list[Row]:
    return [
        {**row, ARRIVAL: START + timedelta(microseconds=at), PARTITION: "p", OFFSET: 10 * at}
        for at, row in enumerate(data)
    ]


def chunk(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def numbers(*values: int | None) -> pa.RecordBatch:
    return chunk(rows_of(*({"n": value, "s": str(value)} for value in values)))


def texts(*values: str | None) -> pa.RecordBatch:
    schema = pa.schema([("value", pa.string()), *ADDED])
    return chunk(rows_of(*({"value": value} for value in values)), schema)


def column(batch: pa.RecordBatch, name: str) -> list[Any]:
    values: list[Any] = batch.column(name).to_pylist()
    return values


# The same operators in four ways, and on plain lists.


@dataclass(frozen=True)
class Op:
    kind: str
    column: str
    bare: Callable[[Any], Any]
    mode: str

    def on_list(self, rows: list[Row]) -> list[Row]:
        if self.kind == "filter":
            return [row for row in rows if self.bare(row[self.column])]
        if self.kind == "map":
            return [{**row, self.column: self.bare(row[self.column])} for row in rows]
        return [{**row, self.column: v} for row in rows for v in self.bare(row[self.column])]

    def add_to(self, chain: Chain) -> Chain:
        add = getattr(chain, self.kind)
        if self.mode == "column":
            return add(self.bare, column=self.column)  # type: ignore[no-any-return]
        if self.mode == "batch":
            return add(self.on_batch, on="batch")  # type: ignore[no-any-return]
        return add(getattr(self, self.kind))  # type: ignore[no-any-return]

    def filter(self, row: Row) -> Any:
        return self.bare(row[self.column])

    def map(self, row: Row) -> Row:
        return self._row(row, self.bare(row[self.column]))

    def flat_map(self, row: Row) -> Iterator[Row]:
        for value in self.bare(row[self.column]):
            yield self._row(row, value)

    def _row(self, row: Row, value: Any) -> Row:
        if self.mode == "whole":
            return {**row, self.column: value}
        if self.mode == "in place":
            row[self.column] = value
            return row
        return {"n": row["n"], "s": row["s"], self.column: value}

    def on_batch(self, batch: pa.RecordBatch) -> Any:
        at = batch.schema.get_field_index(self.column)
        values, kind = column(batch, self.column), batch.schema.field(at)
        if self.kind == "filter":
            return pa.array([bool(self.bare(value)) for value in values])
        if self.kind == "map":
            made = pa.array([self.bare(value) for value in values], kind.type)
            return batch.set_column(at, kind, made).select(["n", "s"])
        pieces = []
        for number, value in enumerate(values):
            results = list(self.bare(value))
            piece = batch.take(pa.array([number] * len(results), pa.int64()))
            pieces.append(piece.set_column(at, kind, pa.array(results, kind.type)))
        return pieces


FUNCTIONS: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("map", "n", lambda n: None if n is None else n + 1),
    ("map", "n", lambda n: 7),
    ("map", "s", lambda s: None if s is None else s.upper()),
    ("map", "s", lambda s: s or None),
    ("filter", "n", lambda n: n is not None and n % 2 == 0),
    ("filter", "s", lambda s: s is not None and "a" in s),
    ("filter", "s", lambda s: s),
    ("flat_map", "n", lambda n: [n] if n is None else range(n % 3)),
    ("flat_map", "s", lambda s: (s or "").split()),
    ("flat_map", "s", lambda s: (letter for letter in s or ())),
]
MODES = ["whole", "in place", "data", "column", "batch"]
OPS = st.lists(
    st.builds(
        lambda f, mode: Op(f[0], f[1], f[2], mode),
        st.sampled_from(FUNCTIONS),
        st.sampled_from(MODES),
    ),
    max_size=5,
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "n": st.none() | st.integers(-(2**40), 2**40),
            "s": st.none() | st.text("ab \N{SNOWMAN}", max_size=6),
        }
    ),
    max_size=8,
).map(lambda data: rows_of(*data))


@STEADY
@given(rows=ROWS, ops=OPS)
def test_a_chain_is_the_same_as_on_lists(rows: list[Row], ops: list[Op]) -> None:
    chain, expected = Chain(), rows
    for op in ops:
        chain, expected = op.add_to(chain), op.on_list(expected)
    result = chain.run(chunk(rows))
    assert result.schema == chain.schema(SCHEMA) == SCHEMA
    result.validate(full=True)
    assert result.to_pylist() == expected


@STEADY
@given(rows=ROWS, ops=OPS, cut=st.integers(0, 8))
def test_chunks_do_not_change_the_rows(rows: list[Row], ops: list[Op], cut: int) -> None:
    chain = Chain()
    for op in ops:
        chain = op.add_to(chain)
    whole = chunk(rows)
    parts = [chain.run(whole.slice(0, cut)), chain.run(whole.slice(cut))]
    assert chain.run(whole).to_pylist() == [row for part in parts for row in part.to_pylist()]


@STEADY
@given(rows=ROWS, modes=st.lists(st.sampled_from(MODES), min_size=10, max_size=10))
def test_every_way_to_call_gives_the_same(rows: list[Row], modes: list[str]) -> None:
    for f, mode in zip(FUNCTIONS, modes, strict=True):
        op = Op(*f, mode)
        assert op.add_to(Chain()).run(chunk(rows)).to_pylist() == op.on_list(rows)


# Columns


def test_other_columns_need_a_schema_and_carry_the_log_s() -> None:
    chain = Chain().flat_map(
        lambda row: [{"word": w, "length": len(w)} for w in row["value"].split()],
        "word string, length int",
    )
    expected = pa.schema([("word", pa.string()), ("length", pa.int32()), *ADDED])
    result = chain.run(texts("a bc", "", "def"))
    assert chain.schema(texts().schema) == result.schema == expected
    assert column(result, "word") == ["a", "bc", "def"]
    assert column(result, "length") == [1, 2, 3]
    assert column(result, OFFSET) == [0, 0, 20]
    assert column(result, ARRIVAL) == [START, START, START + timedelta(microseconds=2)]


def test_a_column_takes_the_place_of_another() -> None:
    chain = Chain().map(len, "length bigint", column="s").filter(lambda n: n > 1, column="length")
    result = chain.run(numbers(1, 22, 333))
    assert result.schema.names == ["n", "length", *ADDED.names]
    assert column(result, "length") == [2, 3]
    assert column(result, "n") == [22, 333]


def test_rows_and_bare_values_may_be_mixed() -> None:
    chain = (
        Chain()
        .map(lambda row: {"n": row["n"] + 1, "s": row["s"] + "!"})
        .flat_map(lambda s: [s, s * 2], column="s")
        .filter(lambda row: row["n"] != 3)
        .map(lambda n: -n, column="n")
        .map(lambda row: {"both": f"{row['n']} {row['s']} {row[OFFSET]}"}, "both string")
        .map(str.title, column="both")
    )
    result = chain.run(numbers(1, 2, 3))
    assert column(result, "both") == ["-2 1! 0", "-2 1!1! 0", "-4 3! 20", "-4 3!3! 20"]


def test_what_a_function_gives_for_the_log_s_columns_counts() -> None:
    late = START + timedelta(hours=1)
    chain = Chain().map(lambda row: {**row, ARRIVAL: late}).map(lambda row: {"n": 1, "s": "x"})
    result = chain.run(numbers(1, 2))
    assert column(result, ARRIVAL) == [late, late]
    assert column(result, OFFSET) == [0, 10]


def test_a_row_may_lose_the_log_s_columns_in_place() -> None:
    def strip(row: Row) -> Row:
        for name in ADDED.names:
            del row[name]
        return row

    batch = numbers(1, 2)
    assert Chain().map(strip).map(strip).run(batch) == batch


def test_one_dict_given_again_and_again_is_copied() -> None:
    shared: Row = {}

    def again(row: Row) -> Iterator[Row]:
        for n in (1, 2):
            shared.update(row, n=n)
            yield shared

    def once(row: Row) -> Row:
        shared.update(row, s=f"{row['n']}")
        return shared

    result = Chain().flat_map(again).map(once).run(numbers(0, 0))
    assert column(result, "n") == [1, 2, 1, 2]
    assert column(result, "s") == ["1", "2", "1", "2"]


def test_a_list_changed_in_place_is_a_change() -> None:
    def push(row: Row) -> Row:
        row["tags"].append("new")
        return row

    schema = pa.schema([("tags", pa.list_(pa.string())), *ADDED])
    batch = chunk(rows_of({"tags": ["a"]}, {"tags": []}), schema)
    assert column(Chain().map(push).run(batch), "tags") == [["a", "new"], ["new"]]


def test_columns_that_no_function_changes_stay_exact() -> None:
    schema = pa.schema([("n", pa.int64()), ("t", pa.timestamp("ns", tz="UTC")), *ADDED])
    batch = chunk(rows_of({"n": 1, "t": 1_700_000_000_123_456_000}), schema)
    chain = Chain().map(lambda row: {**row, "n": 2}).filter(lambda row: True)
    assert chain.run(batch).column("t") == batch.column("t")


def test_the_same_value_under_another_type() -> None:
    chain = Chain().map(lambda row: {**row}, "n int, s string")
    result = chain.run(numbers(1, 2))
    assert result.schema.field("n").type == pa.int32()
    assert column(result, "n") == [1, 2]


def test_rows_are_not_converted_between_functions() -> None:
    chain = Chain().map(set, column="s").map(lambda row: {**row, "s": "".join(sorted(row["s"]))})
    assert column(chain.run(numbers(2110, 33)), "s") == ["012", "3"]


def test_bare_functions_do_not_touch_other_columns() -> None:
    far = pa.timestamp("us", tz="UTC")
    schema = pa.schema([("n", pa.int64()), ("t", far), *ADDED])
    batch = chunk(rows_of({"n": 1, "t": None}), schema)
    batch = batch.set_column(1, schema.field(1), pa.array([2**62], far))
    assert Chain().map(lambda n: n, column="n").run(batch).column("t").cast("int64")[0].as_py()
    with pytest.raises(OperatorError, match=r"column 't' has a value of .* Python cannot hold"):
        Chain().filter(lambda row: True).run(batch)
    with pytest.raises(OperatorError, match=r"ZeroDivisionError.* on row {'n': 1} with .* 'p'"):
        Chain().map(lambda n: n // 0, column="n").run(batch)


def test_nothing_in_nothing_out_and_no_call() -> None:
    def never(_: object) -> Any:
        raise AssertionError("called without rows")

    for on in ("row", "batch"):
        chain = Chain().map(never, "word string", on=on).filter(never, on=on)
        result = chain.run(texts())
        assert result.num_rows == 0
        assert result.schema == chain.schema(texts().schema)
        dropped = Chain().filter(lambda v: False, column="value").filter(never, on=on)
        assert dropped.run(texts("a")).num_rows == 0
    empty = Chain().flat_map(lambda batch: [], "n int", on="batch").run(texts("a"))
    assert empty.schema.names == ["n", *ADDED.names]
    assert Chain().run(texts("a")) == texts("a")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (lambda c: c.filter(len, column="x"), "filter 1 of 1 .len.: column 'x' is not among n, s"),
        (lambda c: c.map(len, "a int, b int", column="s"), "the one column in its place"),
        (lambda c: c.map(len, "n int", column="s"), "a column 'n' already"),
        (lambda c: c.map(len, "arrival date"), "column 'arrival' keeps its type"),
        (lambda c: c.map(len, "a string", column=ARRIVAL), "the one column in its place"),
        (lambda c: c.map("len"), "map.'len'.: a function is needed"),
        (lambda c: c.map(len, on="table"), "on='table'.: 'row' or 'batch'"),
        (lambda c: c.map(len, on="batch", column="s"), "only with on='row'"),
        (lambda c: c.map(len, "n strng"), "'strng' is no type"),
        (lambda c: c.to(print).map(len), "a sink is the end"),
        (lambda c: c.to(print).to(print), "has a sink already"),
        (lambda c: c.to("parquet"), "a function of a pa.RecordBatch"),
    ],
)
def test_what_cannot_be_is_said_before_it_runs(build: Callable[[Chain], Chain], told: str) -> None:
    with pytest.raises(OperatorError, match=told):
        build(Chain()).schema(SCHEMA)


def test_the_rows_must_come_from_a_log() -> None:
    with pytest.raises(OperatorError, match="'arrival' is missing"):
        Chain().schema(DATA)


def test_a_sink_is_held_and_not_called() -> None:
    def sink(batch: pa.RecordBatch) -> None:
        raise AssertionError("called by run")

    chain = Chain().map(str.upper, column="value").to(sink)
    assert chain.sink is sink
    assert column(chain.run(texts("a")), "value") == ["A"]
    assert not Chain()
    assert Chain().to(sink)
    assert isinstance(OperatorError("x"), TautError)


# Batches


def lengths(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n": pc.utf8_length(batch.column("value"))})


def test_a_batch_without_the_log_s_columns_keeps_its_rows() -> None:
    result = Chain().map(lengths, "n int", on="batch").run(texts("a", "bc", None))
    assert column(result, "n") == [1, 2, None]
    assert column(result, OFFSET) == [0, 10, 20]
    halves = Chain().flat_map(lambda b: [lengths(b)[:1], lengths(b)[1:]], "n int", on="batch")
    assert halves.run(texts("a", "bc", None)) == result
    with pytest.raises(OperatorError, match="lacks column 'arrival', which is carried over only"):
        Chain().map(lambda b: lengths(b)[:1], "n int", on="batch").run(texts("a", "b"))


def test_a_batch_filter_sees_what_the_one_before_left() -> None:
    seen = []

    def rest(batch: pa.RecordBatch) -> pa.Array:
        seen.append(batch.num_rows)
        return pc.greater(pc.divide(12, batch.column("n")), 3)

    chain = Chain().filter(lambda b: pc.not_equal(b.column("n"), 0), on="batch")
    result = chain.filter(rest, on="batch").run(numbers(0, 1, 2, None, 4))
    assert column(result, "n") == [1, 2]
    assert seen == [3]


@pytest.mark.parametrize(
    ("kind", "f", "told"),
    [
        ("map", lambda b: b.to_pylist(), "gave a list: a pa.RecordBatch is needed; on 2 rows"),
        (
            "map",
            lambda b: b.rename_columns(["m", *b.schema.names[1:]]),
            "has 0 columns 'n': one is",
        ),
        ("map", lambda b: b.append_column("x", b.column(0)), "has a column 'x' too many"),
        ("map", lambda b: b.set_column(0, "n", b.column(1)), "has string in column 'n': int64"),
        ("map", lambda b: b.set_column(4, OFFSET, pa.nulls(2, pa.int64())), "has null in column"),
        ("flat_map", lambda b: None, "pa.RecordBatch or an iterable of them"),
        ("flat_map", lambda b: [b, 3], "gave a int"),
        ("filter", lambda b: [True, True], "gave a list: a pa.BooleanArray"),
        ("filter", lambda b: pa.array([True]), "a value for each row"),
        ("filter", lambda b: 1 / 0, "ZeroDivisionError.*'p', log_offset 0 to 10"),
    ],
)
def test_a_batch_function_that_gives_the_wrong_thing(
    kind: str, f: Callable[[Any], Any], told: str
) -> None:
    chain: Chain = getattr(Chain(), kind)(f, on="batch")
    with pytest.raises(OperatorError, match=told):
        chain.run(numbers(1, 2))


# Errors on rows


def explode(row: Row) -> Row:
    return {"n": 1 // row["n"], "s": row["s"]}


def test_an_error_names_the_function_its_place_and_the_row() -> None:
    chain = Chain().filter(lambda row: row["n"] != 5).map(explode).filter(bool, column="n")
    batch = chunk(rows_of(*({"n": n, "s": "x" * 500} for n in (5, 1, 0, 1))))
    with pytest.raises(OperatorError) as caught:
        chain.run(batch)
    message = str(caught.value)
    assert "map 2 of 3 (explode) failed with ZeroDivisionError: integer division" in message
    assert "log_partition 'p', log_offset 20" in message
    assert "{'n': 0, 's': 'xxxx" in message
    assert len(message) < 400
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("kind", ["map", "flat_map", "filter"])
@pytest.mark.parametrize("name", [None, "n"])
def test_every_kind_tells_the_row(kind: str, name: str | None) -> None:
    def fail(given: Any) -> Any:
        n = given if name else given["n"]
        if n == 3:
            raise StopIteration("enough")
        return {"map": given, "flat_map": [given, given], "filter": True}[kind]

    chain: Chain = getattr(Chain().filter(lambda row: row["n"] != 1), kind)(fail, column=name)
    with pytest.raises(OperatorError, match=r"fail\) failed with StopIteration.*log_offset 20"):
        chain.run(numbers(1, 2, 3, 4))


def test_an_error_in_a_generator_is_told_too() -> None:
    def some(row: Row) -> Iterator[Row]:
        yield row
        raise LookupError(row["n"])

    with pytest.raises(
        OperatorError, match=r"some\) failed with LookupError: 1; on row .*offset 0"
    ):
        Chain().flat_map(some).run(numbers(1, 2))


def test_the_name_of_things_that_have_none() -> None:
    class Parser:
        def __call__(self, value: str) -> str:
            raise OSError

    for f, name in ((Parser(), "Parser"), (partial(partial(divmod), 1), "divmod")):
        with pytest.raises(OperatorError, match=rf"map 1 of 1 \((.*\.)?{name}\) failed"):
            Chain().map(f, column="value").run(texts("a"))


@pytest.mark.parametrize(
    ("kind", "f", "told"),
    [
        ("map", lambda row: None, "not a mapping .it should return a dict of columns"),
        ("flat_map", lambda row: None, "not iterable .it should return an iterable of dicts"),
        ("flat_map", lambda row: row, "not a mapping .it should return an iterable of dicts"),
        ("map", lambda row: {"n": 1}, "map 1 of 1 .*gave a row without column 's'.*log_offset 0"),
        ("map", lambda row: {"n": 1, "t": "x"}, "without column 's': its columns are n, s, or"),
        ("map", lambda row: {**row, "extra": 1}, "with column 'extra'"),
        ("map", lambda row: {"n": "12", "s": ""}, "gave '12' .str. for column 'n': int64 is need"),
        ("map", lambda row: {"n": 1.5, "s": ""}, "gave 1.5 .float. for column 'n': int64"),
        ("map", lambda row: {"n": 2**70, "s": ""}, r"gave 1180591620717411303424 \(int\)"),
        ("map", lambda row: {"n": True, "s": ""}, r"gave True \(bool\) for column 'n'"),
        ("map", lambda row: {"n": 1, "s": 1}, "gave 1 .int. for column 's': string"),
        ("map", lambda row: {"n": 1, "s": b"\xff"}, "for column 's': string"),
        ("map", lambda row: {**row, OFFSET: None}, "column 'log_offset': int64 not null"),
        ("map", lambda row: {**row, "s": "x" * 999 if row["n"] == 1 else 0}, "gave 0 .*offset 10"),
    ],
)
def test_a_row_that_does_not_fit(kind: str, f: Callable[[Any], Any], told: str) -> None:
    chain: Chain = getattr(Chain(), kind)(f)
    with pytest.raises(OperatorError, match=told):
        chain.run(numbers(1, 2))


def test_the_blame_falls_on_who_made_the_value() -> None:
    def wrong(row: Row) -> Row:
        return {**row, "n": "no" if row["n"] == 2 else 0}

    chain = Chain().map(wrong).map(lambda row: {**row, "s": "fine"}).filter(lambda row: True)
    with pytest.raises(OperatorError, match=r"map 1 of 3 .*wrong\) gave 'no' .*log_offset 10"):
        chain.run(numbers(1, 2))


# Types

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))
TYPED: list[tuple[str | pa.DataType, st.SearchStrategy[Any]]] = [
    ("tinyint", st.integers(-128, 127)),
    ("bigint", st.integers(-(2**63), 2**63 - 1)),
    ("double", st.floats(allow_nan=False)),
    ("boolean", st.booleans()),
    ("string", st.text()),
    ("binary", st.binary()),
    ("date", st.dates()),
    ("timestamp", MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC))),
    ("timestamp_ntz", MOMENTS),
    (pa.timestamp("ms", tz="UTC"), st.just(START)),
    (pa.timestamp("us", tz="Europe/Berlin"), st.just(START)),
    ("decimal(10,2)", st.decimals(-(10**7), 10**7, places=2)),
    ("array<int>", st.lists(st.none() | st.integers(-9, 9))),
    (
        "struct<a: array<string>, b: struct<c: bigint>>",
        st.fixed_dictionaries(
            {
                "a": st.none() | st.lists(st.text()),
                "b": st.none() | st.fixed_dictionaries({"c": st.none() | st.integers(-9, 9)}),
            }
        ),
    ),
    ("map<string, double>", st.lists(st.tuples(st.text(), st.floats(0, 1)))),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from("abc")),
]


@pytest.mark.parametrize(("kind", "values"), TYPED, ids=[str(kind) for kind, _ in TYPED])
@STEADY
@given(data=st.data())
def test_values_come_back_as_they_went(
    kind: str | pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    given = data.draw(st.lists(st.none() | values, max_size=6))
    schema = pa.schema([*columns({"x": kind}), *ADDED])
    array = pa.array(given, schema.field("x").type)
    seen = to_python(array)
    assert seen == array.to_pylist() == given
    assert to_arrow(seen, schema.field("x")) == array
    batch = chunk(rows_of(*({"x": None} for _ in given)), schema).set_column(0, "x", array)
    for chain in (
        Chain().map(lambda row: {"x": row["x"]}),
        Chain().map(lambda x: x, column="x"),
        Chain()
        .flat_map(lambda x: [x], {"y": kind}, column="x")
        .map(lambda row: {"x": row["y"]}, {"x": kind}),
    ):
        assert chain.run(batch).column("x") == array


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", 1.0),
        ("int", Decimal(1)),
        ("int", 2**31),
        ("date", datetime(2026, 1, 1, 12)),
        ("timestamp", 1_700_000_000),
        ("array<string>", "abc"),
        ("array<int>", [1, 2.5]),
        ("array<int>", 1),
        ("struct<a: int>", {"a": 1, "b": 2}),
        ("struct<a: int>", {"a": "x"}),
        ("struct<a: int not null>", {}),
        ("struct<a: int>", (1,)),
        ("map<string, int>", {"a": 0.5}),
        ("string", "\ud800"),
        ("decimal(4,1)", Decimal("1.25")),
    ],
)
def test_values_that_arrow_would_change_are_refused(kind: str, value: Any) -> None:
    (field,) = columns({"x": kind})
    with pytest.raises(Misfit) as caught:
        to_arrow([None, value, None], field)
    assert caught.value.at == 1


def test_values_that_are_as_good() -> None:
    (instant,) = columns("t timestamp")
    berlin = timezone(timedelta(hours=1))
    given = [START, START.replace(tzinfo=None), datetime(2026, 1, 1, 1, tzinfo=berlin)]
    assert to_python(to_arrow(given, instant)) == [START] * 3
    (number,) = columns("n int")
    assert to_arrow([np.int64(3), np.uint8(4)], number).to_pylist() == [3, 4]
    (pairs,) = columns("m map<string, int>")
    assert to_arrow([{"a": 1}], pairs).to_pylist() == [[("a", 1)]]
    result = Chain().flat_map(np.arange, column="n").run(numbers(2, 0, 1))
    assert column(result, "n") == [0, 1, 0]


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("word string, n bigint", [("word", pa.string()), ("n", pa.int64())]),
        ("A TINYINT, b SmallInt,c INT", [("A", pa.int8()), ("b", pa.int16()), ("c", pa.int32())]),
        ("f float, d: double", [("f", pa.float32()), ("d", pa.float64())]),
        ("`a``b c` binary COMMENT 'it''s'", None),
        ("`a``b c` binary COMMENT 'it\\'s'", [("a`b c", pa.binary())]),
        ("d date, b boolean", [("d", pa.date32()), ("b", pa.bool_())]),
        ("x decimal, y decimal( 5 ), z dec(5,2)", [
            ("x", pa.decimal128(10, 0)), ("y", pa.decimal128(5, 0)), ("z", pa.decimal128(5, 2)),
        ]),
        ("a array<array<int>>", [
            ("a", pa.list_(pa.field("element", pa.list_(pa.field("element", pa.int32()))))),
        ]),
        ("s struct<>", [("s", pa.struct([]))]),
        ("array string", [("array", pa.string())]),
        ("", None),
        ("n", None),
        ("n int,", None),
        ("n int m int", None),
        ("n int, n string", None),
        ("n decimal(39,1)", None),
        ("n decimal(4,5)", None),
        ("a array<int", None),
        ("a array<int>>", None),
        ("a map<int>", None),
        ("n int not", None),
        ("n-m int", None),
    ],
)  # fmt: skip
def test_columns_from_text(text: str, schema: list[tuple[str, pa.DataType]] | None) -> None:
    if schema is None:
        with pytest.raises(ValueError, match=r"schema .*(right is such as|comes twice)"):
            columns(text)
    else:
        assert columns(text) == pa.schema(schema)


def test_columns_from_other_things() -> None:
    expected = pa.schema([("a", pa.list_(pa.field("element", pa.int64()))), ("b", pa.date32())])
    assert columns({"a": "array<long>", "b": pa.date32()}) == columns(expected) == expected
    assert not columns("n int not null").field("n").nullable
    for wrong in ({"a": int}, ["a"], None):
        with pytest.raises(ValueError, match="is needed"):
            columns(wrong)


def test_ddl_is_read_as_pyspark_would_write_it() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import _parse_datatype_json_value

    inner = {"type": "array", "elementType": "timestamp", "containsNull": True}
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [("a", inner), ("b", "decimal(7,3)"), ("c", "short"), ("d", "byte")]
    ]
    spark: Any = _parse_datatype_json_value({"type": "struct", "fields": fields})
    text = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in spark.fields)
    assert columns(text) == to_arrow_schema(spark, timezone="UTC")


# Pickling

LOCK = threading.Lock()


def module_function(value: str) -> str:
    return value + "!"


def test_functions_travel() -> None:
    suffix = ["?"]

    def local(value: str) -> str:
        return module_function(value) + suffix[0]

    class Adder:
        def __init__(self, text: str) -> None:
            self.text = text

        def add(self, value: str) -> str:
            return value + self.text

    chain = (
        Chain()
        .map(module_function, column="value")
        .map(local, column="value")
        .map(lambda row: {"value": row["value"] + suffix[0]})
        .map(Adder("+").add, column="value")
        .map(partial(str.replace, "a-b", "-"), "other string", column="value")
        .to(print)
    )
    assert chain.run(texts("x")).num_rows == 1
    again = Chain.loads(chain.dumps())
    assert again.sink is print
    assert again.operators[4].schema == pa.schema([("other", pa.string())])
    assert again.run(texts("x", "y")) == chain.run(texts("x", "y"))
    assert Chain.loads(Chain().dumps()) == Chain()


def test_functions_travel_to_another_process(tmp_path: Path) -> None:
    ending = "!"
    chain = Chain().flat_map(lambda v: [v, v + ending], "word string", column="value")
    other = Chain().map(module_function, column="value")
    (tmp_path / "chain").write_bytes(chain.dumps())
    (tmp_path / "other").write_bytes(other.dumps())
    with pa.ipc.new_file(str(tmp_path / "rows"), texts().schema) as writer:
        writer.write_batch(texts("a", "b"))
    script = (
        "import sys, pathlib, pyarrow as pa\n"
        "from taut.spark.source.operators import Chain, OperatorError\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "rows = pa.ipc.open_file(folder / 'rows').get_batch(0)\n"
        "print(Chain.loads((folder / 'chain').read_bytes()).run(rows).column('word').to_pylist())\n"
        "try:\n"
        "    Chain.loads((folder / 'other').read_bytes())\n"
        "except OperatorError as error:\n"
        "    print(error)\n"
    )
    import taut

    env = {**os.environ, "PYTHONPATH": str(Path(taut.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=tmp_path, env=env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert first == "['a', 'a!', 'b', 'b!']"
    assert "the chain needs what this worker lacks: No module named" in second


def unsendable() -> Iterable[tuple[Callable[[Any], Any], str]]:
    from pyspark import SparkContext

    lock = threading.Lock()
    context = object.__new__(SparkContext)
    generator = (n for n in range(3))

    class Holder:
        def __init__(self) -> None:
            self.lock = lock

        def use(self, value: object) -> object:
            return value

        def __call__(self, value: object) -> object:
            return value

    def default(value: object, held: object = lock) -> object:
        return held

    yield lambda v: (lock, v)[1], "it captures 'lock', a lock .*inside the function"
    yield lambda v: (generator, v)[1], "it captures 'generator', a generator"
    yield lambda v: (LOCK, v)[1], "it captures 'LOCK'"
    yield lambda v: (context, v)[1], "'context', a SparkContext .*live in the driver"
    yield Holder().use, "it captures 'self.lock'"
    yield Holder(), "it captures 'self.lock'"
    yield default, "it captures 'held'"
    yield partial(divmod, lock), "it captures 'argument 1'"
    yield lock.acquire, "locks, open files and connections are made inside"


def test_what_cannot_travel_is_named(tmp_path: Path) -> None:
    for f, told in unsendable():
        with pytest.raises(OperatorError, match=rf"map 2 of 2 \(.*\) cannot be sent.*{told}"):
            Chain().filter(bool, column="value").map(f, column="value").dumps()
    with (
        (tmp_path / "out").open("w") as file,
        pytest.raises(OperatorError, match=r"the sink \(.*lambda.*captures 'file', a TextIO"),
    ):
        Chain().to(lambda batch: print(batch, file=file)).dumps()


def test_bytes_that_hold_something_else() -> None:
    import pickle

    with pytest.raises(OperatorError, match="hold a list, not a chain"):
        Chain.loads(pickle.dumps([1]))


def test_a_chain_is_a_value() -> None:
    first = Chain().map(module_function, column="value")
    assert first == Chain().map(module_function, column="value") != first.filter(bool)
    assert hash(first) == hash(Chain().map(module_function, column="value"))
    first.run(texts("a"))
    assert first.run(numbers(1).rename_columns(["n", "value", *ADDED.names])).num_rows == 1
    assert repr(Chain()) == "Chain(operators=(), sink=None)"

"""Rows of a chunk as Python values, for operators that take one row at a time.

Columns become Python values when a function first asks for them, and Arrow arrays once, after the
last function. A column that no function changed is taken from the chunk as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any

import pyarrow as pa

from taut.errors import TautError
from taut.spark.source.logs.base import ADDED, ARRIVAL, OFFSET, PARTITION
from taut.spark.values import Misfit, cut, to_arrow, to_python

_RIGHT = {
    ("map", "row"): "it should return a dict of columns, or a value with column=",
    ("flat_map", "row"): "it should return an iterable of dicts, or of values with column=",
    ("flat_map", "batch"): "it should return one pa.RecordBatch or an iterable of them",
}


_OURS = (__name__, "taut.spark.source.batches")


class OperatorError(TautError, RuntimeError):
    """An operator cannot be used, or failed; says which function, on which row, and why."""


@dataclass(frozen=True)
class Operator:
    """A function of a chain and how it is called."""

    kind: str
    f: Callable[[Any], Any]
    on: str = "row"
    column: str | None = None
    schema: pa.Schema | None = None

    @property
    def name(self) -> str:
        """What the function is called in messages."""
        f: object = self.f
        while isinstance(f, partial):
            f = f.func
        return str(getattr(f, "__qualname__", type(f).__qualname__))


@dataclass(frozen=True)
class Step:
    """An operator in its place, with the columns it leaves."""

    operator: Operator
    title: str
    schema: pa.Schema

    def failed(self, error: Exception, place: str) -> OperatorError:
        """What to raise when the function raised."""
        why = f"{type(error).__name__}: {error}"
        right = _RIGHT.get((self.operator.kind, self.operator.on))
        if isinstance(error, TypeError) and right and _is_ours(error):
            why += f" ({right})"
        return OperatorError(f"{self.title} failed with {why}; on {place}")


def run_rows(batch: pa.RecordBatch, steps: Sequence[Step]) -> pa.RecordBatch:
    """A chunk through operators on rows."""
    rows = Rows(batch)
    for step in steps:
        if step.operator.column is None:
            rows.apply(step)
        else:
            rows.apply_bare(step, step.operator.column)
    return rows.batch()


class Rows:
    """The rows of one chunk on their way through a few operators."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._schema: pa.Schema = batch.schema
        self._index: list[int] | None = None  # for each row the chunk's it comes from; None: all
        self._values: dict[str, list[Any]] = {}  # columns that were asked for or made
        self._made: dict[str, Step] = {}  # columns that are not the chunk's, and who made them
        self._dicts: list[dict[str, Any]] | None = None

    def apply(self, step: Step) -> None:
        """Call a function with each row as a dict."""
        f, kind = step.operator.f, step.operator.kind
        rows = self._rows()
        added = [self._column(name) for name in (ARRIVAL, PARTITION, OFFSET)]
        left = iter(rows)
        made: list[dict[str, Any]] = []
        positions: list[int] = []
        # results are copied at once: a function may give the same dict again with other values;
        # comprehensions, as a StopIteration from f would end list(map(...)) early
        try:
            if kind == "filter":
                positions = [at for at, row in enumerate(left) if f(row)]
            elif kind == "map":
                made = [
                    {ARRIVAL: a, PARTITION: p, OFFSET: o, **f(row)}
                    for row, a, p, o in zip(left, *added, strict=True)
                ]
            else:
                for at, (row, a, p, o) in enumerate(zip(left, *added, strict=True)):
                    made += [{ARRIVAL: a, PARTITION: p, OFFSET: o, **result} for result in f(row)]
                    positions += [at] * (len(made) - len(positions))
        except Exception as error:
            raise step.failed(error, self._place(_position(rows, left))) from error
        if kind != "map":
            self._select(positions)
        if kind != "filter":
            self._renew(step, made)

    def apply_bare(self, step: Step, column: str) -> None:
        """Call a function with the values of one column."""
        f, kind = step.operator.f, step.operator.kind
        given = self._column(column)
        left = iter(given)
        made: list[Any] = []
        positions: list[int] = []
        try:
            if kind == "filter":
                positions = [at for at, value in enumerate(left) if f(value)]
            elif kind == "map":
                made = [f(value) for value in left]
            else:
                for at, value in enumerate(left):
                    made.extend(f(value))  # not +=, which an array would answer
                    positions += [at] * (len(made) - len(positions))
        except Exception as error:
            raise step.failed(error, self._place(_position(given, left))) from error
        if kind != "map":
            self._select(positions)
        if kind != "filter":
            self._replace(step, column, made)

    def batch(self) -> pa.RecordBatch:
        """The rows as Arrow columns."""
        index = None if self._index is None else pa.array(self._index, pa.int64())
        arrays = []
        for field in self._schema:
            if field.name in self._made:
                arrays.append(self._array(field))
            else:
                array = self._batch.column(field.name)
                arrays.append(array if index is None else array.take(index))
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _column(self, name: str) -> list[Any]:
        if name not in self._values:
            array, index = self._batch.column(name), self._index
            try:
                values = to_python(array)
            except (OverflowError, TypeError, ValueError) as error:
                raise OperatorError(
                    f"column {name!r} has a value of {array.type} that Python cannot hold "
                    f"({error}); use on='batch'"
                ) from error
            self._values[name] = values if index is None else [values[at] for at in index]
        return self._values[name]

    def _rows(self) -> list[dict[str, Any]]:
        if self._dicts is None:
            names = self._schema.names
            columns = zip(*map(self._column, names), strict=True)
            self._dicts = [*map(dict, map(zip, repeat(names), columns))]
        return self._dicts

    def _select(self, positions: list[int]) -> None:
        index, dicts = self._index, self._dicts
        self._index = positions if index is None else [index[at] for at in positions]
        self._values = {n: [v[at] for at in positions] for n, v in self._values.items()}
        self._dicts = None if dicts is None else [dicts[at] for at in positions]

    def _replace(self, step: Step, column: str, values: list[Any]) -> None:
        """The rows with other values in one column, perhaps under another name."""
        name = step.schema.field(self._schema.get_field_index(column)).name
        self._values.pop(column)
        self._values[name] = values
        self._made[name] = step
        self._schema, self._dicts = step.schema, None

    def _renew(self, step: Step, rows: list[dict[str, Any]]) -> None:
        """Other rows in the place of these, one for one."""
        names = step.schema.names
        try:
            values = {name: [row[name] for row in rows] for name in names}
        except KeyError:
            row = next(row for row in rows if not set(names) <= row.keys())
            raise _columns_differ(step, row) from None
        if set(map(len, rows)) - {len(names)}:
            raise _columns_differ(step, next(row for row in rows if len(row) != len(names)))
        before, self._values = self._values, values
        made: dict[str, Step] = {}
        for field in step.schema:
            name = field.name
            if not self._has(field) or not all(map(operator.is_, before[name], values[name])):
                made[name] = step
            elif name in self._made:
                made[name] = self._made[name]
        self._schema, self._dicts, self._made = step.schema, rows, made

    def _has(self, field: pa.Field) -> bool:
        """Whether a column stays what it is when its values are the same objects."""
        at = self._schema.get_field_index(field.name)
        return not pa.types.is_nested(field.type) and at >= 0 and self._schema.field(at) == field

    def _array(self, field: pa.Field) -> pa.Array:
        values = self._values[field.name]
        try:
            return to_arrow(values, field)
        except Misfit as misfit:
            value = values[misfit.at]
            raise OperatorError(
                f"{self._made[field.name].title} gave {cut(value)} ({type(value).__name__}) for "
                f"column {field.name!r}: {misfit.needed} is needed; on {self._place(misfit.at)}"
            ) from None

    def _place(self, at: int) -> str:
        # of the columns that functions saw; another may hold what Python cannot
        seen = (*self._values, PARTITION, OFFSET)
        return place({n: self._column(n)[at] for n in self._schema.names if n in seen})


def place(row: Mapping[str, Any]) -> str:
    """A row in an error: where it lies in its log, and what it holds."""
    values = {name: value for name, value in row.items() if name not in ADDED.names}
    return f"row {cut(values)} with {PARTITION} {row[PARTITION]!r}, {OFFSET} {row[OFFSET]!r}"


def _is_ours(error: Exception) -> bool:
    """Whether it was not the function that raised, but our use of what it gave."""
    below = error.__traceback__
    while below is not None and below.tb_next is not None:
        below = below.tb_next
    return below is not None and below.tb_frame.f_globals["__name__"] in _OURS


def _position(given: Sequence[object], left: Iterable[object]) -> int:
    return len(given) - operator.length_hint(left) - 1


def _columns_differ(step: Step, row: Mapping[str, Any]) -> OperatorError:
    names = step.schema.names
    missing = [name for name in names if name not in row]
    extra = [name for name in row if name not in names]
    what = f"without column {missing[0]!r}" if missing else f"with column {extra[0]!r}"
    needed = ", ".join(name for name in names if name not in ADDED.names)
    return OperatorError(
        f"{step.title} gave a row {what}: its columns are {needed}, or others with schema=; it "
        f"gave {place(row)}"
    )

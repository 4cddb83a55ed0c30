"""The map side: rows to keys and values, and on to the reducers that have those keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from taut.errors import JobError
from taut.spark.reduce.blobs import (
    BEAT,
    RESULT,
    ROWS,
    SHED,
    Packed,
    from_columns,
    pack,
    result_schema,
    row_schema,
    shed_schema,
    to_batch,
    unpack,
)
from taut.spark.reduce.job import MICRO, Job
from taut.spark.reduce.reducers import Reducers
from taut.spark.reduce.terms import BATCH
from taut.spark.values import Misfit, cut, fits, to_arrow, to_python

Numbers = np.ndarray[Any, Any]
_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Mapper:
    """What ``mapInArrow`` calls with the batches of a partition; pickled to the workers.

    Attributes
    ----------
    jobs
        Those that take this input.
    reducers
        Which the keys are spread over: their ids, or what a task learns them from.
    earlier
        The jobs whose output they may take.
    keep_bad
        Whether rows that cannot be reduced go to the side output, or fail the query.
    beats
        Whether reducers hear of every batch, with rows for them or without; of the first they
        always do.
    """

    jobs: tuple[Job, ...]
    reducers: tuple[int, ...] | Reducers
    earlier: tuple[Job, ...] = ()
    keep_bad: bool = False
    beats: bool = False

    def first(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For the input: columns time, key, value, arrival and stamp."""
        packing = _Packing(self)
        for batch in batches:
            if batch.num_rows:
                stamp = _micros(batch.column("stamp"))[0].as_py()
                given = _Given(
                    _micros(batch.column("time")),
                    _micros(batch.column("arrival")),
                    batch.column("key"),
                    batch.column("value"),
                )
                for job in self.jobs:
                    yield to_batch(packing.rows(job, given, stamp))
                if beats := packing.beats(stamp):
                    yield to_batch(beats)

    def further(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For what came out of jobs before: passed on as it is, and to those that take it."""
        packing = _Packing(self)
        schemas = {job.name: result_schema(job) for job in self.earlier}
        for batch in batches:
            yield batch
            for one in from_columns([column.to_pylist() for column in batch.columns]):
                takers = [job for job in self.jobs if one.kind == RESULT and one.job == job.after]
                for job in takers:
                    rows = unpack(one.blob, schemas[one.job])
                    yield to_batch(packing.rows(job, _Given.of_results(rows), one.stamp))
                if beats := packing.beats(one.stamp):
                    yield to_batch(beats)


@dataclass(frozen=True)
class _Given:
    """Rows before the map; times and arrivals are epoch microseconds."""

    times: pa.Array
    arrivals: pa.Array
    keys: pa.Array | None
    values: pa.Array | list[Any]

    @classmethod
    def of_results(cls, rows: pa.RecordBatch) -> _Given:
        """What another job put out: no key, and its rows as values."""
        *columns, times, arrivals = rows.columns
        return cls(times, arrivals, None, list(zip(*map(to_python, columns), strict=True)))

    def row(self, at: int) -> dict[str, Any]:
        """One of them, for an error."""
        value = self.values[at]
        return {
            "time": _seconds(self.times[at].as_py()),
            "key": None if self.keys is None else self.keys[at].as_py(),
            "value": value.as_py() if isinstance(value, pa.Scalar) else value,
            "arrival": _seconds(self.arrivals[at].as_py()),
        }


class _Packing:
    """Packs what a task has, and counts it."""

    def __init__(self, mapper: Mapper) -> None:
        from pyspark import TaskContext

        context = TaskContext.get()
        self._part = 0 if context is None else context.partitionId()
        # each then has a head, by which it knows later if keys are spread another way
        begins = context is not None and context.getLocalProperty(BATCH) == "0"
        self._beats = mapper.beats or begins
        given = mapper.reducers
        self._ids = given.ids() if isinstance(given, Reducers) else given
        self._mapper = mapper
        self._schemas = {job.name: row_schema(job) for job in mapper.jobs}
        self._seq = 0
        self._beaten = False

    def beats(self, stamp: int) -> list[Packed]:
        """A sign of life for each reducer, once a task."""
        if self._beaten or not self._beats:
            return []
        self._beaten = True
        return [self._packed(r, BEAT, "", 0, stamp, b"") for r in self._ids]

    def rows(self, job: Job, given: _Given, stamp: int) -> list[Packed]:
        """One batch, by reducer; and what cannot be reduced."""
        bad: dict[int, str] = {}
        for what, column in (("time", given.times), ("arrival", given.arrivals)):
            if column.null_count:
                nulls = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))
                for at in nulls.tolist():
                    bad.setdefault(at, f"the row has no {what}")
        keys, values, index = self._mapped(job, given, bad)
        if bad and not self._mapper.keep_bad:
            at, reason = min(bad.items())
            raise JobError(
                f"job {job.name!r}: {reason}; on row {cut(given.row(at))}. on_error='side-output' "
                "puts such rows aside and goes on"
            )
        batch = pa.RecordBatch.from_arrays(
            [given.times.take(index), given.arrivals.take(index), keys, values],
            schema=self._schemas[job.name],
        )
        told = [*self._by_reducer(job, batch, stamp)]
        if bad:
            told.append(self._bad(job, given, bad, stamp))
        return told

    def _mapped(
        self, job: Job, given: _Given, bad: dict[int, str]
    ) -> tuple[pa.Array, pa.Array, pa.Array]:
        """Keys and values after the map, and for each the row that it comes from."""
        if job.map is None:
            keys, values = given.keys, given.values
            assert keys is not None and isinstance(values, pa.Array)
            keys, values = _cast(job, "key", keys, bad), _cast(job, "value", values, bad)
            if keys.null_count:
                for at in np.flatnonzero(pc.is_null(keys).to_numpy(zero_copy_only=False)).tolist():
                    bad.setdefault(at, "the row has no key")
            rest = np.setdiff1d(np.arange(len(keys)), [*bad]) if bad else np.arange(len(keys))
            index = pa.array(rest)
            return keys.take(index), values.take(index), index
        made, taken = _called(job, given, bad)
        arrays = []
        for what, kind in (("key", job.key_type), ("value", job.value_type)):
            field = pa.field(what, kind, nullable=what == "value")
            place = 0 if what == "key" else 1
            arrays.append(_column(made[place], field, taken, bad))
        if bad and any(at in bad for at in taken):
            good = [at not in bad for at in taken]
            made = [list(compress(column, good)) for column in made]
            taken = list(compress(taken, good))
            arrays = [
                to_arrow(made[0], pa.field("key", job.key_type, nullable=False)),
                to_arrow(made[1], pa.field("value", job.value_type)),
            ]
        keys, values = arrays
        assert keys is not None and values is not None
        return keys, values, pa.array(taken, pa.int64())

    def _by_reducer(self, job: Job, batch: pa.RecordBatch, stamp: int) -> Iterator[Packed]:
        ids = self._ids
        if not batch.num_rows:
            return
        if len(ids) == 1:
            yield self._packed(ids[0], ROWS, job.name, batch.num_rows, stamp, pack(batch))
            return
        which = spread(batch.column("key"), len(ids))
        batch = batch.take(pa.array(np.argsort(which, kind="stable")))
        ends = np.cumsum(np.bincount(which, minlength=len(ids))).tolist()
        for reducer, start, end in zip(ids, [0, *ends], ends, strict=False):
            if end > start:
                blob = pack(batch.slice(start, end - start))
                yield self._packed(reducer, ROWS, job.name, end - start, stamp, blob)

    def _bad(self, job: Job, given: _Given, bad: dict[int, str], stamp: int) -> Packed:
        rows = [given.row(at) for at in bad]
        schema = shed_schema(job)
        none = [None] * len(rows)
        columns: dict[str, Sequence[Any]] = dict.fromkeys(schema.names, none)
        at = pa.array(list(bad), pa.int64())
        columns["time"] = given.times.take(at).to_pylist()
        columns["arrival"] = given.arrivals.take(at).to_pylist()
        columns["reason"] = [*bad.values()]
        columns["row"] = [repr(row) for row in rows]
        batch = pa.RecordBatch.from_arrays(
            [pa.array(columns[field.name], field.type) for field in schema], schema=schema
        )
        return self._packed(self._ids[0], SHED, job.name, len(rows), stamp, pack(batch))

    def _packed(
        self, reducer: int, kind: int, job: str, rows: int, stamp: int, blob: bytes
    ) -> Packed:
        self._seq += 1
        return Packed(reducer, kind, job, self._part, self._seq, rows, stamp, blob)


def _called(job: Job, given: _Given, bad: dict[int, str]) -> tuple[list[list[Any]], list[int]]:
    """What the map gives for each row, and the row that each pair comes from."""
    assert job.map is not None
    f = job.map
    keys: list[Any] = []
    values: list[Any] = []
    taken: list[int] = []
    times = [_seconds(t) for t in given.times.to_pylist()]
    before = [None] * len(times) if given.keys is None else to_python(given.keys)
    inputs = to_python(given.values) if isinstance(given.values, pa.Array) else given.values
    for at, (time, key, value) in enumerate(zip(times, before, inputs, strict=True)):
        if at in bad:
            continue
        mark = len(keys)
        try:
            for to, what in f(time, key, value):  # type: ignore[arg-type]  # times are no None here
                keys.append(to)
                values.append(what)
        except Exception as error:
            del keys[mark:], values[mark:]
            no_pairs = isinstance(error, TypeError | ValueError) and any(
                said in str(error) for said in ("unpack", "not iterable")
            )
            hint = " (pairs of key and value are needed)" if no_pairs else ""
            bad[at] = f"map failed with {type(error).__name__}: {error}{hint}"
        taken += [at] * (len(keys) - mark)
    return [keys, values], taken


def _column(
    values: list[Any], field: pa.Field, taken: list[int], bad: dict[int, str]
) -> pa.Array | None:
    """The column, or None and what does not fit in ``bad``."""
    try:
        return to_arrow(values, field)
    except Misfit as misfit:
        for at, value in zip(taken, values, strict=True):
            if not fits(value, field):
                bad.setdefault(
                    at,
                    f"map gave {cut(value)} ({type(value).__name__}) for a {field.name}: "
                    f"{misfit.needed} is needed",
                )
        return None


def refuse_types(job: Job, what: str, given: pa.DataType) -> None:
    """Refuse keys or values that are of a type which says nothing of the job's."""
    kind = job.key_type if what == "key" else job.value_type
    if given == kind:
        return
    try:
        if _is_time(given) != _is_time(kind) and not _is_text(given) and not _is_text(kind):
            raise pa.ArrowNotImplementedError("a time is no number")
        pa.array([], given).cast(kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise JobError(
            f"job {job.name!r}: the {what}s are {given}, and {what}={str(kind)!r}: {error}; "
            "say what they are, or make them so in map"
        ) from error


def _cast(job: Job, what: str, column: pa.Array, bad: dict[int, str]) -> pa.Array:
    """A column as the job's type; values that would not be the same go to ``bad``."""
    kind = job.key_type if what == "key" else job.value_type
    if column.type == kind:
        return column
    refuse_types(job, what, column.type)
    made = _exactly(column, kind)
    if made is not None:
        return made
    arrays = []
    for at in range(len(column)):
        one = _exactly(column.slice(at, 1), kind)
        if one is None:
            said = f"the {what} {cut(column[at].as_py())} ({column.type}) is no {kind}"
            bad.setdefault(at, f"{said}; say what {what}s are, or make them so in map")
        arrays.append(pa.nulls(1, kind) if one is None else one)
    return pa.concat_arrays(arrays)


def _exactly(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """A column as another type, or None where a value would be another."""
    try:
        made = column.cast(kind)
    except pa.ArrowInvalid:
        return None
    if any(_is_text(each) or pa.types.is_nested(each) for each in (column.type, kind)):
        return made
    if pa.types.is_floating(kind):
        return made
    # Arrow lets pass what makes a date of a time, or True of 2
    return made if made.cast(column.type, safe=False).equals(column) else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_temporal(kind))


def spread(keys: pa.Array, among: int) -> Numbers:
    """For each key a number below ``among``: the same in every process, now and later."""
    encoded = keys.dictionary_encode()
    hashes = key_hashes(encoded.dictionary) % np.uint64(among)
    spread_: Numbers = hashes.astype(np.int64)[encoded.indices.to_numpy()]
    return spread_


def key_hashes(keys: pa.Array) -> Numbers:
    """Of each key a number: the same in every process, now and later."""
    kind = keys.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        raw = keys.cast(pa.binary()).to_pylist()
        return np.fromiter(map(crc32, raw), np.uint64, len(raw))
    if pa.types.is_date(kind):
        keys = keys.cast(pa.int32())
    numbers: Numbers = keys.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.uint64)
    return np.right_shift(numbers * _MIX, np.uint64(33))


def _micros(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _seconds(micros: int | None) -> float | None:
    return None if micros is None else micros / MICRO

"""What travels between the parts of a reduce: rows by the hundred, packed as Arrow in one value.

Spark shuffles and stores a few large values instead of many small rows: a *shuffle batch* is all
that one task has for one reducer out of one Arrow batch. The same columns carry what comes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from taut.spark.reduce.job import TAKEN, Job

ROWS, BEAT, RESULT, SHED, STATS = range(5)
"""Kinds: rows for a reducer, a sign of life for one that has none, rows that came out, rows that
were not worked on, and what a reducer tells of a batch."""

PACKED = pa.schema(
    [
        ("reducer", pa.int32()),
        ("kind", pa.int32()),
        ("job", pa.string()),
        ("part", pa.int32()),
        ("seq", pa.int32()),
        ("rows", pa.int32()),
        ("stamp", pa.int64()),
        ("blob", pa.binary()),
    ]
)
PACKED_DDL = (
    "reducer int, kind int, job string, part int, seq int, rows int, stamp bigint, blob binary"
)


class Packed(NamedTuple):
    """One value on its way.

    Attributes
    ----------
    reducer, kind, job
        For whom or from whom, and what it is.
    part, seq
        Of the task that packed it, and how many it packed before: the order that rows came in.
    rows
        How many there are in it.
    stamp
        When Spark planned the batch, in epoch microseconds.
    """

    reducer: int
    kind: int
    job: str
    part: int
    seq: int
    rows: int
    stamp: int
    blob: bytes


def to_batch(packed: Sequence[Packed]) -> pa.RecordBatch:
    """For Spark."""
    columns = zip(*packed, strict=True) if packed else [[]] * len(PACKED)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, PACKED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=PACKED)


def from_columns(columns: Iterable[Sequence[Any]]) -> list[Packed]:
    """From the columns of a frame, in the order of the schema."""
    return [Packed(*values) for values in zip(*columns, strict=True)]


def row_schema(job: Job) -> pa.Schema:
    """Of rows on their way to a reducer; times are epoch microseconds."""
    return pa.schema(
        [
            pa.field("time", pa.int64()),
            pa.field("arrival", pa.int64()),
            pa.field("key", job.key_type, nullable=False),
            pa.field("value", job.value_type),
        ]
    )


def result_schema(job: Job) -> pa.Schema:
    """Of rows that came out: the job's own, and the time and arrival that a next job takes."""
    return pa.schema([*job.schema, *((name, pa.int64()) for name in TAKEN)])


_TIME = pa.timestamp("us", tz="UTC")


def shed_schema(job: Job) -> pa.Schema:
    """Of rows that were not worked on."""
    return pa.schema(
        [
            ("time", _TIME),
            ("key", job.key_type),
            ("value", job.value_type),
            ("arrival", _TIME),
            ("deadline", _TIME),
            ("predicted", _TIME),
            ("reason", pa.string()),
            ("row", pa.string()),
        ]
    )


def pack(batch: pa.RecordBatch) -> bytes:
    """Rows as one value; whoever unpacks it knows the schema."""
    packed: bytes = batch.serialize().to_pybytes()
    return packed


def unpack(blob: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a value."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), schema)


class Rows:
    """Rows at a reducer, column by column, in the order they came."""

    __slots__ = ("arrivals", "batches", "keys", "schema", "times", "values")

    def __init__(self, batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> None:
        table = pa.Table.from_batches(batches, schema).combine_chunks()
        self.schema = schema
        self.times = _numbers(table.column("time"))
        self.arrivals = _numbers(table.column("arrival"))
        self.keys = _whole(table.column("key"))
        self.values = _whole(table.column("value"))
        sizes = [batch.num_rows for batch in batches]
        self.batches = np.repeat(np.arange(len(sizes)), sizes)
        """The shuffle batch that each came with."""

    def __len__(self) -> int:
        return len(self.times)

    def take(self, at: np.ndarray[Any, Any]) -> pa.RecordBatch:
        """Some of them, to be packed."""
        return pa.RecordBatch.from_arrays(
            [
                pa.array(self.times[at], pa.int64()),
                pa.array(self.arrivals[at], pa.int64()),
                self.keys.take(pa.array(at)),
                self.values.take(pa.array(at)),
            ],
            schema=self.schema,
        )


def _numbers(column: pa.ChunkedArray) -> np.ndarray[Any, Any]:
    numbers: np.ndarray[Any, Any] = column.to_numpy()
    return numbers


def _whole(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)

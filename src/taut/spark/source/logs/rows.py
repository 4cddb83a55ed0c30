"""What logs have in common: the columns each row gets, times in microseconds, ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from taut.errors import LogError
from taut.spark.source.logs.base import ADDED, ARRIVAL

VALUE = pa.schema([pa.field("value", pa.string(), nullable=False)])
"""The one column of a log whose rows are plain text."""

MICRO = 1_000_000
_LAST_S = 2**63 // MICRO - 1

Numbers = npt.NDArray[np.int64]


def micros(when: float) -> int:
    """Epoch seconds to microseconds, the nearest: the unit in which arrivals are compared."""
    if not math.isfinite(when) or abs(when) > _LAST_S:
        raise LogError(f"a time of {when!r}: must be epoch seconds, such as 1790000000.5")
    return round(when * MICRO)


def complete(own: pa.Schema) -> pa.Schema:
    """The schema of a log whose rows have the columns ``own``."""
    names = [*own.names, *ADDED.names]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise LogError(
            f"schema with columns {own.names}: {', '.join(twice)} would be there twice; "
            f"{', '.join(ADDED.names)} are added to each row"
        )
    return pa.schema([*own, *ADDED])


def nullable(schema: pa.Schema) -> pa.Schema:
    """The same columns, where each may be null: what is read first, and looked at then."""
    return pa.schema([field.with_nullable(True) for field in schema])


def assemble(
    schema: pa.Schema,
    own: Sequence[pa.Array],
    arrival: Numbers | pa.Array,
    partition: str,
    offsets: Numbers,
) -> pa.RecordBatch:
    """Rows of one partition with their added columns; arrivals in epoch microseconds."""
    kind = ADDED.field(ARRIVAL).type
    times = arrival if isinstance(arrival, pa.Array) else pa.array(arrival).view(kind)
    names = pa.repeat(pa.scalar(partition, pa.string()), len(offsets))
    return pa.RecordBatch.from_arrays([*own, times, names, pa.array(offsets)], schema=schema)


def nothing(schema: pa.Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def missing(rows: pa.RecordBatch | pa.Table) -> tuple[str, int] | None:
    """The first null where the schema allows none: its column, and the index of its row."""
    for name, field in zip(rows.schema.names, rows.schema, strict=True):
        column = rows.column(name)
        if not field.nullable and column.null_count:
            return name, column.is_null().index(True).as_py()
    return None


def check_range(partition: str, start: int, end: int) -> None:
    """Refuse a range that runs backwards or begins before the first offset there can be."""
    if not 0 <= start <= end:
        raise LogError(
            f"partition {partition!r}, range [{start}, {end}): must be 0 <= start <= end"
        )

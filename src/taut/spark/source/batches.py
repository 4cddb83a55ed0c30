"""Operators on batches: a function takes a chunk as it is and gives one, or a mask."""

from __future__ import annotations

import pyarrow as pa

from taut.spark.source.logs.base import ADDED, OFFSET, PARTITION
from taut.spark.source.rows import OperatorError, Step


def run_batch(batch: pa.RecordBatch, step: Step) -> pa.RecordBatch:
    """A chunk, with rows, through one operator."""
    kind = step.operator.kind
    try:
        result = step.operator.f(batch)
        single = kind != "flat_map" or isinstance(result, pa.RecordBatch)
        pieces = [result] if single else list(result)
    except Exception as error:
        raise step.failed(error, _chunk(batch)) from error
    if kind == "filter":
        if not isinstance(result, pa.BooleanArray) or len(result) != batch.num_rows:
            raise OperatorError(
                f"{step.title} gave a {type(result).__name__}: a pa.BooleanArray with a value for "
                f"each row is needed; on {_chunk(batch)}"
            )
        return batch if result.true_count == batch.num_rows else batch.filter(result)
    if wrong := [piece for piece in pieces if not isinstance(piece, pa.RecordBatch)]:
        raise OperatorError(
            f"{step.title} gave a {type(wrong[0]).__name__}: a pa.RecordBatch is needed; on "
            f"{_chunk(batch)}"
        )
    same = sum(piece.num_rows for piece in pieces) == batch.num_rows
    fitted, start = [], 0
    for piece in pieces:
        if piece.num_rows:
            source = batch.slice(start, piece.num_rows) if same else None
            fitted.append(_fitted(step, piece, source))
            start += piece.num_rows
    if not fitted:
        return pa.RecordBatch.from_pylist([], step.schema)
    return fitted[0] if len(fitted) == 1 else pa.concat_batches(fitted)


def _fitted(step: Step, piece: pa.RecordBatch, source: pa.RecordBatch | None) -> pa.RecordBatch:
    """A result with the columns it should have, in their order; the log's own from the source."""
    names, arrays = piece.schema.names, []
    wrong = []
    for field in step.schema:
        if names.count(field.name) == 1:
            array = piece.column(field.name)
            arrays.append(array)
            if array.type != field.type:
                wrong.append(f"has {array.type} in column {field.name!r}: {field.type} is needed")
            elif array.null_count and not field.nullable:
                wrong.append(f"has null in column {field.name!r}, which takes none")
        elif field.name not in ADDED.names:
            wrong.append(f"has {names.count(field.name)} columns {field.name!r}: one is needed")
        elif source is None:
            wrong.append(
                f"lacks column {field.name!r}, which is carried over only when the number of rows "
                "stays the same"
            )
        else:
            arrays.append(source.column(field.name))
    wrong += [f"has a column {name!r} too many" for name in names if name not in step.schema.names]
    if wrong:
        raise OperatorError(
            f"{step.title} gave a batch that {wrong[0]}; give schema= when a function changes the "
            "columns"
        )
    return pa.RecordBatch.from_arrays(arrays, schema=step.schema)


def _chunk(batch: pa.RecordBatch) -> str:
    first, last = (batch.slice(at, 1) for at in (0, batch.num_rows - 1))
    return (
        f"{batch.num_rows} rows with {PARTITION} {first.column(PARTITION)[0].as_py()!r}, {OFFSET} "
        f"{first.column(OFFSET)[0]} to {last.column(OFFSET)[0]}"
    )

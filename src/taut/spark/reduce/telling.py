"""What a reducer puts out of a batch: results, rows that it did not work on, and statistics."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from taut.errors import JobError
from taut.spark.reduce.blobs import (
    RESULT,
    SHED,
    STATS,
    Packed,
    Rows,
    pack,
    result_schema,
    shed_schema,
)
from taut.spark.reduce.fold import as_columns
from taut.spark.reduce.job import MICRO, Job
from taut.spark.reduce.terms import Stats, Terms
from taut.spark.values import cut

Numbers = np.ndarray[Any, Any]


class Telling:
    """Packs what comes of one batch, and counts it."""

    def __init__(self, job: Job, terms: Terms, stats: Stats, stamp_us: int) -> None:
        self._job = job
        self._terms = terms
        self._stamp_us = stamp_us
        self.stats = stats
        self.packed: list[Packed] = []

    def results(self, out: list[Any], times: Numbers, arrivals: Numbers, what: str) -> None:
        """Rows that a function put out."""
        if out:
            arrays = [*as_columns(self._job, out, what), pa.array(times), pa.array(arrivals)]
            batch = pa.RecordBatch.from_arrays(arrays, schema=result_schema(self._job))
            self._pack(RESULT, len(out), pack(batch))
            self.stats.results += len(out)

    def shed(self, rows: Rows, at: Numbers, reason: str, predicted: float | None = None) -> None:
        """Rows that are not worked on."""
        if len(at):
            self._aside(rows, at, reason, predicted)
            self.stats.shed_deadlines += self._deadlines(rows.arrivals[at])
            self.stats.shed[reason] = self.stats.shed.get(reason, 0) + len(at)

    def bad(self, rows: Rows, at: int, reason: str) -> None:
        """A row on which a function failed: the query fails, or it goes aside."""
        row = row_of(rows, at)
        self._refuse(reason, f"row {cut(row)}")
        self._aside(rows, np.array([at]), reason, row=repr(row))
        self.stats.bad += 1

    def not_finalized(self, name: tuple[Any, int], state: Any, error: Exception) -> None:
        """A window whose rows cannot be had: the query fails, or its state goes aside."""
        job = self._job
        assert job.windows is not None
        key, end = name
        row = {"key": key, "window": tuple(job.windows.span(end)), "state": state}
        reason = f"finalize failed with {type(error).__name__}: {error}"
        self._refuse(reason, cut(row))
        schema = shed_schema(job)
        told: dict[str, Any] = dict.fromkeys(schema.names)
        told |= {"time": end - 1, "key": key, "reason": reason, "row": repr(row)}
        arrays = [pa.array([told[field.name]], field.type) for field in schema]
        self._pack(SHED, 1, pack(pa.RecordBatch.from_arrays(arrays, schema=schema)))

    def worked_on(self, arrivals_us: Numbers) -> None:
        """When the rows that were worked on must be out."""
        self.stats.deadlines = self._deadlines(arrivals_us)

    def end(self) -> list[Packed]:
        """All of it, with the statistics."""
        self._pack(STATS, 1, msgspec.msgpack.encode(self.stats))
        return self.packed

    def _deadlines(self, arrivals_us: Numbers) -> list[tuple[float, int]]:
        """To a hundredth of the objective, and how many rows have each."""
        if self._terms.objective == math.inf or not len(arrivals_us):
            return []
        objective = round(self._terms.objective * MICRO)
        unit = max(1, objective // 100)
        steps, rows = np.unique((arrivals_us + objective) // unit, return_counts=True)
        return list(zip((steps * unit / MICRO).tolist(), rows.tolist(), strict=True))

    def _refuse(self, reason: str, what: str) -> None:
        if not self._terms.keep_bad:
            raise JobError(
                f"job {self._job.name!r}: {reason}; on {what}. on_error='side-output' puts such "
                "rows aside and goes on"
            )

    def _aside(
        self,
        rows: Rows,
        at: Numbers,
        reason: str,
        predicted: float | None = None,
        row: str | None = None,
    ) -> None:
        schema, index, many = shed_schema(self._job), pa.array(at), len(at)
        deadlines: Any = [None] * many
        if self._terms.objective < math.inf:
            deadlines = rows.arrivals[at] + round(self._terms.objective * MICRO)
        out = None if predicted is None else round(predicted * MICRO)
        columns = {
            "time": rows.times[at],
            "arrival": rows.arrivals[at],
            "deadline": deadlines,
            "predicted": [out] * many,
            "reason": [reason] * many,
            "row": [row] * many,
        }
        given = {"key": rows.keys.take(index), "value": rows.values.take(index)}
        arrays = [
            given[f.name] if f.name in given else pa.array(columns[f.name], f.type) for f in schema
        ]
        self._pack(SHED, many, pack(pa.RecordBatch.from_arrays(arrays, schema=schema)))

    def _pack(self, kind: int, rows: int, blob: bytes) -> None:
        stats = self.stats
        self.packed.append(
            Packed(stats.reducer, kind, stats.job, 0, len(self.packed), rows, self._stamp_us, blob)
        )


def row_of(rows: Rows, at: int) -> dict[str, Any]:
    """A row, for an error."""
    return {
        "time": int(rows.times[at]) / MICRO,
        "key": rows.keys[at].as_py(),
        "value": rows.values[at].as_py(),
        "arrival": int(rows.arrivals[at]) / MICRO,
    }

"""The access log of the 1998 World Cup's web site, in its published binary format.

A record has 20 bytes, its numbers big-endian: time in epoch seconds, client, object and size of 32
bits each, then method, status, type and server of 8 bits each.
"""

from __future__ import annotations

import time
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import partial
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from taut.workloads.generator import Load
from taut.workloads.reduce.options import whole
from taut.workloads.windows import WorkloadError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD = np.dtype(
    [
        ("time", ">u4"), ("client", ">u4"), ("object", ">u4"), ("size", ">u4"),
        ("method", "u1"), ("status", "u1"), ("type", "u1"), ("server", "u1"),
    ]
)  # fmt: skip
_FILES = "path string, modificationTime timestamp, length bigint, content binary"
_ROWS = "time timestamp, key bigint, value bigint, arrival timestamp"
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_MICRO = 1_000_000


def world_cup(
    spark: SparkSession,
    path: str,
    rate: int | None = None,
    *,
    start: float | None = None,
    streaming: bool = True,
    files_per_batch: int | None = None,
) -> DataFrame:
    """Requests of the World Cup log, as clicks for :func:`taut.workloads.reduce.sessions`.

    Parameters
    ----------
    path
        A folder or a pattern. Files may be gzip'ed, as they are published.
    rate
        Requests a second: request n of all files, in order of their names, arrives at ``start +
        n/rate``. Files must be unpacked then, and at the same path on every machine. Without a
        rate a request arrives when its file does, and new files are read as they come.
    start
        When the first request arrives, in epoch seconds; now, unless told otherwise.
    streaming
        False: what is there now, as a batch.
    files_per_batch
        Take at most so many files a batch; without a rate.

    Returns
    -------
    DataFrame
        ``time``: of the request, in 1998. ``key``: the client, ``value``: the object, ``arrival``.

    Raises
    ------
    WorkloadError
        When a file ends within a record or is damaged; names the file and where. The query fails
        with it: no record is left out.
    """
    if rate is not None:
        files = _Files(path)
        load = Load(time.time() if start is None else start, rate, total=files.records)
        numbers = load.stream(spark) if streaming else load.batch(spark)
        return numbers.mapInArrow(partial(_numbered, files), _ROWS)
    if start is not None:
        raise WorkloadError(f"start={start!r}: needs rate=, such as rate=1_000")
    reader = spark.readStream if streaming else spark.read
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", whole("files_per_batch", files_per_batch, 1))
    contents = reader.format("binaryFile").schema(_FILES).load(path)
    return contents.select("path", "modificationTime", "content").mapInArrow(_unpacked, _ROWS)


def _unpacked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, arrival, content in zip(*batch.columns, strict=True):
            came = arrival.cast(_TIMESTAMP).value
            for records in parsed(path.as_py(), content.as_buffer()):
                yield _batch(records, np.full(len(records), came))


def parsed(path: str, content: Any) -> Iterator[np.ndarray[Any, Any]]:
    """The records of a file, in arrays of bounded size."""
    done, left = 0, b""
    for more in _plain(path, memoryview(content)):
        data = left + more
        cut = len(data) // RECORD.itemsize * RECORD.itemsize
        if cut:
            yield np.frombuffer(data[:cut], RECORD)
        done, left = done + cut, data[cut:]
    if left:
        raise _cut_off(path, done, len(left))


def _plain(path: str, content: memoryview) -> Iterator[bytes]:
    """The bytes of a file, unpacked if need be."""
    # by what it says, not by its name; a record from 1986 would begin like this
    if bytes(content[:2]) != _GZIP:
        for at in range(0, len(content), _CHUNK):
            yield bytes(content[at : at + _CHUNK])
        return
    unzip, unpacked, at = zlib.decompressobj(wbits=31), 0, 0
    pending = b""
    while pending or at < len(content):
        if not pending:
            pending = bytes(content[at : at + _CHUNK])
            at += len(pending)
        if unzip.eof:  # files put together one after the other are a gzip file too
            unzip = zlib.decompressobj(wbits=31)
        try:
            data = unzip.decompress(pending, _CHUNK)
        except zlib.error as error:
            raise WorkloadError(
                f"{path}: gzip data damaged after offset {at - len(pending)} ({error}): fetch the "
                "file again"
            ) from None
        unpacked += len(data)
        pending = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
        if data:
            yield data
    if not unzip.eof:
        raise WorkloadError(
            f"{path}: gzip data ends early, after {unpacked} unpacked bytes: fetch the file again"
        )


def _cut_off(path: str, offset: int, left: int) -> WorkloadError:
    return WorkloadError(
        f"{path}: the record at offset {offset} has {left} bytes and should have "
        f"{RECORD.itemsize}: the file is cut off, or no World Cup log"
    )


def _batch(records: np.ndarray[Any, Any], arrival_us: Any) -> pa.RecordBatch:
    micros = records["time"].astype(np.int64) * _MICRO
    columns = [
        pa.array(micros).cast(_TIMESTAMP),
        pa.array(records["client"].astype(np.int64)),
        pa.array(records["object"].astype(np.int64)),
        pa.array(arrival_us).cast(_TIMESTAMP),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["time", "key", "value", "arrival"])


class _Files:
    """Unpacked files as one sequence of records."""

    def __init__(self, path: str) -> None:
        where = path.removeprefix("file:")
        found = [Path(each) for each in glob(where)]  # noqa: PTH207  # Path takes no absolute ones
        if len(found) == 1 and found[0].is_dir():
            found = list(found[0].iterdir())
        # as Spark does: names that begin like this are not data
        files = [each for each in found if each.is_file() and not each.name.startswith((".", "_"))]
        if not files:
            raise WorkloadError(f"path={path!r}: no files there")
        self.paths = [str(each) for each in sorted(files)]
        self.firsts: list[int] = []
        self.records = 0
        for name in self.paths:
            self.firsts.append(self.records)
            self.records += _records_in(Path(name))

    def read(self, low: int, high: int) -> np.ndarray[Any, Any]:
        """Records ``low`` to ``high`` (exclusive)."""
        parts = []
        while low < high:
            index = bisect_right(self.firsts, low) - 1
            later = [*self.firsts, self.records][index + 1]
            count = min(high, later) - low
            offset = (low - self.firsts[index]) * RECORD.itemsize
            records = np.fromfile(self.paths[index], RECORD, count, offset=offset)
            if len(records) < count:
                at = offset + records.nbytes
                raise WorkloadError(
                    f"{self.paths[index]}: ends at offset {at} and was longer when the query began"
                )
            parts.append(records)
            low += count
        return np.concatenate(parts)


def _records_in(file: Path) -> int:
    with file.open("rb") as opened:
        if opened.read(2) == _GZIP:
            raise WorkloadError(
                f"{file} is gzip'ed: with rate= records are read where they lie; unpack it first"
            )
    size = file.stat().st_size
    if left := size % RECORD.itemsize:
        raise _cut_off(str(file), size - left, left)
    return size // RECORD.itemsize


def _numbered(files: _Files, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows == 0:
            continue
        n, arrivals = (batch.column(name).to_numpy() for name in ("n", "arrival_us"))
        runs = np.split(n, np.flatnonzero(np.diff(n) != 1) + 1)
        records = [files.read(int(run[0]), int(run[-1]) + 1) for run in runs]
        yield _batch(np.concatenate(records), arrivals)

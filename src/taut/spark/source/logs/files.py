"""A log of append-only files in a folder: each file is a partition."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate
from pathlib import Path, PurePath

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from taut.errors import DataLost, LogError
from taut.spark.source.logs.base import ADDED, ARRIVAL, Log, Offsets
from taut.spark.source.logs.lines import check_types, end_of_lines, parse, take_lines
from taut.spark.source.logs.options import flag, required, schema_from, schema_text
from taut.spark.source.logs.rows import (
    VALUE,
    Numbers,
    assemble,
    check_range,
    complete,
    missing,
    nothing,
    nullable,
)

FORMATS = ("json", "csv", "parquet", "text")
_LINE = 128
"""Bytes of a line, roughly."""


class FilesLog(Log):
    """Files of a folder that are only ever appended to; a partition is a file's path inside it.

    Of json, csv and text an offset is the byte at which a line starts, and a range may be cut
    anywhere. A last line without a line break is still being written and no row yet. A row of
    json or csv is one line: a line break inside quotes is refused. Empty lines are no rows when
    there is a schema. Of parquet an offset is the number of a row; a file counts once it is
    finished, and must not change then.

    A file whose name, or whose folder's name, begins with "_" or "." is not one of the log.

    Parameters
    ----------
    path
        The folder, the same on every machine.
    format
        "json" (an object a line), "csv", "parquet" or "text".
    schema
        The columns; those of csv in their order in the file. Without, a row is the text of a line
        in a column ``value``. Needed for parquet, not taken for text.
    pattern
        Which files, such as "*.json", or "**/*.json" for those in folders too.
    header
        Whether the first line of each csv file is no row.
    arrival
        The column, a timestamp, that says when a row arrived. Without, all rows that are read have
        arrived when their file was last modified, as seen at that moment: a later append makes
        them younger. So the log is not timed.
    """

    def __init__(
        self,
        path: str | Path,
        format: str = "text",
        schema: pa.Schema | None = None,
        pattern: str = "*",
        header: bool = False,
        arrival: str | None = None,
    ) -> None:
        self._root = Path(path).resolve()
        self._format = format
        self._columns = schema
        self._pattern = pattern
        self._header = header
        self._arrival = arrival
        self._folder()
        self._own = VALUE if schema is None else schema
        # a column that is called as the added one and is to be it is not there twice
        self._kept = [name for name in self._own.names if not name == arrival == ARRIVAL]
        self._schema = complete(pa.schema([each for each in self._own if each.name in self._kept]))
        self._refuse_settings()
        self.stride = 1 if format == "parquet" else _LINE
        self.unit = "rows" if format == "parquet" else "bytes"

    def schema(self) -> pa.Schema:
        return self._schema

    def earliest(self) -> Offsets:
        return dict.fromkeys(self._ends(), 0)

    def latest(self) -> Offsets:
        return {name: end for name, (end, _) in self._ends().items()}

    def at(self, when: float) -> Offsets:
        """Coarse: the end of each file last modified before ``when``, the start of the others."""
        ends = self._ends().items()
        return {name: end if modified < when else 0 for name, (end, modified) in ends}

    def read(self, partition: str, start: int, end: int) -> pa.RecordBatch:
        check_range(partition, start, end)
        path = self._inside(partition)
        if start == end:
            return nothing(self._schema)
        self._folder()
        try:
            if self._format == "parquet":
                return self._read_parquet(path, partition, start, end)
            return self._read_lines(path, partition, start, end)
        except FileNotFoundError:
            raise DataLost(f"{path}: is gone; files of a log must stay until read") from None
        except OSError as error:
            raise LogError(f"{path}: cannot be read: {error}") from error

    def options(self) -> dict[str, str]:
        """What makes this log again, as options of a data source."""
        given = {"log": "files", "path": str(self._root), "format": self._format}
        given |= {"pattern": self._pattern, "header": str(self._header).lower()}
        if self._arrival is not None:
            given["arrival"] = self._arrival
        return given if self._columns is None else given | {"arrowschema": schema_text(self._own)}

    def close(self) -> None:
        """Let go of what was read ahead."""
        _row_group.cache_clear()

    def __repr__(self) -> str:
        return f"FilesLog({str(self._root)!r}, {self._format!r}, pattern={self._pattern!r})"

    def _read_lines(self, path: Path, partition: str, start: int, end: int) -> pa.RecordBatch:
        with path.open("rb") as file:
            lines = take_lines(file, str(path), start, end, self._header)
            modified_us = os.fstat(file.fileno()).st_mtime_ns // 1_000
        if self._columns is None:
            own, index = pa.table([lines.text()], schema=VALUE), np.arange(len(lines.starts))
        else:
            own, index = parse(lines, self._format, self._own)
        return self._rows(
            own,
            partition,
            lines.starts[index],
            modified_us,
            lambda row, why: lines.malformed(int(index[row]), why),
        )

    def _read_parquet(self, path: Path, partition: str, start: int, end: int) -> pa.RecordBatch:
        info = path.stat()
        version = (path, info.st_ino, info.st_size, info.st_mtime_ns)
        try:
            own = self._slice(version, start, end)
        except pa.ArrowInvalid as error:
            raise DataLost(f"{path}: is no finished parquet file any more: {error}") from error
        offsets = np.arange(start, end, dtype=np.int64)

        def refuse(row: int, why: str) -> LogError:
            return LogError(f"{path}, row {start + row}: {why}")

        return self._rows(own, partition, offsets, info.st_mtime_ns // 1_000, refuse)

    def _slice(self, version: _Version, start: int, end: int) -> pa.Table:
        """Rows of a parquet file; reads the row groups that hold them."""
        path = version[0]
        starts, names = _row_groups(*version)
        if end > (rows := starts[-1]):
            raise DataLost(f"{path}, rows [{start}, {end}): has only {rows}; was it written anew?")
        absent = sorted(set(self._own.names) - set(names))
        if absent:
            raise LogError(
                f"{path}: has columns {list(names)}, but not {', '.join(absent)} of the schema"
            )
        groups = [g for g in range(len(starts) - 1) if starts[g] < end and starts[g + 1] > start]
        columns = tuple(self._own.names)
        table = pa.concat_tables([_row_group(*version, g, columns) for g in groups])
        table = table.slice(start - starts[groups[0]], end - start)
        try:
            return table.cast(nullable(self._own))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise LogError(
                f"{path}: has {table.schema.types}, not {self._own.types} of the schema: {error}"
            ) from error

    def _rows(
        self,
        own: pa.Table,
        partition: str,
        offsets: Numbers,
        modified_us: int,
        refuse: Callable[[int, str], LogError],
    ) -> pa.RecordBatch:
        if not len(offsets):
            return nothing(self._schema)
        arrays = [column.chunk(0) for column in own.combine_chunks().columns]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._own)
        null = missing(rows)
        if null is not None:
            raise refuse(null[1], f"has no {null[0]!r}")
        arrival: Numbers | pa.Array = np.full(len(offsets), modified_us, dtype=np.int64)
        if self._arrival is not None:
            times = rows.column(self._arrival)
            if times.null_count:
                raise refuse(times.is_null().index(True).as_py(), f"has no {self._arrival!r}")
            arrival = times.cast(ADDED.field(ARRIVAL).type, safe=False)
        return assemble(
            self._schema, [rows.column(name) for name in self._kept], arrival, partition, offsets
        )

    def _ends(self) -> dict[str, tuple[int, float]]:
        """Of each file: the offset after its last row, and when it was modified."""
        found = {}
        for name, path, info in self._files():
            try:
                key = (path, info.st_ino, info.st_size, info.st_mtime_ns)
                end = _parquet_rows(*key) if self._format == "parquet" else _text_end(*key)
            except PermissionError as error:
                raise LogError(f"{path}: cannot be read: {error}") from None
            except (FileNotFoundError, _NotFinished):
                continue
            found[name] = end, info.st_mtime
        return found

    def _files(self) -> Iterator[tuple[str, Path, os.stat_result]]:
        homes = {self._root: True}  # folders, and whether no link leads to them
        for found in sorted(self._folder().glob(self._pattern)):
            parts = found.relative_to(self._root).parts
            if not parts or any(part.startswith((".", "_")) for part in parts):
                continue
            name, home, path = "/".join(parts), found.parent, found
            if home not in homes:
                homes[home] = home.resolve() == home
            try:
                info = found.lstat()
                if stat.S_ISLNK(info.st_mode) or not homes[home]:
                    path = self._inside(name)
                    info = path.stat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(info.st_mode):
                if name != name.encode("utf-8", "replace").decode("utf-8"):
                    raise LogError(f"{self._root}: has a file {name!r}: its name must be UTF-8")
                yield name, path, info

    def _folder(self) -> Path:
        if not self._root.is_dir():
            raise LogError(f"path={str(self._root)!r}: must be a folder that is there")
        return self._root

    def _inside(self, partition: str) -> Path:
        """The file of a partition; refuses one that a name or a link leads out of the folder."""
        try:
            path = (self._root / partition).resolve()
        except (ValueError, OSError, RuntimeError):
            path = self._root
        if path == self._root or not path.is_relative_to(self._root):
            raise LogError(f"partition {partition!r}: must be a file inside {self._root}")
        return path

    def _refuse_settings(self) -> None:
        kind, schema, arrival = self._format, self._columns, self._arrival
        if kind not in FORMATS:
            raise LogError(f"format={kind!r}: must be one of {', '.join(FORMATS)}")
        if schema is None and kind == "parquet":
            raise LogError("schema=None: must be given for parquet, as pq.read_schema(file) gives")
        if schema is not None and kind == "text":
            raise LogError(f"schema={schema.names}: must be left out for text, a column value")
        if self._header and kind != "csv":
            raise LogError(f"header=True with format={kind!r}: must be False, only csv has headers")
        glob = PurePath(self._pattern)
        if glob.is_absolute() or ".." in glob.parts or not glob.parts:
            raise LogError(f'pattern={self._pattern!r}: must stay in the folder, such as "*.json"')
        if schema is not None and not schema.names:
            raise LogError("schema=[]: must have a column, or be left out")
        if schema is not None and kind != "parquet":
            check_types(kind, schema)
        if arrival is None:
            return
        if schema is None or arrival not in schema.names:
            known = "there is none" if schema is None else ", ".join(schema.names)
            raise LogError(f"arrival={arrival!r}: must be a column of the schema: {known}")
        found = schema.field(arrival).type
        if not pa.types.is_timestamp(found):
            raise LogError(f"arrival={arrival!r}: is of type {found}, must be a timestamp")


class _NotFinished(Exception):
    """A parquet file without its footer."""


_Version = tuple[Path, int, int, int]
"""A file as it was: its path, inode, size and time of modification."""


# Spark asks for the latest offsets every few milliseconds, and most files have not changed.
@lru_cache(maxsize=65_536)
def _text_end(path: Path, inode: int, size: int, modified_ns: int) -> int:
    with path.open("rb") as file:
        return end_of_lines(file, size)


@lru_cache(maxsize=65_536)
def _parquet_rows(path: Path, inode: int, size: int, modified_ns: int) -> int:
    try:
        rows: int = pq.read_metadata(path).num_rows
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError):
        raise _NotFinished from None
    return rows


@lru_cache(maxsize=256)
def _row_groups(
    path: Path, inode: int, size: int, modified_ns: int
) -> tuple[list[int], tuple[str, ...]]:
    """The row at which each row group of a parquet file starts, and the names of its columns."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        sizes = (metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
        return [*accumulate(sizes, initial=0)], tuple(file.schema_arrow.names)


# A row group is decoded whole, and holds many chunks: a lane mostly stays in the same one.
@lru_cache(maxsize=2)
def _row_group(
    path: Path, inode: int, size: int, modified_ns: int, group: int, columns: tuple[str, ...]
) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read_row_group(group, columns=columns, use_threads=False).select(columns)


def from_options(options: Mapping[str, str]) -> FilesLog:
    """``path``, ``format``, ``pattern``, ``header``, ``arrival`` and ``arrowschema``."""
    return FilesLog(
        required(options, "path", "/data/in"),
        options.get("format", "text"),
        schema_from(options),
        options.get("pattern", "*"),
        flag(options, "header"),
        options.get("arrival") or None,
    )

"""Lines of a file: found from any byte on, and parsed by Arrow, exactly one row a line.

Arrow's readers are lenient about where a row ends. A chunk may begin at any line, so each line has
to be a row by itself, or the rows would depend on where the chunks were cut.
"""

from __future__ import annotations

import io
import re
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from taut.errors import DataLost, LogError
from taut.spark.source.logs.rows import Numbers, nullable

_BLOCK = 65_536
_MOST = 2**30  # Arrow's readers take a block of less than 2 GiB, and the text is one array
_BOM = b"\xef\xbb\xbf"
# A last line of ours: Arrow swallows it when a quote of the line before was never closed.
_SENTINEL = "\x1ftaut\x1f"

_Reader = Callable[[bytes, pa.Schema], pa.Table]


@dataclass(frozen=True)
class Lines:
    """Whole lines, with their line breaks.

    Parameters
    ----------
    file
        Where they are from, for errors.
    data
        Their bytes.
    starts
        Where each starts in the file.
    ends
        Where each ends in the data, after its line break.
    """

    file: str
    data: bytes
    starts: Numbers
    ends: Numbers

    def text(self) -> pa.Array:
        """Each line without its line break."""
        raw = np.frombuffer(self.data.replace(b"\r\n", b"\n"), dtype=np.uint8)
        breaks = raw == ord("\n")
        ends = np.flatnonzero(breaks) - np.arange(len(self.ends))
        bounds = np.concatenate([[0], ends]).astype(np.int32)
        lines = pa.StringArray.from_buffers(
            len(ends), pa.py_buffer(bounds), pa.py_buffer(raw[~breaks])
        )
        try:
            lines.validate(full=True)
        except pa.ArrowInvalid:
            self._refuse_encoding()
        return lines

    def malformed(self, index: int, why: str) -> LogError:
        """The error that a line is, with the byte where it starts."""
        begin = int(self.ends[index - 1]) if index else 0
        line = self.data[begin : int(self.ends[index])].decode("utf-8", "replace").rstrip("\r\n")
        return LogError(f"{self.file}, byte {self.starts[index]}: {why}: {line[:200]!r}")

    def holding(self, position: int) -> int:
        """The index of the line that holds a byte of the data."""
        return int(np.searchsorted(self.ends, position, side="right"))

    def _refuse_encoding(self) -> None:
        try:
            self.data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.malformed(self.holding(error.start), "must be UTF-8") from None


def take_lines(file: BinaryIO, name: str, start: int, end: int, header: bool = False) -> Lines:
    """The lines that start in [start, end), wherever the last of them ends.

    Parameters
    ----------
    header
        Whether the line at byte 0 is no row.
    """
    asked = f"{name}, bytes [{start}, {end})"
    if end - start > _MOST:
        raise LogError(f"{asked}: at most {_MOST} can be read at once")
    before = max(start - 1, 0)  # a line starts here if the byte before is a line break
    file.seek(before)
    data = file.read(end - before)
    if len(data) < end - before:
        size = before + len(data)
        raise DataLost(f"{asked}: it has only {size}; was it truncated?")
    first = 0
    if start:
        skipped = data.find(b"\n") + 1 or len(data)
        data, first = data[skipped:], before + skipped
    if data and not data.endswith(b"\n"):
        data += _rest(file, name, end)
    if len(data) > _MOST:
        raise LogError(f"{asked}: its last line makes it more than {_MOST}; read fewer at once")
    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == ord("\n")).astype(np.int64) + 1
    starts = first + np.concatenate([[0], ends[:-1]]).astype(np.int64)[: len(ends)]
    drop = 0
    if first == 0 and len(ends):
        drop = int(ends[0]) if header else len(_BOM) * data.startswith(_BOM)
        starts, ends = (starts[1:], ends[1:]) if header else (starts, ends)
    return Lines(name, data[drop:], starts, ends - drop)


def _rest(file: BinaryIO, name: str, end: int) -> bytes:
    parts: list[bytes] = []
    while block := file.read(_BLOCK):
        parts.append(block[: block.find(b"\n") + 1 or len(block)])
        if parts[-1].endswith(b"\n"):
            return b"".join(parts)
    raise DataLost(f"{name}: the line that holds byte {end - 1} has no end; was it written anew?")


def end_of_lines(file: BinaryIO, size: int) -> int:
    """Where the last whole line of the first ``size`` bytes ends."""
    while size > 0:
        low = max(0, size - _BLOCK)
        file.seek(low)
        newline = file.read(size - low).rfind(b"\n")
        if newline >= 0:
            return low + newline + 1
        size = low
    return 0


def parse(lines: Lines, kind: str, schema: pa.Schema) -> tuple[pa.Table, Numbers]:
    """Rows of lines, and the index of each one's line; empty lines are none.

    Nulls are allowed everywhere here.
    """
    refused, why, read = _KINDS[kind]
    text = lines.text()
    if found := refused.search(lines.data):
        raise lines.malformed(lines.holding(found.start()), why)
    if kind == "json":
        text = pc.ascii_trim(text, " \t\r")
    kept: Numbers = np.flatnonzero(pc.not_equal(text, "").to_numpy(zero_copy_only=False))
    if not len(kept):
        return nullable(schema).empty_table(), kept
    if kind == "json":
        _refuse_parts(lines, kept, text)
    try:
        table = read(lines.data, schema)
    except pa.ArrowInvalid:
        raise _blame(lines, kept, read, schema) from None
    if table.num_rows != len(kept):
        raise _blame(lines, kept, read, schema)
    return table.combine_chunks(), kept


def check_types(kind: str, schema: pa.Schema) -> None:
    """Refuse columns that Arrow cannot read from such lines."""
    try:
        _KINDS[kind][2](b"{}\n" if kind == "json" else b"", schema)
    except pa.ArrowException as error:
        raise LogError(f"schema {schema.names} of types {schema.types}: {error}") from None


def _refuse_parts(lines: Lines, kept: Numbers, text: pa.Array) -> None:
    """A line with these two ends can be several objects, which shows, but not part of one.

    Nor can it be ``null``, of which Arrow's reader dies (apache/arrow#47409, still so in 26).
    """
    whole = pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))
    parts = np.flatnonzero(~whole.to_numpy(zero_copy_only=False)[kept])
    if len(parts):
        raise lines.malformed(int(kept[parts[0]]), "must be a JSON object")


def _blame(lines: Lines, kept: Numbers, read: _Reader, schema: pa.Schema) -> LogError:
    """The first line with which the lines up to it cannot be read."""

    def fault(index: int) -> str:
        try:
            rows = read(lines.data[: int(lines.ends[kept[index]])], schema).num_rows
        except pa.ArrowInvalid as error:
            # the numbers of rows are those of the chunk; the rest of the message may be the line
            return re.sub(r"Row #\d+: | in row \d+", "", str(error).partition("\n")[0])[:200]
        return "" if rows == index + 1 else "must be one row, and a row one line"

    at = bisect_left(range(len(kept) - 1), True, key=lambda index: bool(fault(index)))
    return lines.malformed(int(kept[at]), fault(at))


def _read_json(data: bytes, schema: pa.Schema) -> pa.Table:
    return pyarrow.json.read_json(
        io.BytesIO(data),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=nullable(schema), unexpected_field_behavior="ignore"
        ),
    )


def _read_csv(data: bytes, schema: pa.Schema) -> pa.Table:
    """As Spark reads it: nothing is null, "" is empty; quotes are doubled."""
    data += _SENTINEL.encode() + b"," * (len(schema) - 1) + b"\n"
    table = pyarrow.csv.read_csv(
        io.BytesIO(data),
        read_options=pyarrow.csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=schema.names
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=nullable(schema),
            null_values=["", _SENTINEL],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return table.slice(0, table.num_rows - 1)


_KINDS: dict[str, tuple[re.Pattern[bytes], str, _Reader]] = {
    # to Arrow's readers these end a document and a row
    "json": (re.compile(rb"\0"), "must have no byte 0", _read_json),
    "csv": (re.compile(rb"\r(?!\n)"), "must have no \\r but before \\n", _read_csv),
}

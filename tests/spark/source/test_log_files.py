from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import DataLost, LogError
from taut.spark.source.logs.base import ARRIVAL, OFFSET
from taut.spark.source.logs.files import FilesLog
from taut.spark.source.logs.lines import parse, take_lines

AB = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])


def rows(log: FilesLog, name: str, own: int = 2) -> list[tuple[Any, ...]]:
    batch = log.read(name, log.earliest()[name], log.latest()[name])
    return [tuple(row.values())[:own] for row in batch.to_pylist()]


def test_a_line_counts_once_it_is_finished(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    file.write_bytes(b"")
    log = FilesLog(tmp_path)
    assert log.latest() == {"log.txt": 0}
    with file.open("ab", buffering=0) as writer:
        writer.write(b"one\ntw")
        assert log.latest() == {"log.txt": 4}
        assert rows(log, "log.txt", 1) == [("one",)]
        writer.write(b"o\n\n")
        assert log.latest() == {"log.txt": 9}
    batch = log.read("log.txt", 1, 9)
    assert batch.column("value").to_pylist() == ["two", ""]
    assert batch.column(OFFSET).to_pylist() == [4, 8]


def test_the_last_line_may_be_longer_than_a_block(tmp_path: Path) -> None:
    line = b"x" * 200_000
    (tmp_path / "f").write_bytes(line + b"\n" + line + b"\n" + line)
    log = FilesLog(tmp_path)
    assert log.latest() == {"f": 400_002}
    assert log.read("f", 200_000, 200_002).column("value").to_pylist() == [line.decode()]
    assert log.read("f", 5, 200_001).num_rows == 0
    (tmp_path / "f").write_bytes(line)
    assert log.latest() == {"f": 0}


def test_which_files(tmp_path: Path) -> None:
    for name in ["a.json", "sub/b.json", "_c.json", ".d.json", "_tmp/e.json", "f.txt"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    assert set(FilesLog(tmp_path).latest()) == {"a.json", "f.txt"}
    assert set(FilesLog(tmp_path, pattern="*.json").earliest()) == {"a.json"}
    assert set(FilesLog(tmp_path, pattern="**/*.json").latest()) == {"a.json", "sub/b.json"}
    assert FilesLog(tmp_path, pattern="**/*.json").read("sub/b.json", 0, 3).num_rows == 1


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "link", "sub/../../secret", "", ".", "a\0b"]
)
def test_nothing_outside_the_folder_is_read(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "secret").write_text("secret\n")
    (folder / "link").symlink_to(tmp_path / "secret")
    log = FilesLog(folder, pattern="*.txt")
    with pytest.raises(LogError, match="must be a file inside") as error:
        log.read(name, 0, 7)
    assert repr(name) in str(error.value)
    with pytest.raises(LogError, match="'link': must be a file inside"):
        FilesLog(folder).latest()


def test_a_file_that_went_or_shrank_is_lost_data(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"one\ntwo\n")
    log = FilesLog(tmp_path)
    assert log.latest() == {"f": 8}
    file.write_bytes(b"one\n")
    with pytest.raises(DataLost, match=r"\[4, 8\).*only 4.*truncated"):
        log.read("f", 4, 8)
    file.write_bytes(b"one\nmore of it")
    with pytest.raises(DataLost, match="no end"):
        log.read("f", 4, 8)
    file.unlink()
    assert log.latest() == {}
    with pytest.raises(DataLost, match="gone"):
        log.read("f", 4, 8)
    tmp_path.rmdir()
    for ask in (log.latest, log.earliest, lambda: log.read("f", 0, 1)):
        with pytest.raises(LogError, match=f"{tmp_path}.*must be a folder") as error:
            ask()
        assert not isinstance(error.value, DataLost), "a folder may be mounted again"


def test_json(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a": 1, "b": "x", "c": [1]}\n\n {"b": null, "a": 2} \n{"a":3}\n')
    log = FilesLog(tmp_path, "json", AB)
    assert rows(log, "f") == [(1, "x"), (2, None), (3, None)]
    assert log.read("f", 0, 1).column(OFFSET).to_pylist() == [0]
    assert FilesLog(tmp_path, "json").read("f", 0, 30).column("value").to_pylist() == [
        '{"a": 1, "b": "x", "c": [1]}',
        "",
    ]


GOOD = '{"a": 1}\n'


@pytest.mark.parametrize(
    "line",
    [
        '{"a": "text"}',
        '{"a": 1.5}',
        '{"a": 1',
        "[1]",
        "null",
        "garbage",
        '{"a": 1}{"a": 2}',
        '{"b": "a is missing"}',
        '{"a": 1, "b": {}}',
        '{"a": 1}\0',
        '{"a": 1}\0{"a": 2}',
        '{"a": 1, "b": "\x01"}',
        '{"a":\n1}',
        '{"a": 1, "b":\n"x"}{"a": 2}',
    ],
)
@pytest.mark.parametrize("before", [0, 1, 7])
@pytest.mark.parametrize("after", [0, 5])
def test_a_line_that_is_no_json_is_named(
    tmp_path: Path, line: str, before: int, after: int
) -> None:
    (tmp_path / "f.json").write_text(GOOD * before + line + "\n" + GOOD * after)
    log = FilesLog(tmp_path, "json", AB)
    with pytest.raises(LogError, match=r"f\.json") as error:
        log.read("f.json", 0, log.latest()["f.json"])
    message = str(error.value)
    assert f"byte {before * len(GOOD)}:" in message
    assert repr(line.partition("\n")[0]) in message


def test_faults_that_hide_each_other_are_found(tmp_path: Path) -> None:
    (tmp_path / "f").write_text('{"a": 1}{"a": 2}\n{"a":\n3}\n')
    with pytest.raises(LogError, match="byte 17"):
        rows(FilesLog(tmp_path, "json", AB), "f")
    (tmp_path / "f").write_text('1,a\r2,b\n3,"c\nd"\n')
    with pytest.raises(LogError, match="byte 0"):
        rows(FilesLog(tmp_path, "csv", AB), "f")


JSON_BITS = ["{", "}", "[", "]", ":", ",", " ", '"', "null", "1", '"a":', "{}", '{"a":1}', '"b"']
CSV_BITS = [",", '"', '""', "1", "2,", "x", " ", "1,x", '1,"x"', "\r", "\0", "\x1ftaut\x1f"]


@pytest.mark.parametrize(("format", "bits"), [("json", JSON_BITS), ("csv", CSV_BITS)])
@settings(derandomize=True, deadline=None, database=None, max_examples=400)
@given(data=st.data())
def test_lines_are_rows_together_as_they_are_alone(
    format: str, bits: list[str], data: st.DataObject
) -> None:
    good = {"json": '{"a":5}', "csv": '5,"y"'}[format]
    soup = st.lists(st.sampled_from(bits), max_size=6).map("".join) | st.just(good)
    lines = data.draw(st.lists(soup, min_size=1, max_size=5))
    columns = pa.schema([("a", pa.int64()), ("b", pa.string())])

    def outcome(content: bytes) -> list[Any] | None:
        try:
            table, _ = parse(take_lines(io.BytesIO(content), "f", 0, len(content)), format, columns)
        except LogError:
            return None
        table.validate(full=True)
        rows: list[Any] = table.to_pylist()
        return rows

    alone = [outcome(f"{line}\n".encode()) for line in lines]
    together = outcome("".join(f"{line}\n" for line in lines).encode())
    if None in alone:
        assert together is None
    else:
        assert together == [row for rows in alone if rows is not None for row in rows]


def test_a_long_line_is_cut_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x" * 5_000 + "\n")
    with pytest.raises(LogError) as error:
        rows(FilesLog(tmp_path, "json", AB), "f")
    assert "x" * 200 in str(error.value)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize("format", ["json", "csv", "text"])
def test_text_must_be_utf_8(tmp_path: Path, format: str) -> None:
    (tmp_path / "f").write_bytes('{"a": "ü"}\n'.encode() + b'{"a": "\xff"}\n')
    with pytest.raises(LogError, match=r"byte 12: must be UTF-8: .*\ufffd"):
        rows(FilesLog(tmp_path, format, None if format == "text" else AB), "f")


def test_csv(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'a,b\n1,x\r\n\n2,"y ""z"", NA"\n3,\n4,""\n5,NA\n')
    log = FilesLog(tmp_path, "csv", AB, header=True)
    assert rows(log, "f") == [(1, "x"), (2, 'y "z", NA'), (3, None), (4, ""), (5, "NA")]
    assert log.read("f", 0, 3).num_rows == 0, "only the header starts there"
    assert log.read("f", 4, 5).column("a").to_pylist() == [1]
    with pytest.raises(LogError, match=r"byte 0: .*'a,b'"):
        rows(FilesLog(tmp_path, "csv", AB), "f")
    assert (
        FilesLog(tmp_path, "csv", header=True).read("f", 0, 5).column("value")[0].as_py() == "1,x"
    )


@pytest.mark.parametrize(
    "line", ["x,1", "1", "1,2,3", '1,"two\nlines"', '1,"open', '1,5" pipe\r', ",no a", "1,a\rb"]
)
@pytest.mark.parametrize("before", [0, 1, 6])
@pytest.mark.parametrize("after", [0, 3])
def test_a_line_that_is_no_csv_is_named(tmp_path: Path, line: str, before: int, after: int) -> None:
    good = "1,good\n"
    data = (good * before + line + "\n" + good * after).replace("\r\n", "\r \n")
    (tmp_path / "f.csv").write_bytes(data.encode())
    log = FilesLog(tmp_path, "csv", AB)
    with pytest.raises(LogError, match=f"f.csv, byte {before * len(good)}:") as error:
        log.read("f.csv", 0, log.latest()["f.csv"])
    assert "taut" not in str(error.value).replace(str(tmp_path), "")
    if "\n" in line:
        first = before * len(good)
        with pytest.raises(LogError, match=f"byte {first}:"):
            log.read("f.csv", first, first + 1)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b'\xef\xbb\xbf{"a":1}\n{"a":2}\n')
    assert rows(FilesLog(tmp_path, "json", AB), "f", 1) == [(1,), (2,)]
    assert FilesLog(tmp_path).read("f", 0, 1).column("value").to_pylist() == ['{"a":1}']


def test_arrival_is_the_time_of_the_file_or_a_column(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text('{"a": 1, "t": "2020-01-01T00:00:00.5"}\n')
    os.utime(file, ns=(0, 1_500_000_000_123_456_789))
    schema = pa.schema([("a", pa.int64()), ("t", pa.timestamp("ms"))])

    def arrival(log: FilesLog) -> int:
        times = log.read("f", 0, 10).column(ARRIVAL)
        return int(times.view(pa.int64())[0].as_py())

    log = FilesLog(tmp_path, "json", schema)
    assert not log.timed
    assert arrival(log) == 1_500_000_000_123_456
    assert arrival(FilesLog(tmp_path, "json", schema, arrival="t")) == 1_577_836_800_500_000
    assert log.at(1_500_000_001) == {"f": file.stat().st_size}
    assert log.at(1_500_000_000) == {"f": 0}

    file.write_text('{"a": 1}\n')
    with pytest.raises(LogError, match="byte 0: has no 't'"):
        FilesLog(tmp_path, "json", schema, arrival="t").read("f", 0, 9)


def test_a_column_named_arrival_can_be_the_arrival(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("2020-01-01T00:00:00Z,1\n")
    schema = pa.schema([("arrival", pa.timestamp("us", tz="UTC")), ("a", pa.int64())])
    log = FilesLog(tmp_path, "csv", schema, arrival="arrival")
    assert log.schema().names == ["a", "arrival", "log_partition", "log_offset"]
    (row,) = log.read("f", 0, 9).to_pylist()
    assert (row["a"], row["arrival"].year) == (1, 2020)
    with pytest.raises(LogError, match="arrival would be there twice"):
        FilesLog(tmp_path, "csv", schema)


def test_parquet(tmp_path: Path) -> None:
    table = pa.table({"b": [str(n) for n in range(10)], "z": range(10), "a": range(10)})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=3)
    whole = (tmp_path / "f.parquet").read_bytes()
    (tmp_path / "g.parquet").write_bytes(whole[:-9])
    (tmp_path / "h.parquet").write_bytes(b"")
    log = FilesLog(tmp_path, "parquet", AB)
    assert log.latest() == {"f.parquet": 10}
    assert log.earliest() == log.at(0) == {"f.parquet": 0}
    batch = log.read("f.parquet", 2, 7)
    assert batch.column("a").to_pylist() == batch.column(OFFSET).to_pylist() == [2, 3, 4, 5, 6]
    (tmp_path / "g.parquet").write_bytes(whole)
    assert log.latest() == {"f.parquet": 10, "g.parquet": 10}

    with pytest.raises(DataLost, match="only 10"):
        log.read("f.parquet", 0, 11)
    (tmp_path / "f.parquet").write_bytes(b"something else")
    with pytest.raises(DataLost, match="no finished parquet"):
        log.read("f.parquet", 0, 10)


def test_a_row_group_of_parquet_is_read_once_for_all_its_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = pa.table({"a": range(100), "b": [str(n) for n in range(100)]})
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=50)
    groups: list[int] = []
    read = pq.ParquetFile.read_row_group

    def counting(file: pq.ParquetFile, group: int, **how: object) -> pa.Table:
        groups.append(group)
        return read(file, group, **how)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counting)
    log = FilesLog(tmp_path, "parquet", AB)
    found = [
        n for at in range(0, 100, 4) for n in log.read("f.parquet", at, at + 4)["a"].to_pylist()
    ]
    assert found == [*range(100)]
    assert groups == [0, 1]
    log.close()
    log.read("f.parquet", 0, 4)
    assert groups == [0, 1, 0], "closing lets go of it"


def test_parquet_of_another_schema_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": ["x"], "b": ["y"]}), tmp_path / "f")
    with pytest.raises(LogError, match=r"not .*int64.* of the schema"):
        FilesLog(tmp_path, "parquet", AB).read("f", 0, 1)
    pq.write_table(pa.table({"a": [1]}), tmp_path / "f")
    with pytest.raises(LogError, match=r"has columns .*'a'.*, but not b"):
        FilesLog(tmp_path, "parquet", AB).read("f", 0, 1)
    pq.write_table(pa.table({"a": [1, None], "b": ["x", "y"]}), tmp_path / "f")
    with pytest.raises(LogError, match="row 1: has no 'a'"):
        FilesLog(tmp_path, "parquet", AB).read("f", 0, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"format": "xml"}, "format='xml': must be one of"),
        ({"format": "parquet"}, "schema=None: must be given for parquet"),
        ({"format": "text", "schema": AB}, "must be left out for text"),
        ({"format": "json", "schema": pa.schema([])}, r"schema=\[\]"),
        ({"format": "json", "header": True}, "header=True with format='json'"),
        ({"pattern": "../*"}, r"pattern='\.\./\*': must stay in the folder"),
        ({"pattern": "/etc/*"}, "must stay in the folder"),
        ({"pattern": ""}, "must stay in the folder"),
        ({"arrival": "t"}, "arrival='t': must be a column of the schema: there is none"),
        ({"format": "csv", "schema": AB, "arrival": "t"}, "arrival='t': .*: a, b"),
        ({"format": "csv", "schema": AB, "arrival": "b"}, "string, must be a timestamp"),
        (
            {"format": "csv", "schema": pa.schema([("m", pa.list_(pa.int8()))])},
            "list.*not supported",
        ),
        ({"format": "json", "schema": pa.schema([("d", pa.duration("s"))])}, "not supported"),
        ({"format": "csv", "schema": pa.schema([("log_offset", pa.int8())])}, "twice"),
    ],
)
def test_refuses_settings(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(LogError, match=message):
        FilesLog(tmp_path, **options)


def test_the_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=f"{tmp_path}/no"):
        FilesLog(tmp_path / "no")
    (tmp_path / "file").write_text("x")
    with pytest.raises(LogError, match="must be a folder"):
        FilesLog(tmp_path / "file")

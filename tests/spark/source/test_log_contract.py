"""What every log must hold, whatever is in it and wherever its ranges are cut."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.errors import LogError
from taut.spark.source.logs import open_log
from taut.spark.source.logs.base import ADDED, ARRIVAL, OFFSET, PARTITION, Log
from taut.spark.source.logs.files import FilesLog
from taut.spark.source.logs.kafka import KafkaLog
from taut.spark.source.logs.memory import MemoryLog
from taut.spark.source.logs.schedule import ScheduleLog

Expected = dict[str, list[dict[str, Any]]]
Kind = Callable[[st.DataObject], AbstractContextManager[tuple[Log, Expected]]]

KAFKA = {"log": "kafka", "kafka.bootstrap.servers": "127.0.0.1:9"}
WORDS = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n\r"), max_size=9)
COLUMNS = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("s", pa.string())])
RECORDS = st.fixed_dictionaries({"a": st.integers(-(2**63), 2**63 - 1), "s": st.none() | WORDS})


@contextmanager
def scheduled(data: st.DataObject) -> Iterator[tuple[Log, Expected]]:
    partitions, total = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 60))
    rate = data.draw(st.floats(1e-3, 1e9))
    arrivals = data.draw(st.sampled_from(["even", "random"]))
    log = ScheduleLog(0.0, rate, partitions, total, arrivals=arrivals, clock=long_after)
    rows = {
        str(p): [{"n": n, "value": ""} for n in range(p, total, partitions)]
        for p in range(partitions)
    }
    yield log, rows


def long_after() -> float:
    return 1e9


@contextmanager
def text_files(data: st.DataObject) -> Iterator[tuple[Log, Expected]]:
    with tempfile.TemporaryDirectory() as folder:
        expected: Expected = {}
        for name in data.draw(st.sets(st.sampled_from(["a", "b.txt", "c d"]))):
            lines = data.draw(st.lists(st.tuples(WORDS, st.sampled_from(["\n", "\r\n"]))))
            unfinished = data.draw(WORDS)
            content = "".join(line + end for line, end in lines) + unfinished
            (Path(folder) / name).write_bytes(content.encode())
            expected[name] = [{"value": line} for line, _ in lines]
            if lines and lines[0][0].startswith("\ufeff"):
                expected[name][0]["value"] = lines[0][0][1:]
        yield FilesLog(folder), expected


@contextmanager
def json_files(data: st.DataObject) -> Iterator[tuple[Log, Expected]]:
    rows = data.draw(st.lists(RECORDS, max_size=20))
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "rows.json").open("wb") as file:
            for row in rows:
                file.write(b" \n" * data.draw(st.integers(0, 1)))
                ascii_only, spaces = data.draw(st.booleans()), data.draw(st.sampled_from(["", " "]))
                line = json.dumps(row, ensure_ascii=ascii_only) + spaces
                file.write(line.encode() + data.draw(st.sampled_from([b"\n", b"\r\n"])))
            file.write(b'{"a": 1')
        yield FilesLog(folder, "json", COLUMNS), {"rows.json": rows}


@contextmanager
def csv_files(data: st.DataObject) -> Iterator[tuple[Log, Expected]]:
    rows, header = data.draw(st.lists(RECORDS, max_size=20)), data.draw(st.booleans())
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "rows.csv").open("wb") as file:
            file.write(b"whatever it says\n" * header)
            for row in rows:
                file.write(b"\n" * data.draw(st.integers(0, 1)) if file.tell() else b"")
                text = "" if row["s"] is None else '"' + row["s"].replace('"', '""') + '"'
                line = f"{row['a']},{text}".encode()
                file.write(line + data.draw(st.sampled_from([b"\n", b"\r\n"])))
        yield FilesLog(folder, "csv", COLUMNS, header=header), {"rows.csv": rows}


@contextmanager
def parquet_files(data: st.DataObject) -> Iterator[tuple[Log, Expected]]:
    rows = data.draw(st.lists(RECORDS, max_size=20))
    with tempfile.TemporaryDirectory() as folder:
        table = pa.Table.from_pylist(rows, schema=COLUMNS)
        pq.write_table(
            table, Path(folder) / "x.parquet", row_group_size=data.draw(st.integers(1, 9))
        )
        (Path(folder) / "unfinished.parquet").write_bytes(b"PAR1....")
        (Path(folder) / "_SUCCESS").write_bytes(b"")
        yield FilesLog(folder, "parquet", COLUMNS), {"x.parquet": rows}


@contextmanager
def memory(data: st.DataObject) -> Iterator[tuple[Log, Expected]]:
    partitions = data.draw(st.integers(1, 3))
    times = iter(data.draw(st.lists(st.floats(0, 100), min_size=20, max_size=20)))
    expected: Expected = {str(p): [] for p in range(partitions)}
    turn = 0
    with MemoryLog(COLUMNS, partitions, clock=lambda: next(times)) as log:
        for rows in data.draw(st.lists(st.lists(RECORDS, max_size=9), max_size=10)):
            to = data.draw(st.none() | st.integers(0, partitions - 1))
            log.append(rows, to)
            for index, row in enumerate(rows):
                expected[str((turn + index) % partitions if to is None else to)].append(row)
            turn += len(rows) if to is None else 0
        log.check()
        remote = log.remote()
        yield remote, expected
        remote.close()


@pytest.mark.parametrize(
    "kind", [scheduled, text_files, json_files, csv_files, parquet_files, memory]
)
@settings(derandomize=True, deadline=None, database=None, max_examples=60)
@given(data=st.data())
def test_any_cuts_give_each_row_once_and_in_order(kind: Kind, data: st.DataObject) -> None:
    with kind(data) as (log, expected):
        check_cuts(log, expected, data)


def check_cuts(log: Log, expected: Expected, data: st.DataObject) -> None:
    copy: Log = pickle.loads(pickle.dumps(log))
    own = [name for name in log.schema().names if name not in ADDED.names]
    assert copy.schema() == log.schema()
    earliest, latest = copy.earliest(), log.latest()
    assert set(earliest) == set(latest) == set(expected)
    for name, rows in expected.items():
        start, end = earliest[name], latest[name]
        whole = log.read(name, start, end)
        assert whole.schema == log.schema()
        assert whole.select(own).to_pylist() == rows
        assert whole.column(PARTITION).to_pylist() == [name] * len(rows)

        cuts = sorted(data.draw(st.lists(st.integers(start, end), max_size=12)))
        bounds = [start, *cuts, end]
        pieces = [(a, b, copy.read(name, a, b)) for a, b in pairwise(bounds)]
        for a, b, piece in pieces:
            assert all(a <= offset < b for offset in piece.column(OFFSET).to_pylist())
        assert pa.concat_batches([piece for *_, piece in pieces]).equals(whole)

        offsets = whole.column(OFFSET).to_pylist()
        assert all(a < b for a, b in pairwise(offsets))
    if log.timed:
        check_times(log, data)
    copy.close()


def check_times(log: Log, data: st.DataObject) -> None:
    ends = log.latest()
    batches = {name: log.read(name, 0, end) for name, end in ends.items()}
    arrivals = {
        name: batch.column(ARRIVAL).view(pa.int64()).to_pylist() for name, batch in batches.items()
    }
    known = [time for times in arrivals.values() for time in times]
    moments = st.floats(0, 100) | st.sampled_from([time / 1e6 for time in known] or [0.0])
    when = data.draw(moments)
    for name, offset in log.at(when).items():
        first = [i for i, time in enumerate(arrivals[name]) if time >= round(when * 1e6)]
        assert offset == (first[0] if first else ends[name])


@pytest.mark.parametrize(
    "kind", [scheduled, text_files, json_files, csv_files, parquet_files, memory]
)
@settings(derandomize=True, deadline=None, database=None, max_examples=5)
@given(data=st.data())
def test_refuses_ranges_that_cannot_be(kind: Kind, data: st.DataObject) -> None:
    with kind(data) as (log, expected):
        check_refusals(log, expected)


def check_refusals(log: Log, expected: Expected) -> None:
    for name in expected:
        for start, end in [(-1, 0), (2, 1)]:
            with pytest.raises(LogError, match=r"must be 0 <= start <= end"):
                log.read(name, start, end)
        with pytest.raises(LogError):
            log.read(name, 0, log.latest()[name] + 10_000_000)
    for name in ["nobody", "", "../x"]:
        with pytest.raises(LogError):
            log.read(name, 0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "log=None: must be one of memory, files, schedule"),
        ({"log": "tape"}, "log='tape': must be one of"),
        ({"log": "schedule", "rate": "1"}, "start=None: must be given"),
        ({"log": "schedule", "start": "0", "rate": "fast"}, "rate='fast': must be a number"),
        ({"log": "schedule", "start": "0", "rate": "0"}, "rate=0.0: must be more than 0"),
        ({"log": "files"}, "path=None: must be given"),
        ({"log": "files", "path": "/no/such"}, "'/no/such': must be a folder"),
        ({"log": "files", "path": "/", "header": "si"}, "header='si': must be \"true\" or"),
        ({"log": "files", "path": "/", "arrowschema": "?"}, "arrowschema='?': must be an Arrow"),
        ({"log": "files", "path": "/", "arrowschema": "AAAA"}, "arrowschema='AAAA': must be"),
        ({"log": "files", "path": "/", "format": "xml"}, "format='xml': must be one of json"),
        ({"log": "memory", "token": "x"}, "address=None: must be given"),
        ({"log": "memory", "address": "here"}, "address='here': must be \"host:port\""),
        ({"log": "memory", "address": "here:99999"}, "address='here:99999'"),
        ({"log": "memory", "address": "here:1"}, "token=None: must be given"),
        ({"log": "kafka", "subscribe": "t"}, "kafka.bootstrap.servers=None: must be given"),
        (KAFKA, "subscribe=None: must be given"),
        (KAFKA | {"subscribe": "a,b"}, "subscribe='a,b': must be one topic"),
        (KAFKA | {"subscribe": "t", "timeout": "soon"}, "timeout: duration 'soon' is not a"),
        (
            KAFKA | {"subscribe": "t", "kafka.auto.offset.reset": "earliest"},
            "kafka.auto.offset.reset='earliest': is set by Taut",
        ),
    ],
)
def test_options_are_refused_with_their_value(options: dict[str, str], message: str) -> None:
    with pytest.raises(LogError) as error:
        open_log(options)
    assert message in str(error.value)


def test_options_make_the_same_log(tmp_path: Path) -> None:
    schedule = ScheduleLog(5.5, 0.1, 3, 100, 7, "random")
    assert open_log(schedule.options()) == schedule
    assert open_log({**ScheduleLog(1, 10).options(), "unrelated": "x"}) == ScheduleLog(1, 10)

    kinds = pa.schema([("a", pa.int64()), ("t", pa.timestamp("us"))])
    files = FilesLog(tmp_path, "csv", kinds, "*.csv", True, "t")
    again = open_log({key.upper(): value for key, value in files.options().items()})
    assert isinstance(again, FilesLog)
    assert again.options() == files.options()
    assert again.schema() == files.schema()

    kafka = KafkaLog("t", {"bootstrap.servers": "127.0.0.1:9", "sasl.password": "x"}, 2.5)
    assert open_log(kafka.options()).options() == kafka.options()
    assert "sasl" not in repr(kafka)

    for schema in [None, COLUMNS]:
        with MemoryLog(schema) as log:
            assert open_log(log.options()) == log.remote()

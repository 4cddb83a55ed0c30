from __future__ import annotations

import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from taut.errors import DataLost, LogError, LogFull
from taut.spark.source import frames
from taut.spark.source.logs import memory, remote
from taut.spark.source.logs.base import ARRIVAL
from taut.spark.source.logs.memory import MemoryLog, RemoteMemoryLog
from taut.spark.source.logs.store import ROW_BYTES

AB = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.string())])


@pytest.fixture
def log() -> Iterator[MemoryLog]:
    with MemoryLog() as log:
        yield log
        log.check()


@pytest.fixture
def reader(log: MemoryLog) -> Iterator[RemoteMemoryLog]:
    reader = log.remote()
    yield reader
    reader.close()


def values(reader: RemoteMemoryLog, partition: str = "0", start: int = 0) -> list[str]:
    rows = reader.read(partition, start, reader.latest()[partition])
    texts: list[str] = rows.column("value").to_pylist()
    return texts


def arrivals(reader: RemoteMemoryLog) -> list[int]:
    rows = reader.read("0", 0, reader.latest()["0"])
    times: list[int] = rows.column(ARRIVAL).view(pa.int64()).to_pylist()
    return times


def test_rows_of_every_kind(log: MemoryLog, reader: RemoteMemoryLog) -> None:
    log.append(["one", {"value": "two"}])
    log.append([])
    log.append(pa.RecordBatch.from_pydict({"value": ["three"]}))
    log.append(pa.RecordBatch.from_pydict({"value": pa.array(["four"], pa.large_string())}), 0)
    assert values(reader) == ["one", "two", "three", "four"]
    assert log.latest() == {"0": 4}
    assert log.earliest() == {"0": 0}


def test_rows_go_to_partitions_in_turn() -> None:
    with MemoryLog(partitions=3) as log:
        log.append(["0", "1"])
        log.append(["2", "3", "4", "5"])
        log.append(["extra"], partition=2)
        log.append(["6"])
        reader = log.remote()
        assert [values(reader, name) for name in "012"] == [
            ["0", "3", "6"],
            ["1", "4"],
            ["2", "5", "extra"],
        ]
        reader.close()
        log.check()


def test_arrivals_never_fall_though_the_clock_does() -> None:
    times = iter([10.0, 9.0, 11.0, 20.0, 12.0, 5.0])
    with MemoryLog(clock=lambda: next(times)) as log:
        log.append(["a", "b"])
        log.append(["c"])
        log.append(["d"])
        reader = log.remote()
        assert reader.at(15.0) == {"0": 4}, "asked at 20: nothing arrives before 15 from now on"
        log.append(["e"])
        assert arrivals(reader) == [10_000_000] * 3 + [11_000_000, 15_000_000]
        assert reader.at(15.0) == {"0": 4}
        reader.close()
        log.check()


@pytest.mark.parametrize(
    ("schema", "rows", "message"),
    [
        (None, "text", "must be a list of rows"),
        (None, {"value": "x"}, "must be a list of rows"),
        (None, 5, "must be a list of rows"),
        (None, ["x", 5], "row 1 is '5': must be a dict of columns value string or a str"),
        (None, [{"value": "x", "other": 1}], "row 0 is .*other"),
        (None, [{}], "row 0 has no 'value'"),
        (None, [{"value": b"\xff"}], "do not fit the columns"),
        (AB, ["x"], "row 0 is 'x': must be a dict of columns a int64, b string"),
        (AB, [{"a": "x"}], "do not fit the columns a int64, b string"),
        (AB, [{"a": 1}, {"b": "x"}], "row 1 has no 'a'"),
        (AB, pa.RecordBatch.from_pydict({"a": [1]}), "do not fit"),
        (AB, pa.RecordBatch.from_pydict({"a": ["x"], "b": ["y"]}), "do not fit"),
        (
            AB,
            pa.RecordBatch.from_pydict({"a": pa.array([None], pa.int64()), "b": ["y"]}),
            "row 0 has no 'a'",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused_all(
    schema: pa.Schema | None, rows: Any, message: str
) -> None:
    with MemoryLog(schema) as log:
        with pytest.raises(LogError, match=message):
            log.append(rows)
        assert log.latest() == {"0": 0}


def test_partitions_there_are_not(log: MemoryLog, reader: RemoteMemoryLog) -> None:
    for ask in (
        lambda: log.append(["x"], 1),
        lambda: log.trim({"1": 0}),
        lambda: reader.read("1", 0, 0),
    ):
        with pytest.raises(LogError, match='\'1\' of a memory log: must be one of "0" to "0"'):
            ask()


def test_a_full_log_refuses_until_it_is_trimmed() -> None:
    with MemoryLog(limit_bytes=100_000) as log:
        for _ in range(17):
            log.append(["x" * 1_000] * 5)
        with pytest.raises(LogFull, match=r"limit_bytes=100000; trim\(\)"):
            log.append(["x" * 1_000] * 15)
        full = log.latest()["0"]
        assert full == 85
        log.trim({"0": full})
        log.append(["y"])
        log.check()
        reader = log.remote()
        assert log.earliest() == reader.earliest() == {"0": full}
        assert values(reader, start=full) == ["y"]
        assert reader.at(0) == {"0": full}
        with pytest.raises(DataLost, match=f"before {full} were trimmed"):
            reader.read("0", full - 1, full + 1)
        with pytest.raises(DataLost, match="made anew"):
            reader.read("0", full, full + 2)
        with pytest.raises(LogError, match="trim of partition '0'"):
            log.trim({"0": full + 2})
        reader.close()


def test_trims_inside_a_segment(log: MemoryLog, reader: RemoteMemoryLog) -> None:
    for n in range(100):
        log.append([str(n)])
    for before in [0, 1, 50, 49, 98]:
        log.trim({"0": before})
        log.check()
        first = log.earliest()["0"]
        assert values(reader, start=first) == [str(n) for n in range(first, 100)]
        assert reader.at(0) == {"0": first}
    assert log.earliest() == {"0": 98}


def test_large_ranges_come_in_several_answers(
    log: MemoryLog, reader: RemoteMemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_ANSWER_BYTES", 10_000)
    asked: list[remote.Request] = []
    once = RemoteMemoryLog._once
    monkeypatch.setattr(
        RemoteMemoryLog, "_once", lambda self, request: asked.append(request) or once(self, request)
    )
    rows = [str(n) * (n % 50) for n in range(3_000)] + ["x" * 30_000, "y" * 9_000, "z" * 90_000]
    log.append(rows)
    assert values(reader) == rows
    reads = [request for request in asked if isinstance(request, remote.Read)]
    assert len(reads) > 10


def test_a_row_too_large_to_send_is_refused(log: MemoryLog, reader: RemoteMemoryLog) -> None:
    with pytest.raises(LogError, match=f"at most {ROW_BYTES} are taken"):
        log.append(["x", "y" * (ROW_BYTES + 1), "z"])
    assert log.latest() == {"0": 0}
    log.append(["a", "y" * (ROW_BYTES - 1_000), "b"])
    assert [len(value) for value in values(reader)] == [1, ROW_BYTES - 1_000, 1]


SECOND_PROCESS = """
import json, sys
from taut.spark.source.logs import open_log
log = open_log(json.load(sys.stdin))
rows = {name: log.read(name, 0, end).column("b").to_pylist() for name, end in log.latest().items()}
log.close()
json.dump(rows, sys.stdout)
"""


def test_another_process_reads_the_same() -> None:
    with MemoryLog(AB, partitions=2) as log:
        log.append([{"a": n, "b": str(n)} for n in range(1_001)])
        done = subprocess.run(
            [sys.executable, "-c", SECOND_PROCESS],
            input=json.dumps(log.options()),
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
    expected = {str(p): [str(n) for n in range(p, 1_001, 2)] for p in range(2)}
    assert json.loads(done.stdout) == expected


def test_reads_while_others_append() -> None:
    """Four threads append, two read on as rows come: each row once, those of a thread in order."""
    threads, each = 4, 200
    with MemoryLog(partitions=3) as log:

        def write(who: int) -> None:
            for n in range(each):
                log.append([f"{who} {n}"])

        def follow(seen: dict[str, list[str]]) -> None:
            reader = log.remote()
            known = dict(reader.earliest())
            while sum(known.values()) < threads * each:
                for name, end in reader.wait(known, 60).items():
                    rows = reader.read(name, known[name], end)
                    seen.setdefault(name, []).extend(rows.column("value").to_pylist())
                    known[name] = end
            reader.close()

        seen: list[dict[str, list[str]]] = [{}, {}]
        running = [threading.Thread(target=write, args=(who,)) for who in range(threads)]
        running += [threading.Thread(target=follow, args=(into,)) for into in seen]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        log.check()
    assert seen[0] == seen[1]
    rows = [row for part in seen[0].values() for row in part]
    assert sorted(rows) == sorted(f"{who} {n}" for who in range(threads) for n in range(each))
    for part in seen[0].values():
        for who in range(threads):
            numbers = [int(row.split()[1]) for row in part if row.startswith(f"{who} ")]
            assert numbers == sorted(numbers)


def test_wait_answers_at_once_when_there_is_news(log: MemoryLog, reader: RemoteMemoryLog) -> None:
    assert reader.wait({"0": 0}, 0.0) == {"0": 0}
    assert reader.wait({"0": 0}, 0.01) == {"0": 0}
    log.append(["x"])
    assert reader.wait({"0": 0}, 10_000.0) == {"0": 1}
    assert reader.wait({}, 10_000.0) == {"0": 1}
    assert reader.wait({"0": 1}, -1.0) == {"0": 1}


def test_wait_is_woken_by_an_append(
    log: MemoryLog, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., None]
) -> None:
    # longer than the test may take: only being woken ends the wait
    monkeypatch.setattr(memory, "LONGEST_WAIT_S", 10_000.0)
    monkeypatch.setattr(remote, "LONGEST_WAIT_S", 10_000.0)
    answers: list[Any] = []

    def wait() -> None:
        reader = log.remote()
        answers.append(reader.wait({"0": 0}, 9_000.0))
        reader.close()

    threads = [threading.Thread(target=wait, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    eventually(lambda: log._listener.waiting == 3)
    log.append(["x"])
    for thread in threads:
        thread.join(25)
    assert answers == [{"0": 1}] * 3
    eventually(lambda: log._listener.waiting == 0)


def faults(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "taut"]


@pytest.mark.parametrize("token", ["", "wrong", "größer", "x" * 5_000])
def test_a_wrong_token_gets_no_answer(
    log: MemoryLog, reader: RemoteMemoryLog, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = RemoteMemoryLog(reader.address, token)
    for _ in range(3):
        with pytest.raises(LogError, match="is the token the one of its options"):
            wrong.latest()
    log.append(["x"])
    assert values(reader) == ["x"]
    (fault,) = faults(caplog)
    assert ("frame of" if len(token) > frames.HELLO_FRAME else "wrong token") in fault
    assert log.options()["token"] not in caplog.text + repr(log) + repr(reader)


HELLO = b"{hello}"


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\0",  # half a length
        b"\0\0\1\0abc",  # part of a frame
        struct.pack(">I", 2**30),  # a gigabyte, before the token
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">I", 5) + b"\xc1\xc1\xc1\xc1\xc1",  # no msgpack
        frames.encode({"version": 1}),
        frames.encode([1]),
        frames.encode([99, "token"]),
        HELLO + struct.pack(">I", 2**30),  # a gigabyte, with the token
        HELLO + b"\0\0\1\0abc",
        HELLO + struct.pack(">I", 3) + b"\xc1\xc1\xc1",
        HELLO + frames.encode(["erase", "all"]),
        HELLO + frames.encode(["read", 0, "x", None]),
    ],
)
def test_garbage_is_cut_off_and_others_are_served(
    log: MemoryLog, reader: RemoteMemoryLog, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log.append(["x"])
    assert reader.latest() == {"0": 1}
    hello = frames.encode(frames.Hello(frames.VERSION, log.options()["token"]))
    for _ in range(3):
        with socket.create_connection(reader.address, timeout=60) as peer:
            peer.sendall(sent.replace(HELLO, hello))
            peer.shutdown(socket.SHUT_WR)
            with suppress(ConnectionResetError):  # closed with some of it unread
                assert peer.recv(1_000) == b""
        assert values(reader) == ["x"]
    assert len(faults(caplog)) == 1


def test_a_connection_that_is_only_opened_is_no_fault(
    log: MemoryLog, reader: RemoteMemoryLog, caplog: pytest.LogCaptureFixture
) -> None:
    socket.create_connection(reader.address, timeout=60).close()
    assert reader.latest() == {"0": 0}
    assert faults(caplog) == []


def test_a_broken_connection_is_opened_again(log: MemoryLog, reader: RemoteMemoryLog) -> None:
    log.append(["x"])
    assert values(reader) == ["x"]
    (client,) = [client for key, client in reader._clients().items() if key[0] == reader.address]
    client._socket.shutdown(socket.SHUT_RDWR)
    assert values(reader) == ["x"]


def test_an_interrupted_request_leaves_no_answer_behind(
    log: MemoryLog, reader: RemoteMemoryLog
) -> None:
    class Interrupting(frames.Frames):
        def next(self, limit: int = 0) -> bytes:
            raise KeyboardInterrupt

    log.append(["x", "y"])
    assert reader.earliest() == {"0": 0}
    (client,) = [client for key, client in reader._clients().items() if key[0] == reader.address]
    client._frames = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        reader.earliest()
    assert reader.latest() == {"0": 2}


def test_a_forked_process_opens_its_own(
    reader: RemoteMemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.latest()
    mine = reader._clients()
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        assert reader._clients() == {}
    for client in mine.values():
        client.close()


def test_a_closed_log_is_gone() -> None:
    before = set(threading.enumerate())
    log = MemoryLog()
    made = [thread for thread in threading.enumerate() if thread not in before]
    (served,) = (thread for thread in made if thread.name == "taut-memory-log")
    log.append(["x"])
    reader = log.remote()
    assert values(reader) == ["x"]
    log.close()
    log.close()
    with pytest.raises(LogError, match="still open in the driver"):
        reader.latest()
    with pytest.raises(LogError, match=r"closed.*make a new one"):
        log.append(["y"])
    assert not served.is_alive()


def test_the_log_stays_and_its_remote_travels(log: MemoryLog, reader: RemoteMemoryLog) -> None:
    with pytest.raises(TypeError, match=r"remote\(\)"):
        pickle.dumps(log)
    reader.latest()
    assert pickle.loads(pickle.dumps(reader)) == reader


def test_other_columns_than_the_log_has_are_refused(log: MemoryLog) -> None:
    log.append(["x"])
    other = RemoteMemoryLog(log.remote().address, log.options()["token"], AB)
    with pytest.raises(LogError, match=r"has columns \['value'.*not \['a', 'b'.*options\(\)"):
        other.read("0", 0, 1)
    other.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitions": 0}, "partitions=0"),
        ({"limit_bytes": 0}, "limit_bytes=0"),
        ({"host": "0.0.0.0"}, "host='0.0.0.0': must be one address"),
        ({"host": "203.0.113.1"}, "host='203.0.113.1': cannot serve there"),
        ({"schema": pa.schema([("arrival", pa.int64())])}, "arrival would be there twice"),
    ],
)
def test_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(LogError, match=message):
        MemoryLog(**options)


def test_columns_as_text() -> None:
    with MemoryLog("word string, n bigint") as log:
        log.append([{"word": "a", "n": 1}])
        reader = log.remote()
        assert reader.read("0", 0, 1).to_pylist()[0].items() >= {"word": "a", "n": 1}.items()
        reader.close()
    with pytest.raises(LogError, match="schema 'n bigin': 'bigin' is no type"):
        MemoryLog("n bigin")

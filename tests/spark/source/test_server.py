"""Distributor, server and lanes with real sockets and processes, without Spark."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from taut.policy.chunking import FixedSize
from taut.policy.sharing import Range, SharedQueue
from taut.spark.source import connection as connection_module
from taut.spark.source import lane as lane_module
from taut.spark.source.connection import Place
from taut.spark.source.dealt import Batch
from taut.spark.source.frames import VERSION, Client, Hello, encode
from taut.spark.source.lane import run_lane
from taut.spark.source.logs.schedule import ScheduleLog
from taut.spark.source.operators import Chain
from taut.spark.source.options import SourceOptions
from taut.spark.source.protocol import Answer, Heard, Join, Joined, Refused, Reply, Report
from taut.spark.source.pulse import Pulse
from taut.spark.source.reader import TautReader
from taut.spark.source.server import Server

ROWS = 2_000
LOG = ScheduleLog(start=0.0, rate=1_000.0, partitions=2, total=ROWS)
REPLY = msgspec.msgpack.Decoder(Reply)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def plan(server: Server, key: str = "1", lanes: int = 4, silence: float = 5.0) -> Place:
    chunking = FixedSize(50)
    batch = Batch(SharedQueue(lanes, chunking), chunking, silence=silence, wait=0.01)
    batch.add([Range(p, 0, n) for p, n in LOG.latest().items()])
    batch.close()
    server.do(lambda distributor: distributor.open(key, batch))
    return Place(server.address, server.token, key, beat=0.05)


def numbers(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def take(place: Place, lane: int, attempt: int = 0, chain: Chain | None = None) -> list[int]:
    return numbers(run_lane(place, lane, attempt, LOG, chain or Chain()))


def test_lanes_share_a_batch(server: Server) -> None:
    place = plan(server)
    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(lambda n: take(place, n), range(4)))
    assert Counter(n for share in shares for n in share) == Counter(range(ROWS))
    batch = server.do(lambda distributor: distributor.get("1"))
    assert batch is not None
    batch.check()
    assert batch.over


def test_a_second_run_of_every_task_gives_the_same(server: Server) -> None:
    """What Spark does for a second action on a batch, or when all shuffle output is lost."""
    place = plan(server, lanes=3)
    with ThreadPoolExecutor(3) as pool:
        first = list(pool.map(lambda n: take(place, n, attempt=n), range(3)))
        second = list(pool.map(lambda n: take(place, n, attempt=10 + n), range(3)))
    assert first == second


def test_a_task_that_failed_emits_again_what_it_had_and_no_more(server: Server) -> None:
    place = plan(server, lanes=2)
    broken = run_lane(place, 0, 0, LOG, Chain(), rows_at_once=1)
    seen = [next(broken) for _ in range(3)]
    broken.close()
    again = run_lane(place, 0, 1, LOG, Chain(), rows_at_once=1)
    redone = [next(again) for _ in range(len(seen))]
    assert [b.column("n").to_pylist() for b in redone] == [b.column("n").to_pylist() for b in seen]
    rest = numbers(again)
    assert Counter(numbers(iter(redone)) + rest) == Counter(range(ROWS))


def test_the_older_attempt_is_refused(server: Server) -> None:
    place = plan(server)
    old = run_lane(place, 0, 0, LOG, Chain(), rows_at_once=1)
    next(old)
    new = run_lane(place, 0, 1, LOG, Chain(), rows_at_once=1)
    next(new)
    with pytest.raises(RuntimeError, match=r"lane 0 of batch 1: attempt 0.*not the current"):
        numbers(old)
    new.close()


def test_a_lane_of_a_batch_that_is_over_is_refused(server: Server) -> None:
    place = plan(server)
    server.do(lambda distributor: distributor.forget("1"))
    with pytest.raises(RuntimeError, match="batch '1' is over"):
        take(place, 0)


class Cutting:
    """A relay to the server that cuts every connection after some bytes."""

    def __init__(self, upstream: tuple[str, int], after: int) -> None:
        self._upstream = upstream
        self._after = after
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                lane, _ = self._listening.accept()
                threading.Thread(target=self._relay, args=(lane,), daemon=True).start()

    def _relay(self, lane: socket.socket) -> None:
        with lane, socket.create_connection(self._upstream) as server:
            back = threading.Thread(
                target=self._pump, args=(server, lane, self._after), daemon=True
            )
            back.start()
            self._pump(lane, server, None)
            back.join()

    def _pump(self, source: socket.socket, sink: socket.socket, most: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(256):
                passed += len(data)
                if most is not None and passed > most:
                    self.cuts += 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()


def test_a_connection_that_is_cut_again_and_again(server: Server) -> None:
    """Answers are lost on the way: the same report is sent again, and no row comes twice."""
    place = plan(server, lanes=2)
    relay = Cutting(server.address, after=150)
    cut = Place(relay.address, place.token, place.batch, beat=60.0)
    # chunks that take longer than asking for them are given out one by one
    slow = Chain().map(lambda batch: (time.sleep(0.003), batch)[1], on="batch")
    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(lambda n: take(cut, n, chain=slow), range(2)))
    relay.close()
    assert relay.cuts > 5
    assert Counter(n for share in shares for n in share) == Counter(range(ROWS))


def test_without_a_server_the_error_says_what_to_look_at(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_TRIES", 2)
    place = plan(server)
    server.close()
    with pytest.raises(
        ConnectionError, match=r"distributor at 127.0.0.1:\d+ does not answer.*host"
    ):
        take(place, 0)


FROZEN = """
import sys
from taut.spark.source.connection import Place
from taut.spark.source.lane import run_lane
from taut.spark.source.logs.schedule import ScheduleLog
from taut.spark.source.operators import Chain

def slow(batch):
    print("working", flush=True)
    sys.stdin.readline()
    return batch

host, port, token = sys.argv[1:]
log = ScheduleLog(start=0.0, rate=1_000.0, partitions=2, total=2_000)
place = Place((host, int(port)), token, "1", beat=0.05)
rows = run_lane(place, 0, 0, log, Chain().map(slow, on="batch"))
print(sum(batch.num_rows for batch in rows), flush=True)
"""


@contextlib.contextmanager
def lane_process(server: Server) -> Iterator[subprocess.Popen[str]]:
    host, port = server.address
    process = subprocess.Popen(
        [sys.executable, "-c", FROZEN, host, str(port), server.token],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)
            process.kill()
        process.communicate()


def test_a_frozen_lane_loses_its_chunk_and_emits_none_of_it(server: Server) -> None:
    place = plan(server, lanes=2, silence=0.3)
    with lane_process(server) as frozen:
        assert frozen.stdout is not None
        assert frozen.stdin is not None
        assert frozen.stdout.readline() == "working\n"
        os.kill(frozen.pid, signal.SIGSTOP)
        others = take(place, 1)
        assert Counter(others) == Counter(range(ROWS))
        os.kill(frozen.pid, signal.SIGCONT)
        frozen.stdin.write("\n")
        frozen.stdin.flush()
        assert frozen.stdout.readline() == "0\n"
        assert frozen.wait() == 0


def test_a_killed_lane_loses_its_open_chunk_to_another(server: Server) -> None:
    place = plan(server, lanes=2, silence=0.3)
    with lane_process(server) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "working\n"
        killed.kill()
        assert Counter(take(place, 1)) == Counter(range(ROWS))


# -- who has no business here ------------------------------------------------------------------


def raw(server: Server, data: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    with socket.create_connection(server.address, timeout=30) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answered = b""
        with contextlib.suppress(ConnectionError):
            while more := connection.recv(4_096):
                answered += more
    return answered


def hello(server: Server, token: str | None = None, version: int = VERSION) -> bytes:
    return encode(Hello(version, server.token if token is None else token))


JOIN = encode(Join("1", 0, 0, "x"))


@pytest.mark.parametrize(
    "attack",
    [
        lambda s: hello(s, token="guess") + JOIN,
        lambda s: hello(s, token="gu\N{LATIN SMALL LETTER E WITH ACUTE}ss") + JOIN,
        lambda s: hello(s, version=99) + JOIN,
        lambda s: JOIN,
        lambda s: hello(s)[:9],
        lambda s: hello(s) + JOIN[:-2],
        lambda s: struct.pack(">I", 2**30) + b"x" * 1_000,
        lambda s: hello(s) + struct.pack(">I", 2**30) + b"x" * 1_000,
        lambda s: b"GET / HTTP/1.1\r\n\r\n",
        lambda s: os.urandom(512),
        lambda s: hello(s) + encode({"batch": "1"}),
        lambda s: hello(s) + encode(["Unknown", 1, 2]),
    ],
)
def test_refused_and_nothing_disturbed(
    server: Server,
    attack: Callable[[Server], bytes],
    caplog: pytest.LogCaptureFixture,
    eventually: Callable[..., None],
) -> None:
    place = plan(server)
    good = run_lane(place, 0, 0, LOG, Chain(), rows_at_once=1)
    next(good)
    with caplog.at_level(logging.WARNING, "taut"):
        for _ in range(3):
            assert raw(server, attack(server)) == b""
        eventually(lambda: server.refused == 3)
    assert len([r for r in caplog.records if "cut a connection off" in r.message]) == 1
    rest = numbers(good)
    assert len(rest) + 50 == ROWS


def test_said_once(
    server: Server, caplog: pytest.LogCaptureFixture, eventually: Callable[..., None]
) -> None:
    with caplog.at_level(logging.WARNING, "taut"):
        for _ in range(20):
            raw(server, hello(server, token="guess"))
        eventually(lambda: server.refused == 20)
    assert caplog.text.count("a wrong token or version") == 1


def test_an_answer_that_was_lost_is_given_again(server: Server) -> None:
    place = plan(server)
    answers = []
    for _ in range(3):
        client = Client(place.address, place.token)
        assert isinstance(client.ask(Join("1", 0, 0, "x"), REPLY.decode), Joined)
        answers.append(client.ask(Report("1", 0, 0, 0), REPLY.decode))
        client.close()
    assert isinstance(answers[0], Answer)
    assert answers[0] == answers[1] == answers[2]
    client = Client(place.address, place.token)
    assert isinstance(client.ask(Report("2", 0, 0, 0), REPLY.decode), Refused)
    client.close()


def test_large_rows_are_handed_on_in_small_heaps(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = plan(server)
    assert len(list(run_lane(place, 0, 0, LOG, Chain()))) == 1
    monkeypatch.setattr(lane_module, "_BYTES_AT_ONCE", 4_096)
    heaps = list(run_lane(place, 0, 1, LOG, Chain()))
    assert len(heaps) > 10
    assert sorted(numbers(iter(heaps))) == [*range(ROWS)]


def test_a_lane_says_that_it_lives_though_it_was_refused_before_it_had_joined(
    server: Server, eventually: Callable[..., None]
) -> None:
    place = replace(plan(server), batch="2")
    answer, replies = server.distributor.answer, []

    def noting(message: Any, now: float) -> Reply:
        replies.append(answer(message, now))
        return replies[-1]

    server.distributor.answer = noting  # type: ignore[method-assign]
    with Pulse(place, 0, 0):
        eventually(lambda: any(isinstance(reply, Refused) for reply in replies))
        plan(server, key="2")
        client = Client(place.address, place.token)
        assert isinstance(client.ask(Join("2", 0, 0, "here"), REPLY.decode), Joined)
        client.close()
        beats = len(replies)
        eventually(lambda: len(replies) >= beats + 2)
        assert isinstance(replies[-1], Heard)


def test_batches_that_are_committed_leave_nothing_in_the_reader() -> None:
    reader = TautReader(LOG, Chain(), SourceOptions())
    try:
        for n in range(1, 200):
            assert len(reader.partitions({"0": n - 1}, {"0": n})) == 2
            reader.commit({"0": n})
        assert reader._planned == []
        assert len(reader._serving().distributor) == 0
    finally:
        reader.stop()


def test_short_chunks_are_taken_several_at_a_time_and_each_counts_by_itself(
    server: Server,
) -> None:
    chunking = FixedSize(1)
    batch = Batch(SharedQueue(2, chunking), chunking, silence=5.0, wait=0.01)
    batch.add([Range(p, 0, n) for p, n in LOG.latest().items()])
    batch.close()
    server.do(lambda distributor: distributor.open("1", batch))
    place = Place(server.address, server.token, "1")
    asked: list[Report] = []
    answer = server.distributor.answer

    def noting(message: Any, now: float) -> Reply:
        if isinstance(message, Report):
            asked.append(message)
        return answer(message, now)

    server.distributor.answer = noting  # type: ignore[method-assign]
    with ThreadPoolExecutor(2) as pool:
        shares = list(pool.map(lambda n: take(place, n), range(2)))
    assert Counter(n for share in shares for n in share) == Counter(range(ROWS))
    assert len(asked) < ROWS / 2
    assert max(len(report.done) for report in asked) > 1
    assert sum(map(len, batch.belongs().values())) == ROWS, "a chunk a row"

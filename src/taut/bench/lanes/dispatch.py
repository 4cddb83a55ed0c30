"""What dealing out itself costs: microseconds a chunk, and rows a second through one lane."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from taut.bench.place import Place, spark_session
from taut.bench.record import Record
from taut.bench.rounds import order

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from taut import Read

_PAYLOAD = 8

Watcher = Callable[[str, int], None]
"""Told which case is measured, and in which round."""


@dataclass(frozen=True, slots=True)
class Case:
    """Rows a lane, rows a chunk (None for guided), and the operator."""

    rows: int
    chunk: int | None = None
    operator: Callable[[Read], Read] = lambda stream: stream


def _python(stream: Read) -> Read:
    return stream.map(lambda value: value + "!", column="value")


def _arrow(stream: Read) -> Read:
    def passing(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    return stream.map(passing, on="batch")


CASES = {
    "start": Case(1),
    "small": Case(20_000, chunk=1),
    "large": Case(20_000, chunk=20_000),
    "python": Case(500_000, operator=_python),
    "arrow": Case(3_000_000, operator=_arrow),
}
"""One row; rows in chunks of one, and as many in one chunk; an operator of each kind."""


def bench(lanes: int, rounds: int, watch: Watcher) -> Record:
    """Measure every case in every round, in one JVM."""
    record = Record("lanes", {"topology": "dispatch", "lanes": lanes, "rounds": rounds})
    times: dict[str, list[float]] = {name: [] for name in CASES}
    reads: list[float] = []
    with spark_session(f"local[{lanes}]") as place:
        # what the JVM and the worker do for the first time
        watch("small", 0)
        _seconds(place, CASES["small"], lanes)
        for round_, name in order(list(CASES), rounds):
            watch(name, round_)
            times[name].append(_seconds(place, CASES[name], lanes))
            reads.append(_read_seconds())
        loopback = median(_loopback_seconds(median(reads)) for _ in range(rounds))
    seconds = {name: median(each) for name, each in times.items()}
    record.add(figures(seconds, median(reads), loopback))
    return record


def figures(seconds: dict[str, float], read: float, loopback: float) -> dict[str, float]:
    """From the seconds of each case: what a chunk costs, and the rows a second of a lane.

    ``read`` is what reading one row from the log takes, no cost of dispatch; ``loopback`` what a
    bare answer from another process takes, the part of it that only the machine can change.

    >>> told = figures({"start": 1, "small": 3, "large": 2, "python": 6, "arrow": 4}, 2e-5, 1e-5)
    >>> told["dispatch.chunk_us"], told["dispatch.read_us"], told["dispatch.python.rows_per_s"]
    (30.0, 20.0, 100000)
    """
    chunk = (seconds["small"] - seconds["large"]) / CASES["small"].rows - read
    told = {
        "dispatch.chunk_us": round(1e6 * chunk, 1),
        "dispatch.read_us": round(1e6 * read, 1),
        "dispatch.loopback_us": round(1e6 * loopback, 1),
    }
    for name in ("python", "arrow"):
        taken = seconds[name] - seconds["start"]
        if taken > 0:
            told[f"dispatch.{name}.rows_per_s"] = round(CASES[name].rows / taken)
    return told


def _read_seconds(times: int = 2_000) -> float:
    """How long a lane takes to read one row of the log by itself."""
    from taut.spark.source.logs.schedule import ScheduleLog

    log = ScheduleLog(0.0, 1_000_000, payload=_PAYLOAD)
    begun = time.perf_counter()
    for offset in range(times):
        log.read("0", offset, offset + 1)
    return (time.perf_counter() - begun) / times


_ECHO = """
import socket, sys
with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    peer, _ = server.accept()
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while data := peer.recv(4096):
        peer.sendall(data)
"""


def _loopback_seconds(work: float, times: int = 5_000) -> float:
    """How long a process waits for the echo of another, having worked so long before it asks."""
    taken = 0.0
    with subprocess.Popen([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE) as echo:
        assert echo.stdout is not None
        port = int(echo.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for _ in range(times):
                until = time.perf_counter() + work
                while (begun := time.perf_counter()) < until:
                    pass
                peer.sendall(bytes(32))
                peer.recv(4096)
                taken += time.perf_counter() - begun
    return taken / times


def _seconds(place: Place, case: Case, lanes: int) -> float:
    """How long one batch takes, all its rows there from the start."""
    import taut

    folder = Path(tempfile.mkdtemp(dir=place.folder))
    taken: list[float] = []

    def sink(df: DataFrame, batch_id: int) -> None:
        begun = time.perf_counter()
        df.write.format("noop").mode("append").save()
        taken.append(time.perf_counter() - begun)

    stream = case.operator(
        taut.read(
            place.spark, "schedule", start=time.time() - 86_400, rate=1_000_000,
            total=case.rows * lanes, partitions=lanes, payload=_PAYLOAD, lanes=lanes,
            startingOffsets="earliest", chunk="guided" if case.chunk is None else case.chunk,
        )
    )  # fmt: skip
    writer: Any = stream.load().writeStream.foreachBatch(sink).trigger(availableNow=True)
    writer.option("checkpointLocation", str(folder)).start().awaitTermination()
    shutil.rmtree(folder, ignore_errors=True)
    return sum(taken)

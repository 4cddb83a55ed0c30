"""One run: a topology under one variant, from start to stop."""

from __future__ import annotations

import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.bench.lanes.figures import Run, judge, pauses
from taut.bench.place import Place
from taut.bench.record import BenchError
from taut.workloads.topologies import TOPOLOGIES, Topology

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from taut.spark.source.logs.schedule import ScheduleLog

VARIANTS = {"default": "fixed", "shared": "shared", "executor": "executor"}
"""Ways of dealing out rows, and what ``dispatch`` calls them; ``default`` is what Spark does."""
TIMINGS = ("batch", "resident")

_LEAD_S = 6.0
"""Seconds for a query to start, before the load does."""
_LOOK_EVERY_S = 0.25
_NOTE, _NOTE_BYTES = "<qd", 16
"""A row's number and a time. Functions that use it are pickled, and a Struct cannot be."""
_WORKED, _WRITTEN = "worked", "written"
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run; one for every variant and round.

    ``rate``, ``heavy`` and ``slow`` take the topology's own when None. With ``batch`` every batch
    has so many tuples; without, a batch takes what has arrived.
    """

    topology: str = "queue"
    timing: str = "batch"
    lanes: int = 8
    rate: int | None = None
    seconds: float = 60.0
    batch: int | None = None
    heavy: float | None = None
    slow: float | None = None
    warm_up_s: float = 10.0
    grace_s: float = 60.0

    def __post_init__(self) -> None:
        if self.topology not in TOPOLOGIES:
            raise BenchError(f"topology {self.topology!r}: one of {', '.join(TOPOLOGIES)}")
        if self.timing not in TIMINGS:
            raise BenchError(f"timing {self.timing!r}: one of {', '.join(TIMINGS)}")
        if self.batch is not None and self.timing == "resident":
            raise BenchError("batch: only with timing 'batch'")

    @property
    def what(self) -> Topology:
        """The topology itself."""
        own = TOPOLOGIES[self.topology]
        return replace(
            own,
            rate=own.rate if self.rate is None else self.rate,
            heavy=own.heavy if self.heavy is None else self.heavy,
            slow=own.slow if self.slow is None else self.slow,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands, for whoever watches."""

    variant: str
    round: int
    phase: str
    left_s: float
    written: int = 0


Watcher = Callable[[Progress], None]


def run(place: Place, spec: Spec, variant: str, round_: int, watch: Watcher) -> Run:
    """Start the query, warm up, measure, wait for what is still due, stop."""
    from taut.spark.source.logs.schedule import ScheduleLog

    folder = Path(tempfile.mkdtemp(dir=place.folder))
    (folder / _WORKED).mkdir()
    (folder / _WRITTEN).mkdir()
    log = ScheduleLog(time.time() + _LEAD_S, spec.what.rate, arrivals="random")
    query = _start(place, spec, variant, log, folder)
    try:
        begin = log.start + spec.warm_up_s
        end = begin + spec.seconds
        due = _arrivals(log, begin, end)
        for now, phase, left in _phases(begin, end, end + spec.grace_s):
            if not query.isActive:
                raise BenchError(f"the query ended under {variant}: {query.exception()}")
            size = sum(path.stat().st_size for path in (folder / _WRITTEN).iterdir())
            watch(Progress(variant, round_, phase, left, size // _NOTE_BYTES))
            if now >= end and not due.keys() - {n for n, _ in _noted(folder / _WRITTEN)}:
                break
        progress = query.recentProgress
    finally:
        watch(Progress(variant, round_, "stopping", 0.0))
        query.stop()
    written = list(_noted(folder / _WRITTEN))
    judged: Any = judge(written, (n for n, _ in _noted(folder / _WORKED)), due)
    shutil.rmtree(folder, ignore_errors=True)
    ends = _ends(progress, begin, end)
    return Run(
        variant, round_, **judged, batches=_batches(spec, progress, begin, end),
        pauses=pauses(ends, written, due),
    )  # fmt: skip


def _start(place: Place, spec: Spec, variant: str, log: ScheduleLog, folder: Path) -> Any:
    import taut

    limits = {} if spec.batch is None else {
        "maxOffsetsPerTrigger": spec.batch, "minOffsetsPerTrigger": spec.batch
    }  # fmt: skip
    rows = taut.read(
        place.spark, log, lanes=spec.lanes, dispatch=VARIANTS[variant], timing=spec.timing,
        startingOffsets="earliest", **limits,
    ).map(_noting_rows(str(folder / _WORKED)))  # fmt: skip
    for operator in spec.what.operators(spec.lanes):
        rows = rows.map(operator, column="value")
    note = _noting(str(folder / _WRITTEN))
    if spec.timing == "resident":
        rows = rows.to(note)

    def sink(df: DataFrame, batch_id: int) -> None:
        if spec.timing == "batch":
            note(df.select("n").toArrow())
        else:
            # the lanes have written the rows; Spark has only to run them
            df.write.format("noop").mode("append").save()

    writer = rows.load().writeStream.foreachBatch(sink)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _phases(begin: float, end: float, most: float) -> Iterator[tuple[float, str, float]]:
    """Time and time again: the time, what goes on, and the seconds that are left of it."""
    while (now := time.time()) < most:
        for phase, until in (("warming up", begin), ("measuring", end), ("the last", most)):
            if now < until:
                yield now, phase, until - now
                break
        time.sleep(_LOOK_EVERY_S if now < end else 4 * _LOOK_EVERY_S)


def _arrivals(log: ScheduleLog, begin: float, end: float) -> dict[int, float]:
    """The tuples that arrive in ``[begin, end)``."""
    first, last = log.at(begin)["0"], log.at(end)["0"]
    rows = log.read("0", first, last)
    micros = rows.column("arrival").cast("int64").to_pylist()
    return dict(zip(rows.column("n").to_pylist(), (us / _MICRO for us in micros), strict=True))


def _noting_rows(folder: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """An operator that notes that a lane has begun with a row, and gives its number on."""

    def note(row: dict[str, Any]) -> dict[str, Any]:
        os.write(_file(folder, os.getpid()), struct.pack(_NOTE, row["n"], time.time()))
        return row | {"value": str(row["n"])}

    return note


def _noting(folder: str) -> Callable[[pa.RecordBatch], None]:
    """A sink: the number of each row, and when it was written."""

    def note(batch: pa.RecordBatch) -> None:
        now = time.time()
        notes = b"".join(struct.pack(_NOTE, n, now) for n in batch.column("n").to_pylist())
        os.write(_file(folder, os.getpid()), notes)

    return note


@lru_cache(maxsize=16)
def _file(folder: str, process: int) -> int:
    """A file of this process, open as long as the process lives."""
    return os.open(Path(folder) / str(process), os.O_CREAT | os.O_APPEND | os.O_WRONLY)


def _noted(folder: Path) -> Iterator[tuple[int, float]]:
    for path in sorted(folder.iterdir()):
        notes = path.read_bytes()
        # a note that is being written is not whole yet
        yield from struct.iter_unpack(_NOTE, notes[: len(notes) - len(notes) % _NOTE_BYTES])


def _batches(spec: Spec, progress: list[Any], begin: float, end: float) -> tuple[float, ...]:
    """How long batches took in the measured time, without looking for rows to take.

    Resident ones take as long as they are made to.
    """
    if spec.timing == "resident":
        return ()
    return tuple(
        (took["triggerExecution"] - took["latestOffset"]) / 1e3
        for took in (p["durationMs"] for p in progress if begin <= _time(p) < end
                     and (p["numInputRows"] == spec.batch or not spec.batch))
        if "addBatch" in took
    )  # fmt: skip


def _ends(progress: list[Any], begin: float, end: float) -> list[float]:
    """When resident batches ended, in the measured time."""
    offsets = [_offset(p["sources"][0]["endOffset"]) for p in progress]
    ends = {o["until_us"] / _MICRO for o in offsets if "until_us" in o}
    return sorted(at for at in ends if begin <= at < end)


def _offset(told: Any) -> dict[str, int]:
    found = json.loads(told) if isinstance(told, str) else told
    return found if isinstance(found, dict) else {}


def _time(progress: Any) -> float:
    return datetime.fromisoformat(progress["timestamp"]).timestamp()

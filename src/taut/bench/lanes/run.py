"""One run: a topology under one variant, from start to stop."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from taut.bench.lanes import database
from taut.bench.lanes.disturb import disturbing
from taut.bench.lanes.figures import Run
from taut.bench.lanes.judge import by_lane, judge, pauses
from taut.bench.lanes.notes import how_many, noted, noting, noting_sink
from taut.bench.lanes.spec import SPECULATION, Spec
from taut.bench.place import Place
from taut.bench.record import BenchError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from taut.spark.source.logs.schedule import ScheduleLog

_LEAD_S = 6.0
"""Seconds for a query to start, before the load does."""
_LOOK_EVERY_S = 0.25
_WORKED, _WRITTEN = "worked", "written"
_MICRO = 1e6


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands, for whoever watches."""

    variant: str
    round: int
    phase: str
    left_s: float
    written: int = 0


Watcher = Callable[[Progress], None]


def run(
    place: Place,
    spec: Spec,
    variant: str,
    round_: int,
    watch: Watcher,
    conditions: Callable[[], AbstractContextManager[None]] | None = None,
) -> Run:
    """Start the query, warm up, measure, wait for what is still due, stop.

    ``conditions`` are entered once lanes run and have caught up with the load, in the warm-up; with
    them the run tells what each lane wrote, the warm-up included.
    """
    from taut.spark.source.logs.schedule import ScheduleLog

    folder = Path(tempfile.mkdtemp(dir=place.folder))
    worked, written = folder / _WORKED, folder / _WRITTEN
    worked.mkdir()
    written.mkdir()
    log = ScheduleLog(time.time() + _LEAD_S, spec.what.rate, arrivals="random")
    query = _start(place, spec, variant, log, folder)
    try:
        begin = log.start + spec.warm_up_s
        end = begin + spec.seconds
        due = _arrivals(log, begin, end)
        parts = {n: spec.what.parts(n) for n in due}.__getitem__
        with (
            disturbing(worked, spec.pauses, spec.lanes, log.start, round_) as disturbed,
            ExitStack() as entered,
        ):
            waiting = conditions
            for now, phase, left in _phases(begin, end, end + spec.grace_s):
                if not query.isActive:
                    raise BenchError(f"the query ended under {variant}: {query.exception()}")
                watch(Progress(variant, round_, phase, left, how_many(written)))
                if waiting and (now >= begin or _caught_up(spec, log, now, worked, written)):
                    entered.enter_context(waiting())
                    waiting = None
                if now >= end and not judge(noted(written), (), due, parts).lost:
                    break
        progress = query.recentProgress
    finally:
        watch(Progress(variant, round_, "stopping", 0.0))
        query.stop()
    notes = list(noted(written))
    judged = judge(notes, noted(worked), due, parts)
    of_all = _arrivals(log, log.start, end) if conditions else {}
    shutil.rmtree(folder, ignore_errors=True)
    resident = spec.timing == "resident"
    return Run(
        variant, round_, judged.latencies, judged.duplicates, judged.lost, judged.arrived,
        judged.extra,
        queued_s=judged.queued_s if resident else None,
        batches=() if resident else _batches(spec, progress, begin, end),
        pauses=pauses(_ends(progress, begin, end), notes, due),
        disturbed=disturbed.pauses,
        by_lane=by_lane(notes, of_all, log.start),
    )  # fmt: skip


def _start(place: Place, spec: Spec, variant: str, log: ScheduleLog, folder: Path) -> Any:
    import taut

    options = spec.source(variant)
    rows: Any
    if variant == SPECULATION:
        from taut.bench.lanes.stock import Stock

        rows = Stock(place.spark, log, spec.lanes, spec.batch)
    else:
        rows = taut.read(
            place.spark, log, lanes=spec.lanes, timing=spec.timing, startingOffsets="earliest",
            **options,
        )  # fmt: skip
    rows = _operated(rows, spec, str(folder / _WORKED))
    note = noting_sink(str(folder / _WRITTEN))
    if spec.timing == "resident":
        rows = rows.to(_slow(note, folder) if spec.topology == "sink" else note)

    def sink(df: DataFrame, batch_id: int) -> None:
        if spec.timing == "batch":
            note(df.select("n", "value").toArrow())
        else:
            # the lanes have written the rows; Spark has only to run them
            df.write.format("noop").mode("append").save()

    writer = rows.load().writeStream.foreachBatch(sink)
    return writer.option("checkpointLocation", str(folder / "checkpoint")).start()


def _slow(note: Callable[[pa.RecordBatch], None], folder: Path) -> Any:
    """A sink that notes rows when they are in a database that all lanes share."""
    path = folder / "tuples.db"
    database.make(path)
    return database.writing(str(path), note)


def _operated(rows: Any, spec: Spec, worked: str) -> Any:
    """The stream through the operators, the first of which notes that a lane has begun."""
    emit = spec.what.emit

    def spout(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"value": emit(row["n"])}

    rows = rows.map(spout)
    for number, (kind, operator) in enumerate(spec.what.operators(spec.lanes)):
        function = operator if number else noting(worked, operator)
        rows = getattr(rows, kind)(function, column="value")
    return rows


def _phases(begin: float, end: float, most: float) -> Iterator[tuple[float, str, float]]:
    """Time and time again: the time, what goes on, and the seconds that are left of it."""
    while (now := time.time()) < most:
        for phase, until in (("warming up", begin), ("measuring", end), ("the last", most)):
            if now < until:
                yield now, phase, until - now
                break
        time.sleep(_LOOK_EVERY_S if now < end else 4 * _LOOK_EVERY_S)


def _caught_up(spec: Spec, log: ScheduleLog, now: float, worked: Path, written: Path) -> bool:
    """Whether lanes have begun with all that came up to a second ago; batches, with one."""
    if spec.timing == "batch":
        return how_many(written) > 0
    return now > log.start + 1.0 and how_many(worked) >= log.at(now - 1.0)["0"]


def _arrivals(log: ScheduleLog, begin: float, end: float) -> dict[int, float]:
    """The tuples that arrive in ``[begin, end)``."""
    first, last = log.at(begin)["0"], log.at(end)["0"]
    rows = log.read("0", first, last)
    micros = rows.column("arrival").cast("int64").to_pylist()
    return dict(zip(rows.column("n").to_pylist(), (us / _MICRO for us in micros), strict=True))


def _batches(spec: Spec, progress: list[Any], begin: float, end: float) -> tuple[float, ...]:
    """How long batches took in the measured time, without looking for rows to take."""
    return tuple(
        (took["triggerExecution"] - took["latestOffset"]) / 1e3
        for took in (p["durationMs"] for p in progress if begin <= _time(p) < end
                     and (_taken(p) == spec.batch or not spec.batch))
        if "addBatch" in took
    )  # fmt: skip


def _taken(progress: Any) -> int:
    """Tuples that a batch took from the log, with those that an operator dropped."""
    upto, since = (_offset(progress["sources"][0][name]) for name in ("endOffset", "startOffset"))
    return sum(upto.values()) - sum(since.values())


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

"""What a person sees of ``bench lanes``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from taut.bench.lanes.figures import Run, remarks
from taut.bench.lanes.run import Progress, Watcher
from taut.bench.lanes.spec import Spec
from taut.bench.lines import live as shown
from taut.bench.record import Record
from taut.bench.table import table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_COLUMNS = {
    "mean": ("{own}.mean_ms", 1),
    "p90": ("{own}.p90_ms", 1),
    "p99": ("{own}.p99_ms", 1),
    "p99.9": ("{own}.p999_ms", 1),
    "queue": ("{own}.queue_ms", 1),
    "theory": ("{own}.theory_queue_ms", 1),
    "tuples": ("{own}.tuples", 0),
    "twice": ("{own}.duplicates", 0),
    "lost": ("{own}.lost", 0),
    "cost": ("{own}.cost", 3),
    "batch": ("{own}.batch_ms", 0),
    "pause": ("{own}.pause_ms", 0),
    "x p99": ("ratio.{variant}.p99", 2),
    "x p99.9": ("ratio.{variant}.p999", 2),
    "x batch": ("ratio.{variant}.batch", 2),
}


def live(console: Console) -> AbstractContextManager[Watcher]:
    """One line that keeps itself current on a terminal, plain lines elsewhere."""
    return shown(console, _words)


def _words(now: Progress) -> list[str]:
    written = [f"{now.written:,} outputs written"] if now.written else []
    return [*written, f"at most {now.left_s:.0f} s left"] if now.left_s > 0 else written


def results(spec: Spec, record: Record) -> Table:
    """The figures as a table: medians over the rounds; columns without any are left out."""
    title = (
        f"{spec.topology}, {spec.timing}: {spec.lanes} lanes, {spec.what.rate:,} tuples/s; in ms"
    )
    return table(
        title, record.options["variants"], record.figures, _COLUMNS, prefix=f"{spec.topology}."
    )


def legend(spec: Spec, runs: Sequence[Run]) -> list[str]:
    """What a reader of the table has to know."""
    told = [
        "A tuple's latency is from arrival until its last output is written, the wait for its "
        "batch included; queue: until a lane began with it. default: fixed ranges, as Spark cuts "
        "them; twice: written once more; lost: not written; cost: worked on once more, for each "
        f"tuple; x: default over the variant. Warm-up cut from each run: {spec.warm_up_s:g} s."
    ]
    if spec.pauses is not None:
        told.append(
            f"Lanes were paused, each about every {spec.pauses.every_s:g} s for "
            f"{1e3 * spec.pauses.mean_s:g} ms, at the same times in all variants of a round."
        )
    if spec.utilisation is not None:
        told.append(
            "theory: queue for exponential service times and no other cost, M/M/c for shared, "
            "lanes that tuples go to in turn for default."
        )
    if spec.timing == "resident" and not any(run.pauses for run in runs):
        told.append("No batch ended in the measured time: no pause is in these figures.")
    return told + remarks(runs)

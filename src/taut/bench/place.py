"""Where benchmarks run: one Spark, quiet, and a folder that goes with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from taut.bench.record import BenchError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = "spark.log"
_CONF = {"spark.scheduler.mode": "FAIR", "spark.ui.enabled": "false"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where runs happen: one Spark, and a folder outside the project that goes when it stops."""

    spark: SparkSession
    folder: Path


@contextlib.contextmanager
def spark_session(master: str = "local[*]") -> Iterator[Place]:
    """The session that every run shares; stopped at the end unless it was there before.

    Its scheduler mode is FAIR so that ``spark-fair`` can have its pools. All else runs in the
    default pool, which is FIFO inside: what stock Spark does.
    """
    with bench_folder() as folder, application(folder, master) as place:
        yield place


@contextlib.contextmanager
def bench_folder() -> Iterator[Path]:
    """A folder outside the project, which is left behind only when a benchmark could not run."""
    folder = Path(tempfile.mkdtemp(prefix="taut-bench-"))
    try:
        yield folder
    except BenchError as error:
        raise BenchError(f"{error}\nWhat Spark said is in {folder / _LOG}") from error
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    # After Spark has stopped: its state store uploads snapshots of queries that have ended, and
    # so puts back a checkpoint that was deleted with its run.
    shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def application(
    folder: Path, master: str, conf: Mapping[str, str] | None = None
) -> Iterator[Place]:
    """Spark, stopped at the end unless it was there before; on a cluster it must not have been."""
    from pyspark.sql import SparkSession

    import taut

    found = SparkSession.getActiveSession()
    if found is not None and not master.startswith("local"):
        raise BenchError(
            f"Spark is running in this process already, with master {found.sparkContext.master}: "
            "stop it, or run the benchmark by itself"
        )
    with _errors_to(folder / _LOG):
        spark = found or taut.session(master, conf=_CONF | dict(conf or {}))
    # Spark keeps the progress of every batch, so that nothing has to listen during a run.
    spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "100000")
    try:
        yield Place(spark, folder)
    finally:
        if found is None:
            spark.stop()


@contextlib.contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Give processes started meanwhile another standard error, for as long as they live.

    Spark's JVM and its Python workers write there when queries are stopped, across the table
    that a person is watching.
    """
    sys.stderr.flush()
    own = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)

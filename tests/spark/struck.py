"""What drivers that meet faults share: they run what they are told, and processes of theirs die."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from tests.spark.cluster import CONF

import taut

LONGEST = 120.0
"""Seconds after which a process that was to be killed goes by itself."""

Run = Callable[[SparkSession, Path, str, dict[str, Any]], None]


def executor_pid() -> int:
    """The executor's JVM: the parent of the parent of a Python worker."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1])


def lose_output(folder: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Behind a stage: take the executor down, and with it what tasks have left there."""

    def passing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            there = Path(folder) / "there"
            if not there.exists():
                there.touch()
                os.kill(executor_pid(), signal.SIGKILL)
                threading.Event().wait(LONGEST)
            yield batch

    return passing


def serve(master: str, run: Run) -> None:
    """Run what the input says, line after line: FAULT, FOLDER and options as JSON, with tabs.

    FOLDER/ended then has what went wrong, or nothing.
    """
    spark = taut.session(master=master, conf=CONF | {"spark.task.maxFailures": "4"})
    for line in sys.stdin:
        fault, folder, options = line.rstrip("\n").split("\t")
        wrong = ""
        try:
            run(spark, Path(folder), fault, json.loads(options))
        except Exception:  # the test shows it
            wrong = traceback.format_exc()
        (Path(folder) / "ended").write_text(wrong)
    spark.stop()

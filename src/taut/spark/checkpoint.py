"""One query a checkpoint: two that write the same one would destroy each other's progress."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from taut.errors import StartError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointLock:
    """A lock on a checkpoint folder, gone with the process however it ends.

    Folders on this machine's disks are locked by the system; for others (object stores, HDFS)
    Spark's own check of the offset log stands alone.
    """

    NAME = ".taut.lock"

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    @classmethod
    def take(cls, checkpoint: str, query: str, spark: SparkSession) -> CheckpointLock:
        """Lock a checkpoint for a query, or say that it is in use."""
        folder = local_folder(checkpoint, spark)
        if folder is None:
            return cls(None)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(folder / cls.NAME, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StartError(
                f"{query}: checkpoint={checkpoint!r} cannot be written: {error.strerror}"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise StartError(
                f"{query}: checkpoint={checkpoint!r} is in use by another query; "
                "each query needs a checkpoint of its own"
            ) from None
        return cls(descriptor)

    def release(self) -> None:
        """Give the checkpoint free; again is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def local_folder(checkpoint: str, spark: SparkSession) -> Path | None:
    """The folder on this machine's disks that a path of Spark's names; None for any other."""
    parts = urlparse(checkpoint)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if parts.scheme:
        return None
    # a path without a scheme lies where Hadoop's default says
    default = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")
    return Path(checkpoint) if str(default).startswith("file:") else None

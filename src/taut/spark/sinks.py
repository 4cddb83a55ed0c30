"""Where results go: a callable ``(df, batch_id)``, or one made by name.

A batch may reach a sink twice under the same id after a crash, never with other rows. The file
and memory sinks made here are idempotent: writing a batch again replaces it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from taut.errors import StartError
from taut.spark.checkpoint import local_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

SinkFunction = Callable[["DataFrame", int], Any]

_FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")


def sink(format: str, **options: Any) -> SinkFunction:
    """A sink by the name of a batch format.

    Parameters
    ----------
    format
        ``"parquet"`` and other file formats: each batch in a folder ``batch_id=N`` below
        ``path``, replaced when the batch comes again. ``"memory"``: rows kept in the driver, see
        :class:`MemorySink`. ``"delta"``: idempotent when ``txnAppId`` is given. Any other batch
        format (``"kafka"``, ``"jdbc"``, ...): appended, at least once.
    **options
        The format's options, named as Spark names them.

    Examples
    --------
    >>> write = sink("parquet", path="/tmp/out")
    >>> write.path
    '/tmp/out'
    """
    if not isinstance(format, str) or not format:
        raise StartError(f"sink format {format!r}: a name such as 'parquet' is needed")
    name = format.lower()
    if name == "memory":
        return MemorySink(**options)
    if name in _FILES:
        return FileSink(name, **options)
    return FormatSink(format, options)


class MemorySink:
    """Keeps rows in the driver's memory, by batch; for tests and small results."""

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._batches: dict[int, list[Row]] = {}
        self._lock = threading.Lock()

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Keep a batch, replacing it when it comes again."""
        rows = df.collect()
        with self._lock:
            kept = sum(len(r) for i, r in self._batches.items() if i != batch_id)
            if kept + len(rows) > self._limit:
                raise MemoryError(
                    f"memory sink: {kept + len(rows)} rows are over limit={self._limit}; "
                    "raise it, or use taut.sink('parquet', path=...)"
                )
            self._batches[batch_id] = rows

    def beside(self, name: str) -> MemorySink:
        """One of the same size, with nothing in it."""
        return MemorySink(self._limit)

    def rows(self) -> list[Row]:
        """All rows so far, in the order of their batches."""
        with self._lock:
            return [row for i in sorted(self._batches) for row in self._batches[i]]


class FileSink:
    """One folder a batch, ``path/batch_id=N``, written over when the batch comes again."""

    def __init__(self, format: str, path: str | None = None, **options: Any) -> None:
        if not path:
            raise StartError(f"taut.sink({format!r}): option path is missing, such as path='out'")
        self.format = format
        self.path = str(path)
        self._options = options

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Write a batch; one without rows leaves no folder."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        folder = f"{self.path}/batch_id={batch_id}"
        # counted while it is written: a second action would run the stateful batch again
        count = Observation()
        rows = df.observe(count, F.count(F.lit(1)).alias("rows"))
        rows.write.format(self.format).options(**self._options).mode("overwrite").save(folder)
        if count.get["rows"] == 0:
            delete(df.sparkSession, folder)

    def beside(self, name: str) -> FileSink:
        """The same, to a folder beside its own; nobody reads one whose name begins so.

        >>> FileSink("json", "/tmp/out/").beside("trial").path
        '/tmp/_out-trial'
        >>> FileSink("json", "s3a://bucket").beside("trial").path
        's3a://bucket/_trial'
        """
        return FileSink(self.format, _hidden(self.path, name), **self._options)


def _hidden(path: str, name: str) -> str:
    found = re.match(r"[A-Za-z][\w+.-]*://[^/]*/*|/*", path)
    root = found.group() if found else ""
    *parents, own = path[len(root) :].rstrip("/").split("/")
    if "://" in root and not root.endswith("/"):
        root += "/"
    return root + "/".join([*parents, f"_{own}-{name}" if own else f"_{name}"])


def beside(sink: SinkFunction, name: str) -> SinkFunction:
    """The same of a sink made here, without an effect on it or on what it has written."""
    made = getattr(sink, "beside", None)
    return made(name) if callable(made) else sink


def file_paths(sink: SinkFunction) -> list[str]:
    """Where a sink, or the sinks that it is made of, write files."""
    parts: list[SinkFunction] = getattr(sink, "parts", [sink])
    return [part.path for part in parts if isinstance(part, FileSink)]


def refuse_old_results(
    query: str, sink: SinkFunction, checkpoint: str, spark: SparkSession
) -> None:
    """A new checkpoint counts its batches from 0, and would replace what lies at the path."""
    for path in file_paths(sink):
        out, progress = local_folder(path, spark), local_folder(checkpoint, spark)
        if out is None or progress is None or any(progress.glob("offsets/*")):
            continue
        if any(out.glob("batch_id=*")):
            raise StartError(
                f"{query}: path={path!r} holds results and checkpoint={checkpoint!r} is new: its "
                "batches would replace them; give a new path, or the checkpoint they came from"
            )


class FormatSink:
    """Appends to any batch format that Spark can write."""

    def __init__(self, format: str, options: dict[str, Any]) -> None:
        self.format = format
        self._options = options

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Append a batch."""
        writer = df.write.format(self.format).options(**self._options)
        if self.format == "delta" and "txnAppId" in self._options:
            writer = writer.option("txnVersion", batch_id)
        writer.mode("append").save()

    def beside(self, name: str) -> FormatSink:
        """To the same place, but that Delta takes its batches for those of another."""
        given = self._options.get("txnAppId")
        own = {} if given is None else {"txnAppId": f"{given}-{name}"}
        return FormatSink(self.format, self._options | own)


def delete(spark: SparkSession, folder: str) -> None:
    """Remove a folder of any file system that Spark writes to, if it is there."""
    jvm = spark._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(folder)
    path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf()).delete(path, True)

"""The end of a query that was to process what is there.

Where rows may wait, Spark runs batches also when none come, and with ``availableNow`` never ends.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)
_QUERY = "sql.streaming.queryId"
_LOOK = 0.05
"""Seconds between two looks for the progress of a batch."""
_PATIENCE = 60.0


class Ending:
    """Stops a query with ``availableNow`` after a batch that had no rows left to take."""

    def __init__(self, spark: SparkSession | None) -> None:
        self._spark = spark
        self._thread: threading.Thread | None = None

    def after(self, batch: int) -> None:
        """This batch, in whose sink we are, had no rows, and none wait."""
        if self._spark is None or (self._thread is not None and self._thread.is_alive()):
            return
        # the session of a batch's frame is a copy that knows of no queries
        query = here(self._spark)
        if query is not None and _drains(query):
            self._thread = threading.Thread(
                target=_stop, args=(query, batch), name="taut-reduce-ending", daemon=True
            )
            self._thread.start()


def here(spark: SparkSession) -> StreamingQuery | None:
    """The query in whose sink we are; asked of the session that started it."""
    mine = spark.sparkContext.getLocalProperty(_QUERY)
    return next((query for query in spark.streams.active if query.id == mine), None)


def _drains(query: StreamingQuery) -> bool:
    try:
        trigger: Any = query._jsq.streamingQuery().trigger()
        return "AvailableNow" in str(trigger.toString())
    except Exception as error:
        log.warning("query %s may not end by itself, its trigger cannot be read: %r", query.name,
                    error)  # fmt: skip
        return False


def _stop(query: StreamingQuery, batch: int) -> None:
    """Once the batch is committed; only its progress tells whether sources had rows."""
    limit = time.monotonic() + _PATIENCE
    while query.isActive and time.monotonic() < limit:
        for told in query.recentProgress:
            if told["batchId"] == batch:
                if all(each["startOffset"] == each["endOffset"] for each in told["sources"]):
                    query.stop()
                return
        time.sleep(_LOOK)

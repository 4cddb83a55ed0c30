"""Reading on where rows are gone, for ``failOnDataLoss=false``."""

from __future__ import annotations

import logging

import pyarrow as pa

from taut.errors import DataLost
from taut.spark.source.logs.base import Log
from taut.spark.source.logs.rows import nothing

logger = logging.getLogger("taut")


class Lenient:
    """Reads what is left of a range, and tells once of each partition that rows are lost."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._told: set[str] = set()

    def read(self, partition: str, start: int, end: int) -> pa.RecordBatch:
        """The rows of the range that are still there."""
        try:
            return self._log.read(partition, start, end)
        except DataLost as error:
            if partition not in self._told:
                self._told.add(partition)
                logger.warning("%s: rows are lost", error)
        left = self._log.latest()
        start = max(start, self._log.earliest().get(partition, end))
        end = min(end, left.get(partition, start))
        return self._log.read(partition, start, end) if start < end else nothing(self._log.schema())

    def close(self) -> None:
        """Let go of what was opened here."""
        self._log.close()

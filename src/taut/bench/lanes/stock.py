"""Stock Spark for comparison: a plain Python data source, with nothing of Taut between its tasks.

A batch is cut into as many ranges of equal size as there are lanes, before it starts. The rows are
those of the same log, and the operators are the same.
"""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from taut.policy.admission import Limits, admit
from taut.policy.sharing import Range, split
from taut.spark.source.logs import open_log
from taut.spark.source.logs.base import Log
from taut.spark.source.operators import Chain

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from taut.spark.source.logs.schedule import ScheduleLog

NAME = "taut-bench-stock"


@dataclass(frozen=True, slots=True)
class Stock:
    """A stream that is being put together, as by ``taut.read``; ``batch`` rows in each batch."""

    spark: SparkSession
    log: ScheduleLog
    lanes: int
    batch: int | None = None
    chain: Chain = field(default_factory=Chain)

    def map(self, function: Any, **how: Any) -> Self:
        """Replace each row."""
        return replace(self, chain=self.chain.map(function, **how))

    def flat_map(self, function: Any, **how: Any) -> Self:
        """Replace each row by any number of them."""
        return replace(self, chain=self.chain.flat_map(function, **how))

    def filter(self, function: Any, **how: Any) -> Self:
        """Keep rows."""
        return replace(self, chain=self.chain.filter(function, **how))

    def load(self) -> DataFrame:
        """The stream as a DataFrame."""
        self.spark.dataSource.register(StockSource)
        options = self.log.options() | {
            "lanes": str(self.lanes),
            "batch": str(self.batch or 0),
            "operators": base64.b64encode(self.chain.dumps()).decode(),
        }
        return self.spark.readStream.format(NAME).options(**options).load()


class StockSource(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        """What Spark calls it."""
        return NAME

    def schema(self) -> StructType:
        """The columns after the last operator."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._chain().schema(open_log(self.options).schema()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What plans batches."""
        return StockReader(
            open_log(self.options),
            self._chain(),
            int(self.options["lanes"]),
            int(self.options["batch"]) or None,
        )

    def _chain(self) -> Chain:
        return Chain.loads(base64.b64decode(self.options["operators"]))


@dataclass(frozen=True)
class Share(InputPartition):
    """What one task reads."""

    ranges: tuple[Range, ...]


class StockReader(DataSourceStreamReader):
    """Plans batches over a log: all that has arrived, or so many rows each."""

    def __init__(self, log: Log, chain: Chain, lanes: int, batch: int | None) -> None:
        self._log = log
        self._chain = chain
        self._lanes = lanes
        self._limits = Limits(batch, batch or 0)
        self._last: float | None = None

    def initialOffset(self) -> dict[str, int]:
        """The beginning."""
        return dict(self._log.earliest())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """As far as the next batch goes."""
        now = time.monotonic()
        self._last = now if self._last is None else self._last
        end = admit(start, self._log.latest(), self._limits, now - self._last)
        self._last = now if end != start else self._last
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Ranges of equal size, one for each task."""
        ranges = [
            Range(name, start.get(name, 0), upto)
            for name, upto in sorted(end.items())
            if upto > start.get(name, 0)
        ]
        return [Share(tuple(share)) for share in split(ranges, self._lanes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task, after all operators."""
        assert isinstance(partition, Share)
        for each in partition.ranges:
            yield self._chain.run(self._log.read(each.partition, each.start, each.end))

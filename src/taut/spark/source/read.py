"""``taut.read``: a stream from a log, with operators that run in the lanes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

from taut.errors import StartError
from taut.spark.ddl import columns
from taut.spark.source.control import Control, Desk
from taut.spark.source.follower import OPTION, Stats
from taut.spark.source.logs import KINDS, open_log
from taut.spark.source.logs.base import refuse_untimed
from taut.spark.source.logs.options import schema_text
from taut.spark.source.operators import Chain, OperatorError
from taut.spark.source.options import SourceOptions, refuse_unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_registered: WeakSet[SparkSession] = WeakSet()


def register(spark: SparkSession) -> None:
    """Make ``spark.readStream.format("taut")`` known to a session.

    Raises
    ------
    StartError
        When ``spark.speculation`` is on: a lane's chunks belong to one attempt at a time.
    """
    from taut.spark.source.reader import TautSource

    conf = spark.sparkContext.getConf()
    given = conf.get("spark.speculation", "false")
    if given.strip().lower() == "true":
        raise StartError(
            f"spark.speculation={given}: a Taut source hands its chunks to fast lanes by itself, "
            "and two copies of a lane would take them from each other; set spark.speculation=false"
        )
    if spark not in _registered:
        spark.dataSource.register(TautSource)
        _registered.add(spark)


@dataclass(frozen=True)
class Read:
    """A stream that is being put together; :meth:`load` makes the DataFrame."""

    spark: SparkSession
    options: Mapping[str, str]
    chain: Chain = field(default_factory=Chain)
    control: Control = field(
        default_factory=lambda: Desk.one().control(), repr=False, compare=False
    )

    def __repr__(self) -> str:
        # not its options: a memory log's token is one of them
        return f"taut.read({self.options['log']!r}, operators={len(self.chain.operators)})"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"taut.read(...) has no {name!r}; .load() makes it a DataFrame")

    def map(self, function: Any, schema: Any = None, **how: Any) -> Self:
        """Replace each row by what ``function`` gives for it."""
        return replace(self, chain=self.chain.map(function, schema, **how))

    def flat_map(self, function: Any, schema: Any = None, **how: Any) -> Self:
        """Replace each row by any number of rows."""
        return replace(self, chain=self.chain.flat_map(function, schema, **how))

    def filter(self, function: Any, **how: Any) -> Self:
        """Keep the rows for which ``function`` gives a true value."""
        return replace(self, chain=self.chain.filter(function, **how))

    def to(self, sink: Any) -> Self:
        """Give the rows of each chunk to ``sink(batch)`` in the lane, as soon as they count.

        The rows go on to Spark as well. A task that is tried again gives its rows again.
        """
        return replace(self, chain=self.chain.to(sink))

    def stats(self) -> Stats | None:
        """How the rows were dealt out so far; None before the first batch.

        Of the stream that told last, where several were made of this ``taut.read``; a source tells
        every two seconds, or at once when it is told something itself.
        """
        return self.control.stats

    def limit(self, most: int | None) -> None:
        """Change what a batch may take, while queries run; sources hear of it within milliseconds.

        Takes the place of ``maxOffsetsPerTrigger`` in all streams of this ``taut.read``, whatever
        operators they have; None goes back to it.
        """
        if self.options.get("timing") == "resident":
            raise ValueError("limit: a resident batch takes all that arrives until it ends")
        if most is not None and not isinstance(most, int):
            raise ValueError(f"limit({most!r}): a whole number of offsets is needed, or None")
        self.control.limit(most)

    def load(self) -> DataFrame:
        """The stream as a DataFrame."""
        options = {**self.options, OPTION: self.control.option}
        SourceOptions.parse(self.options, steered=True).refuse_sinkless(self.chain)
        if self.chain:
            try:
                self.chain.schema(open_log(self.options).schema())
                packed = self.chain.dumps()
            except OperatorError as error:
                raise StartError(str(error)) from error
            options["operators"] = base64.b64encode(packed).decode()
        return self.spark.readStream.format("taut").options(**options).load()


def read(spark: SparkSession, log: Any, **options: Any) -> Read:
    """A stream from a log whose rows are dealt out to lanes while a batch runs.

    Parameters
    ----------
    spark
        A classic SparkSession without speculation.
    log
        A :class:`taut.MemoryLog`, or a name (``"files"``, ``"schedule"``, ``"kafka"``) whose
        settings are given as options, such as ``path=``, or ``subscribe=`` and
        ``**{"kafka.bootstrap.servers": ...}``.
    lanes
        Tasks a batch; by default as many as Spark runs at a time.
    schema
        The columns of json, csv and parquet files: DDL such as ``"word string, n bigint"``, an
        Arrow schema, or a mapping of names to types.
    dispatch, balanceEvery
        ``"shared"`` (one queue for all lanes), ``"executor"`` (one for each executor), ``"fixed"``
        (ranges cut beforehand, as Spark does), or queues of the lanes' own: ``"balance"`` (by
        latency, looked at every ``balanceEvery``), ``"even"``, ``"two-choices"``.
    replay, replayBudget
        ``"adaptive"``: a chunk that takes too long goes to another lane as well, for a share
        ``replayBudget`` of them; ``"replicate-20"``, ``-50``, ``-100``; ``"none"``.
    admission
        Where ``maxOffsetsPerTrigger`` goes: ``"proportional"``, ``"largest-backlog"`` or
        ``"round-robin"``.
    egress, egressEvery
        Which lane's sink may write: ``"all"``, ``"largest-backlog"`` or ``"round-robin"``.
    chunk
        Offsets a chunk, or ``"guided"``: large first, smaller towards the end of the batch.
    timing, horizon
        ``"batch"``: what has arrived. ``"resident"``: lanes take rows as they arrive, for
        ``horizon`` (by default so long that the pause between two batches stays out of the p99).
    startingOffsets, maxOffsetsPerTrigger, minOffsetsPerTrigger, maxTriggerDelay, failOnDataLoss
        As in Spark's Kafka source.

    Examples
    --------
    >>> words = (                                                       # doctest: +SKIP
    ...     taut.read(spark, "files", path="in", format="text", startingOffsets="earliest")
    ...     .flat_map(lambda line: line.split(), column="value")
    ...     .load()
    ... )
    """
    register(spark)
    schema = options.pop("schema", None)
    given = {k: _text(v) for k, v in options.items()}
    if schema is not None:
        try:
            given["arrowschema"] = schema_text(columns(schema))
        except ValueError as error:
            raise StartError(f"schema: {error}") from error
    named = [kind for kind in KINDS if kind != "memory"]
    known = log in named if isinstance(log, str) else hasattr(log, "options")
    if not known:
        raise StartError(f"log={log!r} is not known; one of: {', '.join(named)}, or a MemoryLog")
    made = {"log": log} if isinstance(log, str) else log.options()
    given = {
        "lanes": str(spark.sparkContext.defaultParallelism),
        "host": _host(spark),
    } | made | given  # fmt: skip
    refuse_unknown(given)
    how = SourceOptions.parse(given, steered=True)
    opened = open_log(given)
    # whether a Kafka topic is, only its broker knows
    if how.timing == "resident" and given["log"] != "kafka":
        refuse_untimed(opened)
    return Read(spark, given)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _host(spark: SparkSession) -> str:
    """Where executors find the driver: loopback when they run inside of it."""
    if str(spark.sparkContext.master).startswith("local"):
        return "127.0.0.1"
    return spark.sparkContext.getConf().get("spark.driver.host") or "127.0.0.1"

"""Spark's side of the source: offsets, batches and lanes.

The reader lives in Spark's source process for as long as the query runs, and with it the
distributor's server. It is pickled to the executors, where only :meth:`TautReader.read` runs.
"""

from __future__ import annotations

import base64
import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    SupportsTriggerAvailableNow,
)

from taut.errors import DataLost, StartError
from taut.policy.admission import Limits, admit
from taut.policy.sharing import Range
from taut.spark.source.connection import Place
from taut.spark.source.control import FORMAT
from taut.spark.source.dealt import Batch
from taut.spark.source.distributor import Distributor
from taut.spark.source.ending import Ending
from taut.spark.source.follower import Follower, Stats, Wheel
from taut.spark.source.lane import Egress, run_lane
from taut.spark.source.logs import open_log
from taut.spark.source.logs.base import Log, Offsets, refuse_untimed
from taut.spark.source.logs.lenient import Lenient
from taut.spark.source.lookout import Lookout
from taut.spark.source.operators import Chain
from taut.spark.source.options import SourceOptions, refuse_unknown
from taut.spark.source.resident import UNTIL, Feeder, Pauses, offset, until
from taut.spark.source.server import Server
from taut.spark.source.tally import Standing, Tally, tell
from taut.watch.records import Source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

log = logging.getLogger("taut")

_EARLIEST, _LATEST = -2, -1
_RECENT = 30.0
"""Seconds after its end within which a batch is followed by the next, not by a restart."""
_HELD_FOR = 5.0
_LAG = 10.0
_POLL = 0.01
_MOST_PLACES = 500
_LONGEST_WAIT = 0.1
"""Spark asks an idle source again after 10 ms; waiting here instead costs it nothing."""


class TautSource(DataSource):
    """``spark.readStream.format("taut")``; see :func:`taut.read` for its options."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        refuse_unknown(self.options)
        options = _lower(self.options)
        SourceOptions.parse(options)
        return from_arrow_schema(_chain(options).schema(open_log(options).schema()))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        own = self.schema().simpleString()
        if schema.simpleString() != own:
            raise StartError(
                f"schema {schema.simpleString()}: this source has {own}; leave out .schema(...), "
                "the columns of files are the option schema"
            )
        options = _lower(self.options)
        how = SourceOptions.parse(options)
        how.refuse_sinkless(_chain(options))
        kind = ResidentReader if how.timing == "resident" else TautReader
        reader = kind(open_log(options), _chain(options), how, Wheel.of(options))
        reader.ending.on_signal()
        return reader


@dataclass(frozen=True)
class Lane(InputPartition):
    """One lane of a batch."""

    number: int
    place: Place


class TautReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans batches over a log and has its lanes take them apart."""

    def __init__(
        self, source: Log, chain: Chain, options: SourceOptions, wheel: Wheel | None = None
    ) -> None:
        self._log = source
        self._chain = chain
        self._options = options
        self._chunking = options.chunking(source.stride)
        self._dispatch = options.dispatching()
        self._replay = options.replaying()
        self._tally = Tally()
        self._looked: tuple[Offsets, Offsets] | None = None
        self._lookout: Lookout | None = None
        self._spend = options.admitting()
        self._wheel = wheel
        self._follower: Follower | None = None
        self.ending = Ending(self._part)
        self._idle = False
        self._short_since: float | None = None
        self._gone: set[str] = set()
        self._told: set[tuple[str, frozenset[str]]] = set()
        self._bound: dict[str, int] | None = None
        self._server: Server | None = None
        self._last_batch: float | None = None
        self._planned: list[tuple[dict[str, int], str]] = []
        self._batches = 0

    def __getstate__(self) -> dict[str, Any]:
        # what lanes have no use for
        gone = ("_server", "_follower", "_wheel", "_dispatch", "_replay", "_spend", "_tally",
                "_looked", "_lookout", "ending")  # fmt: skip
        return self.__dict__ | dict.fromkeys(gone) | {"_planned": []}

    # -- in the source process ---------------------------------------------------------------

    def initialOffset(self) -> dict[str, int]:
        return dict(self._resolve(self._options.start))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._bound = dict(self._log.latest())

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        self._looked = start, self._looked[1] if self._looked else start
        self._wait_for_turn()
        looked = begun = time.monotonic()
        start = self._known(start)
        # the first look after a batch does not wait: a batch without data may be due
        patience = _LONGEST_WAIT if self._idle else 0.0
        while True:
            latest = self._log.latest() if self._bound is None else self._bound
            self._looked = start, latest
            now = time.monotonic()
            self._refuse_shorter(start, latest, now)
            # the first batch waits for no more rows, as in Spark's Kafka source
            waited = math.inf if self._last_batch is None else now - self._last_batch
            end = admit(start, latest, self._limits(), waited, self._spend)
            self._last_batch = now if self._last_batch is None else self._last_batch
            self._idle = end == start
            if not self._idle or self._bound is not None or not patience:
                return end
            # of many files a look takes long: no more than a fifth of the time is spent on it
            time.sleep(max(_POLL, 4.0 * (now - looked)))
            looked = time.monotonic()
            if looked - begun >= patience:
                return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._follow()  # the first batch after a restart was planned before it
        start = self._known(start)
        ranges = [
            Range(partition, start.get(partition, 0), upto)
            for partition, upto in sorted(end.items())
            if upto > start.get(partition, 0)
        ]
        self._last_batch = time.monotonic()
        self._looked = end, self._looked[1] if self._looked else end
        if not ranges:
            return []
        key, batch = self._open(end)
        self._serving().add(batch, ranges)
        batch.close()
        return self._lanes(key, batch)

    def commit(self, end: dict[str, int]) -> None:
        if self._server is None:
            return
        # batches are committed in their order: what was planned before this one is over too
        ends = [planned for planned, _ in self._planned]
        if end not in ends:
            return
        upto = len(ends) - ends[::-1].index(end)
        over, self._planned = self._planned[:upto], self._planned[upto:]
        keys = [key for _, key in over]
        self._server.do(lambda distributor: distributor.forget(*keys))

    def stop(self) -> None:
        self.ending.run()
        self._log.close()

    def _part(self) -> None:
        # one that fails does not keep the others from parting
        with ExitStack() as parting:
            # the follower's thread may end it meanwhile
            lookout = self._lookout
            if lookout is not None:
                lookout.hush()
                parting.callback(lookout.stop, timeout=1.0)
            if self._follower is not None:
                parting.callback(self._follower.stop)
            # no more rows for lanes, whatever the last word takes; what they had is still known
            if self._server is not None:
                self._server.close()

    # -- in an executor -------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        assert isinstance(partition, Lane)
        context = TaskContext.get()
        assert context is not None
        attempt = context.taskAttemptId()
        source = self._log if self._options.fail_on_data_loss else Lenient(self._log)
        egress = Egress(self._options.egress, self._options.egress_every)
        return run_lane(
            partition.place, partition.number, attempt, source, self._chain, egress=egress
        )

    # -- how the driver steers it --------------------------------------------------------------

    def _wait_for_turn(self) -> None:
        """Wait while the driver holds this source, unless Spark has gone meanwhile.

        To answer with the start instead would let Spark run batches without data meanwhile.
        """
        self._follow()
        spark = os.getppid()
        while self._follower and not self._follower.wait(_HELD_FOR) and os.getppid() == spark:
            pass

    def _follow(self) -> None:
        if self._wheel is not None and self._follower is None:
            self._follower = Follower(self._wheel, self._stats, self._facts)

    def _stats(self) -> Stats | None:
        return None if self._server is None else self._server.do(self._stats_of)

    def _facts(self, wanted: bool) -> Source | None:
        """How the lanes fare; ``wanted`` again in about a second."""
        server = self._server
        self._tally.wanted = wanted
        standing = Standing({}, {}, {})
        if server is not None:
            standing = server.do(lambda distributor: distributor.standing(self._tally))
        if not wanted:
            self._look_out(False)
            return None
        return tell(standing, self._beyond(), self._log.unit)

    def _beyond(self) -> dict[str, int]:
        """Offsets by partition that have arrived and are in no batch."""
        if self._looked is None:
            return {}
        # the query asks the log only when it plans; what comes after a bound is not for it
        newest = self._look_out(self._bound is None)
        taken, latest = self._looked
        latest = {p: max(n, latest.get(p, n)) for p, n in newest.items()} or latest
        return {p: n - taken.get(p, 0) for p, n in latest.items() if n > taken.get(p, 0)}

    def _look_out(self, wanted: bool) -> Offsets:
        if wanted:
            self._lookout = self._lookout or Lookout(self._log.latest, self._log.close)
            return self._lookout.latest()
        if self._lookout is not None:
            self._lookout.stop()
            self._lookout = None
        return {}

    def _stats_of(self, distributor: Distributor) -> Stats:
        balance = self._dispatch.balance
        places = [] if balance is None else list(balance.tasks)[:_MOST_PLACES]
        shares = [] if balance is None or not places else balance.shares(places)
        return Stats(
            distributor.issued,
            distributor.replayed,
            self._replay.timeout,
            dict(zip(places, shares, strict=True)),
        )

    def _limits(self) -> Limits:
        most = None if self._follower is None else self._follower.most
        limits = self._options.limits if most is None else self._options.limits.capped(most)
        # what is there is all that will come
        return limits if self._bound is None else replace(limits, least=0)

    # -- offsets ----------------------------------------------------------------------------------

    def _serving(self) -> Server:
        if self._server is None:
            self._server = Server(self._options.host)
        return self._server

    def _open(self, end: dict[str, int]) -> tuple[str, Batch]:
        """A new batch, not yet known to the distributor."""
        self._batches += 1
        key = f"{self._batches}"
        self._planned.append((dict(end), key))
        sharing = self._dispatch.sharing(self._options.lanes, self._chunking)
        return key, Batch(
            sharing, self._chunking, silence=self._options.silence, wait=0.0, replay=self._replay,
            tally=self._tally,
        )  # fmt: skip

    def _lanes(self, key: str, batch: Batch) -> list[InputPartition]:
        """Let lanes ask for the batch."""
        server = self._serving()
        server.do(lambda distributor: distributor.open(key, batch))
        replays = self._options.replay != "none"
        place = Place(server.address, server.token, key, self._options.beat, replays)
        return [Lane(number, place) for number in range(self._options.lanes)]

    def _resolve(self, start: str | Mapping[str, int]) -> Mapping[str, int]:
        if start == "earliest":
            return self._log.earliest()
        latest = self._log.latest()
        if isinstance(start, str):
            return latest
        earliest = self._log.earliest()
        unknown = sorted(set(start) - set(latest))
        if unknown:
            raise ValueError(
                f"startingOffsets names partitions {unknown}; the log has {sorted(latest)}"
            )
        marks = {_EARLIEST: earliest, _LATEST: latest}
        return {
            p: marks[start[p]][p] if start.get(p, _LATEST) in marks and p in start
            else start.get(p, latest[p])
            for p in latest
        }  # fmt: skip

    def _refuse_shorter(
        self, start: Mapping[str, int], latest: Mapping[str, int], now: float
    ) -> None:
        """A log that ends before what was read from it was made anew: it would be waited for."""
        shorter = {p: n for p, n in latest.items() if n < start.get(p, 0)}
        if not shorter:
            self._short_since = None
            return
        # a replica that takes over may lag for a moment
        self._short_since = now if self._short_since is None else self._short_since
        if now - self._short_since < (_LAG if self._bound is None else 0.0):
            return
        self._lost(
            "shorter",
            shorter,
            f"the log ends at {shorter} and was read up to { {p: start[p] for p in shorter} }: was "
            "it made anew? Start with a new checkpoint",
            "waits until it is as long again",
        )

    def _known(self, start: Mapping[str, int]) -> dict[str, int]:
        """Where to go on in each partition: one that is new from its beginning."""
        if UNTIL in start:
            raise StartError(
                "timing='batch': the checkpoint is that of a resident query, which knows times and "
                "no offsets; go on with timing='resident', or start with a new checkpoint"
            )
        earliest = self._log.earliest()
        lost = {p: n for p, n in start.items() if p not in earliest or n < earliest[p]}
        if lost:
            begins = {p: earliest[p] for p in lost if p in earliest}
            why = f"begins at {begins}" if begins else "has no such partitions any more"
            told = f"offsets {lost} are no longer in the log, which {why}"
            self._lost("gone", lost, told, "goes on with what is there")
        back = {p: start[p] for p in self._gone if p in earliest and start.get(p)}
        if back:
            told = f"{back} had gone and are there again, and are read from these offsets on"
            self._lost(
                "back", back, f"{told}: what is new needs a new name", "skips what is before"
            )
        self._gone = {p for p in start if p not in earliest}
        # a partition that is gone keeps its offset, so that it cannot be read a second time
        return dict(start) | {p: max(n, start.get(p, n)) for p, n in earliest.items()}

    def _lost(self, kind: str, what: Mapping[str, int], told: str, lenient: str) -> None:
        """Rows are lost: the query ends, or is told so once and goes on."""
        if self._options.fail_on_data_loss:
            raise DataLost(f"{told}; failOnDataLoss=false {lenient}")
        if (kind, frozenset(what)) not in self._told:
            self._told.add((kind, frozenset(what)))
            log.warning("%s; what had not been read is lost", told)


class ResidentReader(TautReader):
    """Plans batches that end at a time in the near future; see :mod:`.resident`."""

    def __init__(
        self, source: Log, chain: Chain, options: SourceOptions, wheel: Wheel | None = None
    ) -> None:
        refuse_untimed(source)
        super().__init__(source, chain, options, wheel)
        self._pauses = Pauses()
        self._feeder: Feeder | None = None
        self._open_batch: Batch | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_feeder": None, "_open_batch": None}

    def initialOffset(self) -> dict[str, int]:
        return offset(0.0 if self._options.start == "earliest" else time.time(), None)

    def prepareForTriggerAvailableNow(self) -> None:
        self._bound = offset(time.time(), None)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        if self._bound is not None:
            return self._bound if self._bound[UNTIL] > start.get(UNTIL, 0) else start
        self._note_pause()
        begin = max(time.time(), until(start) if UNTIL in start else 0.0)
        return offset(begin + self._pauses.horizon(self._options.horizon), self._pauses.last)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        self._follow()  # for what it tells: a resident source is not steered
        begin = self._after(until(start)) if UNTIL in start else self._known(start)
        key, batch = self._open(end)
        lanes = self._lanes(key, batch)
        if self._feeder is not None and UNTIL in start and until(start) > time.time() - _RECENT:
            self._pauses.ended(until(start))
        self._open_batch = batch
        feeder = Feeder(self._log, self._serving(), key, batch, begin, until(end))
        # before another thread may end it
        feeder.start()
        self._feeder = feeder
        return lanes

    def _part(self) -> None:
        try:
            if self._feeder is not None:
                self._feeder.stop()
        finally:
            super()._part()

    def _after(self, end: float) -> Mapping[str, int]:
        """Where the batch after the one that ended at this time begins."""
        begin = self._log.at(end)
        feeder = self._feeder
        if feeder is None or feeder.ended is None or feeder.until != end:
            earliest = self._log.earliest()
            first = {p: n for p, n in begin.items() if 0 < n == earliest.get(p)}
            if first:
                log.warning(
                    "goes on from %s, and the log begins at %s: rows before these that came after "
                    "that time are lost", end, first,
                )  # fmt: skip
            return begin
        late = {p: feeder.ended.get(p, 0) for p, n in begin.items() if n > feeder.ended.get(p, 0)}
        if late:
            log.warning(
                "rows from %s on arrived before %s and were seen more than %s s later: the next "
                "batch has them, but would not if it were replayed; do clocks differ?",
                late, end, self._log.settle,
            )  # fmt: skip
        return dict(begin) | late

    def _note_pause(self) -> None:
        if self._open_batch is not None and self._open_batch.joined is not None:
            self._pauses.began(self._open_batch.joined + time.time() - time.monotonic())


def _lower(options: Mapping[str, str]) -> dict[str, str]:
    return {key.lower(): value for key, value in options.items()}


def _chain(options: Mapping[str, str]) -> Chain:
    """The operators, which travel inside the query's own plan as Spark's functions do."""
    packed = options.get("operators")
    return Chain() if packed is None else Chain.loads(base64.b64decode(packed))

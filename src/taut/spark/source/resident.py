"""Resident timing: a batch ends at a time in the near future, and lanes take rows as they arrive.

The end of a batch is a time of the log, so that it can be replayed: the rows of a batch are those
that arrived in [from, until), whenever they are read. Between two batches Spark commits one and
plans the next; rows that arrive meanwhile wait. That pause is measured, and batches are made so
long that it falls on fewer rows than would show in a p99.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from taut.errors import LogError
from taut.policy.sharing import Range
from taut.spark.source.dealt import Batch
from taut.spark.source.logs.base import Log, Offsets
from taut.spark.source.server import Server

log = logging.getLogger("taut")

UNTIL, PAUSE = "until_us", "pause_us"
_MICRO = 1_000_000
_WAIT = 0.2
_NEAR = 1.0
"""Seconds before the end from which every row is held against it: clocks differ."""
_LOOK = 0.002
_ROWS_IN_PAUSES = 0.004
"""The share of the time that may fall on pauses: well below the 1 % that a p99 leaves out."""
_SHORTEST, _LONGEST = 10.0, 300.0
_FIRST_PAUSE = 0.5
"""Seconds that a pause is expected to take before one was measured."""


def horizon_for(pause: float) -> float:
    """How long a batch must be for its pause to stay out of the p99.

    >>> horizon_for(0.4)
    100.0
    """
    return min(_LONGEST, max(_SHORTEST, pause / _ROWS_IN_PAUSES))


class Feeder:
    """Gives a resident batch its rows as they arrive, until its end.

    Parameters
    ----------
    source
        The log, whose arrivals are those of ``clock``.
    start, until
        Offsets at which the batch begins, and the time (epoch seconds) at which it ends.

    Attributes
    ----------
    ended
        The offsets at which the batch has ended, once it has.
    """

    def __init__(
        self,
        source: Log,
        server: Server,
        key: str,
        batch: Batch,
        start: Offsets,
        until: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log = source
        self._server = server
        self._key = key
        self._batch = batch
        self._known = dict(start)
        self.until = until
        self.ended: Offsets | None = None
        self._clock = clock
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"taut-feed-{key}", daemon=True)

    def start(self) -> None:
        """Begin to feed."""
        self._thread.start()

    def stop(self) -> None:
        """Feed no more; the batch will not end by itself."""
        self._stopped.set()
        self._thread.join(timeout=5)

    def _run(self) -> None:
        try:
            while not self._stopped.is_set() and self._feed():
                pass
        except Exception as error:
            if self._stopped.is_set():
                # whoever ends a query closes its log, and lanes wait no more
                return
            # lanes would wait for ever: the batch fails, and Spark tells why
            why = f"the log cannot be read: {error!r}"
            log.warning("resident batch %s: %s", self._key, why)
            self._server.do(lambda _: self._batch.fail(why))
            self._server.wake()

    def _feed(self) -> bool:
        """Add what has arrived; False at the end of the batch."""
        now = self._clock()
        if now < self.until - _NEAR:
            left = self.until - _NEAR - now
            come = self._log.wait(self._known, min(_WAIT, left))
            # an answer that was long in coming has rows that are the next batch's
            if self._clock() < self.until - _NEAR:
                self._add(come)
            return True
        # one look after the end, and after what comes late, sees all that arrived before it
        left = self.until + self._log.settle - now
        last = self._log.at(self.until)
        self._refuse_younger(last)
        if left > 0:
            # a log may know what will come; lanes take what has
            come = self._log.latest()
            last = {p: min(n, come.get(p, n)) for p, n in last.items()}
        self._add(last)
        if left <= 0:
            self.ended = dict(self._known)
            self._server.do(lambda _: self._batch.close())
            self._server.wake()
            return False
        self._stopped.wait(min(_LOOK, left))
        return True

    def _refuse_younger(self, last: Offsets) -> None:
        """Fail when rows were taken that the next batch would take again."""
        younger = {p: n for p, n in last.items() if n < self._known.get(p, 0)}
        if younger:
            raise LogError(
                f"the batch ends at offsets {younger} and has rows up to "
                f"{ {p: self._known[p] for p in younger} }: the log's clock is ahead of this "
                f"machine's by more than {_NEAR} s; set both by the same time server"
            )

    def _add(self, latest: Offsets) -> None:
        ranges = [
            Range(partition, self._known.get(partition, 0), end)
            for partition, end in latest.items()
            if end > self._known.get(partition, 0)
        ]
        if ranges:
            self._known |= {r.partition: r.end for r in ranges}
            self._server.add(self._batch, ranges)


class Pauses:
    """How long rows wait between two resident batches."""

    def __init__(self) -> None:
        self.last: float | None = None
        self._ended: float | None = None

    def ended(self, until: float) -> None:
        """A batch ends at this time."""
        self._ended = until

    def began(self, at: float) -> None:
        """The first lane of the next batch asked at this time."""
        if self._ended is not None:
            self.last = max(0.0, at - self._ended)
            self._ended = None

    def horizon(self, given: float | None) -> float:
        """How long the next batch should be."""
        if given is not None:
            return given
        return horizon_for(_FIRST_PAUSE if self.last is None else self.last)


def offset(until: float, pause: float | None) -> dict[str, int]:
    """A resident offset; with the last pause, so that a query's progress shows it."""
    shown = {} if pause is None else {PAUSE: round(pause * _MICRO)}
    return {UNTIL: round(until * _MICRO)} | shown


def until(resident: dict[str, int]) -> float:
    """The time that a resident offset stands for."""
    return resident[UNTIL] / _MICRO

"""What all queries of a Runtime share, whether it gives them turns or not."""

from __future__ import annotations

import contextlib
import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from taut.duration import seconds as to_seconds
from taut.errors import StartError
from taut.policy.view import Slack
from taut.slo import Slo
from taut.spark.checkpoint import CheckpointLock
from taut.spark.ending import end_all
from taut.spark.failure import in_short
from taut.spark.sinks import SinkFunction
from taut.spark.source.control import Sources
from taut.spark.window import Window

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger("taut")

POLL = 0.02
"""Seconds between two looks at what tells nobody."""


@dataclass(frozen=True, slots=True)
class Status:
    """Where a query stands, for a person to read.

    ``state`` is held, running, planned, waiting for data, ended or failed; ``due_in`` the
    seconds until its next window is expected to be complete; ``slack`` with its parts;
    ``last_latency`` of the last window, from its end to its rows being out.
    """

    name: str
    state: str
    held_for: float | None = None
    due_in: float | None = None
    slack: Slack | None = None
    last_latency: float | None = None
    windows: int = 0
    late: int = 0
    batches: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Stands:
    """Where a query stands with its runtime: since when, when it is due, and its slack."""

    state: str
    since: float
    due: float | None
    slack: Slack | None


class StartedQuery(ABC):
    """What all queries share: a name, an objective, and Spark's own handle."""

    name: str
    query: StreamingQuery
    sink: SinkFunction
    told = False
    """Whether its failure has been told."""
    over = False
    """Whether the runtime knows that it has ended."""
    started_at = 0.0
    ended_told = False
    """Whether those who watch know that it has ended."""
    resident = 0
    """Tasks that its sources keep for good."""
    slo: Slo | None
    _lock_file: CheckpointLock
    _sources: Sources

    @property
    def begun(self) -> bool:
        """Whether Spark has started it, so that there is a ``query``."""
        return "query" in self.__dict__

    @property
    def active(self) -> bool:
        """Whether the query runs, or is about to."""
        return not self.begun or self.query.isActive

    def error(self) -> str | None:
        """What ended it, if it failed."""
        error = None if self.active else self.query.exception()
        return None if error is None else in_short(str(error))

    def wait(self, seconds: float) -> None:
        """Wait until it has ended, so long at most; its error is kept for :meth:`error`."""
        from pyspark.errors import StreamingQueryException

        if not self.begun:
            time.sleep(min(seconds, POLL))
            return
        # the JVM's call raises the query's own error, which is told for all queries together
        with contextlib.suppress(StreamingQueryException):
            # typed as whole seconds, but takes fractions as well
            self.query.awaitTermination(max(0.001, seconds))  # type: ignore[arg-type]

    def wait_for_sources(self, seconds: float) -> None:
        """Wait until Spark has made the query's sources; raises what kept it from that."""
        limit = time.monotonic() + seconds
        # a query that has failed says so a moment before it counts as ended
        unsettled = ("Initializing", "Terminated")
        while self.query.isActive and self.query.status["message"].startswith(unsettled):
            if time.monotonic() > limit:
                log.warning("query %s: its sources take over %s s to start", self.name, seconds)
                return
            time.sleep(POLL)
        error = None if self._wrote() else StartedQuery.error(self)
        if error is not None:
            raise StartError(f"{self.name} did not start: {error}")

    def stop(self, timeout: float | str = 60.0) -> None:
        """Stop this query alone, as :meth:`Runtime.stop` does all of them."""
        seconds = to_seconds(timeout)
        end_all([self], time.monotonic() + seconds, seconds)

    @property
    @abstractmethod
    def window(self) -> Window | None:
        """The window whose results it puts out, as far as it is known."""

    @abstractmethod
    def stands(self, now: float) -> Stands | None:
        """Where it stands with the runtime, whose lock is held; None when it has ended."""

    @abstractmethod
    def drain(self) -> None:
        """Let a written batch commit; no further one runs."""

    @abstractmethod
    def end(self, deadline: float) -> bool:
        """Stop it once its running batch has committed; False if it had to be interrupted."""

    def release(self) -> None:
        """Give its checkpoint free, once it has ended."""
        self._sources.release()
        self._lock_file.release()

    def _wrote(self) -> bool:
        """Whether a batch has reached the sink: then an error is the query's, not its start's."""
        return self.query.lastProgress is not None

"""A query that is tried: it runs some batches at a time, and is held between them."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import ProfileError
from taut.planning.profile import Sample
from taut.planning.settings import Settings
from taut.planning.trials import CUT, SHORT
from taut.spark.planning.app import App, aside, configured, made, windows_of
from taut.spark.planning.meter import Meter, Stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.05
_PATIENCE_S = 120.0
_DRY_S = 5.0
"""How long one that has run waits for rows before it is given up."""


class Trial:
    """A job at some settings.

    Parameters
    ----------
    folder
        For its checkpoint.
    batches
        That it runs before it is held for the first time; None for without end.
    """

    def __init__(
        self,
        spark: SparkSession,
        app: App,
        settings: Settings,
        folder: Path,
        batches: int | None = None,
    ) -> None:
        self.settings = settings
        self._dry_from: float = math.inf
        with configured(spark, settings), ExitStack() as over:
            frame, own = made(app, spark, settings)
            sink = over.enter_context(aside(spark, own))
            self.windows = windows_of(frame, sink)
            self._meter = Meter(spark, sink, settings, self.windows, batches)
            writer = frame.writeStream.foreachBatch(self._meter)
            writer = writer.option("checkpointLocation", tempfile.mkdtemp(dir=folder))
            self._query = writer.trigger(**settings.trigger_options()).start()
            self._over = over.pop_all()

    @property
    def dry(self) -> bool:
        """Whether its source ran out of rows: nothing came for a while, or batches became short."""
        return self._dry_from < math.inf

    @property
    def largest(self) -> int:
        """Rows of its largest batch, also of one that is not taken."""
        return max((int(each["numInputRows"]) for each in self._query.recentProgress), default=0)

    @property
    def seen(self) -> int:
        """Batches that were written."""
        return len(self._meter.written)

    def run(self, least: int, within: float, tell: Callable[[int], None]) -> None:
        """Without a hold: for so long, and until it has written a few batches or has run dry."""
        until = time.monotonic() + within
        self._wait(lambda: time.monotonic() > until and self.seen >= least, least, tell)

    def begun(self) -> None:
        """Wait until it is held for the first time."""
        self._wait(self._meter.held.is_set, CUT, _silent)

    def turn(self, batches: int) -> None:
        """So many more; one whose source has run dry has no more turns."""
        self._meter.resume(batches)
        self._wait(self._meter.held.is_set, self.seen + batches, _silent)
        last = self._query.lastProgress
        if last is not None and int(last["numInputRows"]) < SHORT * self.largest:
            self._ran_dry()

    def samples(self, stages: Sequence[Stage] | None = None) -> list[Sample]:
        """Without the first ones, and those that had no row."""
        found = self._meter.batches(self._query.recentProgress, stages)
        return [
            each.sample
            for each in found
            if CUT <= each.number < self._dry_from and each.sample.rows
        ]

    def stop(self) -> None:
        """End it, after the batch that runs."""
        with self._over:
            # one that has written nothing has no batch to wait for
            self._meter.stop(self._query, within=30.0 if self.seen and not self.dry else 0.0)

    def _wait(self, done: Callable[[], bool], least: int, tell: Callable[[int], None]) -> None:
        came = time.monotonic()
        limit = came + _PATIENCE_S
        while not done():
            self._check()
            # one that has written nothing yet may still be starting
            if not self.seen or self._query.status["isDataAvailable"]:
                came = time.monotonic()
            if time.monotonic() > came + _DRY_S:
                self._ran_dry()
                return
            if time.monotonic() > limit:
                raise ProfileError(
                    f"the app wrote {self.seen} batches within {_PATIENCE_S:g} s, and {least} are "
                    "needed: does its source have rows? If it is batches of "
                    f"{self.settings.cap or 0:,} rows that take so long, a lower rate makes the "
                    "first ones smaller"
                )
            tell(self.seen)
            self._meter.held.wait(_LOOK_S)

    def _ran_dry(self) -> None:
        """What comes later would run beside the turns of others."""
        self._meter.hold()
        self._dry_from = min(self._dry_from, self._full())

    def _full(self) -> int:
        """Batches up to the last one known not to be short."""
        rows = {each["batchId"]: each["numInputRows"] for each in self._query.recentProgress}
        # the first ones may have had all that a source that knows no cap could give
        usual = [many for number, many in rows.items() if number >= CUT] or [*rows.values()]
        least, full = SHORT * max(usual, default=0), max(rows, default=-1) + 1
        while rows.get(full - 1, least) < least:
            full -= 1
        return full

    def _check(self) -> None:
        if not self._query.isActive:
            raise ProfileError(f"the app failed: {self._query.exception()}")


def _silent(many: int) -> None:
    """Says nothing."""

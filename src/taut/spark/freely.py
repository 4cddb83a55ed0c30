"""What is told of a query that takes no turns: which windows its batches closed, and when.

Only while somebody watches, and after a batch's rows are out: two calls into the JVM a batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from taut.spark.probe import BatchReader, Out, Probe, ProgressFacts

if TYPE_CHECKING:
    from taut.spark.watching import Watching
    from taut.spark.window import Shape


_PATIENCE = 3
"""Batches that could not be read, after which no more are."""


class FreeBatches:
    """Tells of one query's batches.

    Parameters
    ----------
    shape, objective
        Of the query; without a window, or a shape, nothing is read from Spark.
    watching
        Who is told; None for nobody.
    """

    def __init__(
        self, name: str, shape: Shape | None, objective: float, watching: Watching | None
    ) -> None:
        self._name = name
        windowed = shape is not None and shape.window is not None
        self._probe = Probe(name, shape, objective) if shape and windowed else None
        self._watching = watching
        self._reader: BatchReader | None = None
        self._last_run = 0.0
        self._failures = 0

    def wrote(self, jvm: Any, query: Any, batch: int, run: float, written: float) -> None:
        """A batch is out whose rows Spark had asked for at ``run``.

        ``query`` is Spark's handle, None for as long as it has not given one.
        """
        over = run - self._last_run if self._last_run else None
        self._last_run = run
        watching = self._watching
        if watching is None or watching.tell is None:
            # what is not seen now is asked of the checkpoint, once somebody watches again
            self._reader = None
            return
        try:
            out = self._closed(jvm, query, batch, written)
        except Exception as error:  # facts that cannot be read must not end the query
            out = self._reader = None
            self._failures += 1
            if self._failures >= _PATIENCE:
                self._probe = None
            watching.failed(error)
        if out is None or self._probe is None:
            watching.wrote_freely(self._name, batch, run, written, over)
        else:
            watching.wrote_by_itself(self._probe, batch, run, written, out)

    def _closed(self, jvm: Any, query: Any, batch: int, written: float) -> Out | None:
        """What came out with this batch: by the watermark it ran with and that of the last one."""
        probe = self._probe
        if probe is None or query is None:
            return None
        if self._reader is None:
            self._reader = BatchReader(jvm, query._jsq.streamingQuery())
            probe.goes_on_after(self._reader.before(batch))
        probe.planned(self._reader.read(), _no_progress)
        return probe.written(written)


def _no_progress() -> ProgressFacts | None:
    """Nobody decides by its rows, and looking at them costs more than all else."""
    return None

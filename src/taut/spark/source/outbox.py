"""The outbox: rows that a lane's sink is to write, and a gate that says when it may."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("taut")

_STEP = 0.001
"""Seconds between two looks at a gate that is closed."""
_ROWS_AT_ONCE = 1_000
"""Rows that are handed to a sink together: a write that has begun is not cut short."""
_BYTES_AT_ONCE = 32 * 2**20
"""Bytes that they may have: Arrow's arrays hold 2 GiB of text at most."""
_GRACE = 1.0
"""Seconds for which the end of a lane waits for a write that nobody needs any more."""


class Gate(Protocol):
    """What an outbox asks before it writes."""

    def waits(self, rows: int) -> None:
        """So many rows wait now, those of a write under way among them."""
        ...

    def open(self) -> bool:
        """Whether the lane may write now; asked again and again until it may."""
        ...

    def close(self) -> None:
        """The lane writes no more; again is harmless."""
        ...


class Free:
    """A gate that is always open."""

    def waits(self, rows: int) -> None:
        """Nobody needs to know."""

    def open(self) -> bool:
        """At any time."""
        return True

    def close(self) -> None:
        """There is nothing to close."""


class Outbox:
    """Rows that wait to be written by a lane's sink.

    A thread of its own writes them, in order, when the gate is open; what waits then goes to the
    sink together.

    Parameters
    ----------
    sink
        Called in that thread.
    gate
        Closed with the outbox.
    most_rows
        Rows that may wait, unless they came together.
    """

    def __init__(
        self, sink: Callable[[pa.RecordBatch], None], gate: Gate, most_rows: int = 10_000
    ) -> None:
        if most_rows < 1:
            raise ValueError(f"most_rows={most_rows}: at least 1 is needed")
        self._sink = sink
        self._gate = gate
        self._most = most_rows
        self._kept: deque[pa.RecordBatch] = deque()
        self._rows = self._writing = 0
        self._failed: BaseException | None = None
        self._free = self._over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="taut-outbox", daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        """Rows that are not written yet, those of a write under way among them."""
        return self._rows

    def put(self, rows: pa.RecordBatch) -> None:
        """Have rows written; waits while too many do. Raises what the sink has raised."""
        most = max(0, self._most - rows.num_rows)
        with self._changed:
            self._changed.wait_for(lambda: self._rows <= most or self._failed or self._over)
            self._refuse_ended()
            if rows.num_rows:
                self._kept.append(rows)
                self._count(rows.num_rows)
                self._changed.notify_all()

    def flush(self) -> None:
        """Wait until all is written. Raises what the sink has raised."""
        with self._changed:
            self._changed.wait_for(lambda: not self._rows or self._failed or self._over)
            if self._rows or self._failed:
                self._refuse_ended()

    def close(self) -> None:
        """Write no more; rows that still wait are dropped. Again is harmless."""
        with self._changed:
            if self._over:
                return
            self._over = True
            self._changed.notify_all()
        try:
            self._thread.join(_GRACE)
        finally:
            self._gate.close()

    def check(self) -> None:
        """Assert that no row is unaccounted for."""
        with self._changed:
            assert self._rows == self._writing + sum(rows.num_rows for rows in self._kept)
            assert self._rows <= self._most or len(self._kept) + bool(self._writing) == 1

    def _refuse_ended(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self._over:
            raise ValueError(f"the outbox was closed, with {self._rows} rows not written")

    def _run(self) -> None:
        try:
            while (rows := self._next()) is not None:
                self._sink(rows)
                with self._changed:
                    self._writing = 0
                    self._count(-rows.num_rows)
                    self._changed.notify_all()
        except BaseException as error:  # whatever it is, the lane's own thread is to raise it
            with self._changed:
                self._failed = error
                self._kept.clear()
                self._writing = 0
                self._count(-self._rows)
                self._changed.notify_all()

    def _next(self) -> pa.RecordBatch | None:
        """What to write now, once there is something and the gate is open; None at the end."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._kept or self._over)
                if self._over:
                    return None
                if self._may_write():
                    return self._taken()
            time.sleep(_STEP)

    def _may_write(self) -> bool:
        try:
            return self._free or self._gate.open()
        except Exception as error:
            # a policy may raise anything, and no lane is to stop for it
            self._free = True
            log.warning("egress: this lane writes when it likes, its gate failed: %r", error)
            return True

    def _taken(self) -> pa.RecordBatch:
        """The first rows that wait, as many as go to the sink together."""
        import pyarrow as pa

        taken = [self._kept.popleft()]
        count, size = taken[0].num_rows, taken[0].nbytes
        while self._kept:
            count += self._kept[0].num_rows
            size += self._kept[0].nbytes
            if count > _ROWS_AT_ONCE or size > _BYTES_AT_ONCE:
                break
            taken.append(self._kept.popleft())
        rows = taken[0] if len(taken) == 1 else pa.concat_batches(taken)
        self._writing = rows.num_rows
        return rows

    def _count(self, change: int) -> None:
        """So many rows more, or less, wait; a closed gate is not told."""
        self._rows += change
        if not self._over:
            self._gate.waits(self._rows)

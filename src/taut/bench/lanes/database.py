"""A slow sink that all lanes share: one SQLite file, each call a transaction of its own.

Whoever finds the file locked tries again a little later, and later still if it is locked again.
That is SQLite's own busy handler, and makes all who write at once wait longer than the writes take.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_BUSY_S = 60.0
_local = threading.local()


def make(path: Path) -> None:
    """An empty file with its table."""
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE tuples (n INTEGER, value TEXT)")


def writing(path: str, then: Callable[[pa.RecordBatch], None]) -> Callable[[pa.RecordBatch], None]:
    """A sink that writes rows to the file, and tells ``then`` of them when they are committed."""

    def write(rows: pa.RecordBatch) -> None:
        values = zip(rows.column("n").to_pylist(), rows.column("value").to_pylist(), strict=True)
        with _connection(path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO tuples VALUES (?, ?)", values)
        then(rows)

    return write


def _connection(path: str) -> sqlite3.Connection:
    """This thread's own: a connection stays in the thread that made it."""
    kept = getattr(_local, "kept", None)
    if kept is None or kept[0] != path:
        connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None)
        connection.execute("PRAGMA synchronous=FULL")
        kept = _local.kept = (path, connection)
    return kept[1]

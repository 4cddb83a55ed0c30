from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pyarrow as pa

from taut.bench.lanes import database


def test_rows_are_told_of_when_they_are_committed(tmp_path: Path) -> None:
    """By threads at once, as lanes write: each has a connection of its own."""
    path = tmp_path / "tuples.db"
    database.make(path)
    seen: list[int] = []

    def then(rows: pa.RecordBatch) -> None:
        with sqlite3.connect(path) as other:
            there = {n for (n,) in other.execute("SELECT n FROM tuples")}
        numbers = rows.column("n").to_pylist()
        assert there >= set(numbers)
        seen.extend(numbers)

    sink = database.writing(str(path), then)

    def write(first: int) -> None:
        for n in range(first, first + 20):
            sink(pa.RecordBatch.from_pylist([{"n": n, "value": f"{n} 0 x"}]))

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(seen) == [*range(20), *range(100, 120)]


def test_another_file_has_another_connection(tmp_path: Path) -> None:
    for name in ("a.db", "b.db"):
        database.make(tmp_path / name)
        sink = database.writing(str(tmp_path / name), lambda rows: None)
        sink(pa.RecordBatch.from_pylist([{"n": 1, "value": name}]))
    with sqlite3.connect(tmp_path / "b.db") as other:
        assert other.execute("SELECT value FROM tuples").fetchall() == [("b.db",)]

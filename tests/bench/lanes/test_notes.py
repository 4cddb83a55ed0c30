from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from taut.bench.lanes.notes import how_many, last_by, noted, noting, noting_sink
from taut.workloads.topologies.topology import MACHINE


def test_what_is_noted_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MACHINE, "3/5")
    before = time.time()
    operator = noting(str(tmp_path), str.upper)
    assert operator("17 0 word") == "17 0 WORD"
    noting_sink(str(tmp_path))(pa.RecordBatch.from_pydict({"n": [8, 8], "value": ["8 0 ", "8 1 "]}))
    notes = list(noted(tmp_path))
    assert [note[:4] for note in notes] == [(17, 0, 0, 3), (8, 0, 0, 3), (8, 1, 0, 3)]
    assert all(before <= note.at <= time.time() for note in notes)
    assert how_many(tmp_path) == 3
    assert last_by(tmp_path) == {os.getpid(): notes[-1]}


def test_a_note_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    noting(str(tmp_path), str)("1 0 ")
    with (tmp_path / str(os.getpid())).open("ab") as file:
        file.write(b"half")
    (tmp_path / "77").touch()
    assert [note.n for note in noted(tmp_path)] == [1]
    assert [note.n for note in last_by(tmp_path).values()] == [1]

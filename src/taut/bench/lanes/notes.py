"""What lanes and sinks note of each tuple: a file for each process, so that none waits for another.

The name of a file is the number of the process that writes it.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from taut.workloads.topologies import number, part
from taut.workloads.topologies.topology import lane, machine

if TYPE_CHECKING:
    import pyarrow as pa

_NOTE, _BYTES = "<qhhid", 24
"""Functions that use it are pickled, and a Struct cannot be."""


class Note(NamedTuple):
    """A tuple, which of its outputs, where, and when (epoch seconds).

    ``machine`` is -1 where there is only one.
    """

    n: int
    part: int
    lane: int
    machine: int
    at: float


def noting(folder: str, operator: Callable[[str], Any]) -> Callable[[str], Any]:
    """An operator that first notes that a lane has begun with a tuple."""

    def noted(value: str) -> Any:
        note = struct.pack(_NOTE, number(value), 0, *_here(), time.time())
        os.write(_file(folder, os.getpid()), note)
        return operator(value)

    return noted


def noting_sink(folder: str) -> Callable[[pa.RecordBatch], None]:
    """A sink that notes each row and when it was written."""

    def sink(batch: pa.RecordBatch) -> None:
        now, here = time.time(), _here()
        numbers, values = batch.column("n").to_pylist(), batch.column("value").to_pylist()
        notes = b"".join(
            struct.pack(_NOTE, n, part(value), *here, now)
            for n, value in zip(numbers, values, strict=True)
        )
        os.write(_file(folder, os.getpid()), notes)

    return sink


def noted(folder: Path) -> Iterator[Note]:
    """All notes, process by process."""
    for path in sorted(folder.iterdir()):
        notes = path.read_bytes()
        # a note that is being written is not whole yet
        whole = struct.iter_unpack(_NOTE, notes[: len(notes) - len(notes) % _BYTES])
        yield from map(Note._make, whole)


def how_many(folder: Path) -> int:
    """How many notes there are."""
    return sum(path.stat().st_size for path in folder.iterdir()) // _BYTES


def last_by(folder: Path) -> dict[int, Note]:
    """The last note of each process."""
    told = {}
    for path in folder.iterdir():
        with path.open("rb") as file:
            whole = path.stat().st_size // _BYTES
            if whole:
                file.seek((whole - 1) * _BYTES)
                told[int(path.name)] = Note(*struct.unpack(_NOTE, file.read(_BYTES)))
    return told


def _here() -> tuple[int, int]:
    return lane(), (machine() or (-1, 0))[0]


@lru_cache(maxsize=16)
def _file(folder: str, process: int) -> int:
    """A file of this process, open as long as the process lives."""
    return os.open(Path(folder) / str(process), os.O_CREAT | os.O_APPEND | os.O_WRONLY)

"""The trace: every record of a run as a line of JSON, in a folder that stays small.

Files ``000001.jsonl``, ``000002.jsonl`` and so on; the oldest are deleted beyond a bound. Each
begins with what runs, so that those that are left can be read without the ones before.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from taut.watch.records import Ended, LeftOut, Record, Run, Started, decode, encode
from taut.watch.runs import FILE, keep_newest, numbered, read, to_pandas

__all__ = ["Files", "Trace", "read", "to_pandas"]

log = logging.getLogger("taut")

FILE_BYTES = 8 * 2**20
TOTAL_BYTES = 64 * 2**20
MOST_WAITING = 100_000
"""Records that wait to be written: some 30 MB, and minutes of the busiest run."""
RETRY_AFTER = 30.0
"""Seconds after which a folder that could not be written to is tried again."""


class Files:
    """Writes records to numbered files. Never raises: what cannot be written is counted.

    Parameters
    ----------
    folder
        Made when there is something to write.
    run
        What runs; every file begins with it.
    clock
        Gives the time by which it is tried again, which must not be set back.
    """

    def __init__(
        self,
        folder: Path,
        run: Run,
        *,
        file_bytes: int = FILE_BYTES,
        total_bytes: int = TOTAL_BYTES,
        retry_after: float = RETRY_AFTER,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not 0 < file_bytes <= total_bytes:
            raise ValueError(
                f"file_bytes={file_bytes}, total_bytes={total_bytes}: above 0, and in all at least "
                "as many as in a file"
            )
        self.folder = folder
        self.left_out = 0
        """Records that could not be written and have not been told of in the trace."""
        self.why = ""
        self._run = run
        self._file_bytes = file_bytes
        self._total_bytes = total_bytes
        self._retry_after = retry_after
        self._retry_at: float | None = None
        self._clock = clock
        self._warned = False
        self._started: dict[str, Started] = {}
        self._file: int | None = None
        self._number = 0
        self._size = self._head = 0

    @property
    def failing(self) -> bool:
        """Whether the last attempt to write has failed."""
        return self._retry_at is not None

    def write(self, records: Sequence[Record], now: float) -> None:
        """Append records, or leave them out; ``now`` is when, in seconds since the epoch."""
        if self._retry_at is not None and self._clock() < self._retry_at:
            self.leave_out(len(records), self.why)
            self._note(records)
            return
        lines = [line for record in records if (line := self._line(record)) is not None]
        done = 0
        try:
            self._look()
            if self.left_out:
                gap = [self._encoded(LeftOut(now, self.left_out, self.why))]
                while not self._append(gap):
                    pass  # it begins the next file
                self.left_out = 0
            while done < len(lines):
                done += self._append(lines[done:])
            self._recovered()
        except OSError as error:
            self.leave_out(len(lines) - done, str(error))
            self._note([record for record, _ in lines[done:]])
            self._failed(error)

    def leave_out(self, records: int, why: str) -> None:
        """So many will not be in the trace; it says so when it is next written to."""
        self.left_out += records
        self.why = why

    def close(self) -> None:
        """Give the file free; a later write opens another."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def _line(self, record: Record) -> tuple[Record, bytes] | None:
        """A record as it is written; None, and counted, if it could not be read back."""
        try:
            encoded = self._encoded(record)
            if b"null" in encoded[1]:
                # JSON has no infinity: it becomes null, which is no number when read
                decode(encoded[1])
        except (msgspec.MsgspecError, TypeError, ValueError) as error:
            self.leave_out(1, f"a record cannot be written: {error}")
            return None
        return encoded

    @staticmethod
    def _encoded(record: Record) -> tuple[Record, bytes]:
        return record, encode(record) + b"\n"

    def _append(self, lines: Sequence[tuple[Record, bytes]]) -> int:
        """Write as many as go into the file, in one call to the system; returns how many."""
        if self._file is None:
            self._open()
        size, count = self._size, 0
        for _, line in lines:
            if size + len(line) > self._file_bytes and size > self._head:
                break
            size += len(line)
            count += 1
        self._put(b"".join(line for _, line in lines[:count]))
        self._note([record for record, _ in lines[:count]])
        if count < len(lines):
            self.close()
        return count

    def _put(self, data: bytes) -> None:
        """All of it, or nothing."""
        assert self._file is not None
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except OSError:
            # half a line would spoil what follows; taking it back needs no space
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _open(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        present = numbered(self.folder)
        self._number = max(self._number, *(n for n, _ in present), 0) + 1
        self._prune([path for _, path in present])
        path = self.folder / FILE.format(self._number)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._size = self._head = 0
        head: list[Record] = [self._run, *self._started.values()]
        try:
            self._put(b"".join(encode(each) + b"\n" for each in head))
        except OSError:
            self.close()
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        self._head = self._size

    def _prune(self, present: list[Path]) -> None:
        """Delete the oldest until a whole new file fits in."""
        sizes = {path: path.stat().st_size for path in present}
        for path in present:
            if sum(sizes.values()) + self._file_bytes <= self._total_bytes:
                return
            path.unlink()
            del sizes[path]

    def _look(self) -> None:
        """A file that somebody has deleted takes no more: begin another."""
        if self._file is not None and os.fstat(self._file).st_nlink == 0:
            self.close()

    def _note(self, records: Sequence[Record]) -> None:
        for record in records:
            if isinstance(record, Started):
                self._started[record.query] = record
            elif isinstance(record, Ended):
                self._started.pop(record.query, None)

    def _failed(self, error: OSError) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "trace: %s cannot be written to: %s; the queries go on, their records are left "
                "out; tried again every %.0f s; trace=False or TAUT_TRACE=off turns it off",
                self.folder, error, self._retry_after,
            )  # fmt: skip
        self._retry_at = self._clock() + self._retry_after
        self.close()

    def _recovered(self) -> None:
        if self._retry_at is not None:
            self._retry_at = None
            log.info("trace: %s can be written to again", self.folder)


class Trace:
    """Writes records to files in a thread of its own: whoever hands them over never waits.

    Parameters
    ----------
    files
        Where to.
    keep_runs
        How many runs the folder around keeps; the ones that were written to last. None keeps all.
    clock
        Gives the time.
    """

    def __init__(
        self,
        files: Files,
        *,
        keep_runs: int | None = None,
        most_waiting: int = MOST_WAITING,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = files.folder
        self.cpu_seconds = 0.0
        """Used by the thread."""
        self._files = files
        self._keep_runs = keep_runs
        self._most = most_waiting
        self._clock = clock
        self._ready = threading.Condition()
        self._waiting: list[Record] = []
        self._overflow = 0
        self._closing = False
        self._thread: threading.Thread | None = None

    def write(self, records: Iterable[Record]) -> None:
        """Hand records over; those that find no room are left out."""
        with self._ready:
            if self._closing:
                return
            for record in records:
                if len(self._waiting) < self._most:
                    self._waiting.append(record)
                else:
                    self._overflow += 1
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="taut-trace", daemon=True)
                self._thread.start()
            self._ready.notify()

    def note(self) -> str | None:
        """What is wrong with it, in a sentence."""
        if not self._files.failing:
            return None
        return f"The trace in {self.folder} cannot be written: {self._files.why}"

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits, for so long at most; again is harmless."""
        with self._ready:
            self._closing = True
            self._ready.notify()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        if self._keep_runs is not None:
            # the one that is about to be made counts as well
            keep_newest(self.folder.parent, self._keep_runs - 1)
        while True:
            with self._ready:
                while not (self._waiting or self._closing):
                    self._ready.wait()
                lot, self._waiting = self._waiting, []
                overflow, self._overflow = self._overflow, 0
            if lot:
                started = time.thread_time()
                self._files.write(lot, self._clock())
                if overflow:
                    self._files.leave_out(overflow, "they came faster than they could be written")
                self.cpu_seconds += time.thread_time() - started
            else:
                if self._files.left_out:
                    self._files.write([], self._clock())
                self._files.close()
                return

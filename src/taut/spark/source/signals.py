"""The board: shared memory in which the lanes of an executor say how much they have to write.

Each lane has a slot on it with its rows; one word says whose turn it is to write, another when the
agent, the lane that gives out the turns, was last heard. All are aligned words of 64 bits, each
written by one process in one store, so nobody waits to read or to write one. Only a lane that
joins or leaves takes a lock, for a moment, on the board's file; the agent keeps one on a file
beside it for as long as it is the agent. The kernel drops both when a process dies.

The last lane to leave removes both files. It does so while it has the lock, and a lane that joins
looks, once it has the lock, whether its file is still the one of that name: if not it begins again.
Lanes that were all killed leave files of 10 KB; the next board made on that machine removes them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import mmap
import os
import socket
import tempfile
import time
from pathlib import Path

SLOTS = 256
"""Lanes that one board has room for."""
_PREFIX = "taut-egress-1-"  # with the number of the layout
_SIGNAL, _AGENT, _BEAT = range(3)
_PID, _STARTED, _ROWS, _SEEN, _SINCE = (8 + kind * SLOTS for kind in range(5))
"""Where the words of all slots begin, one kind after another."""
_SIZE = 8 * (8 + 5 * SLOTS)
_LOCKED_FOR = 2.0
"""Seconds to wait for who joins or leaves: it takes microseconds, unless its process is frozen."""


class Board:
    """What the lanes of one executor that share an egress know of each other.

    Parameters
    ----------
    key, executor
        Lanes that give the same two share a board.
    folder
        Where its files lie; by default in memory, else with other temporary files.

    Raises
    ------
    OSError
        When its file cannot be made, or all slots are taken.
    """

    def __init__(self, key: str, executor: str, folder: Path | None = None) -> None:
        name = hashlib.sha256(f"{key}\n{executor}".encode()).hexdigest()[:32]
        self.path = (folder or _folder()) / f"{_prefix()}{name}"
        self._office: int | None = None
        self._file = _locked(self.path)
        try:
            if os.fstat(self._file).st_size != _SIZE:
                _fill(self._file, self.path)
                _sweep(self.path)
            self._map = mmap.mmap(self._file, _SIZE)
            self._words = memoryview(self._map).cast("q")
            self.slot = self._claim()
        except BaseException:
            _close(self._file)
            raise
        _unlock(self._file)
        self.joined = True

    def _claim(self) -> int:
        """The first slot whose lane is gone."""
        slot = next((n for n in range(SLOTS) if not self.alive(n)), None)
        if slot is None:
            raise OSError(errno.ENOSPC, f"all {SLOTS} slots are taken", str(self.path))
        for kind in (_ROWS, _SEEN, _SINCE):
            self._words[kind + slot] = 0
        self._words[_STARTED + slot] = _started(os.getpid())
        self._words[_PID + slot] = os.getpid()
        return slot

    # -- what lanes say --------------------------------------------------------------------------

    def say(self, rows: int, now: int, since: int = 0) -> None:
        """So many rows wait here now, for the signal since then if not 0; all times are ns."""
        self._words[_ROWS + self.slot] = rows
        self._words[_SEEN + self.slot] = now
        self._words[_SINCE + self.slot] = since

    def waiting(self, heard: int) -> dict[int, int]:
        """Rows by slot, of the lanes that have some and were heard after that time."""
        seen = self._all(_SEEN)
        return {n: rows for n, rows in enumerate(self._all(_ROWS)) if rows > 0 and seen[n] > heard}

    def since(self, slot: int) -> int:
        """When that lane began to wait for the signal; 0 if it does not."""
        return self._words[_SINCE + slot]

    def alive(self, slot: int) -> bool:
        """Whether a slot's process runs."""
        pid = self._words[_PID + slot]
        return pid != 0 and _runs(pid, self._words[_STARTED + slot])

    def forget(self, slot: int) -> None:
        """Take the rows of a lane off that is dead; one that took its slot says its own again."""
        self._words[_ROWS + slot] = 0

    # -- what the agent says -----------------------------------------------------------------------

    @property
    def signal(self) -> int | None:
        """The slot of the lane whose turn it is."""
        return self._words[_SIGNAL] - 1 if self._words[_SIGNAL] else None

    @signal.setter
    def signal(self, slot: int | None) -> None:
        self._words[_SIGNAL] = 0 if slot is None else slot + 1

    @property
    def agent(self) -> int | None:
        """The slot of the lane that was elected last, unless it has resigned."""
        return self._words[_AGENT] - 1 if self._words[_AGENT] else None

    @property
    def beat(self) -> int:
        """When the agent was last heard; 0 when there is none."""
        return self._words[_BEAT]

    @beat.setter
    def beat(self, now: int) -> None:
        self._words[_BEAT] = now

    def stand(self, now: int) -> bool:
        """Become the agent, unless another lane is."""
        import fcntl

        office = os.open(_beside(self.path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(office, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(office)
            return False
        self._office = office
        self._words[_AGENT] = self.slot + 1
        self.beat = now
        return True

    def resign(self) -> None:
        """Be the agent no more; the others need not wait to see that it is gone."""
        if self._office is not None:
            self._words[_AGENT] = 0
            self.beat = 0
            _close(self._office)
            self._office = None

    # -- the end -----------------------------------------------------------------------------------

    def leave(self) -> None:
        """Free the slot; the last to leave removes the files. Again is harmless."""
        if not self.joined:
            return
        self.joined = False
        self.resign()
        locked = False
        # someone is frozen who has the lock: the files are left for a later sweep
        with contextlib.suppress(OSError):
            _lock(self._file)
            locked = True
        self._words[_ROWS + self.slot] = 0
        self._words[_PID + self.slot] = 0
        if locked and _named(self._file, self.path) and not any(map(self.alive, range(SLOTS))):
            _remove(self.path)
        self._words.release()
        self._map.close()
        _close(self._file)

    def check(self) -> None:
        """Assert what must hold whatever the other lanes do."""
        assert self.joined
        assert _named(self._file, self.path), "removed while a lane was on it"
        assert self._words[_PID + self.slot] == os.getpid()
        assert 0 <= self._words[_SIGNAL] <= SLOTS
        assert 0 <= self._words[_AGENT] <= SLOTS
        assert all(rows >= 0 for rows in self._all(_ROWS))

    def _all(self, kind: int) -> list[int]:
        return self._words[kind : kind + SLOTS].tolist()


def _folder() -> Path:
    """Memory where there is some to be had as files: they are never written to a disk."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK | os.X_OK)
    return memory if usable else Path(tempfile.gettempdir())


def _prefix() -> str:
    """Of one machine or container: processes of another cannot be seen, and would seem dead."""
    return _PREFIX + hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8] + "-"


def _beside(path: Path) -> Path:
    """The file that the agent locks."""
    return path.with_name(f"{path.name}.agent")


def _locked(path: Path) -> int:
    """The file of that name, made if there is none, with its lock."""
    import fcntl  # noqa: F401  before O_NOFOLLOW is asked for: Windows has neither

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            _lock(file)
            if _named(file, path):
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # the last lane has left and removed it meanwhile


def _lock(file: int) -> None:
    import fcntl

    limit = time.monotonic() + _LOCKED_FOR
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > limit:
                raise
            time.sleep(0.001)


def _unlock(file: int) -> None:
    import fcntl

    fcntl.flock(file, fcntl.LOCK_UN)


def _close(file: int) -> None:
    """Unlock and close: closing alone unlocks nothing while a forked child has the file too."""
    _unlock(file)
    os.close(file)


def _named(file: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        there = path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(file), there)


def _fill(file: int, path: Path) -> None:
    """Give a file its bytes, which a full disk refuses here: later that would kill the process."""
    try:
        if os.pwrite(file, bytes(_SIZE), 0) != _SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    except OSError:
        _remove(path)
        raise


def _remove(path: Path) -> None:
    _beside(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _sweep(own: Path) -> None:
    """Remove the boards in a folder whose lanes were all killed."""
    import fcntl

    for path in own.parent.glob(f"{_prefix()}*"):
        if path == own or path.suffix == ".agent":
            continue
        # gone meanwhile, locked by a lane that joins or leaves, or not ours
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _named(file, path) and _abandoned(file):
                    _remove(path)
            finally:
                _close(file)


def _abandoned(file: int) -> bool:
    data = os.pread(file, _SIZE, 0)
    if len(data) != _SIZE:
        return True  # whoever makes it finds that it is gone, and begins again
    words = memoryview(data).cast("q")
    pids, started = (words[kind : kind + SLOTS].tolist() for kind in (_PID, _STARTED))
    return not any(pid and _runs(pid, at) for pid, at in zip(pids, started, strict=True))


def _runs(pid: int, started: int) -> bool:
    """Whether a process runs, and is the one that started then."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False  # another user's, and lanes that share a board are of one
    now = _started(pid)
    return now in (started, 0) if started else now >= 0


def _started(pid: int) -> int:
    """When a process started, in ticks; -1 when it has ended, 0 where that cannot be told."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    state, *rest = text.rpartition(")")[2].split()
    return -1 if state in "ZX" else int(rest[18])

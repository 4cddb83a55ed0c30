"""Groups of processes that get no more than a part of the processors, by Linux control groups.

A process that is started by one in the group is in it from its first instruction on. Both layouts
of the kernel's files are spoken: version 1 (``cpu.cfs_quota_us``) and version 2 (``cpu.max``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from taut.bench.record import BenchError

_PERIOD_US = 10_000
"""How often a group's time is dealt out anew. The kernel's own 100 ms would stop a machine that has
used up its part for up to as long: longer than the latencies that are to be measured."""
_EMPTY_WITHIN_S = 20.0


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """Where groups are made."""

    folder: Path
    version: int

    @classmethod
    def find(cls, mounts: Path = Path("/proc/mounts")) -> Hierarchy:
        """The first that limits processors and that this user may write to.

        Raises
        ------
        BenchError
            There is none, and why.
        """
        tried = []
        for line in mounts.read_text().splitlines() if mounts.exists() else ():
            _, where, kind, options, *_ = line.split(" ")
            found = cls(Path(where), 2 if kind == "cgroup2" else 1)
            if kind == "cgroup2":
                control = found.folder / "cgroup.subtree_control"
                if not control.exists() or "cpu" not in control.read_text().split():
                    continue
            elif kind != "cgroup" or "cpu" not in options.split(","):
                continue
            if os.access(found.folder, os.W_OK):
                return found
            tried.append(f"{where} cannot be written")
        why = "; ".join(tried) or "no control group of processors is mounted"
        raise BenchError(
            f"machines of a given speed need control groups of Linux: {why}. Run as root, or on a "
            "system that delegates them"
        )


class CpuGroup:
    """A group; made at once, and gone after :meth:`remove`."""

    def __init__(self, hierarchy: Hierarchy, name: str) -> None:
        self._folder = hierarchy.folder / name
        self._version = hierarchy.version
        try:
            self._folder.mkdir()
        except OSError as error:
            raise BenchError(f"the control group {self._folder} cannot be made: {error}") from error

    def __repr__(self) -> str:
        return f"CpuGroup({str(self._folder)!r})"

    def add(self, process: int) -> None:
        """Put a process in; those that it starts from now on are in it too."""
        self._write("cgroup.procs", process)

    def limit(self, cores: float | None) -> None:
        """Let all its processes together have so many cores; None for as many as there are."""
        if cores is not None and not cores > 0.0:
            raise BenchError(f"cpu={cores}: a number of cores above zero is needed")
        quota = None if cores is None else max(1_000, round(cores * _PERIOD_US))
        if self._version == 2:
            self._write("cpu.max", f"{'max' if quota is None else quota} {_PERIOD_US}")
        else:
            self._write("cpu.cfs_period_us", _PERIOD_US)
            self._write("cpu.cfs_quota_us", -1 if quota is None else quota)

    def processes(self) -> list[int]:
        """Those in it now."""
        return [int(line) for line in (self._folder / "cgroup.procs").read_text().split()]

    def remove(self, within: float = _EMPTY_WITHIN_S) -> None:
        """Wait until its processes have ended, end those that have not, and remove it."""
        limit = time.monotonic() + within
        while time.monotonic() < limit and self.processes():
            time.sleep(0.05)
        for process in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        limit = time.monotonic() + within
        while True:
            try:
                self._folder.rmdir()
            except FileNotFoundError:
                return
            except OSError:
                # a process that was killed is in it until it has been reaped
                if time.monotonic() > limit:
                    raise
                time.sleep(0.05)
            else:
                return

    def _write(self, name: str, value: object) -> None:
        (self._folder / name).write_text(f"{value}\n")


@contextlib.contextmanager
def cpu_group(name: str, hierarchy: Hierarchy | None = None) -> Iterator[CpuGroup]:
    """A group that is gone afterwards, with all processes that are still in it."""
    group = CpuGroup(hierarchy or Hierarchy.find(), name)
    try:
        yield group
    finally:
        group.remove()

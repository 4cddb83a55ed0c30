"""An application on a cluster that tests tell what to run, line by line, and may kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.conftest import wait_until
from tests.spark.cluster import process


class Driver:
    """An application on the cluster that runs what it is told; made anew when it was killed."""

    def __init__(self, script: str, master: str, folder: Path) -> None:
        self._command = (sys.executable, script, master)
        self._folder = folder
        self._stack = ExitStack()
        self._running: subprocess.Popen[bytes] | None = None

    def begin(self, what: str, folder: Path, options: dict[str, str] | None = None) -> None:
        if self._running is None or self._running.poll() is not None:
            self.close()
            started = process(self._folder, "driver", *self._command, told=True)
            self._running = self._stack.enter_context(started)
        assert self._running.stdin is not None
        told = "\t".join((what, str(folder), json.dumps(options or {})))
        self._running.stdin.write(f"{told}\n".encode())
        self._running.stdin.flush()

    def await_file(self, path: Path, within: float = 300.0) -> None:
        """Until a file is there; fails if the driver, or what it was told to run, ends before."""
        running, ended = self._running, path.with_name("ended")
        assert running is not None
        wait_until(
            lambda: path.exists() or ended.exists() or running.poll() is not None, within=within
        )
        wrong = ended.read_text() if ended.exists() else ""
        assert path.exists(), wrong or (self._folder / "driver.log").read_text()[-4_000:]

    def kill(self) -> None:
        assert self._running is not None
        os.killpg(self._running.pid, signal.SIGKILL)

    def await_death(self) -> None:
        assert self._running is not None
        assert self._running.wait(timeout=60) == -signal.SIGKILL

    def await_end(self, folder: Path) -> None:
        """Let what was begun end, as it should."""
        self.await_file(folder / "ended")
        assert (folder / "ended").read_text() == ""
        assert (folder / "there").exists(), "the fault struck"

    def close(self) -> None:
        self._stack.close()

"""A source's process, ended as Spark ends it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

RUNNER = """
import sys, threading
from taut.spark.source import ending

ending._WITHIN = float(sys.argv[2])
how = sys.argv[3]
ending.end_in_order(sys.argv[1])
try:
    print("begun", flush=True)
    if how == "stops":
        threading.Event().wait(60)
finally:
    with ending.to_the_end():
        print("stopping", flush=True)
        while how == "hangs" or (how == "is stopping" and not ending._signalled):
            threading.Event().wait(0.01)
        print("stopped")
    if how == "has stopped":
        print("over", flush=True)
        threading.Event().wait(60)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "runner.py").write_text(RUNNER)
    return tmp_path


def process(folder: Path, name: str, within: float, how: str) -> subprocess.Popen[str]:
    """A program by its module's name, as Spark starts a source."""
    running = subprocess.Popen(
        [sys.executable, "-m", "runner", name, str(within), how],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert line(running) == "begun\n"
    return running


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline()


def test_it_stops_in_order_and_says_nothing(folder: Path) -> None:
    running = process(folder, "runner", 30.0, "stops")
    running.terminate()
    running.terminate()  # as Spark does
    assert running.communicate(timeout=30) == ("stopping\nstopped\n", "")
    assert running.returncode == 0


def test_what_it_does_to_stop_is_not_interrupted(folder: Path) -> None:
    """Spark closes the socket of a query that is interrupted, and only then ends the process."""
    running = process(folder, "runner", 30.0, "is stopping")
    assert line(running) == "stopping\n"
    running.terminate()
    assert running.communicate(timeout=30) == ("stopped\n", "")
    assert running.returncode == 0


def test_once_it_has_stopped_it_leaves(folder: Path) -> None:
    running = process(folder, "runner", 30.0, "has stopped")
    assert [line(running) for _ in range(3)] == ["stopping\n", "stopped\n", "over\n"]
    running.terminate()
    assert running.communicate(timeout=30) == ("", "")
    assert running.returncode == 0


def test_what_hangs_while_it_stops_is_killed(folder: Path) -> None:
    running = process(folder, "runner", 0.1, "hangs")
    assert line(running) == "stopping\n"
    running.terminate()
    assert running.communicate(timeout=30) == ("", "")
    assert running.returncode == -signal.SIGALRM


def test_other_programs_end_as_ever(folder: Path) -> None:
    running = process(folder, "another", 30.0, "stops")
    running.terminate()
    assert running.communicate(timeout=30) == ("", "")
    assert running.returncode == -signal.SIGTERM

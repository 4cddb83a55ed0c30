"""A source's process, ended as Spark ends it."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from taut.spark.source import ending

RUNNER = """
import ctypes, signal, sys, threading, time
from taut.spark.source import ending

ending._WITHIN = float(sys.argv[2])
how = sys.argv[3]

begun = threading.Event()

def part():
    print("stopping", flush=True)
    begun.set()
    if how == "stops as well":
        sys.stdin.readline()
    limit = time.monotonic() + 60
    while how == "hangs" or (how == "is stopping" and not end._signalled):
        assert time.monotonic() < limit, how
        time.sleep(0.01)
    if how == "fails":
        raise ValueError("no")
    print("stopped")

end = ending.Ending(part)
end.on_signal(sys.argv[1])
print("begun", flush=True)
try:
    if how in ("stops", "fails", "hangs"):
        threading.Event().wait(60)
    if how == "stops as well":
        begun.wait(60)
    if how == "is in a call":
        # one that goes on after a signal, which another thread gets
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        ctypes.CDLL(None).sleep(60)
finally:
    end.run()
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
        cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert line(running) == "begun\n"
    return running


def line(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline()


def ended(running: subprocess.Popen[str]) -> tuple[str, str]:
    """What it says from here on."""
    with running:
        return running.communicate(timeout=60)


def test_it_stops_in_order_and_says_nothing(folder: Path) -> None:
    running = process(folder, "runner", 30.0, "stops")
    running.terminate()
    assert ended(running) == ("stopping\nstopped\n", "")
    assert running.returncode == 0


def test_a_call_that_does_not_end_for_a_signal_is_not_waited_for(folder: Path) -> None:
    running = process(folder, "runner", 30.0, "is in a call")
    running.terminate()
    assert ended(running) == ("stopping\nstopped\n", "")
    assert running.returncode == 0


def test_it_stops_once_though_it_is_told_to_in_two_ways(folder: Path) -> None:
    """By the signal, and by Spark's own call in the main thread while that is under way."""
    running = process(folder, "runner", 30.0, "stops as well")
    running.terminate()
    assert line(running) == "stopping\n"
    running.terminate()  # Spark does so twice
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()
    assert ended(running) == ("stopped\n", "")
    assert running.returncode == 0


def test_what_it_does_to_stop_is_not_interrupted(folder: Path) -> None:
    """Spark closes the socket of a query that is interrupted, and only then ends the process."""
    running = process(folder, "runner", 30.0, "is stopping")
    assert line(running) == "stopping\n"
    running.terminate()
    assert ended(running) == ("stopped\n", "")
    assert running.returncode == 0


def test_once_it_has_stopped_it_leaves(folder: Path) -> None:
    running = process(folder, "runner", 30.0, "has stopped")
    assert [line(running) for _ in range(3)] == ["stopping\n", "stopped\n", "over\n"]
    running.terminate()
    assert ended(running) == ("", "")
    assert running.returncode == 0


def test_what_hangs_is_ended(folder: Path) -> None:
    running = process(folder, "runner", 1.0, "hangs")
    running.terminate()
    assert line(running) == "stopping\n"
    assert ended(running) == ("", "")
    assert running.returncode == -signal.SIGALRM


def test_what_fails_while_it_stops_is_told(folder: Path) -> None:
    running = process(folder, "runner", 30.0, "fails")
    running.terminate()
    out, errors = ended(running)
    assert (out, running.returncode) == ("stopping\n", 0)
    assert "did not end in order: ValueError('no')" in errors


def test_spark_still_runs_sources_in_that_module() -> None:
    assert importlib.util.find_spec(ending._RUNNER) is not None


def test_other_programs_end_as_ever(folder: Path) -> None:
    running = process(folder, "another", 30.0, "stops")
    running.terminate()
    assert ended(running) == ("", "")
    assert running.returncode == -signal.SIGTERM

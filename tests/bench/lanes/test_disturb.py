"""Real processes are stopped and go on, however it ends."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from taut.bench.lanes import disturb as module
from taut.bench.lanes.disturb import disturb, disturbing
from taut.bench.lanes.pauses import Pauses
from taut.bench.record import BenchError

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "pidfd_send_signal"), reason="no handles of processes on this system"
)
OFTEN = Pauses(0.1, 0.09)


def stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].startswith("T")


def note(folder: Path, process: int, lane: int, at: float) -> None:
    (folder / str(process)).write_bytes(struct.pack("<qhhid", 1, 0, lane, -1, at))


@pytest.fixture
def lane(tmp_path: Path) -> Iterator[int]:
    """A process that is lane 0, by its notes."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        note(tmp_path, process.pid, 0, time.time() + 60)
        yield process.pid
        assert not stopped(process.pid)


def test_pauses_a_lane_and_lets_it_go_on(
    tmp_path: Path, lane: int, eventually: Callable[..., None]
) -> None:
    waits = 0

    def wait(seconds: float) -> bool:
        """For the begin of a pause, for its end, for the begin of the next: over in the second."""
        nonlocal waits
        to_be = waits % 2 == 1
        eventually(lambda: stopped(lane) == to_be)
        waits += 1
        return waits < 4

    assert disturb(tmp_path, OFTEN, 1, time.time(), 1, wait) == 2
    eventually(lambda: not stopped(lane))


def test_ends_with_its_input_and_leaves_no_one_stopped(
    tmp_path: Path, lane: int, eventually: Callable[..., None]
) -> None:
    with disturbing(tmp_path, OFTEN, 1, time.time(), 1) as told:
        eventually(lambda: stopped(lane))
    assert told.pauses is not None
    assert told.pauses >= 1
    assert not stopped(lane)


def test_ends_when_whoever_started_it_dies(
    tmp_path: Path, lane: int, eventually: Callable[..., None]
) -> None:
    code = f"""
import time
from pathlib import Path
from taut.bench.lanes.disturb import Pauses, disturbing
with disturbing(Path({str(tmp_path)!r}), Pauses(0.1, 0.09), 1, time.time(), 1) as told:
    print(told.process, flush=True)
    input()
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        disturber = int(starter.stdout.readline())
        eventually(lambda: stopped(lane))
        starter.kill()
    eventually(lambda: not Path(f"/proc/{disturber}").exists())
    assert not stopped(lane)


def test_a_disturber_that_was_killed_is_told_and_its_lanes_go_on(
    tmp_path: Path, lane: int, eventually: Callable[..., None]
) -> None:
    with (  # noqa: PT012 - it raises at the end of what it surrounds
        pytest.raises(BenchError, match="ended with -9"),
        disturbing(tmp_path, OFTEN, 1, time.time(), 1) as told,
    ):
        eventually(lambda: stopped(lane))
        assert told.process is not None
        os.kill(told.process, signal.SIGKILL)
    eventually(lambda: not stopped(lane))


def test_an_error_meanwhile_is_not_lost(tmp_path: Path, lane: int) -> None:
    with pytest.raises(ZeroDivisionError), disturbing(tmp_path, OFTEN, 1, time.time(), 1):
        raise ZeroDivisionError


def test_only_who_was_heard_of_lately_is_paused(tmp_path: Path, lane: int) -> None:
    note(tmp_path, lane, 0, time.time() - 60)
    assert module._process_of(tmp_path, 0) is None
    note(tmp_path, lane, 3, time.time())
    assert module._process_of(tmp_path, 0) is None
    handle = module._process_of(tmp_path, 3)
    assert handle is not None
    os.close(handle)


def test_no_pauses_no_process(tmp_path: Path) -> None:
    with disturbing(tmp_path, None, 1, time.time(), 1) as told:
        assert told.process is None
    assert told.pauses is None

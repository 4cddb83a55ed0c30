from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from taut.bench.cgroup import Hierarchy
from taut.bench.cluster import Machine, cluster, process
from taut.bench.record import BenchError
from taut.bench.rival import text


@pytest.mark.spark
def test_machines_are_held_to_their_cores(tmp_path: Path) -> None:
    try:
        folder = Hierarchy.find().folder
    except BenchError as error:
        pytest.skip(str(error))
    machines = [Machine(2, cores=0.5, rivals=1), Machine(1)]
    with cluster(tmp_path, machines) as started:
        assert started.address.startswith("spark://127.0.0.1:")
        assert started.slots == 3
        (group,) = started._groups.values()
        (worker,) = group.processes()
        assert b"deploy.worker.Worker" in Path(f"/proc/{worker}/cmdline").read_bytes()
        assert b"TAUT_BENCH_MACHINE=0/2" in Path(f"/proc/{worker}/environ").read_bytes()
        with started.as_told():
            inside = group.processes()
            (rival,) = set(inside) - {worker}
            assert b"taut.bench.rival" in Path(f"/proc/{rival}/cmdline").read_bytes()
        assert group.processes() == [worker]
        log = (tmp_path / "master.log").read_text()
        assert "Registering worker 127.0.0.1:" in log
        assert "Registering worker 127.0.0.2:" in log
    assert not list(folder.glob(f"taut-{os.getpid()}-*"))


def test_an_address_that_there_is_not_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchError, match=r"a machine at 192\.0\.2\.1 is needed"),
        cluster(tmp_path, [Machine(host="192.0.2.1")]),
    ):
        pass


def test_a_process_ends_with_its_context(tmp_path: Path) -> None:
    with process(tmp_path, "cat", "cat", told=True) as running:
        assert running.poll() is None
    assert running.returncode is not None
    assert (tmp_path / "cat.log").exists()


def test_a_rival_has_something_to_do() -> None:
    import zlib

    given = text()
    assert 0.5 < len(zlib.compress(given)) / len(given) < 0.95


def test_told_to_end_it_takes_others_along(tmp_path: Path, eventually: Callable[..., None]) -> None:
    code = f"""
import time
from pathlib import Path
from taut.bench.cluster import _told_to_end, process
with _told_to_end(), process(Path({str(tmp_path)!r}), "cat", "cat", told=True) as other:
    print(other.pid, flush=True)
    time.sleep(600)
"""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        other = int(running.stdout.readline())
        running.terminate()
        assert running.wait(timeout=60) == 128 + signal.SIGTERM
    eventually(lambda: not Path(f"/proc/{other}").exists())

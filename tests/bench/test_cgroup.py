from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from taut.bench.cgroup import CpuGroup, Hierarchy, cpu_group
from taut.bench.record import BenchError

WORK = """
import time
input()
begun = time.monotonic()
while time.process_time() < 0.3:
    pass
print(time.monotonic() - begun)
"""


def find() -> Hierarchy:
    try:
        return Hierarchy.find()
    except BenchError as error:
        pytest.skip(str(error))


def test_processes_get_no_more_than_they_may() -> None:
    hierarchy = find()
    with cpu_group("taut-test-limit", hierarchy) as group:
        group.limit(0.1)
        command = [sys.executable, "-c", WORK]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
            group.add(process.pid)
            assert group.processes() == [process.pid]
            out, _ = process.communicate("begin\n")
        assert float(out) > 1.0, "0.3 s of work at a tenth of a core"
        group.limit(None)
    assert not (hierarchy.folder / "taut-test-limit").exists()


def test_what_is_left_in_a_group_ends_with_it() -> None:
    hierarchy = find()
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        group = CpuGroup(hierarchy, "taut-test-end")
        group.add(process.pid)
        group.remove(within=0.2)
        assert process.wait(timeout=30) == -9
    assert not (hierarchy.folder / "taut-test-end").exists()


def test_speaks_both_layouts(tmp_path: Path) -> None:
    """Where the kernel of this machine has one of them, plain files stand for the other."""
    first = CpuGroup(Hierarchy(tmp_path, 1), "first")
    first.limit(0.25)
    assert (tmp_path / "first" / "cpu.cfs_period_us").read_text() == "10000\n"
    assert (tmp_path / "first" / "cpu.cfs_quota_us").read_text() == "2500\n"
    first.limit(None)
    assert (tmp_path / "first" / "cpu.cfs_quota_us").read_text() == "-1\n"
    second = CpuGroup(Hierarchy(tmp_path, 2), "second")
    second.limit(1.5)
    assert (tmp_path / "second" / "cpu.max").read_text() == "15000 10000\n"
    second.limit(None)
    assert (tmp_path / "second" / "cpu.max").read_text() == "max 10000\n"
    with pytest.raises(BenchError, match=r"cpu=0\.0: a number of cores above zero"):
        second.limit(0.0)


def test_finds_where_processors_are_shared_out(tmp_path: Path) -> None:
    for name in ("memory", "cpu", "plain", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "plain" / "cgroup.subtree_control").write_text("memory pids\n")
    (tmp_path / "unified" / "cgroup.subtree_control").write_text("cpu memory\n")
    lines = {
        "memory": f"cgroup {tmp_path}/memory cgroup rw,memory 0 0",
        "cpu": f"cgroup {tmp_path}/cpu cgroup rw,relatime,cpu,cpuacct 0 0",
        "plain": f"cgroup2 {tmp_path}/plain cgroup2 rw 0 0",
        "unified": f"cgroup2 {tmp_path}/unified cgroup2 rw 0 0",
    }
    mounts = tmp_path / "mounts"

    def found(*names: str) -> Hierarchy:
        mounts.write_text("\n".join(lines[name] for name in names) + "\n")
        return Hierarchy.find(mounts)

    assert found("memory", "plain", "cpu") == Hierarchy(tmp_path / "cpu", 1)
    assert found("plain", "unified") == Hierarchy(tmp_path / "unified", 2)
    with pytest.raises(BenchError, match="no control group of processors is mounted"):
        found("memory", "plain")
    with pytest.raises(BenchError, match="need control groups"):
        Hierarchy.find(tmp_path / "none")

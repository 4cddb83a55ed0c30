"""Taut unchanged on a real standalone cluster: a master and two worker processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from tests.spark import cluster_driver

from taut.spark.java import use_java

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"


@contextlib.contextmanager
def process(folder: Path, name: str, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its own group and log, stopped by its id."""
    env = dict(os.environ)
    use_java(env)
    env |= {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=env
        )
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)
        try:
            running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


@pytest.fixture
def master(tmp_path: Path, eventually: Callable[..., None]) -> Iterator[str]:
    """The address of a cluster with two workers of one core each."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    log = tmp_path / "master.log"
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(tmp_path, "master", spark_class, MASTER, *ports))
        eventually(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()))
        found = re.search(r"Starting Spark master at (spark://\S+)", log.read_text())
        assert found is not None
        for i in range(2):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(tmp_path / f"work-{i}"))
            worker = (spark_class, WORKER, *ports, *size, found[1])
            stack.enter_context(process(tmp_path, f"worker-{i}", *worker))
        eventually(lambda: log.read_text().count("Registering worker") == 2)
        yield found[1]


def test_same_rows_on_a_cluster(master: str, tmp_path: Path) -> None:
    driver = (sys.executable, cluster_driver.__file__, master, str(tmp_path))
    with process(tmp_path, "driver", *driver) as running:
        code = running.wait(timeout=400)
    assert code == 0, (tmp_path / "driver.log").read_text()[-4_000:]
    found: dict[str, Any] = json.loads((tmp_path / "rows.json").read_text())
    assert found["executors"] == 2
    assert len(found["stock"]) == 8 + 4
    assert sorted(found["taut"]) == sorted(found["stock"])
    live = found["live"]
    assert len(live["ends"]) == len(set(live["ends"])) >= 3
    assert set(live["rows"][1:]) == {400}
    assert len(live["by"]) == 2, "both workers took part"

"""A real standalone cluster on loopback: a master and two workers, stopped by their ids."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyspark

from taut.spark.java import use_java

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")


@contextlib.contextmanager
def process(
    folder: Path, name: str, *command: str, told: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its own group and log, stopped by its id; with an input if it is ``told``."""
    env = dict(os.environ)
    use_java(env)
    paths = [str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")]
    env |= {
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "512m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=env,
        )
    try:
        yield running
    finally:
        if running.stdin is not None:
            running.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)
        try:
            running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


@contextlib.contextmanager
def cluster(folder: Path, eventually: Callable[..., None]) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    log = folder / "master.log"
    ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as stack:
        stack.enter_context(process(folder, "master", spark_class, MASTER, *ports))
        eventually(lambda: _STARTED.search(log.read_text()))
        found = _STARTED.search(log.read_text())
        assert found is not None
        for i in range(2):
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work-{i}"))
            worker = (spark_class, WORKER, *ports, *size, found[1])
            stack.enter_context(process(folder, f"worker-{i}", *worker))
        eventually(lambda: log.read_text().count("Registering worker") == 2)
        yield found[1]


CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
}
"""What a driver on such a cluster sets."""

"""A cluster for tests: two workers of one core each; what runs on it finds the tests."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from taut.bench import cluster as real

_MACHINE = real.Machine(host="127.0.0.1")


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The address of a master with two workers of one core each."""
    with real.cluster(folder, [_MACHINE, _MACHINE], _finding_tests()) as started:
        yield started.address


@contextlib.contextmanager
def process(
    folder: Path, name: str, *command: str, told: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that can import the tests."""
    with real.process(folder, name, *command, told=told, env=_finding_tests()) as running:
        yield running


def _finding_tests() -> dict[str, str]:
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(p for p in paths if p)}


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

"""D1 to D4 broken on purpose, on a real cluster: each row once in the output, every time."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.spark.cluster import cluster, process
from tests.spark.source import source_driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One cluster for all faults: it must get over each of them."""
    from tests.conftest import wait_until

    with cluster(tmp_path_factory.mktemp("cluster"), wait_until) as address:
        yield address


def written(folder: Path) -> Counter[int]:
    rows: Counter[int] = Counter()
    for part in (folder / "out").glob("batch_id=*/part-*.json"):
        rows.update(json.loads(line)["n"] for line in part.read_text().splitlines())
    return rows


def told(folder: Path) -> str:
    return (folder / "driver.log").read_text()[-4_000:]


FAULTS = ("task", "connection", "executor", "output", "freeze", "driver", "between")


@pytest.mark.parametrize("what", [*FAULTS, "resident executor", "resident driver"])
def test_every_row_once(
    master: str, tmp_path: Path, what: str, eventually: Callable[..., None]
) -> None:
    there = tmp_path / "there"
    fault = what.removeprefix("resident ")
    command = (sys.executable, source_driver.__file__, master, str(tmp_path), what)
    with process(tmp_path, "driver", *command) as driver:
        if fault in ("executor", "freeze", "driver"):
            eventually(lambda: there.exists() or driver.poll() is not None, within=180)
            assert driver.poll() is None, told(tmp_path)
        if fault == "executor":
            os.kill(int(there.read_text()), signal.SIGKILL)
        elif fault == "freeze":
            frozen = int(there.read_text())
            os.kill(frozen, signal.SIGSTOP)
            # another lane takes its chunk over; its own task is still awaited by Spark
            eventually((tmp_path / "again").exists, within=60)
            (tmp_path / "thawed").touch()
            os.kill(frozen, signal.SIGCONT)
        elif fault == "driver":
            os.killpg(driver.pid, signal.SIGKILL)
        code = driver.wait(timeout=300)
    if fault in ("driver", "between"):
        assert code == -signal.SIGKILL
        with process(tmp_path, "driver", *command) as again:
            assert again.wait(timeout=300) == 0, told(tmp_path)
    else:
        assert code == 0, told(tmp_path)
    assert written(tmp_path) == Counter(range(source_driver.ROWS))
    assert there.exists(), "the fault struck"

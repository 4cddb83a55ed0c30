"""R3: kill -9 at any moment loses nothing, and a batch comes again only under its own id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.spark import crash_driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def run(folder: Path, moment: str) -> subprocess.Popen[bytes]:
    with (folder / f"{moment}.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, crash_driver.__file__, str(folder), moment],
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def expected() -> dict[int, tuple[int, int]]:
    """The windows that the watermark passes, computed without Spark."""
    found: dict[int, tuple[int, int]] = {}
    last = crash_driver.ROWS - 1
    for n in range(crash_driver.ROWS):
        end = int(crash_driver.START) + n // crash_driver.RATE + 1
        count, total = found.get(end, (0, 0))
        found[end] = (count + 1, total + n)
    watermark = crash_driver.START + last / crash_driver.RATE
    return {end: row for end, row in found.items() if end <= watermark}


def written(folder: Path) -> list[tuple[int, tuple[int, int]]]:
    rows = []
    for part in sorted((folder / "out").glob("batch_id=*/part-*.json")):
        for line in part.read_text().splitlines():
            row = json.loads(line)
            rows.append((row["end"], (row["count(n)"], row["sum(n)"])))
    return rows


@pytest.mark.parametrize("moment", ["held", "sink", "batch"])
def test_killed(tmp_path: Path, moment: str, eventually: Callable[..., None]) -> None:
    driver = run(tmp_path, moment)
    try:
        eventually(lambda: (tmp_path / "there").exists() or driver.poll() is not None, within=180)
        assert driver.poll() is None, (tmp_path / f"{moment}.log").read_text()
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    partial = written(tmp_path) if moment != "sink" else []
    assert len(partial) < len(expected())
    again = run(tmp_path, "none")
    assert again.wait(timeout=300) == 0, (tmp_path / "none.log").read_text()
    rows = written(tmp_path)
    assert len(rows) == len(dict(rows)), "a window came out twice"
    assert dict(rows) == expected()

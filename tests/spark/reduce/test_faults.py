"""S3 on a real cluster: kill -9 at any moment, and no update is lost or applied twice."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.spark.cluster import cluster
from tests.spark.driver import Driver
from tests.spark.reduce import reduce_driver
from tests.spark.reduce.reduce_driver import ROWS, key_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """One cluster and one application for all faults that they outlive."""
    with cluster(tmp_path_factory.mktemp("cluster")) as master:
        made = Driver(reduce_driver.__file__, master, tmp_path_factory.mktemp("driver"))
        yield made
        made.close()


def written(folder: Path, what: str) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for part in (folder / what).glob("batch_id=*/part-*.json")
        for line in part.read_text().splitlines()
    ]


def compare(folder: Path) -> None:
    """Even rows were counted once each, in order; odd ones were put aside once each."""
    updates = [row for row in written(folder, "out") if row["n"] >= 0]
    assert sorted(row["n"] for row in updates) == list(range(0, ROWS, 2))
    counts = defaultdict(list)
    for row in sorted(updates, key=lambda row: row["n"]):
        assert row["key"] == key_of(row["n"])
        window = -(-row["n"] // 2_000) if (folder / "windowed").exists() else 0
        counts[row["key"], window].append(row["count"])
    assert all(told == list(range(1, len(told) + 1)) for told in counts.values())
    aside = written(folder, "shed")
    assert sorted(row["value"] for row in aside) == list(range(1, ROWS, 2))
    assert {row["reason"] for row in aside} == {"too late to be on time"}


def compare_windows(folder: Path) -> None:
    """Windows that the watermark has passed came out once, with every even row counted."""
    expected = Counter(
        (key_of(n), -(-n // 2_000)) for n in range(0, ROWS, 2) if -(-n // 2_000) * 2_000 < ROWS - 1
    )
    closed = [row for row in written(folder, "out") if row["n"] < 0]
    assert Counter(row["count"] for row in closed) == Counter(expected.values())


@pytest.mark.parametrize(
    ("what", "windowed"),
    [("task", False), ("worker", True), ("executor", False), ("executor", True), ("output", False)],
)
def test_executors_and_tasks(driver: Driver, tmp_path: Path, what: str, windowed: bool) -> None:
    if windowed:
        (tmp_path / "windowed").touch()
    driver.begin(what, tmp_path, {"windowed": windowed})
    driver.await_file(tmp_path / "there")
    if what == "executor":
        os.kill(int((tmp_path / "there").read_text()), signal.SIGKILL)
    driver.await_end(tmp_path)
    compare(tmp_path)
    if windowed:
        compare_windows(tmp_path)


@pytest.mark.parametrize(
    ("what", "windowed"), [("driver", True), ("between", False), ("sink", True)]
)
def test_drivers(driver: Driver, tmp_path: Path, what: str, windowed: bool) -> None:
    if windowed:
        (tmp_path / "windowed").touch()
    driver.begin(what, tmp_path, {"windowed": windowed})
    driver.await_file(tmp_path / "there")
    if what == "driver":
        driver.kill()
    driver.await_death()
    driver.begin(what, tmp_path, {"windowed": windowed})
    driver.await_end(tmp_path)
    compare(tmp_path)
    if windowed:
        compare_windows(tmp_path)

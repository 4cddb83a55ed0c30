"""D1 to D4 broken on purpose, on a real cluster: each row once in the output, every time."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.cluster import cluster
from tests.spark.driver import Driver
from tests.spark.source import source_driver

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One cluster for all faults: it must get over each of them."""
    with cluster(tmp_path_factory.mktemp("cluster")) as address:
        yield address


def written(folder: Path) -> Counter[int]:
    rows: Counter[int] = Counter()
    for part in (folder / "out").glob("batch_id=*/part-*.json"):
        rows.update(json.loads(line)["n"] for line in part.read_text().splitlines())
    return rows


@pytest.fixture(scope="module")
def driver(master: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """One application for all faults that it outlives: starting one takes longer than they do."""
    made = Driver(source_driver.__file__, master, tmp_path_factory.mktemp("driver"))
    yield made
    made.close()


def finish(driver: Driver, folder: Path) -> None:
    """Let what was begun end, and compare its output."""
    driver.await_end(folder)
    assert written(folder) == Counter(range(source_driver.ROWS))
    seen = {int(n) for part in (folder / "lanes").iterdir() for n in part.read_text().split()}
    assert seen == set(range(source_driver.ROWS)), "sinks in lanes miss none"


PLAIN: dict[str, str] = {}
ALL_ON = {
    "dispatch": "balance",
    "replay": "adaptive",
    "egress": "largest-backlog",
    "chunk": "10",  # so many that there is a timeout
}
TWICE = {"dispatch": "fixed", "replay": "replicate-100", "egress": "round-robin"}
LEVELLED = {"admission": "largest-backlog"}


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("driver", PLAIN),
        ("driver", ALL_ON | LEVELLED),
        ("between", TWICE | LEVELLED),
        ("resident driver", PLAIN),
        ("resident driver", ALL_ON),
    ],
)
def test_every_row_once_though_the_driver_is_killed(
    driver: Driver, tmp_path: Path, what: str, options: dict[str, str]
) -> None:
    driver.begin(what, tmp_path, options)
    driver.await_file(tmp_path / "there")
    if what != "between":  # then it kills itself
        driver.kill()
    driver.await_death()
    driver.begin(what, tmp_path, options)
    finish(driver, tmp_path)


@pytest.mark.parametrize(
    ("what", "options"),
    [
        ("task", PLAIN),
        ("task", ALL_ON | LEVELLED),
        ("connection", PLAIN),
        ("connection", TWICE),
        ("executor", PLAIN),
        ("executor", ALL_ON | LEVELLED),
        ("executor", TWICE),
        ("output", PLAIN),
        ("output", ALL_ON | LEVELLED),
        ("freeze", PLAIN),
        ("freeze", ALL_ON | LEVELLED),
        ("resident executor", PLAIN),
        ("resident executor", ALL_ON),
        ("resident executor", TWICE | {"dispatch": "two-choices"}),
    ],
)
def test_every_row_once(driver: Driver, tmp_path: Path, what: str, options: dict[str, str]) -> None:
    driver.begin(what, tmp_path, options)
    driver.await_file(tmp_path / "there")
    if "executor" in what:
        os.kill(int((tmp_path / "there").read_text()), signal.SIGKILL)
    elif what == "freeze":
        frozen = int((tmp_path / "there").read_text())
        os.kill(frozen, signal.SIGSTOP)
        # another lane takes its chunk over; its own task is still awaited by Spark
        driver.await_file(tmp_path / "again", within=60)
        (tmp_path / "thawed").touch()
        os.kill(frozen, signal.SIGCONT)
    finish(driver, tmp_path)

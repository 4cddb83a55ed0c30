"""S3 on a real cluster: kill -9 at any moment, and no update is lost or applied twice."""

from __future__ import annotations

import itertools
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
from tests.spark.reduce.reduce_driver import (
    CROWD,
    CROWD_BATCH,
    OBJECTIVE,
    ROWS,
    START,
    TAKES,
    age_of,
    crowds,
    key_of,
    struck,
)

from taut.spark.reduce.terms import CROWDED, LATE, WAITED

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


def compare(folder: Path, what: str, kind: str) -> None:
    """No row was lost or counted twice, whatever was tried again; and it was decided on once."""
    rows = CROWD if crowds(kind) else range(ROWS)
    updates = [row for row in written(folder, "out") if row["n"] >= 0]
    aside = written(folder, "shed")
    assert sorted([row["n"] for row in updates] + [row["value"] for row in aside]) == [*rows]
    counts = defaultdict(list)
    for row in sorted(updates, key=lambda row: row["n"]):
        assert row["key"] == key_of(row["n"])
        window = row["n"] // 2_000 if kind == "windowed" else 0
        counts[row["key"], window].append(row["count"])
    for told in counts.values():
        # rows of a crowd are not worked on in the order of their numbers
        assert (sorted(told) if crowds(kind) else told) == list(range(1, len(told) + 1))
    compare_attempts(folder, {row["n"] for row in updates}, what, struck(kind))
    if not crowds(kind):
        assert {row["n"] for row in updates} == set(rows[::2])
        assert {row["reason"] for row in aside} == {LATE}
    if kind == "windowed":
        compare_windows(folder)
    if crowds(kind):
        reasons = {"crowded": {LATE, CROWDED}, "waiting": set(), "readmitted": {WAITED}}
        assert {row["reason"] for row in aside} <= reasons[kind]
        assert any(row["reason"] == CROWDED for row in aside) == (kind == "crowded")
        was_crowded(folder, struck(kind))


def attempts(folder: Path) -> dict[tuple[int, int], list[set[int]]]:
    """By batch and partition: what each attempt worked on."""
    found = defaultdict(list)
    for attempt in (folder / "worked").iterdir():
        batch, partition, *_ = map(int, attempt.name.split())
        worked = [int(line) for line in attempt.read_text().splitlines()]
        assert len(set(worked)) == len(worked)
        found[batch, partition].append(set(worked))
    return found


def compare_attempts(folder: Path, updates: set[int], what: str, at: int) -> None:
    """Each attempt at a batch has worked on rows that came out of it; on all if it came so far."""
    found = attempts(folder)
    assert set().union(*itertools.chain.from_iterable(found.values())) == updates
    for each in found.values():
        most = max(each, key=len)
        assert all(worked <= most for worked in each)
    again = [each for (batch, _), each in found.items() if batch == at and len(each) > 1]
    assert again or what == "between", "the batch was tried again"
    if what in ("output", "sink"):
        assert all(worked == each[0] for each in again for worked in each)


def was_crowded(folder: Path, batch: int) -> None:
    """In the batch that was struck, of rows that arrived together some were worked on, not all."""
    found = attempts(folder)
    reducers = {key_of(n): at for (_, at), each in found.items() for n in set().union(*each)}
    mine = defaultdict(set)
    for n in CROWD:
        if n // CROWD_BATCH == batch and age_of(n) == 0 and key_of(n) in reducers:
            mine[reducers[key_of(n)]].add(n)
    crowded = {at: rows for at, rows in mine.items() if len(rows) * TAKES > OBJECTIVE}
    assert crowded
    for at, rows in crowded.items():
        assert 0 < len(rows & set().union(*found[batch, at])) < len(rows)


def compare_windows(folder: Path) -> None:
    """Windows that the watermark has passed came out once, with every even row counted."""
    closed = [row for row in written(folder, "out") if row["n"] < 0]
    told = {(row["key"], row["ends"]): row["count"] for row in closed}
    assert len(told) == len(closed)
    # row n has the time START + n ms; windows of 2 s end at whole ones
    ends = {n: round(START) + 2 * (n // 2_000 + 1) for n in range(0, ROWS, 2)}
    last = START + (ROWS - 1) / 1_000
    assert told == Counter((key_of(n), end) for n, end in ends.items() if end <= last)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("task", "plain"),
        ("worker", "windowed"),
        ("executor", "plain"),
        ("executor", "windowed"),
        ("output", "plain"),
        ("output", "crowded"),
        ("executor", "waiting"),
        ("worker", "readmitted"),
    ],
)
def test_executors_and_tasks(driver: Driver, tmp_path: Path, what: str, kind: str) -> None:
    driver.begin(what, tmp_path, {"kind": kind})
    driver.await_file(tmp_path / "there")
    if what == "executor":
        os.kill(int((tmp_path / "there").read_text()), signal.SIGKILL)
    driver.await_end(tmp_path)
    compare(tmp_path, what, kind)


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("driver", "windowed"),
        ("between", "plain"),
        ("sink", "windowed"),
        ("sink", "crowded"),
        ("driver", "waiting"),
    ],
)
def test_drivers(driver: Driver, tmp_path: Path, what: str, kind: str) -> None:
    driver.begin(what, tmp_path, {"kind": kind})
    driver.await_file(tmp_path / "there")
    if what == "driver":
        driver.kill()
    driver.await_death()
    driver.begin(what, tmp_path, {"kind": kind})
    driver.await_end(tmp_path)
    compare(tmp_path, what, kind)

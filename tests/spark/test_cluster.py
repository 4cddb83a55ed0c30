"""Taut unchanged on a real standalone cluster: a master and two worker processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.spark import cluster_driver
from tests.spark.cluster import cluster, process

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_same_rows_on_a_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path) as master:
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
    assert set(live["rows"][1:]) == {400}, "all but the first window, which may begin midway"
    assert len(live["by"]) == 2, "both workers took part"

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from taut.bench.reduce import speed
from taut.bench.reduce.run import Progress
from taut.bench.reduce.show import speeds_legend

held = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no cores to be held to")
COUNT = "import os; print(len(os.sched_getaffinity(0)))"


@held
def test_what_is_started_meanwhile_is_held_to_one_core() -> None:
    before = os.sched_getaffinity(0)
    with speed._one_core():
        assert len(os.sched_getaffinity(0)) == 1
        assert subprocess.check_output([sys.executable, "-c", COUNT]).split() == [b"1"]
    assert os.sched_getaffinity(0) == before


@held
@pytest.mark.spark
def test_the_record_says_how_many_cores_there_were(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session of the tests was there before, and is not held to one."""
    monkeypatch.setattr(speed, "_LINES", 50)
    monkeypatch.setattr(speed, "_CUT", 1)
    monkeypatch.setattr(speed, "scheduling_us", lambda: {"scheduling.reducer_us": 0.123456})
    seen: list[Progress] = []
    record = speed.bench(0.2, 1, seen.append)
    assert record.options["cores"] == len(os.sched_getaffinity(0))
    assert record.figures.pop("scheduling.reducer_us") == 0.1235
    assert set(record.figures) == {f"speed.{form}.rows_per_s" for form in speed.FORMS}
    assert all(rate > 0 for rate in record.figures.values())
    assert {now.variant for now in seen} == {"plain", "vectorised", "deciding"}


@pytest.mark.parametrize(
    ("cores", "said"), [(1, "on one core."), (2, "on 2 cores."), (None, "does not hold processes")]
)
def test_the_legend_says_what_the_figures_are_of(cores: int | None, said: str) -> None:
    legend = speeds_legend(cores)
    assert said in legend
    assert "no row on Spark passes them. reducer is what a row on Spark passes" in legend

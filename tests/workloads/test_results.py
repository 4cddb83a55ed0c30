"""Every workload, streamed in several batches, gives what plain Python computes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from taut.workloads import Delay, Load, workload

_spec = importlib.util.spec_from_file_location("plain", Path(__file__).with_name("plain.py"))
assert _spec is not None
assert _spec.loader is not None
plain = importlib.util.module_from_spec(_spec)
sys.modules["plain"] = plain
_spec.loader.exec_module(plain)

pytestmark = pytest.mark.spark

START = 1_790_000_000.25
CASES = {
    "ads": (plain.views, ("campaign_id",), ("count",)),
    "taxi": (
        plain.fares,
        ("cell",),
        ("trips", "total_cents", "meters", "passengers", "dearest"),
    ),
    "linear-road": (
        plain.tolls,
        ("xway", "segment"),
        ("speed", "volume", "accidents", "toll"),
    ),
}


def streamed(df: DataFrame, folder: Path) -> list[Row]:
    rows: list[Row] = []
    query = (
        df.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder))
        .foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return rows


def keyed(rows: list[Row], keys: tuple[str, ...], values: tuple[str, ...]) -> dict[Any, Any]:
    result = {}
    for row in rows:
        end = round(row["end"].timestamp() * 1_000)
        key = (end, *(row[name] for name in keys))
        assert key not in result, "append mode gives each row once"
        result[key] = tuple(row[name] for name in values)
    return result


@pytest.mark.parametrize(
    ("name", "delay"),
    [
        ("ads", Delay()),
        ("ads", Delay("zipf", 1_500)),
        ("taxi", Delay()),
        ("taxi", Delay("bursty", 1_000)),
        ("linear-road", Delay()),
    ],
    ids=str,
)
def test_equals_plain_python(spark: SparkSession, tmp_path: Path, name: str, delay: Delay) -> None:
    expect, keys, values = CASES[name]
    what = workload(name)
    load = Load(START, rate=600, total=6_600, max_rows_per_batch=1_700)
    at = what.windows(1, 4, 3.0)

    rows = streamed(what.build(spark, 1, 4, 3.0, load, delay), tmp_path)

    got = keyed(rows, keys, values)
    assert got == expect(spark, load, at, delay)
    ends = {key[0] for key in got}
    due = what.due_ms(1, 4, 3.0, START + 3.0, START + 11.0 - delay.bound_ms / 1_000 - 0.1)
    assert set(due) <= ends, "every due window has at least one row"
    assert len(due) >= 1


def test_toll_is_charged_somewhere(spark: SparkSession) -> None:
    load = Load(START, rate=600, total=6_600)
    at = workload("linear-road").windows(0, 1, 3.0)

    rows = plain.tolls(spark, load, at, Delay()).values()

    assert any(toll > 0 for *_, toll in rows)
    assert any(accidents > 0 for _, _, accidents, _ in rows)

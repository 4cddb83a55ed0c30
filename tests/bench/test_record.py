from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from taut.bench.record import BenchError, Record


def test_the_json_is_the_contract(tmp_path: Path) -> None:
    record = Record("queries", {"queries": 2})
    record.add({"ads.2.fcfs.mean_s": 1.5, "ads.2.fcfs.windows": 3})
    record.write(tmp_path / "new" / "q.json")

    told = json.loads((tmp_path / "new" / "q.json").read_text())
    assert list(told) == ["name", "options", "machine", "started", "seconds", "figures"]
    assert list(told["machine"]) == ["cores", "memory_gb", "python", "spark", "java"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told["started"])
    assert told["figures"] == {"ads.2.fcfs.mean_s": 1.5, "ads.2.fcfs.windows": 3}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["q.json"]


@pytest.mark.parametrize("value", [math.nan, math.inf, True])
def test_only_numbers_are_figures(value: float) -> None:
    with pytest.raises(BenchError):
        Record("queries", {}).add({"a": value})


def test_a_figure_has_one_value() -> None:
    record = Record("queries", {})
    record.add({"a": 1})
    with pytest.raises(BenchError, match="twice"):
        record.add({"a": 2})

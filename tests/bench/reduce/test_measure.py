from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from taut.bench.commands.reduce import reduce
from taut.bench.record import BenchError
from taut.bench.reduce import sustained
from taut.bench.reduce.figures import Point
from taut.bench.reduce.measure import bench
from taut.bench.reduce.run import WORKLOADS, Progress, Spec, job
from taut.bench.reduce.show import legend
from taut.cli import main
from taut.slo import Slo

SPEC = Spec("words", objective=3.0, seconds=2.0, warm_up_s=2.0, keys=500, work_us=5.0)


@pytest.mark.spark
def test_every_figure_of_the_contract(spark: object) -> None:
    seen: list[Progress] = []
    points = [Point(1.0, 1.0), Point(0.25, 1.0)]
    record, runs = bench(SPEC, points, ["fifo", "cost-aware"], 1, seen.append, rate=500)
    names = {
        f"words.{variant}.{point}.{figure}"
        for variant in ("fifo", "cost-aware")
        for point in ("m1.l1", "m0.25.l1")
        for figure in ("on_time", "processed", "shed", "rows_per_s")
    }
    assert set(record.figures) == names
    assert all(math.isfinite(value) and value >= 0.0 for value in record.figures.values())
    assert all(run.on_time <= run.processed <= 1.0 for run in runs)
    assert record.options["rate_at_load_1"] == 500
    assert record.options["state_bytes"] > 0
    assert {now.phase for now in seen} >= {"warming up", "measuring", "stopping"}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_updates_that_compute_give_what_the_others_give(workload: str) -> None:
    plain, working = job(workload), job(workload, work_us=1.0)
    window = (None,) if plain.windows is None else (None, None)
    state = plain.init(*(7, *window)[: len(window)])
    assert plain.update is not None
    assert working.update is not None
    assert working.update(1.0, 7, 1, state) == plain.update(1.0, 7, 1, state)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"points": []}, "points=0"),
        ({"variants": ["lifo"]}, "variant 'lifo'"),
        ({"rounds": 0}, "rounds=0"),
        ({"points": [Point(1.5, 1.0)]}, "memory above 0 and at most 1"),
        ({"spec": Spec("none")}, "workload 'none'"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {
        "spec": SPEC, "points": [Point(1.0, 1.0)], "variants": ["fifo"], "rounds": 1,
        "watch": lambda now: None,
    }  # fmt: skip
    with pytest.raises(BenchError, match=told):
        bench(**(given | wrong))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--memory", "2"], "above 0 and at most 1"),
        (["--load", "much"], "numbers such as 1.0,0.5"),
        (["--load", "1,1"], "each once"),
        (["--slo", "soon"], "is not an objective"),
        (["--variants", "lifo"], "out of fifo, edf, cost-aware, dover"),
        (["--workload", "tea"], "'tea' is not one of"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(main, ["bench", "reduce", *arguments])
    assert done.exit_code == 2
    assert told in done.output


def test_the_page_has_the_defaults() -> None:
    page = Path(__file__).parents[3] / "docs" / "benchmarks.md"
    text = " ".join(page.read_text().partition("\n## Reduce\n")[2].split())
    assert f"its arrival + {Spec().objective:g} s (`--slo`)" in text
    assert f"{Spec().warm_up_s:g} s of warm-up are cut from each run" in text
    assert f"Keys are {Spec().keys:,}, by Zipf's law with exponent {Spec().zipf:g}" in text
    assert f"computes for {Spec().work_us:g} us (`--work`)" in text
    few, many = sustained._SIZES
    assert f"batches of {few:,} and of {many:,} rows from a backlog" in text
    assert f"would take {sustained.FILLED:g} of the objective" in text
    options = {option.name: option.default for option in reduce.params}
    assert options["work_us"] == Spec().work_us
    assert options["keys"] == Spec().keys
    assert Slo(str(options["objective"])).seconds == Spec().objective
    assert float(str(options["measured"])) == Spec().seconds
    assert f"take {sustained.FILLED:g} of the objective" in legend(Spec())
    assert f"{Spec().warm_up_s:g} s of warm-up" in legend(Spec())

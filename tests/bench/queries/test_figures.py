from __future__ import annotations

import pytest

from taut.bench.queries.figures import Run, Sample, figures, remarks, summary


def run(policy: str, round_: int, latencies: list[float | None], **more: float) -> Run:
    samples = tuple(Sample(0, index, each) for index, each in enumerate(latencies))
    return Run(policy, round_, samples, seconds=10.0, **more)  # type: ignore[arg-type]


def test_summary_leaves_the_missed_out_of_the_latencies() -> None:
    told = summary(run("a", 1, [1.0, None, 3.0], rows=50, batches=4))
    assert told == {
        "mean_s": 2.0, "p50_s": 1.0, "p90_s": 3.0, "p99_s": 3.0, "max_s": 3.0,
        "windows": 2, "rows": 50, "rows_per_s": 5.0, "batches": 4, "missed": 1,
    }  # fmt: skip


def test_late_are_those_that_never_came_too() -> None:
    told = summary(run("a", 1, [0.5, 1.0, 1.01, None], objective=1.0))
    assert told["late"] == 0.5
    assert "late" not in summary(run("a", 1, [1.0]))
    assert "late" not in summary(run("a", 1, [], objective=1.0))


def test_the_median_of_the_rounds_counts() -> None:
    runs = [run("a", 1, [1.0]), run("a", 2, [9.0]), run("a", 3, [2.0])]
    assert figures("ads", 16, runs)["ads.16.a.mean_s"] == 2.0


def test_ratios_are_taken_within_a_round() -> None:
    runs = [
        run("spark-default", 1, [8.0]), run("least-slack", 1, [1.0]),
        run("least-slack", 2, [4.0]), run("spark-default", 2, [8.0]),
        run("spark-default", 3, [6.0]), run("least-slack", 3, [2.0]),
    ]  # fmt: skip
    told = figures("ads", 2, runs)
    assert told["ratio.least-slack.mean"] == 3.0
    assert told["ratio.least-slack.p99"] == 3.0
    assert "ratio.spark-default.mean" not in told


def test_no_ratio_without_stock_spark() -> None:
    told = figures("ads", 2, [run("fcfs", 1, [1.0]), run("least-slack", 1, [1.0])])
    assert not [name for name in told if name.startswith("ratio")]


def test_what_was_not_measured_is_left_out_and_said() -> None:
    runs = [run("spark-default", 1, [None, None]), run("fcfs", 1, [1.0, None])]
    told = figures("ads", 2, runs)
    assert "ads.2.spark-default.mean_s" not in told
    assert told["ads.2.spark-default.missed"] == 2
    assert not [name for name in told if name.startswith(("ratio", "overhead"))]
    assert len(remarks(runs)) == 2
    assert remarks([run("a", 1, [1.0])]) == []


def test_overhead_is_a_share_of_the_time() -> None:
    runs = [run("a", n, [1.0], overhead=share) for n, share in ((1, 0.001), (2, 0.002))]
    assert figures("ads", 2, runs)["overhead.a"] == pytest.approx(0.0015)

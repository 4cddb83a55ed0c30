from __future__ import annotations

import pytest

from taut.bench.lanes.figures import Run, figures, remarks, summary


def run(variant: str, round_: int, latencies: list[float], **more: object) -> Run:
    return Run(variant, round_, sorted(latencies), **more)  # type: ignore[arg-type]


def test_the_figures_of_one_run() -> None:
    told = summary(run("shared", 1, [0.001 * n for n in range(1, 1_001)], extra=50, arrived=1_250,
                       batches=(1.0, 3.0, 2.0), pauses=(0.2, 0.3), queued_s=0.004))  # fmt: skip
    assert told == pytest.approx(
        {
            "mean_ms": 500.5,
            "p50_ms": 500,
            "p90_ms": 900,
            "p99_ms": 990,
            "p999_ms": 999,
            "queue_ms": 4,
            "batch_ms": 2_000,
            "pause_ms": 300,
            "tuples": 1_000,
            "duplicates": 0,
            "lost": 0,
            "cost": 0.04,
        }
    )


def test_a_run_without_tuples_has_no_latency() -> None:
    assert summary(run("shared", 1, [], lost=3)) == {"tuples": 0, "duplicates": 0, "lost": 3}


def test_a_lost_tuple_is_later_than_all_others() -> None:
    told = summary(run("shared", 1, [0.001] * 995, lost=5))
    assert told["p99_ms"] == 1
    assert "p999_ms" not in told, "it falls on a tuple that never came"
    assert told["mean_ms"] == pytest.approx(1)


def test_the_median_of_the_rounds_counts_and_ratios_are_of_one_round() -> None:
    runs = [
        run(variant, round_, [latency], batches=(latency,))
        for round_, default, shared in ((1, 8.0, 2.0), (2, 9.0, 3.0), (3, 100.0, 50.0))
        for variant, latency in (("default", default), ("shared", shared))
    ]
    told = figures("queue", runs, {"shared": 0.5, "timeout": 1.0})
    assert told["queue.default.p99_ms"] == 9_000
    assert told["queue.shared.theory_queue_ms"] == 500
    assert not any("timeout" in name for name in told), "it did not run"
    assert told["queue.shared.batch_ms"] == 3_000
    assert told["ratio.shared.p99"] == told["ratio.shared.p999"] == told["ratio.shared.batch"] == 3
    assert told["ratio.shared.p90"] == told["ratio.shared.mean"] == 3
    assert not any(name.startswith("ratio.default") for name in told)


def test_what_is_lost_is_remarked() -> None:
    (remark,) = remarks([run("default", 1, [1.0]), run("shared", 2, [1.0] * 9, lost=1)])
    assert "shared, round 2: 1 of 10" in remark


def test_so_is_a_run_that_was_not_disturbed() -> None:
    quiet = run("default", 1, [1.0], disturbed=0)
    (remark,) = remarks([run("shared", 1, [1.0]), run("shared", 2, [1.0], disturbed=9), quiet])
    assert remark.startswith("default, round 1: no lane was paused")

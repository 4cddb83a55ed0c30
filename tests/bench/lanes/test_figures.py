from __future__ import annotations

import pytest

from taut.bench.lanes.figures import Run, figures, judge, pauses, remarks, summary


def run(variant: str, round_: int, latencies: list[float], **more: object) -> Run:
    return Run(variant, round_, sorted(latencies), **more)  # type: ignore[arg-type]


def test_a_tuple_counts_from_when_it_was_first_written() -> None:
    told = judge([(5, 3.0), (5, 2.5), (6, 2.75), (99, 9.0)], [5, 5, 6, 99, 99], {5: 2.0, 6: 2.25})
    assert told == {"latencies": (0.5, 0.5), "duplicates": 1, "lost": 0, "extra": 1}


def test_a_tuple_never_written_is_lost_and_has_no_latency() -> None:
    told = judge([(1, 4.0)], [1, 2], {1: 3.0, 2: 3.0, 3: 3.0})
    assert told == {"latencies": (1.0,), "duplicates": 0, "lost": 2, "extra": 0}


def test_the_figures_of_one_run() -> None:
    told = summary(run("shared", 1, [0.001 * n for n in range(1, 1_001)], extra=50,
                       batches=(1.0, 3.0, 2.0), pauses=(0.2, 0.3)))  # fmt: skip
    assert told == pytest.approx(
        {
            "mean_ms": 500.5,
            "p50_ms": 500,
            "p90_ms": 900,
            "p99_ms": 990,
            "p999_ms": 999,
            "batch_ms": 2_000,
            "pause_ms": 300,
            "tuples": 1_000,
            "duplicates": 0,
            "lost": 0,
            "cost": 0.05,
        }
    )


def test_a_run_without_tuples_has_no_latency() -> None:
    assert summary(run("shared", 1, [], lost=3)) == {"tuples": 0, "duplicates": 0, "lost": 3}


def test_a_lost_tuple_is_later_than_all_others() -> None:
    told = summary(run("shared", 1, [0.001] * 995, lost=5))
    assert told["p99_ms"] == 1
    assert "p999_ms" not in told, "it falls on a tuple that never came"
    assert told["mean_ms"] == pytest.approx(1)


def test_a_pause_is_until_the_first_tuple_of_the_next_batch_is_written() -> None:
    arrivals = {n: 100 + n / 10 for n in range(100)}
    written = [(n, at + (0.5 if 105 <= at < 105.3 else 0.01)) for n, at in arrivals.items()]
    assert pauses([105.0], written, arrivals) == pytest.approx((0.31,))
    assert pauses([200.0], written, arrivals) == ()


def test_the_median_of_the_rounds_counts_and_ratios_are_of_one_round() -> None:
    runs = [
        run(variant, round_, [latency], batches=(latency,))
        for round_, default, shared in ((1, 8.0, 2.0), (2, 9.0, 3.0), (3, 100.0, 50.0))
        for variant, latency in (("default", default), ("shared", shared))
    ]
    told = figures("queue", runs)
    assert told["queue.default.p99_ms"] == 9_000
    assert told["queue.shared.batch_ms"] == 3_000
    assert told["ratio.shared.p99"] == told["ratio.shared.p999"] == told["ratio.shared.batch"] == 3
    assert not any(name.startswith("ratio.default") for name in told)


def test_what_is_lost_is_remarked() -> None:
    (remark,) = remarks([run("default", 1, [1.0]), run("shared", 2, [1.0] * 9, lost=1)])
    assert "shared, round 2: 1 of 10" in remark

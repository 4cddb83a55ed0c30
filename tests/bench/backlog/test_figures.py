from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.bench.backlog.figures import (
    Admission,
    Level,
    Run,
    Written,
    delays,
    figures,
    levels,
    middle,
    missed,
    remarks,
    summary,
)
from taut.bench.backlog.picture import picture


def run(variant: str, round_: int, backlog: int, delays: list[float], **more: object) -> Run:
    return Run(variant, round_, [Level(1.0, backlog)], sorted(delays), **more)  # type: ignore[arg-type]


def arrived(at: float) -> dict[str, int]:
    """Thirty and ten rows a second, for ten seconds."""
    return {"0": int(30 * min(at, 10.0)), "1": int(10 * min(at, 10.0))}


def test_a_backlog_is_what_has_come_and_was_not_taken_before_the_batch() -> None:
    batches = [Admission(2.0, {"0": 60, "1": 5}), Admission(4.0, {"0": 61, "1": 40})]
    assert levels(arrived, batches, 10.0) == [Level(2.0, 60), Level(4.0, 60), Level(10.0, 239)]


def test_the_end_of_arrivals_is_looked_at_between_the_batches() -> None:
    batches = [Admission(8.0, {"0": 200, "1": 80}), Admission(12.0, {"0": 250, "1": 90})]
    late = Admission(14.0, {"0": 300, "1": 100})
    assert levels(arrived, [*batches, late], 10.0) == [
        Level(8.0, 240),
        Level(10.0, 100),
        Level(12.0, 100),
        Level(14.0, 50),
        Level(14.0, 0),
    ]
    assert levels(arrived, [], 10.0) == [Level(10.0, 300)], "nothing was taken at all"


@settings(derandomize=True, deadline=None, database=None)
@given(
    steps=st.lists(
        st.tuples(st.floats(0.1, 3.0), st.integers(0, 80), st.integers(0, 80)), max_size=8
    )
)
def test_no_moment_has_a_larger_backlog(steps: list[tuple[float, int, int]]) -> None:
    at, upto, batches = 0.0, {"0": 0, "1": 0}, []
    for gap, *most in steps:
        at += gap
        upto = {p: min(n, upto[p] + m) for (p, n), m in zip(arrived(at).items(), most, strict=True)}
        batches.append(Admission(at, upto))
    largest = max(level.rows for level in levels(arrived, batches, 10.0))
    moments = [*np.arange(0.0, max(at, 10.0), 0.05), *(batch.at for batch in batches), 10.0]
    for moment in moments:
        before = [batch.upto for batch in batches if batch.at < moment]
        taken = before[-1] if before else {"0": 0, "1": 0}
        assert all(n - taken[p] <= largest for p, n in arrived(moment).items())


def test_a_row_takes_from_its_arrival_until_its_batch_is_written() -> None:
    arrivals = np.array([1.0, 2.0, 3.0, 4.0])
    written = [Written(5.0, np.array([2, 0])), Written(6.0, np.array([3, 0]))]
    assert delays(written, arrivals) == (2.0, 2.0, 4.0), "row 1 never came, row 0 came twice"
    assert delays([], arrivals) == ()


def test_triggers_without_a_batch_are_counted() -> None:
    every = [Admission(100.0 + n, {}) for n in range(6)]
    assert missed(every, 100.0, 1.0) == 0, "one at the start itself is not due"
    assert missed(every[1:], 100.0, 1.0) == 0
    assert missed([*every[1:3], Admission(104.3, {}), every[5]], 100.0, 1.0) == 1
    assert missed(every[3:], 100.0, 1.0) == 2, "the query was not ready"
    assert missed([], 100.0, 1.0) == 0


def test_the_figures_of_one_run() -> None:
    told = summary(
        Run(
            "round-robin",
            1,
            [Level(1.0, 700), Level(2.0, 900), Level(3.0, 800)],
            [0.001 * n for n in range(1, 1_001)],
            seconds=4.0,
        )
    )
    assert told == pytest.approx(
        {
            "max_backlog": 900,
            "mean_delay_ms": 500.5,
            "p99_delay_ms": 990,
            "rows": 1_000,
            "rows_per_s": 250,
            "lost": 0,
        }
    )


def test_a_lost_row_is_later_than_all_others() -> None:
    assert "p99_delay_ms" not in summary(run("proportional", 1, 5, [0.1] * 98, lost=2))
    few = summary(run("proportional", 1, 5, [0.1] * 995, lost=5))
    assert (few["p99_delay_ms"], few["lost"]) == (100, 5)
    assert summary(run("proportional", 1, 5, [], lost=9)) == {
        "max_backlog": 5,
        "rows": 0,
        "lost": 9,
    }


def test_the_median_of_the_rounds_counts_and_ratios_are_of_one_round() -> None:
    runs = [
        run(variant, round_, backlog, [1.0])
        for round_, stock, own in ((1, 800, 200), (2, 900, 300), (3, 9_000, 4_500))
        for variant, backlog in (("proportional", stock), ("largest-backlog", own))
    ]
    told = figures(runs)
    assert told["proportional.max_backlog"] == 900
    assert told["largest-backlog.max_backlog"] == 300
    assert told["ratio.largest-backlog.max_backlog"] == 3
    assert not any(name.startswith("ratio.proportional") for name in told)
    alone = figures([run("largest-backlog", 1, 5, [1.0])])
    assert not any(name.startswith("ratio.") for name in alone)


def test_what_a_reader_has_to_know_is_remarked() -> None:
    runs = [
        run("proportional", 1, 5, [1.0]),
        run("round-robin", 2, 5, [1.0] * 9, lost=1),
        run("largest-backlog", 3, 5, [1.0], missed=4),
    ]
    lost, slow = remarks(runs)
    assert "round-robin, round 2: 1 of 10 rows" in lost
    assert "largest-backlog, round 3: triggers without a batch: 4" in slow


def test_draws_a_png_of_the_round_in_the_middle(tmp_path: Path) -> None:
    runs = [
        run(variant, round_, backlog * round_, [1.0])
        for variant, backlog in (("proportional", 500), ("round-robin", 900), ("other", 1))
        for round_ in (1, 2, 3)
    ]
    assert middle(runs[:3]).round == 2
    assert middle(runs[:2]).round == 1
    picture(tmp_path / "out" / "p.png", runs, "three ways", 30.0)
    assert (tmp_path / "out" / "p.png").read_bytes().startswith(b"\x89PNG")

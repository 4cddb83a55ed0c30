from __future__ import annotations

from pathlib import Path

from taut.bench.queries.figures import Run, Sample
from taut.bench.queries.picture import curve, picture


def run(policy: str, latencies: list[float | None]) -> Run:
    samples = tuple(Sample(0, index, each) for index, each in enumerate(latencies))
    return Run(policy, 1, samples, 1.0)


def test_a_window_that_never_came_keeps_the_line_up() -> None:
    assert curve([run("a", [2.0, 1.0, None, 4.0])]) == (
        [1.0, 1.0, 2.0, 4.0],
        [1.0, 0.75, 0.5, 0.25],
        1,
    )
    assert curve([run("a", [None])]) is None


def test_draws_a_png(tmp_path: Path) -> None:
    runs = [run("spark-default", [3.0, 9.0, None]), run("least-slack", [0.0, 1.1, 1.2])]
    picture(tmp_path / "out" / "p.png", [*runs, run("fcfs", [None])], "two policies")
    assert (tmp_path / "out" / "p.png").read_bytes().startswith(b"\x89PNG")

from __future__ import annotations

from pathlib import Path

from taut.bench.lanes.figures import Run, figures
from taut.bench.lanes.judge import Written
from taut.bench.lanes.picture import curve, over_time, pictures
from taut.bench.lanes.spec import Spec


def test_the_tail_is_drawn_tuple_by_tuple_and_the_rest_in_steps() -> None:
    drawn = curve([Run("default", 1, [0.001 * n for n in range(1, 50_001)], lost=50_000)])
    assert drawn is not None
    x, shares = drawn
    assert len(x) == len(shares) < 1_100
    assert x[-3:] == [49_998.0, 49_999.0, 50_000.0]
    assert shares[0] == 1.0
    assert shares[-1] == 0.5, "half never came"
    assert shares == sorted(shares, reverse=True)
    assert curve([Run("default", 1, [], lost=3)]) is None


def test_lanes_over_time() -> None:
    written = [Written(n % 2, n % 2, n / 100, 0.1 * (1 + n % 2)) for n in range(600)]
    assert over_time(written) == {
        0: [(1.0, 50.0, 0.1), (3.0, 50.0, 0.1)],
        1: [(1.0, 50.0, 0.2), (3.0, 50.0, 0.2)],
    }
    assert over_time([]) == {}


def test_draws_what_there_is(tmp_path: Path) -> None:
    spec = Spec.of("balance-a")
    written = tuple(Written(n % 3, n % 2, n / 100, 0.01) for n in range(1_000))
    runs = [
        Run(variant, 1, [0.001, 0.002, 0.0], lost=1, arrived=4, by_lane=written)
        for variant in ("default", "balance", "balance+timeout", "two-choices")
    ]
    told = figures(spec.topology, runs)
    names = [path.name for path in pictures(tmp_path / "a" / "all.png", spec, runs, told)]
    assert names == ["all.png", "all-cost.png", "all-lanes.png", "all-lanes-two-choices.png"]
    for name in names:
        assert (tmp_path / "a" / name).read_bytes().startswith(b"\x89PNG")
    plain = pictures(tmp_path / "few.png", Spec.of("queue"), [Run("default", 1, [0.1])], {})
    assert [path.name for path in plain] == ["few.png"]

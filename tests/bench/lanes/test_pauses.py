from __future__ import annotations

from itertools import islice, pairwise
from statistics import fmean

import pytest

from taut.bench.lanes.pauses import Pauses
from taut.bench.record import BenchError


def test_each_lane_is_paused_as_often_and_as_long_as_told() -> None:
    drawn = list(islice(Pauses(3.5, 0.06).of(8, seed=4), 8_000))
    assert drawn == sorted(drawn)
    lengths = [pause.length for pause in drawn]
    assert fmean(lengths) == pytest.approx(0.06, rel=0.02)
    assert min(lengths) >= 0.02
    assert max(lengths) <= 0.1
    for lane in range(8):
        mine = [pause for pause in drawn if pause.lane == lane]
        assert mine[-1].begin / len(mine) == pytest.approx(3.56, rel=0.15)
        assert all(a.end < b.begin for a, b in pairwise(mine))


def test_the_same_in_every_run_and_others_in_every_round() -> None:
    pauses = Pauses(1.0, 0.05)
    first = list(islice(pauses.of(3, seed=1), 50))
    assert first == list(islice(pauses.of(3, seed=1), 50))
    assert first != list(islice(pauses.of(3, seed=2), 50))


@pytest.mark.parametrize("text", ["5", "5s", "a,b", "0,60ms", "50ms,60ms", "5s,0"])
def test_what_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(BenchError, match="pauses"):
        Pauses.parse(text)


def test_durations_and_numbers_are_read() -> None:
    assert Pauses.parse("4,0.05") == Pauses.parse("4 s, 50 ms") == Pauses(4.0, 0.05)
    assert Pauses.parse(" 0 ") is None

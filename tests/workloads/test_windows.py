from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.workloads import WORKLOADS, Windowing, WorkloadError, workload
from taut.workloads.windows import milliseconds, staggered


@given(
    slide=st.integers(1, 50),
    panes=st.integers(0, 50),
    offset=st.integers(0, 200),
    after=st.integers(-300, 300),
    span=st.integers(0, 400),
)
def test_ends_are_all_those_of_the_interval(
    slide: int, panes: int, offset: int, after: int, span: int
) -> None:
    at = Windowing(slide + panes, slide, offset)
    expected = [
        end
        for end in range(after, after + span)
        if (end - offset - at.length_ms) % at.slide_ms == 0
    ]
    assert list(at.ends_ms(after / 1_000, (after + span) / 1_000)) == expected


def test_dues_are_spread_over_one_slide() -> None:
    ends = sorted(workload("ads").due_ms(i, 16, 12.0, 120.0, 132.0)[0] for i in range(16))
    assert {b - a for a, b in pairwise(ends)} == {750}


@pytest.mark.parametrize(
    ("name", "length", "slide"),
    [("ads", 12_000, 12_000), ("taxi", 12_000, 6_000), ("linear-road", 12_000, 7_200)],
)
def test_windows_scale_with_the_one_asked_for(name: str, length: int, slide: int) -> None:
    at = workload(name).windows(0, 4, 12.0)
    assert (at.length_ms, at.slide_ms) == (length, slide)


def test_mixed_has_three_lengths_of_window() -> None:
    lengths = [WORKLOADS["mixed"].windows(i, 6, 4.0).length_ms for i in range(6)]
    assert lengths == [4_000, 2_000, 6_000] * 2


def test_offset_for_spark_is_below_the_slide() -> None:
    assert Windowing(4, 2, 5).offset == "1 milliseconds"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Windowing(1, 2),
        lambda: Windowing(0, 0),
        lambda: staggered(1, 1, 3, 3),
        lambda: milliseconds(0.0001),
        lambda: workload("words"),
    ],
)
def test_refuses(wrong: object) -> None:
    assert callable(wrong)
    with pytest.raises(WorkloadError):
        wrong()

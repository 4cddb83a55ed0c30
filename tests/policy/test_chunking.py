import random
from collections.abc import Callable

import pytest

from taut.policy.chunking import FixedSize, Guided


def test_guided_chunks_shrink_towards_the_end() -> None:
    chunking = Guided(smallest=4, largest=1_000, share=0.5)
    chunking.observe(100, 0.1)
    left, sizes = 10_000, []
    while left > 0:
        size = min(left, chunking.size(left, 4, 4))
        sizes.append(size)
        left -= size
    assert sizes[0] == 1_000
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-2] == 4
    assert len(sizes) < 60


def test_the_first_chunks_are_small_until_the_pace_is_known() -> None:
    chunking = Guided(smallest=4, largest=1_000)
    assert chunking.size(1_000_000, 2, 2) == 16
    chunking.observe(16, 0.01)
    assert chunking.size(1_000_000, 2, 2) == 1_000


def test_no_chunk_takes_longer_than_it_may() -> None:
    chunking = Guided(smallest=1, share=1.0, longest=0.01)
    chunking.observe(100, 0.1)
    assert chunking.size(1_000_000, 4, 4) == 10
    assert chunking.size(8, 4, 4) == 2
    chunking = Guided(smallest=1, share=1.0, longest=0.01)
    chunking.observe(100, 100.0)
    assert chunking.size(1_000_000, 4, 4) == 1, "at least one row"


def test_rows_that_happen_to_be_short_do_not_make_chunks_large() -> None:
    """Exponential times of 20 ms: one in a hundred takes 0.2 ms, and the pace is 50 rows/s."""
    draw = random.Random(1)
    chunking = Guided(smallest=1, share=1.0, shortest=0.0, longest=0.01)
    sizes = []
    for _ in range(10_000):
        chunking.observe(1, draw.expovariate(50.0))
        sizes.append(chunking.size(1_000, 4, 4))
    assert sum(size > 1 for size in sizes) < 10


def test_a_chunk_is_worth_asking_for() -> None:
    chunking = Guided(smallest=1)
    chunking.observe(100_000, 1.0)
    assert chunking.size(1, 4, 4) == 200, "2 ms of work"
    waited_for = Guided(smallest=1, share=1.0, shortest=0.0, longest=0.01)
    waited_for.observe(1_000, 1.0)
    assert waited_for.size(4, 4, 4) == 1, "a row for each lane"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: FixedSize(0),
        lambda: Guided(0),
        lambda: Guided(9, 8),
        lambda: Guided(share=0.0),
        lambda: Guided(claims_per_second=0.0),
        lambda: Guided(longest=0.0),
    ],
)
def test_wrong_values_are_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"\d"):
        wrong()

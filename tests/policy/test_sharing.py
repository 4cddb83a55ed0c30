from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.chunking import Chunking, FixedSize, Guided
from taut.policy.dealing import DISPATCHES, Dispatch
from taut.policy.sharing import (
    FixedRanges,
    Range,
    SharedByExecutor,
    SharedQueue,
    Sharing,
    split,
)

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)
RANGES = st.lists(
    st.builds(lambda p, a, n: Range(p, a, a + n), st.text("abc", max_size=2), st.integers(0, 99),
              st.integers(1, 300)),
    max_size=6, unique_by=lambda r: r.partition,
)  # fmt: skip
CHUNKINGS: list[Callable[[], Chunking]] = [lambda: FixedSize(7), lambda: Guided(3, 50)]


def sharing_by(name: str, lanes: int, chunking: Chunking) -> Sharing:
    return Dispatch(name).sharing(lanes, chunking)


def offsets(ranges: list[Range]) -> list[tuple[str, int]]:
    return [(r.partition, n) for r in ranges for n in range(r.start, r.end)]


def take_all(sharing: Sharing, lanes: list[int]) -> dict[int, list[Range]]:
    """Lanes take in turn, each until it gets nothing."""
    taken: dict[int, list[Range]] = {n: [] for n in lanes}
    active = list(lanes)
    while active:
        for lane in list(active):
            found = sharing.take(lane)
            if found is None:
                active.remove(lane)
            else:
                taken[lane].append(found)
    return taken


@STEADY
@given(
    ranges=RANGES,
    lanes=st.integers(1, 7),
    name=st.sampled_from(sorted(DISPATCHES)),
    chunking=st.sampled_from(CHUNKINGS),
)
def test_all_is_taken_once(
    ranges: list[Range], lanes: int, name: str, chunking: Callable[[], Chunking]
) -> None:
    sharing = sharing_by(name, lanes, chunking())
    sharing.add(ranges)
    for lane in range(lanes):
        sharing.join(lane, str(lane % 2))
    assert sharing.left == sum(r.size for r in ranges)
    taken = take_all(sharing, list(range(lanes)))
    every = [r for found in taken.values() for r in found]
    assert sorted(offsets(every)) == sorted(offsets(ranges))
    assert sharing.left == 0


@STEADY
@given(ranges=RANGES, parts=st.integers(1, 9))
def test_shares_are_of_equal_size(ranges: list[Range], parts: int) -> None:
    shares = split(ranges, parts)
    assert [o for share in shares for o in offsets(share)] == offsets(ranges)
    sizes = [sum(r.size for r in share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("at_once", [1, 2, 3, 5])
def test_rows_that_come_one_by_one_go_to_all_lanes_alike(lanes: int, at_once: int) -> None:
    sharing = FixedRanges(lanes, FixedSize(10))
    for start in range(0, 100 * at_once, at_once):
        sharing.add([Range("a", start, start + at_once)])
    sizes = [sharing.left_for(lane) for lane in range(lanes)]
    assert max(sizes) - min(sizes) <= 1
    assert sum(sizes) == sharing.left == 100 * at_once


def test_fixed_lanes_keep_to_their_own_share() -> None:
    sharing = FixedRanges(2, FixedSize(10))
    sharing.add([Range("a", 0, 100)])
    assert [sharing.take(1), sharing.take(1)] == [Range("a", 50, 60), Range("a", 60, 70)]
    taken = take_all(sharing, [0])
    assert offsets(taken[0]) == [("a", n) for n in range(50)]
    assert sharing.left == 30
    assert not sharing.may_take_over(0, of=1)
    assert sharing.may_take_over(1, of=1)


def test_one_queue_serves_whoever_asks() -> None:
    sharing = SharedQueue(2, FixedSize(10))
    sharing.add([Range("a", 0, 30)])
    taken = take_all(sharing, [1])
    assert offsets(taken[1]) == [("a", n) for n in range(30)]
    assert sharing.may_take_over(0, of=1)


def test_lanes_of_an_executor_share_and_others_keep_theirs() -> None:
    sharing = SharedByExecutor(4, FixedSize(10))
    sharing.add([Range("a", 0, 400)])
    for lane, executor in enumerate("xxyy"):
        sharing.join(lane, executor)
    taken = take_all(sharing, [0])
    assert sorted(offsets(taken[0])) == [("a", n) for n in range(200)]
    assert sharing.left == 200
    sharing.join(2, "x")
    assert sorted(offsets(take_all(sharing, [1])[1])) == [("a", n) for n in range(200, 300)]


@pytest.mark.parametrize("name", DISPATCHES)
def test_short_chunks_of_a_fixed_size_are_given_out_together(name: str) -> None:
    """10 us each, 10 lanes: 4,000 claims a second are 250 chunks, more than may be at a time."""
    chunking = FixedSize(1)
    sharing = sharing_by(name, 10, chunking)
    sharing.add([Range("a", 0, 100_000)])
    for lane in range(10):
        sharing.join(lane, "here")
    assert sharing.together(0) == 1, "until it is known"
    chunking.observe(100, 0.001)
    assert sharing.together(0) == 64
    chunking = FixedSize(1)
    sharing = sharing_by(name, 10, chunking)
    sharing.add([Range("a", 0, 100)])
    for lane in range(10):
        sharing.join(lane, "here")
    chunking.observe(100, 0.001)
    assert sharing.together(0) == 10, "no more than the lane's share"
    chunking.observe(1, 1_000.0)
    for _ in range(99):
        chunking.observe(1, 1.0)
    assert sharing.together(0) == 1, "long ones one by one"


@pytest.mark.parametrize("name", DISPATCHES)
@pytest.mark.parametrize("lanes", [1, 10, 1_000])
def test_never_more_claims_than_can_be_answered(name: str, lanes: int) -> None:
    """Lanes of 50,000 rows a second each: with many of them chunks must be larger."""
    chunking = Guided(claims_per_second=4_000.0)
    chunking.observe(5_000, 0.1)
    sharing = sharing_by(name, lanes, chunking)
    share = 20_000
    sharing.add([Range("a", 0, share * lanes)])
    for lane in range(lanes):
        sharing.join(lane, f"executor {lane // 10}")
    chunks = []
    while (chunk := sharing.take(0)) is not None:
        chunks.append(chunk)
    # what is left at the end of a lane's share may be small
    whole = [chunk for chunk in chunks if chunk.end % share]
    assert whole
    assert all(lanes * 50_000 / chunk.size <= 4_000.0 for chunk in whole)


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[3, 3\)"):
        Range("a", 3, 3)

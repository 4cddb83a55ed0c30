from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.balance import EvenSplit, LatencyBalance
from taut.policy.chunking import FixedSize
from taut.policy.dealing import DISPATCHES, Dealt, Dispatch
from taut.policy.sharing import Range

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)


class Given(EvenSplit):
    """Shares that a test says."""

    def give(self, **shares: float) -> Given:
        for place in shares:
            self.join(f"{place}#0")
        total = sum(shares.values())
        self._put_down()
        self._shares = {f"{place}#0": share / total for place, share in shares.items()}
        return self


def dealt(balance: EvenSplit, lanes: int) -> Dealt:
    return Dealt(lanes, FixedSize(1_000_000), balance)


def test_a_batch_is_dealt_out_by_share_as_lanes_join() -> None:
    sharing = dealt(Given().give(fast=3.0, slow=1.0, middling=2.0), 3)
    sharing.add([Range("p", 0, 400), Range("q", 0, 200)], 7.0)
    for lane, place in enumerate(("middling", "fast", "slow")):
        sharing.join(lane, place)
    assert [sharing.waiting_at(lane) for lane in range(3)] == [200, 300, 100]
    assert sharing.left == 600


def test_it_is_all_dealt_out_though_a_place_is_new() -> None:
    sharing = dealt(Given().give(gone=5.0, known=1.0), 2)
    sharing.add([Range("p", 0, 600)], 0.0)
    sharing.join(0, "known")
    sharing.join(1, "new")
    assert sum(sharing.waiting_at(lane) for lane in range(2)) == sharing.left == 600
    assert set(sharing._balance.tasks) == {"known#0", "new#1"}, "a place without a lane is no more"


def test_a_lane_that_is_tried_again_leaves_the_others_theirs() -> None:
    """Two of four lanes run, one fails, and its next attempt comes before the other two."""
    sharing = dealt(EvenSplit(), 4)
    sharing.add([Range("p", 0, 400)], 0.0)
    sharing.join(0, "a")
    sharing.join(1, "b")
    sharing.join(0, "a")
    assert sharing.waiting_at(0) == 100
    sharing.join(2, "a")
    sharing.join(3, "b")
    assert [sharing.waiting_at(lane) for lane in range(4)] == [100] * 4


def test_lanes_that_stay_on_their_executor_keep_their_places() -> None:
    balance = EvenSplit()
    for order in ((2, 0, 1, 3), (0, 1, 2, 3), (3, 2, 1, 0)):
        sharing = dealt(balance, 4)
        for lane in order:
            sharing.join(lane, "driver")
        assert sharing._places == {lane: f"driver#{lane}" for lane in range(4)}


def test_lanes_that_change_places_share_those_that_are_known() -> None:
    balance = EvenSplit()
    first, second = dealt(balance, 4), dealt(balance, 4)
    for lane, executor in enumerate("abab"):
        first.join(lane, executor)
    for lane, executor in enumerate("bbaa"):
        second.join(lane, executor)
    assert set(second._places.values()) == set(first._places.values())


def test_rows_that_come_later_go_to_the_lanes_that_are_there() -> None:
    sharing = dealt(EvenSplit(), 3)
    sharing.join(0, "a")
    sharing.join(2, "a")
    for n in range(100):
        sharing.add([Range("p", n, n + 1)], float(n))
    assert [sharing.waiting_at(lane) for lane in range(3)] == [50, 0, 50]


def test_what_lies_at_a_lane_that_fell_silent_goes_to_others() -> None:
    sharing = dealt(EvenSplit(), 2)
    sharing.join(0, "a")
    sharing.join(1, "b")
    sharing.add([Range("p", 0, 100)], 0.0)
    sharing.look(9.0, silent=[0])
    assert [sharing.waiting_at(lane) for lane in range(2)] == [0, 100]
    sharing.add([Range("p", 100, 110)], 9.0)
    assert sharing.waiting_at(1) == 110
    sharing.look(10.0, silent=[])
    sharing.add([Range("p", 110, 120)], 10.0)
    assert sharing.waiting_at(0) == 5, "it is heard of again"


def test_a_place_that_froze_does_not_look_fast() -> None:
    balance = LatencyBalance(period=1.0)
    sharing = dealt(balance, 4)
    for lane in range(4):
        sharing.join(lane, f"m{lane}")
    offset = 0
    for second in range(40):
        frozen = {3} if 10 <= second < 30 else set()
        for _ in range(25):
            sharing.add([Range("p", offset, offset + 4)], float(second))
            offset += 4
        sharing.look(second + 0.5, silent=frozen)
        if frozen:
            assert sharing._balance.tasks == ["m0#0", "m1#1", "m2#2"]
        for lane in range(4):
            while lane not in frozen and (cut := sharing.take(lane)) is not None:
                sharing.finished(cut, second + 0.6)
    shares = balance.shares(list(balance.tasks))
    assert len(shares) == 4
    assert all(share == pytest.approx(0.25, abs=0.03) for share in shares)


def test_nothing_is_dealt_to_a_lane_that_has_ended() -> None:
    sharing = dealt(EvenSplit(), 2)
    sharing.join(0, "a")
    sharing.join(1, "b")
    sharing.ended(1)
    sharing.add([Range("p", 0, 100)], 0.0)
    assert [sharing.waiting_at(lane) for lane in range(2)] == [100, 0]


def test_rows_that_come_while_nobody_is_there_wait_for_who_comes_back() -> None:
    sharing = dealt(EvenSplit(), 2)
    sharing.join(0, "a")
    sharing.join(1, "b")
    sharing.look(9.0, silent=[0, 1])
    sharing.add([Range("p", 0, 10)], 9.0)
    assert sharing.left_for(1) == 10
    assert sharing.take(1) == Range("p", 0, 10)


def test_a_lane_that_is_tried_elsewhere_takes_its_rows_along() -> None:
    sharing = dealt(EvenSplit(), 2)
    sharing.add([Range("p", 0, 100)], 0.0)
    sharing.join(0, "a")
    sharing.join(1, "b")
    sharing.join(0, "b")
    assert sharing._places == {0: "b#0", 1: "b#1"}
    assert sharing.waiting_at(0) == 50


def test_latency_is_from_when_rows_were_dealt_out_until_they_were_done() -> None:
    seen: list[tuple[str, float, int]] = []

    class Noting(EvenSplit):
        def observe(self, task: str, seconds: float, rows: int) -> None:
            seen.append((task, seconds, rows))

    sharing = dealt(Noting(), 2)
    sharing.join(0, "a")
    sharing.join(1, "b")
    sharing.add([Range("p", 0, 10)], 3.0)
    taken = sharing.take(0), sharing.relieve(1)
    assert taken == (Range("p", 0, 5), Range("p", 5, 10))
    for cut in taken:
        sharing.finished(cut, 5.0)
        sharing.finished(cut, 6.0)
    assert seen == [("a#0", 2.0, 5), ("b#1", 2.0, 5)], "once, and where they were dealt out"


def test_what_is_learned_of_a_place_holds_for_the_next_batch() -> None:
    """Spark puts lanes where it likes: a slow machine is slow whatever lane runs there."""
    dispatch = Dispatch("balance", period=1.0)
    for number in range(60):
        sharing = dispatch.sharing(2, FixedSize(1_000_000))
        sharing.add([Range("p", 0, 1_000)], float(number))
        places = {0: "slow", 1: "fast"} if number % 2 else {0: "fast", 1: "slow"}
        for lane, place in places.items():
            sharing.join(lane, place)
        loads = {place: sharing.left_for(lane) for lane, place in places.items()}
        for lane, place in places.items():
            cut = sharing.take(lane)
            assert cut is not None
            per_row = 0.003 if place == "slow" else 0.001
            sharing.finished(cut, number + cut.size * per_row)
        sharing.look(number + 1.0, silent=[])
    assert isinstance(dispatch.balance, LatencyBalance)
    assert 230 <= loads["slow"] <= 280, "a third of what the fast one has takes as long"


@STEADY
@given(
    name=st.sampled_from(DISPATCHES),
    lanes=st.integers(1, 6),
    steps=st.lists(
        st.tuples(
            st.sampled_from(["add", "join", "take", "end", "silent", "relieve"]),
            st.integers(0, 5),
            st.integers(1, 40),
        ),
        max_size=60,
    ),
)
def test_no_row_is_lost_or_given_twice(
    name: str, lanes: int, steps: list[tuple[str, int, int]]
) -> None:
    sharing = Dispatch(name, period=0.5).sharing(lanes, FixedSize(7))
    added, joined = 0, set()
    taken: list[int] = []
    for now, (what, number, count) in enumerate(steps):
        lane = number % lanes
        if what == "add":
            sharing.add([Range("p", added, added + count)], float(now))
            added += count
        elif what == "join":
            sharing.join(lane, f"executor {count % 2}")
            joined.add(lane)
        elif lane in joined and what in ("take", "relieve"):
            cut = sharing.take(lane) if what == "take" else sharing.relieve(lane)
            if cut is not None:
                taken += range(cut.start, cut.end)
                sharing.finished(cut, float(now))
        elif lane in joined and what == "end" and not sharing.left_for(lane):
            sharing.ended(lane)
        elif what == "silent":
            sharing.look(float(now), silent=[n for n in joined if n % 2 == count % 2])
        assert sharing.left == added - len(taken)
    for lane in range(lanes):
        sharing.join(lane, "executor 0")
    while any(
        cut is not None and not taken.extend(range(cut.start, cut.end))  # type: ignore[func-returns-value]
        for cut in map(sharing.take, range(lanes))
    ):
        pass
    assert sorted(taken) == list(range(added))


def test_a_dispatch_that_is_not_known() -> None:
    with pytest.raises(ValueError, match=r"dispatch='best'.*fixed, shared, executor, even"):
        Dispatch("best")

"""Which rows of a batch: the policies' counts as rows, and what is worked on when all seem late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.deadline import CHOICES
from taut.spark.reduce.chosen import COLDEST, Chosen, Costs, choose, classes
from taut.spark.reduce.job import MICRO

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=200)


def chosen(
    policy: str,
    arrivals: list[float],
    kinds: list[int] | None = None,
    codes: list[int] | None = None,
    batches: list[int] | None = None,
    *,
    objective: float = 1.0,
    begins: float = 100.0,
    after: float = 0.0,
    costs: Costs = Costs(0.01, 0.1),  # noqa: B008 - it is frozen
) -> Chosen:
    many = len(arrivals)
    return choose(
        policy,
        np.array([round(at * MICRO) for at in arrivals], np.int64),
        np.array(kinds or [0] * many, np.int64),
        np.array(codes or range(many), np.int64),
        np.array(batches or [0] * many, np.int64),
        objective,
        begins,
        after,
        costs,
    )


def test_classes_of_keys() -> None:
    times, cold = np.array([1, 1, 2, 3, 4, 7, 8, 100]), np.array([False] + [True] * 7)
    assert classes(times, cold).tolist() == [0, 1, 2, 2, 3, 3, 4, COLDEST]


def test_rows_of_a_cold_key_share_what_fetching_it_takes() -> None:
    costs = Costs(0.5, 8.0)
    assert [costs.of(kind) for kind in range(5)] == [0.5, 8.5, 4.5, 2.5, 1.5]


@pytest.mark.parametrize("policy", CHOICES)
def test_all_rows_where_there_is_time(policy: str) -> None:
    told = chosen(policy, [100.0] * 20, [0, 1] * 10, batches=[0] * 10 + [1] * 10, objective=10.0)
    assert told.kept.all()
    assert told.predicted == pytest.approx(100.0 + 20 * 0.01 + 10 * 0.1)
    assert 10.0 - 1.2 - 1.0 <= told.spare <= 10.0 - 1.2 + 1e-9, "deadlines are in tenths"


def test_hot_rows_before_cold_ones() -> None:
    told = chosen("cost-aware", [100.0] * 60, [1, 0] * 30, objective=1.0)
    assert told.kept[1::2].all()
    assert told.kept[::2].sum() == 6, "0.3 s for 30 hot rows, and 0.11 s for each cold one"
    assert told.predicted <= 101.0


def test_cold_rows_that_are_kept_are_of_as_few_keys_as_can_be() -> None:
    kinds, codes = [2] * 40, [3, 5, 7, 9] * 10
    told = chosen("cost-aware", [100.0] * 40, kinds, codes, objective=1.0)
    kept = np.array(codes)[told.kept]
    assert 0 < len(kept) < 40
    assert len(set(kept.tolist())) == -(-len(kept) // 10)


def test_of_hot_rows_those_that_came_first() -> None:
    told = chosen("cost-aware", [100.0] * 300, objective=1.0)
    assert told.kept.tolist() == [True] * 100 + [False] * 200


def test_what_follows_and_what_a_batch_costs_anyway_are_counted() -> None:
    costs = Costs(0.01, 0.1, fixed=0.2)
    told = chosen("cost-aware", [100.0] * 300, objective=1.0, after=0.3, costs=costs)
    assert told.kept.sum() == 50
    assert told.predicted == pytest.approx(101.0)


def test_rows_by_shuffle_batch() -> None:
    # the first is due later as a whole, but has the one row that is due first
    arrivals = [99.35] + [100.0] * 80 + [99.5] * 50
    told = chosen("edf", arrivals, batches=[0] * 81 + [1] * 50, objective=1.0)
    assert told.kept[:81].all()
    assert not told.kept[81:].any(), "0.81 s later they are late"
    other = chosen("dover", arrivals, batches=[0] * 81 + [1] * 50, objective=1.0)
    assert other.kept[81:].sum() > 40


@pytest.mark.parametrize("policy", [name for name in CHOICES if name != "fifo"])
def test_something_is_worked_on_though_all_seems_late(policy: str) -> None:
    told = chosen(policy, [50.0] * 500)
    assert told.kept.sum() == 10
    assert chosen(policy, [50.0]).kept.tolist() == [True]
    told = chosen(policy, [100.0] * 500, costs=Costs(10.0, 10.0))
    assert told.kept.sum() == (10 if policy != "edf" else 1), "one that begins in time may be kept"


MOMENTS = st.lists(
    st.tuples(
        st.integers(-30, 30).map(lambda n: 100.0 + n / 10),
        st.integers(0, COLDEST),
        st.integers(0, 6),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("policy", CHOICES)
@STEADY
@given(rows=MOMENTS, after=st.integers(0, 5).map(lambda n: n / 10), row=st.integers(0, 9))
def test_any_rows(
    policy: str, rows: list[tuple[float, int, int, int]], after: float, row: int
) -> None:
    arrivals, kinds, codes, batches = (list(column) for column in zip(*sorted(rows), strict=True))
    costs = Costs(row / 20, 0.25)
    told = chosen(policy, arrivals, kinds, codes, batches, after=after, costs=costs)
    assert told.kept.dtype == np.bool_
    assert told.kept.any(), "something is always worked on"
    work = sum(costs.of(kind) for kind, kept in zip(kinds, told.kept, strict=True) if kept)
    assert told.predicted == pytest.approx(100.0 + after + work)
    assert told.spare >= 0.0
    late = [at + 1.0 < told.predicted - 1e-6 for at, kept in zip(arrivals, told.kept, strict=True)
            if kept]  # fmt: skip
    if policy == "cost-aware" and any(late):
        # the probe: all of them were late, and one is worked on
        assert told.kept.sum() == 1
    again: Any = chosen(policy, arrivals, kinds, codes, batches, after=after, costs=costs)
    assert again.kept.tolist() == told.kept.tolist()

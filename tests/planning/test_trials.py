"""What a profile tries: how large its batches are, found by trying, and at which settings."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.planning.synthetic import profile

from taut.planning.plan import make
from taut.planning.profile import Sample
from taut.planning.settings import Cluster
from taut.planning.trials import closer, sized, trials
from taut.slo import Slo


class Job:
    """Batches with a fixed cost and one for each row; slower while it is new."""

    def __init__(self, fixed: float, each: float, slow: float = 1.0, most: int = 10**9) -> None:
        self.fixed, self.each, self.slow, self.most = fixed, each, slow, most
        self.tried: list[int] = []

    def run(self, rows: int) -> list[Sample]:
        self.tried.append(rows)
        rows = min(rows, self.most)
        # each run is as slow as half of the one before, as a JVM that warms up
        times = 1.0 + (self.slow - 1.0) / 2.0 ** len(self.tried)
        return [Sample(2, 2, rows, 0, 0, {"map": times * (self.fixed + self.each * rows)})] * 3


def size(job: Job, rate: float | None, objective: float, windowed: bool = False) -> int:
    return sized(job.run, rate, objective, lambda: windowed)


@pytest.mark.parametrize("each", [2e-7, 2e-6, 2e-5, 2e-4])
@pytest.mark.parametrize("slow", [1.0, 3.0])
def test_large_batches_take_what_an_objective_allows(each: float, slow: float) -> None:
    job = Job(0.3, each, slow)
    rows = size(job, None, 2.0)
    assert 0.4 <= 0.3 + each * rows <= 2.2
    assert len(job.tried) <= 5


def test_no_batch_is_much_larger_than_one_that_was_tried() -> None:
    job = Job(0.3, 0.0)
    rows = size(job, 1_000.0, 1.0)
    assert len(job.tried) == 5
    for before, tried in zip(job.tried[1:], [*job.tried[2:], rows], strict=True):
        assert tried <= 2.5 * before


def test_results_of_windows_take_three_batches() -> None:
    rows, windows = (size(Job(0.1, 1e-5), None, 3.0, windowed) for windowed in (False, True))
    assert windows < rows
    assert 0.1 + 1e-5 * windows == pytest.approx(1.0, rel=0.1)


def test_a_source_with_few_rows_has_no_larger_batches_than_it_can_give() -> None:
    def run(rows: int) -> list[Sample]:
        return [] if rows > 10_000 else Job(0.3, 1e-6).run(rows)

    assert sized(run, None, 1.0, lambda: False) == 10_000


def test_a_source_that_ignores_the_cap_gives_what_it_gives() -> None:
    assert size(Job(0.3, 1e-6, most=5_000), None, 1.0) == 25 * 5_000


@pytest.mark.parametrize("most", [25_000, 100_000, 300_000])
@pytest.mark.parametrize("slow", [1.0, 3.0])
def test_a_source_that_has_no_more_to_give_is_not_asked_for_ever_more(
    most: int, slow: float
) -> None:
    job = Job(0.3, 1e-8, slow, most)
    assert most / 2 <= size(job, None, 1.0) <= 4 * most
    assert len(job.tried) <= 5


def test_rows_that_cost_much_are_not_tried_by_the_ten_thousands() -> None:
    job = Job(0.3, 5e-3)
    rows = size(job, None, 2.0)
    assert job.tried[1] <= 2 * job.tried[0]
    assert 0.3 + 5e-3 * rows <= 2.0
    assert max(size(Job(0.3, 1e-6), rate, 1.0) for rate in (1e6, 1e9)) < 1_000_000


@pytest.mark.parametrize("empty", [lambda rows: [], lambda rows: [] if rows < 20_000 else None])
def test_no_rows_are_told(empty: Callable[[int], list[Sample] | None]) -> None:
    def run(rows: int) -> list[Sample]:
        found = empty(rows)
        return Job(0.3, 1e-6).run(rows) if found is None else found

    known = sized(run, None, 1.0, lambda: False)
    assert (known == 0) == (empty(80_000) == [])


def test_most_and_fewest_tasks_have_three_sizes_and_others_one() -> None:
    found = trials(Cluster(2, 4), 2_500)
    sizes = {
        each: {run.cap for run in found if (run.lanes, run.reducers) == each}
        for each in {(run.lanes, run.reducers) for run in found}
    }
    assert sizes[8, 8] == sizes[1, 1] == {100, 500, 2_500}
    assert all(caps == {2_500} for each, caps in sizes.items() if each not in {(8, 8), (1, 1)})
    # what cannot be done without comes first: time may run out
    assert {(run.lanes, run.cap) for run in found[:4]} == {
        (8, 2_500),
        (1, 2_500),
        (8, 100),
        (1, 100),
    }
    assert len(trials(Cluster(1, 1), 1)) == len(set(trials(Cluster(1, 1), 1)))


def test_the_last_look_is_where_a_plan_would_be() -> None:
    known, slo = profile(), Slo("p99 <= 2 s")
    found = closer(known, slo, None)
    assert found is not None
    plan = make(known, slo, None, [known.cluster], margin=0.0)
    assert (found.lanes, found.reducers) == (plan.settings.lanes, plan.settings.reducers)
    assert found.trigger == 0.0
    assert found.cap is not None
    # a plan's cap is one and a half times the largest batch
    assert plan.settings.cap is not None
    largest = max(sample.rows for sample in known.samples)
    assert largest < found.cap < plan.settings.cap
    few = closer(known, slo, 0.1 * plan.rate)
    assert few is not None
    assert few.cap is not None
    assert few.cap < found.cap
    # a rate for a larger cluster than this: the most that this one can
    assert closer(known, slo, 100.0 * plan.rate) == found
    assert closer(known, None, None) is None
    assert closer(known, Slo("p99 <= 1 ms"), None) is None
    # however long the objective, no batch is much larger than what was tried
    patient = closer(known, Slo("p99 <= 60 s"), None)
    assert patient is not None
    assert patient.cap == 2 * largest
    assert closer(profile(row_us=0.0), slo, None) is None, "rows seem free: no rate limits it"

"""Fitted costs and predicted latency against a job whose costs are known."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.planning.synthetic import SIZES, profile, sample

from taut.planning.latency import predict
from taut.planning.phases import Costs, Line, fit, stage
from taut.planning.profile import Windows
from taut.planning.search import Search
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo

CLUSTER = Cluster(1, 2)


def total(settings: Settings, rows: int, out: int = 0) -> tuple[float, float]:
    """Until the next batch, and until rows are written."""
    took = sample(settings.lanes, settings.reducers, rows, out=out).seconds
    return sum(took.values()), sum(took.values()) - took["after"]


@pytest.mark.parametrize("settings", [Settings(2, 2), Settings(1, 2), Settings(4, 1)])
@pytest.mark.parametrize("rows", [0, 20_000, 500_000])
def test_the_fit_gives_the_costs_back(settings: Settings, rows: int) -> None:
    costs = fit(profile(spread=0.0))
    lines = costs.lines(settings, CLUSTER)
    true = sample(settings.lanes, settings.reducers, rows).seconds
    for phase, line in lines.items():
        assert line.at(rows) == pytest.approx(true[phase], rel=0.02, abs=2e-3), phase
    assert costs.error < 1e-6


def test_rows_of_large_batches_may_cost_more() -> None:
    """Two sizes make a line; with one between them, which is where it bends, there are two."""
    sizes = (10_000, 40_000, 160_000)
    bent = {"spread": 0.0, "knee": 40_000, "beyond_us": 15.0}
    costs = fit(profile(sizes=sizes, **bent))
    assert costs.knee == pytest.approx(40_000)
    for settings in (Settings(2, 2), Settings(1, 2)):
        line = sum(costs.lines(settings, CLUSTER).values(), Line())
        for rows in (0, 20_000, 80_000, 500_000):
            true = sample(settings.lanes, settings.reducers, rows, knee=40_000, beyond_us=15.0)
            assert line.at(rows) == pytest.approx(true.total, rel=0.01)
            highest = max(fixed + each * rows for fixed, each in line.tangents())
            assert line.at(rows) == pytest.approx(highest)
    assert fit(profile(sizes=sizes[:2], **bent)).knee == math.inf
    straight = fit(profile(sizes=sizes, spread=0.0)).lines(Settings(2, 2), CLUSTER)
    assert sum(straight.values(), Line()).beyond == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("skew", "worth_it"),
    # a key with a quarter of all rows holds the stage, whatever the number of reducers
    [(0.0, False), (0.1, True), (0.25, False)],
)
def test_a_reducer_with_more_rows_is_found_out(skew: float, worth_it: bool) -> None:
    cluster = Cluster(2, 4)
    costs = fit(profile(spread=0.0, cluster=cluster, skew=skew))
    assert costs.skew == pytest.approx(skew)
    for reducers in (3, 8, 16):
        line = sum(costs.lines(Settings(8, reducers), cluster).values(), Line())
        true = sample(8, reducers, 100_000, cluster=cluster, skew=skew)
        assert line.at(100_000) == pytest.approx(true.total, rel=0.01)
    search = Search(costs, Slo("p99 <= 2 s"))
    one, two = (search.highest(Settings(8, reducers), cluster) for reducers in (8, 16))
    assert (two > one) == worth_it
    best = search.best(cluster)
    assert best is not None
    assert best.rate >= max(one, two)


def test_waves_and_neighbours() -> None:
    assert stage(4, Cluster(2, 1)) == (0.5, 0)
    assert stage(4, Cluster(2, 2)) == (0.25, 1)
    assert stage(200, Cluster(1, 2)) == (0.5, 1)
    # one of 16 tasks in two waves has a tenth more: it begins in the first or in the second
    share, _ = stage(16, Cluster(2, 4), 0.1)
    assert share == pytest.approx(0.1 + 0.9 / 16 + 0.5 * 0.9 / 16)


def test_a_faster_cluster_is_faster_at_everything() -> None:
    costs = fit(profile())
    slow, fast = (
        sum(costs.lines(Settings(2, 2), Cluster(1, 2, speed)).values(), Line()) for speed in (1, 2)
    )
    assert fast.at(1000) == pytest.approx(slow.at(1000) / 2)


def followed(costs: Costs, settings: Settings, rate: float, batches: int = 4_000) -> np.ndarray:
    """Row by row, what Spark would do: latencies of rows that arrive evenly."""
    random = np.random.default_rng(9)
    lines = costs.lines(settings, CLUSTER)
    cycle = sum(lines.values(), Line())
    start, taken, latencies = 0.0, 0, []
    trigger = settings.trigger
    for number in range(batches):
        arrived = int(start * rate)
        rows = arrived - taken
        factor = random.choice(costs.factors)
        whole = factor * cycle.at(rows)
        written = whole - factor * lines["after"].at(rows)
        if number > 50 and rows:
            at = (np.arange(taken, arrived) + 1) / rate
            latencies.append(start + written - at)
        taken = arrived
        ended = start + whole
        due = (math.floor(start / trigger) + 1) * trigger if trigger else 0.0
        start = max(ended, due)
    return np.concatenate(latencies)


@pytest.mark.parametrize("bent", [{}, {"knee": 20_000, "beyond_us": 3.0}], ids=["line", "bent"])
@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        (Settings(2, 2), 5_000),
        (Settings(2, 2), 60_000),
        (Settings(1, 1), 40_000),
        (Settings(2, 2, 0.5), 20_000),
        (Settings(2, 2, 1.0), 70_000),
    ],
)
def test_prediction_is_what_batches_one_by_one_give(
    settings: Settings, rate: float, bent: dict[str, float]
) -> None:
    costs = fit(profile(sizes=(5_000, 20_000, 80_000), spread=0.1, batches=40, **bent))
    told = predict(costs, settings, CLUSTER, rate)
    seen = followed(costs, settings, rate)
    assert told.mean == pytest.approx(seen.mean(), rel=0.02)
    assert told.quantile(0.99) == pytest.approx(np.quantile(seen, 0.99), rel=0.04)
    assert sum(told.phases.values()) == pytest.approx(told.mean, rel=0.03)


def test_windows_come_a_batch_later() -> None:
    costs = fit(profile(window=2.0, spread=0.0))
    rows = predict(replace(costs, windows=None), Settings(2, 2), CLUSTER, 1_000)
    windows = predict(costs, Settings(2, 2), CLUSTER, 1_000)
    whole, written = total(Settings(2, 2), round(1_000 * windows.cycle))
    closing = total(Settings(2, 2), 0, out=8_000)[1] - total(Settings(2, 2), 0)[1]
    assert windows.mean == pytest.approx(1.5 * whole + written + closing, rel=0.03)
    assert windows.mean > rows.mean + whole


def windows_followed(costs: Costs, settings: Settings, rate: float) -> np.ndarray:
    """Window by window, what Spark would do, with a source asked 1 ms after a batch's start."""
    random = np.random.default_rng(9)
    lines = costs.lines(settings, CLUSTER)
    whole = sum(lines.values(), Line())
    windows, trigger = costs.windows, settings.trigger
    assert windows is not None
    start, asked, watermark, closed, latencies = 0.0, 0.0, 0.0, 0, []
    for number in range(4_000):
        # what the last batch saw is what this one closes
        ends = math.floor((watermark - windows.phase) / windows.every + 1e-9)
        now = start + 0.001
        rows = max(0, int(now * rate) - int(asked * rate))
        newest = int(now * rate) / rate
        factor = random.choice(costs.factors)
        out = costs.most_out * (ends - closed)
        took = factor * whole.at(rows, out)
        written = start + took - factor * lines["after"].at(rows, out)
        if number > 50:
            latencies += [
                written - windows.phase - end * windows.every for end in range(closed + 1, ends + 1)
            ]
        closed, watermark, asked = ends, newest - windows.delay, now
        due = (math.floor(start / trigger + 1e-9) + 1) * trigger if trigger else 0.0
        start = max(start + took, due)
    return np.array(latencies)


@pytest.mark.parametrize("rate", [5_000, 30_000])
@pytest.mark.parametrize("trigger", [0.0, 0.7, 1.0, 1.5, 2.0, 4.0])
@pytest.mark.parametrize(
    "windows",
    [
        Windows(2.0),
        Windows(2.0, delay=0.1),
        Windows(2.0, 0.25, 0.6),
        Windows(1.37),
    ],
    ids=["on the clock", "seen later", "begun later", "at any moment"],
)
def test_windows_that_go_by_the_clock_wait_as_triggers_do(
    windows: Windows, trigger: float, rate: float
) -> None:
    costs = fit(profile(window=2.0, sizes=(5_000, 20_000, 80_000), spread=0.1, batches=40))
    costs = replace(costs, windows=windows, most_out=1_000, out_per_s=1_000 / windows.every)
    told = predict(costs, Settings(2, 2, trigger), CLUSTER, rate)
    seen = windows_followed(costs, Settings(2, 2, trigger), rate)
    assert told.mean == pytest.approx(seen.mean(), rel=0.04)
    assert told.quantile(0.99) == pytest.approx(np.quantile(seen, 0.99), rel=0.06)
    assert sum(told.phases.values()) == pytest.approx(told.mean, rel=0.04)


def test_what_windows_put_out_is_not_free() -> None:
    """A job whose results take half of its time sustains half of the rows."""
    plain = fit(profile(window=2.0, spread=0.0))
    result = sum(line.out for line in plain.lines(Settings(2, 2), CLUSTER).values())
    assert result > 0.0
    many = replace(plain, out_per_s=0.5 / result)
    most = [Search(costs, Slo("p99 <= 60 s"), margin=0.0) for costs in (plain, many)]
    without, some = (each.ceiling(Settings(2, 2), CLUSTER) for each in most)
    assert plain.out_per_s == pytest.approx(4_000)
    assert some == pytest.approx(without * 0.5 / (1.0 - result * 4_000), rel=0.01)
    for rate, finite in ((0.97 * some, True), (1.03 * some, False)):
        told = predict(many, Settings(2, 2), CLUSTER, rate)
        assert math.isfinite(told.mean) == finite


def test_rows_bear_the_cost_of_results_that_are_always_the_same_share_of_them() -> None:
    """Batches with whole windows: what a row costs must not seem to be the price of a result."""
    whole = profile(window=2.0, spread=0.0)
    samples = [
        # the larger ones happen to take a little longer, and to have a little more results
        sample(each.lanes, each.reducers, each.rows, out=round(each.rows * share), factor=factor)
        for each in whole.samples
        for share, factor in [(0.15, 1.0) if each.rows == SIZES[0] else (0.153, 1.02)]
    ]
    costs = fit(msgspec.structs.replace(whole, samples=samples))
    for lanes, reducers in ((2, 2), (1, 2), (2, 1)):
        lines = costs.lines(Settings(lanes, reducers), CLUSTER)
        assert all(line.out == 0.0 for line in lines.values())
        known = total(Settings(lanes, reducers), 10_000, out=1_500)[0]
        known -= total(Settings(lanes, reducers), 0)[0]
        assert 10_000 * sum(lines.values(), Line()).each == pytest.approx(known, rel=0.05)
    assert any(line.out > 0.0 for line in fit(whole).lines(Settings(2, 2), CLUSTER).values())


def test_more_than_can_be_sustained_is_late_for_ever() -> None:
    costs = fit(profile())
    each = sum(costs.lines(Settings(2, 2), CLUSTER).values(), Line()).each
    told = predict(costs, Settings(2, 2), CLUSTER, 1.05 / each)
    assert told.mean == math.inf
    assert told.of(Slo("p99 <= 1 s")) == math.inf


def test_a_cap_that_is_too_small_is_late_for_ever() -> None:
    costs = fit(profile())
    capped = Settings(2, 2, cap=1_000)
    assert predict(costs, capped, CLUSTER, 1_000).mean < 1.0
    assert predict(costs, capped, CLUSTER, 20_000).mean == math.inf


def test_few_batches_give_cantellis_bound() -> None:
    few, many = fit(profile(batches=1)), fit(profile(batches=20))
    settings = Settings(2, 2)
    bound, shape = (predict(costs, settings, CLUSTER, 20_000) for costs in (few, many))
    assert (bound.shape, shape.shape) == ("cantelli", "measured")
    assert bound.quantile(0.99) > 1.5 * shape.quantile(0.99)
    told = predict(many, settings, CLUSTER, 20_000, shape="normal")
    assert told.shape == "normal"
    with pytest.raises(ValueError, match="shape='flat'"):
        predict(many, settings, CLUSTER, 20_000, shape="flat")


def test_rows_may_become_cheaper() -> None:
    """Of a large batch fewer rows have a new key: 10 us for each up to 20,000, then 3 us."""
    fewer = {"knee": 20_000, "row_us": 10.0, "beyond_us": -7.0}
    # all of it in one stage, where rows are worked on one after another
    samples = [
        msgspec.structs.replace(
            sample(lanes, reducers, rows, row_us=0.0),
            seconds=sample(lanes, reducers, rows, row_us=0.0).seconds
            | {"map": 0.1 + _bent(rows, **fewer) * (1.0 if lanes == 1 else 0.5)},
        )
        for lanes, reducers in ((2, 2), (1, 1), (1, 2))
        for rows in (4_000, 20_000, 100_000)
        for _ in range(10)
    ]
    costs = fit(msgspec.structs.replace(profile(), samples=samples))
    line = sum(costs.lines(Settings(1, 1), CLUSTER).values(), Line())
    assert line.beyond < 0.0 < line.steepest
    small, large = sample(1, 1, 4_000, row_us=0.0), sample(1, 1, 400_000, row_us=0.0)
    for rows, known in ((4_000, small), (400_000, large)):
        took = known.total - known.seconds["map"] + 0.1 + _bent(rows, **fewer)
        assert float(line.at(rows)) == pytest.approx(took, rel=0.06)
    # it settles, and batches one by one give the same
    for settings, rate in ((Settings(1, 1), 150_000), (Settings(1, 1, 1.0), 150_000)):
        told, seen = predict(costs, settings, CLUSTER, rate), followed(costs, settings, rate)
        assert told.mean == pytest.approx(seen.mean(), rel=0.02)
    search = Search(costs, Slo("p99 <= 3 s"))
    best = search.best(CLUSTER)
    assert best is not None
    assert best.rate > 1.2 / 10e-6, "more than if all rows cost as much as the first"
    longer = Search(costs, Slo("p99 <= 6 s")).best(CLUSTER)
    assert longer is not None
    assert longer.rate >= best.rate


def test_a_line_without_a_knee_is_straight() -> None:
    """Without one, rows before it are all rows, and their cost may stand in either place."""
    costs = fit(profile(spread=0.0))
    assert costs.knee == math.inf
    fixed, tasks, each, beside, beyond, before = costs.weights["map"]
    assert (beyond, before) == (0.0, 0.0)
    swapped = replace(
        costs, weights=costs.weights | {"map": (fixed, tasks, 0.0, beside, 0.0, each)}
    )
    for settings in (Settings(1, 1), Settings(2, 8)):
        assert swapped.lines(settings, CLUSTER) == costs.lines(settings, CLUSTER)


def _bent(rows: int, knee: float, row_us: float, beyond_us: float) -> float:
    return 1e-6 * (row_us * rows + beyond_us * max(0.0, rows - knee))

"""Windows that fill: their states and results by how dense rows are, and what states cost."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from tests.planning.synthetic import profile

from taut.planning.filling import Filling
from taut.planning.latency import Work, predict
from taut.planning.phases import Line, fit
from taut.planning.profile import Profile, Windows
from taut.planning.search import Search
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo

CLUSTER = Cluster(1, 2)


def filling(power: float, *, apart: bool = True) -> Profile:
    """Windows of 2 s at 60,000 rows/s, whose 8,000 keys grow with that power of their rows."""
    known, windows = profile(window=2.0, spread=0.0), Windows(2.0, apart=apart)
    samples = []
    for nth, each in enumerate(known.samples):
        # some are seen while they fill
        newest = (nth % 7) * 0.25
        filled = windows.filled(-9.0, 0.0, newest)
        keys = round(8_000 * (filled / 2.0) ** power) if filled else 8_000
        swept = each.rows / 60_000
        samples.append(msgspec.structs.replace(each, state_rows=keys, swept=swept, filled=filled))
    return msgspec.structs.replace(known, samples=samples, windows=windows)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_windows_with_fewer_rows_have_fewer_results(power: float) -> None:
    costs = fit(filling(power))
    assert costs.filling is not None
    assert costs.filling.dense == pytest.approx(60_000)
    assert costs.filling.power == pytest.approx(power, abs=0.01)
    half = costs.at(30_000)
    assert half.most_out == pytest.approx(8_000 * 0.5**power, rel=0.01)
    assert half.out_per_s == pytest.approx(4_000 * 0.5**power, rel=0.01)
    settings = Settings(2, 2)
    for rate, sign in ((5_000, -1), (60_000, 0), (66_000, 1)):
        constant = replace(costs.at(rate), most_out=costs.most_out, out_per_s=costs.out_per_s)
        told, plain = (predict(each, settings, CLUSTER, rate) for each in (costs, constant))
        more = told.mean - plain.mean
        if sign * power == 0.0:
            assert more == pytest.approx(0.0, abs=1e-3)
        else:
            assert sign * more > 1e-3
    search = Search(costs, Slo("p99 <= 60 s"), margin=0.0)
    most = search.ceiling(settings, CLUSTER)
    for rate, finite in ((0.97 * most, True), (1.03 * most, False)):
        assert math.isfinite(predict(costs, settings, CLUSTER, rate).mean) == finite


def test_batches_that_close_several_windows_or_none_have_as_many_results_as_ended() -> None:
    """Each sweeps one and a half windows: one or two end in it."""
    known = profile(window=2.0, spread=0.0)
    samples = [
        msgspec.structs.replace(each, swept=3.0, out=8_000 * (1 + nth % 2))
        for nth, each in enumerate(known.samples)
    ]
    costs = fit(msgspec.structs.replace(known, samples=samples))
    assert costs.most_out == pytest.approx(8_000, rel=0.01)
    assert costs.out_per_s == pytest.approx(4_000, rel=0.01)


def test_states_of_windows_that_overlap_say_nothing_of_one() -> None:
    assert fit(filling(0.5, apart=False)).filling is None


KEYS, ZIPF = 20_000, 0.9
RANKS = np.arange(1, KEYS + 1) ** -ZIPF


def keys_of(rows: float) -> float:
    """Different keys of so many rows, expected: few come often, most seldom."""
    return float((1.0 - (1.0 - RANKS / RANKS.sum()) ** rows).sum())


def changed_by(rows: int, dense: float) -> float:
    """States that a batch changes, on average over where it begins, with windows of 1 s."""
    counts = []
    for begin in np.linspace(0.0, 1.0, 41)[:-1] * dense:
        edges = [begin, *np.arange(dense, begin + rows, dense), begin + rows]
        counts.append(sum(keys_of(after - before) for before, after in pairwise(edges)))
    return float(np.mean(counts))


def zipfian(dense: float, state_us: float = 8.0) -> Profile:
    """Each state that a batch changes costs so much, in the tasks of reducers."""
    samples = []
    for nth, each in enumerate(profile(spread=0.0, sizes=(5_000, 20_000, 100_000)).samples):
        filled = (0.0, 0.1, 0.3, 0.6)[nth % 4]
        share = 0.5 if each.reducers > 1 else 1.0
        more = 1e-6 * state_us * share * changed_by(each.rows, dense)
        samples.append(
            msgspec.structs.replace(
                each,
                out=round(keys_of(dense) * each.rows / dense) if each.rows > dense / 2 else 0,
                state_rows=round(keys_of(filled * dense)) if filled else 9_000,
                swept=each.rows / dense,
                filled=filled,
                seconds=each.seconds | {"reduce": each.seconds["reduce"] + more},
            )
        )
    return msgspec.structs.replace(profile(), samples=samples, windows=Windows(1.0))


@pytest.mark.parametrize("dense", [50_000, 120_000])
def test_denser_windows_have_more_results_but_less_and_less(dense: float) -> None:
    """As many as there are, with keys of which few are frequent, up to four times as dense."""
    costs = fit(zipfian(dense))
    assert costs.filling is not None
    assert costs.filling.results == pytest.approx(keys_of(dense), rel=0.01)
    for times in (0.1, 0.5, 2.0, 4.0):
        told = costs.at(times * dense)
        assert told.filling is not None
        assert told.most_out == pytest.approx(keys_of(times * dense), rel=0.15)
        assert told.filling.results == pytest.approx(told.most_out, abs=1)
        again = told.at(dense)
        assert again.most_out == pytest.approx(costs.most_out, rel=0.12)


@pytest.mark.parametrize("rows", [5_000, 20_000, 60_000, 120_000, 500_000])
def test_a_batch_changes_the_states_of_the_windows_it_is_in(rows: int) -> None:
    filling = fit(zipfian(60_000)).filling
    assert filling is not None
    known = changed_by(rows, 60_000)
    # to some per cent of one window
    assert filling.changed(rows) == pytest.approx(known, rel=0.1, abs=0.12 * filling.results)


@pytest.mark.parametrize(("trigger", "windows"), [(0.25, 1), (0.5, 1), (1.0, 1), (2.0, 2)])
def test_batches_by_the_clock_begin_and_end_where_windows_do(trigger: float, windows: int) -> None:
    """With whole windows, or within one, there are fewer states to change."""
    costs, rows = fit(zipfian(60_000)), round(60_000 * trigger)
    assert costs.filling is not None
    paced = costs.paced(Settings(2, 2, trigger)).filling
    assert paced is not None
    known = windows * keys_of(rows / windows)
    assert paced.changed(rows) == pytest.approx(known, rel=0.15)
    assert known < changed_by(rows, 60_000)
    for unpaced in (costs.paced(Settings(2, 2, 0.7)), costs.paced(Settings(2, 2))):
        assert unpaced.filling == costs.filling
    later = replace(costs, windows=Windows(1.0, phase=0.1)).paced(Settings(2, 2, trigger))
    assert later.filling == costs.filling
    whole = Work.of(costs, Settings(2, 2, trigger), CLUSTER).whole
    assert whole.at(rows) < Work.of(costs, Settings(2, 2), CLUSTER).whole.at(rows)


def test_the_cost_of_states_is_not_taken_for_one_of_rows() -> None:
    """A row of windows four times as dense costs less, as the job was made to cost."""
    dense, settings = 60_000, Settings(2, 2)
    costs = fit(zipfian(dense))
    work = Work.of(costs, settings, CLUSTER).at(4 * dense)
    plain = sum(fit(profile(spread=0.0)).lines(settings, CLUSTER).values(), Line())
    for rows in (100_000, 400_000):
        true = plain.at(rows) + 1e-6 * 8.0 * 0.5 * changed_by(rows, 4 * dense)
        assert float(work.whole.at(rows)) == pytest.approx(true, rel=0.05)
    sparse = Work.of(costs, settings, CLUSTER).at(dense / 4)
    assert sparse.whole.at(400_000) > 1.05 * work.whole.at(400_000)
    # batches that grow without end have what the rows of large ones cost
    search = Search(costs, Slo("p99 <= 60 s"), margin=0.0)
    most = search.ceiling(settings, CLUSTER)
    for rate, finite in ((0.97 * most, True), (1.03 * most, False)):
        assert math.isfinite(predict(costs, settings, CLUSTER, rate).mean) == finite


@pytest.mark.parametrize("fades", [0.0, 0.1, 0.4])
def test_more_rows_never_have_fewer_keys_and_never_more_than_one_each(fades: float) -> None:
    filling = Filling(1_000.0, 2.0, 300.0, 0.5, fades)
    rates = np.geomspace(1e-3, 1e9, 60)
    results = np.array([filling.at(rate).results for rate in rates])
    assert (np.diff(results) >= -1e-9 * results[1:]).all()
    growth = np.diff(np.log(results)) / np.diff(np.log(rates))
    assert growth.max() <= 1.0 + 1e-9
    steady, more, upto = filling.slopes
    assert min(steady, more, upto) > 0.0
    assert Filling(1_000.0, 2.0, 300.0, 1.0).slopes[2] == 0.0

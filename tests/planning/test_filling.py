"""Windows that fill: their keys, and so their results, by how dense rows are."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.planning.synthetic import profile

from taut.planning.filling import Filling
from taut.planning.latency import predict
from taut.planning.phases import fit
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


def zipfian(dense: float) -> Profile:
    """Windows of 1 s with so many rows, some of them seen while they fill."""
    samples = []
    for nth, each in enumerate(profile(spread=0.0, sizes=(5_000, 20_000, 100_000)).samples):
        filled = (0.0, 0.1, 0.3, 0.6)[nth % 4]
        samples.append(
            msgspec.structs.replace(
                each,
                out=round(keys_of(dense) * each.rows / dense) if each.rows > dense / 2 else 0,
                state_rows=round(keys_of(filled * dense)) if filled else 9_000,
                swept=each.rows / dense,
                filled=filled,
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


def test_profiles_that_are_not_as_dense_may_be_merged() -> None:
    """Each batch counts with the rows that its window had, and not with those of all."""
    merged = fit(zipfian(60_000).merged(zipfian(120_000)))
    assert merged.filling is not None
    for rate in (60_000, 120_000, 240_000):
        assert merged.at(rate).most_out == pytest.approx(keys_of(rate), rel=0.15)


@pytest.mark.parametrize("fades", [0.0, 0.1, 0.4])
def test_more_rows_never_have_fewer_keys_and_never_more_than_one_each(fades: float) -> None:
    filling = Filling(1_000.0, 2.0, 300.0, 0.5, fades)
    rates = np.geomspace(1e-3, 1e9, 60)
    results = np.array([filling.at(rate).results for rate in rates])
    assert (np.diff(results) >= -1e-9 * results[1:]).all()
    growth = np.diff(np.log(results)) / np.diff(np.log(rates))
    assert growth.max() <= 1.0 + 1e-9

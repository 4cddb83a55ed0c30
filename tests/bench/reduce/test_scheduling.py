from __future__ import annotations

import numpy as np
import pytest

from taut.bench.reduce.choosing import Choosing
from taut.bench.reduce.scheduling import scheduling_us
from taut.spark.reduce import keyed


def test_both_structures_and_the_reducer_are_measured() -> None:
    told = scheduling_us(seed=1, rounds=1, batches=3, rows=20)
    assert set(told) == {"scheduling.grouped_us", "scheduling.tree_us", "scheduling.reducer_us"}
    assert all(us > 0.0 for us in told.values())


@pytest.mark.parametrize(("load", "all_kept"), [(1.0, True), (3.0, False)])
def test_what_is_measured_is_a_choice(load: float, all_kept: bool) -> None:
    """Cheap rows of words in memory and dear ones of others, as many as there is time for."""
    choosing = Choosing(load, rows=2_000)
    rows = choosing.batch(np.random.default_rng(1))
    chosen, seconds = choosing.choose(rows)
    cheap = np.array([int(word[1:]) <= 2_450 for word in rows.keys.to_pylist()])
    assert 0.75 < cheap.mean() < 0.85
    assert chosen.kept.all() == all_kept
    assert chosen.kept[cheap].mean() >= chosen.kept[~cheap].mean() > 0.0
    assert seconds > 0.0
    keyed.forget()

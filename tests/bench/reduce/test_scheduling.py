from __future__ import annotations

from taut.bench.reduce.scheduling import scheduling_us


def test_both_forms_are_measured() -> None:
    told = scheduling_us(seed=1, rounds=1, batches=3, rows=20)
    assert set(told) == {"scheduling.grouped_us", "scheduling.tree_us"}
    assert all(us > 0.0 for us in told.values())

from __future__ import annotations

import time

from tests.conftest import Eventually

from taut.bench.pace import Pace


def test_a_loop_is_timed_as_long_as_it_is_entered(eventually: Eventually) -> None:
    began = time.monotonic()
    with Pace(every=0.001, loops=1_000) as pace:
        eventually(lambda: len(pace._took) > 5)
        assert pace._thread.is_alive()
    assert not pace._thread.is_alive()
    took = pace.took(began, time.monotonic())
    assert took is not None
    assert 0.0 < took < 1.0
    assert pace.took(0.0, began - 1.0) is None

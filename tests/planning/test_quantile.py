from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut.planning.quantile import Spans, cantelli, normal
from taut.planning.queueing import Moments


@given(
    st.lists(st.floats(0.0, 1e3), min_size=1, max_size=40),
    st.floats(0.01, 0.99),
)
def test_cantelli_is_never_below_the_quantile(values: list[float], share: float) -> None:
    """Of any distribution: here, of any few values that are equally likely."""
    drawn = np.sort(values)
    true = drawn[max(0, int(np.ceil(round(share * len(drawn), 9))) - 1)]
    told = cantelli(Moments(float(drawn.mean()), float(drawn.var())), share)
    assert told >= true - 1e-6 * max(1.0, true)


def test_a_normal_tail_is_below_a_heavy_one() -> None:
    drawn = np.random.default_rng(5).lognormal(0.0, 1.0, 100_000)
    of = Moments(float(drawn.mean()), float(drawn.var()))
    true = float(np.quantile(drawn, 0.99))
    assert normal(of, 0.99) < true < cantelli(of, 0.99)


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        normal(Moments(1.0, 1.0), share)


spans = st.lists(
    st.tuples(st.floats(0.0, 10.0), st.floats(0.0, 5.0), st.floats(0.1, 100.0)),
    min_size=1,
    max_size=20,
)


@given(spans, st.floats(0.01, 1.0))
def test_quantiles_of_spans(given_: list[tuple[float, float, float]], share: float) -> None:
    low, width, rows = (np.array(column) for column in zip(*given_, strict=True))
    of = Spans(low, width, rows)
    found = of.quantile(share)
    assert of.below(found) >= share - 1e-6
    assert low.min() <= found <= (low + width).max()
    if found > low.min() + 1e-6:
        assert of.below(found - 1e-6 * (1.0 + found)) <= share + 1e-6


def test_moments_of_spans_are_those_of_rows_drawn_from_them() -> None:
    random = np.random.default_rng(2)
    low, width, rows = random.uniform(0, 3, 30), random.uniform(0, 2, 30), random.uniform(1, 9, 30)
    of = Spans(low, width, rows).moments()
    which = random.choice(30, size=400_000, p=rows / rows.sum())
    drawn = low[which] + width[which] * random.random(400_000)
    assert of.mean == pytest.approx(drawn.mean(), rel=0.01)
    assert of.variance == pytest.approx(drawn.var(), rel=0.02)

from __future__ import annotations

from taut.bench.rounds import order, quantile


def test_every_round_has_every_variant_and_another_one_first() -> None:
    assert list(order("abc", 3)) == [
        (1, "a"), (1, "b"), (1, "c"),
        (2, "b"), (2, "c"), (2, "a"),
        (3, "c"), (3, "a"), (3, "b"),
    ]  # fmt: skip


def test_the_quantile_is_of_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert quantile(values, 0.07) == 7
    assert quantile(values, 0.99) == 99
    assert quantile(values, 1.0) == 100
    assert quantile([5.0], 0.5) == 5

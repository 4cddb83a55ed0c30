"""Other settings beside the plan's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from taut.bench.plan.beside import ROUNDS, Took, beside
from taut.planning.settings import Settings

MINE = Settings(2, 2)
OTHERS = [Settings(lanes, 1) for lanes in range(1, 7)]


def test_a_machine_that_becomes_slower_changes_nothing() -> None:
    ran: list[Settings] = []

    def took(settings: Settings, nth: int) -> Took:
        ran.append(settings)
        # twice as slow after twenty runs
        its = 1.0 if settings == MINE else 1.0 + settings.lanes / 10
        return Took((1.0 + len(ran) / 20) * its)

    told = beside(took, MINE, OTHERS)
    assert [each.settings.lanes for each in told] == [1, 2, 3, 4, 5, 6]
    assert [each.rounds for each in told] == [ROUNDS] * 3 + [1] * 3
    for each in told:
        assert each.ratio == pytest.approx(1.0 + each.settings.lanes / 10, rel=0.01)
    # always between two runs of the plan's
    assert ran[::2] == [MINE] * (len(ran) // 2 + 1)


def test_what_is_best_by_chance_is_so_once() -> None:
    def took(settings: Settings, nth: int) -> Took:
        lucky = settings == OTHERS[-1] and nth == 0
        return Took(0.1 if lucky else 1.0 if settings == MINE else 1.5)

    told = beside(took, MINE, OTHERS)
    assert {each.ratio for each in told} == {1.5}, "and not what it had by chance"
    assert OTHERS[-1] in [each.settings for each in told if each.rounds == ROUNDS]


def test_of_many_that_are_alike_none_is_much_better() -> None:
    many = [Settings(lanes, reducers) for lanes in range(1, 7) for reducers in (3, 4, 5)]
    found = []
    for seed in range(200):
        noise = np.random.default_rng(seed)

        def took(settings: Settings, nth: int, noise: Any = noise) -> Took:
            return Took(float(noise.lognormal(0.0, 0.15)))

        found.append(beside(took, MINE, many)[0].ratio)
    # the best of three medians of three; of all eighteen at once it would be 0.72
    assert np.mean(found) == pytest.approx(0.92, abs=0.03)


def test_what_was_ended_is_later_than_what_was_not() -> None:
    """Also where a standstill made the plan's own runs later still, in the first round or again."""
    late = OTHERS[0]

    def took(settings: Settings, nth: int) -> Took:
        if settings == MINE:
            return Took(8.0)
        return Took(2.0, ended=True) if settings == late else Took(9.0)

    told = beside(took, MINE, OTHERS)
    assert told[-1].settings == late
    assert (told[-1].ratio, told[-1].rounds, told[-1].at_least) == (0.25, 1, True)
    assert not any(each.at_least for each in told[:-1])

    def once(settings: Settings, nth: int) -> Took:
        ended = nth == 1 and settings in OTHERS
        return Took(1.0 if settings == MINE else 2.0 if ended else 1.1, ended)

    assert {(each.ratio, each.at_least) for each in beside(once, MINE, OTHERS)} == {(1.1, False)}


def test_without_others_nothing_runs() -> None:
    assert beside(lambda settings, nth: Took(1 / 0), MINE, []) == []

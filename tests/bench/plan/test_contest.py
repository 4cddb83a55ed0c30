"""Which settings bear the highest rate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from math import inf

import numpy as np
import pytest

from taut.bench.plan.contest import STEP, Reached, Screened, Took, by_turns, climb, contest, screen
from taut.bench.plan.figures import ratio
from taut.planning.settings import Settings

MINE, FIRST, SECOND = Settings(1, 1), Settings(1, 2), Settings(2, 2)


def climbed(start: float, most: float) -> tuple[float, list[float]]:
    trying, tried = climb(start), []
    rate = next(trying)
    while True:
        tried.append(rate)
        try:
            rate = trying.send(rate <= most)
        except StopIteration as end:
            return end.value, tried


@pytest.mark.parametrize("start", [20.0, 60.0, 95.0, 99.9, 101.0, 130.0, 400.0])
def test_a_climb_ends_near_the_highest_rate(start: float) -> None:
    found, tried = climbed(start, 100.0)
    assert 100.0 / STEP / (1 + 1e-9) <= found <= 100.0
    assert len(tried) <= 13


def test_what_is_late_at_a_tenth_as_well_is_given_up() -> None:
    found, tried = climbed(100.0, 0.0)
    assert found == 0.0
    assert tried == pytest.approx([100.0, 100.0 / 1.1, 10.0])


def test_a_climb_ends_also_where_nothing_is_too_much() -> None:
    found, tried = climbed(1.0, float("inf"))
    assert found == tried[-1]


def all_of_them(seen: Sequence[Screened]) -> Sequence[Screened]:
    return seen


def test_what_takes_least_is_first() -> None:
    took = {MINE: Took(1.8), FIRST: Took(0.5), SECOND: Took(0.7)}
    seen = screen(lambda settings, rate: took[settings], list(took), 100.0, all_of_them)
    assert [each.settings for each in seen] == [FIRST, SECOND, MINE]
    assert all(each.at_less == () for each in seen)


def test_what_was_too_late_is_compared_at_lower_rates() -> None:
    """At the first rate all runs but one were ended, and the one that bears most came last."""
    most = {MINE: 30.0, FIRST: 20.0, SECOND: 60.0, Settings(4, 4): 110.0}
    ran: list[tuple[Settings, float]] = []

    def took(settings: Settings, rate: float) -> Took:
        ran.append((settings, rate))
        late = rate > most[settings]
        # what is ended takes about the same, whichever it is
        return Took(2.1 - 0.01 * len(ran), ended=True) if late else Took(rate / most[settings])

    seen = screen(took, list(most), 100.0, all_of_them)
    assert [each.settings for each in seen] == [Settings(4, 4), SECOND, MINE, FIRST]
    assert [len(each.at_less) for each in seen] == [0, 1, 2, 3]
    assert (FIRST, 12.5) in ran
    # who was on time at a rate is not tried at lower ones
    assert len(ran) == 4 + 3 + 2 + 1
    assert seen[1].took.ended
    assert not seen[1].last.ended


def test_no_more_is_tried_than_tells_the_best() -> None:
    def took(settings: Settings, rate: float) -> Took:
        return Took(2.0, ended=True) if settings == MINE else Took(1.0)

    seen = screen(took, [MINE, FIRST, SECOND], 100.0, lambda seen: seen[:2])
    assert {each.settings for each in seen[:2]} == {FIRST, SECOND}
    assert seen[2].at_less == ()


def test_all_climb_by_turns() -> None:
    ran: list[Settings] = []

    def on_time(settings: Settings, rate: float) -> bool:
        ran.append(settings)
        return rate <= 100.0 * settings.reducers

    reached = by_turns(on_time, {FIRST: 150.0, MINE: 80.0})
    assert reached[FIRST] == pytest.approx(200.0, rel=0.05)
    assert reached[MINE] == pytest.approx(100.0, rel=0.05)
    both = 2 * min(ran.count(FIRST), ran.count(MINE))
    assert ran[:both] == [FIRST, MINE] * (both // 2)


def test_each_round_begins_with_another_and_where_it_was() -> None:
    began: dict[int, list[tuple[Settings, float]]] = {}

    def on_time(settings: Settings, rate: float, nth: int) -> bool:
        began.setdefault(nth, []).append((settings, rate))
        return rate <= 100.0 * settings.reducers * settings.lanes

    reached = contest(on_time, [MINE, FIRST, SECOND], 90.0, 3)
    assert [each.settings for each in reached] == [MINE, SECOND, FIRST]
    assert [len(each.rates) for each in reached] == [3, 3, 3]
    assert [began[nth][0][0] for nth in (1, 2, 3)] == [MINE, FIRST, SECOND]
    assert {rate for _, rate in began[1][:3]} == {90.0}
    assert dict(began[2][:3])[SECOND] == reached[1].rates[0]


def test_a_machine_that_becomes_faster_does_not_decide() -> None:
    """A third faster after forty runs; the second is ten per cent better, and shown to be."""

    def share(seed: int) -> float:
        noise, runs = np.random.default_rng(seed), count()

        def on_time(settings: Settings, rate: float, nth: int) -> bool:
            most = 100.0 * (1.1 if settings == FIRST else 1.0) * (1.0 + 0.3 * next(runs) / 40.0)
            return bool(rate <= most * noise.lognormal(0.0, 0.03))

        return ratio(*reversed(contest(on_time, [MINE, FIRST], 100.0, 3)))

    assert np.median([share(seed) for seed in range(20)]) == pytest.approx(1.1, abs=0.04)


def test_what_is_never_on_time_reaches_nothing() -> None:
    (only,) = contest(lambda settings, rate, nth: False, [MINE], 100.0, 2)
    assert (only.rate, only.rates) == (0.0, (0.0, 0.0))


def test_a_round_in_which_others_are_never_on_time_counts() -> None:
    mine = Reached(MINE, (100.0, 100.0, 100.0))
    assert ratio(mine, Reached(FIRST, (80.0, 50.0, 100.0))) == pytest.approx(1.25)
    assert ratio(mine, Reached(FIRST, (80.0, 0.0, 50.0))) == pytest.approx(2.0)
    assert ratio(mine, Reached(FIRST, (80.0, 0.0, 0.0))) == inf
    assert ratio(Reached(MINE, (100.0, 0.0, 0.0)), Reached(FIRST, (80.0, 0.0, 50.0))) == 0.625


@pytest.mark.parametrize(("rounds", "low"), [(1, 0.9), (3, 0.95)])
def test_of_many_that_are_alike_none_is_much_better(rounds: int, low: float) -> None:
    """The best of five is a little above the others by chance: runs differ by 4 per cent here."""

    def share(seed: int) -> float:
        noise = np.random.default_rng(seed)
        entrants = [Settings(lanes, 1) for lanes in range(1, 6)]

        def on_time(settings: Settings, rate: float, nth: int) -> bool:
            return bool(rate <= 100.0 * noise.lognormal(0.0, 0.04))

        mine, *others = contest(on_time, entrants, 100.0, rounds)
        return ratio(mine, max(mine, *others, key=lambda each: each.rate))

    shares = [share(seed) for seed in range(40)]
    assert low <= np.mean(shares) < 1.0

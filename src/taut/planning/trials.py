"""What a profile tries: which settings, and how many rows a batch has. No Spark.

Profiling on Spark (:mod:`taut.spark.planning.profiling`) and in the simulator try the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from taut.errors import PlanError
from taut.planning.profile import Profile, Sample, typical
from taut.planning.settings import Cluster, Settings
from taut.slo import Slo

CUT = 2
"""Batches at the start of a query that are not taken: it starts workers and opens state stores."""
BATCHES = 6
"""Taken of each query, if there is time, before that closer look."""
TURN, CLOSER_TURN = 2, 4
"""Batches that a query runs before the next has its turn; and one that is looked at closer."""
SECONDS = 85.0
"""That a profile takes, its warm-up included."""
LEAST_SECONDS = 5.0
"""Less cannot be asked for."""
RESIDENT_SECONDS = 20.0
"""The same of a resident job, from its first row on."""
CLOSER = 0.22
"""The share of that for a closer look at the settings that a plan would have."""
CLOSER_BATCHES = 40
SHORT = 0.1
"""Of the rows of a query's largest batch: one with fewer has what comes now and then, and not what
had been waiting."""
_FURTHER = 2.0
"""Times the rows of the largest batch so far, that those of this look have at most."""
_SHORTEST_S, _LONGEST_S = 0.25, 2.0
"""What the rows of a large batch should take."""
_SPREAD = 5
"""How many times the rows of a small batch a middle one has, and of that a large one."""
_SIZES, _GROWS = 3, 2.5
"""How many larger ones are tried after the first two, and how many times as many rows each has."""
_LONGEST_RUN = 4.0
"""Times what a large batch should take, that the second size may take if all of it were rows."""
_NEAR = 0.75
"""Of what a large batch should take: near enough to say how many rows that are."""


def mixtures(cluster: Cluster) -> list[Settings]:
    """As many tasks as slots, and one; between them half as many, where that is another number.

    And few lanes with many reducers, and the reverse: both are more than what each does alone. And
    twice as many reducers as slots: they take less if one of them has many more rows than others.
    """
    slots = cluster.slots
    half = max(1, slots // 2)
    tried = [(slots, slots), (1, 1), (1, slots), (slots, 2 * slots), (slots, 1), (half, half)]
    return [Settings(lanes, reducers) for lanes, reducers in dict.fromkeys(tried)]


def trials(cluster: Cluster, large: int) -> list[Settings]:
    """What is tried, in that order, the cap being the rows of a batch.

    Large batches at all settings; where lanes and reducers are most and fewest also small ones and
    a size between them, for rows of small batches may cost less than those of large ones.
    """
    most, least, *others = mixtures(cluster)
    middle, small = (max(1, large // _SPREAD**power) for power in (1, 2))
    tried = [settings.but(cap=cap) for cap in (large, small, middle) for settings in (most, least)]
    return list(dict.fromkeys([*tried, *(other.but(cap=large) for other in others)]))


def closer(profile: Profile, slo: Slo | None, rate: float | None) -> Settings | None:
    """What is tried last, for the rest of the time: what a plan would have by what is known so far.

    The cap is the rows of a batch that it expects. None if no settings meet the objective.
    """
    # scipy takes long to import, and commands only want to know how long a profile takes
    from taut.planning.phases import fit
    from taut.planning.search import Search

    if slo is None:
        return None
    search = Search(fit(profile), slo, margin=0.0, shape="measured")
    try:
        # a rate may be for a larger cluster
        found = search.best(profile.cluster, rate) or search.best(profile.cluster)
    except PlanError:
        # who plans will be told, and has a profile to look at
        return None
    if found is None:
        return None
    latency = search.latency(found.settings, found.cluster, min(rate or found.rate, found.rate))
    # what was tried did not take too long, and what it cost says what this will
    rows = min(latency.rows, _FURTHER * search.costs.largest)
    return found.settings.but(trigger=0.0, cap=max(1, round(rows)))


def guesses(rate: float | None) -> tuple[int, int]:
    """Rows of batches while it warms up: a quarter of a second of them, and two."""
    if rate is None:
        return 10_000, 80_000
    return max(1, min(50_000, round(rate / 4))), max(2, min(400_000, round(2 * rate)))


def sized(
    run: Callable[[int], Sequence[Sample]],
    rate: float | None,
    objective: float | None,
    windowed: Callable[[], bool],
) -> int:
    """Rows of a large batch, found by trying; 0 if no batch had a row.

    ``run`` lets some batches of so many rows run, and gives the last of them. It is to take as long
    as can be on time: with batches one after another, a row is out after two of them at the latest,
    and the result of a window after three. What a row costs cannot be told from small batches, nor
    from the first ones of a process: so they become larger step by step.
    """
    small, large = guesses(rate)
    few = typical_of(run(small))
    if few is not None:
        # rows may cost more than anybody thought
        bearable = round(few.rows * _LONGEST_RUN * _LONGEST_S / few.total)
        large = min(large, max(2 * few.rows, bearable))
    many = typical_of(run(large))
    if few is not None and many is None:
        # the source has fewer rows than that takes: the largest are those that it had
        return max(_SPREAD**2, few.rows)
    if few is None or many is None or many.rows < 2 * few.rows:
        # the source gives what it gives: take that
        only = few or many
        return _SPREAD**2 * only.rows if only else 0
    for step in range(_SIZES + 1):
        each = max(1e-9, (many.total - few.total) / (many.rows - few.rows))
        fixed = max(0.0, few.total - each * few.rows)
        part = fixed if objective is None else objective / (3.0 if windowed() else 2.0) - fixed
        wanted = min(_LONGEST_S, max(_SHORTEST_S, part))
        rows = wanted / each
        if step == _SIZES or many.total >= _NEAR * (fixed + wanted):
            break
        larger = typical_of(run(round(min(rows, _GROWS * many.rows))))
        if larger is None or larger.rows <= many.rows:
            # the source has no more to give
            break
        # a smaller one that took as long was slow because it was one of the first
        few, many = min(few, many, key=lambda sample: sample.total), larger
    return max(_SPREAD**2, round(min(rows, many.rows / _NEAR)))


def typical_of(found: Sequence[Sample]) -> Sample | None:
    """The median of some batches; None if there are none."""
    return typical(found) if found else None

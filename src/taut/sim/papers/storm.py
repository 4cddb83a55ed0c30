"""The cluster of the first work: five machines with Storm, and its topologies.

What a tuple goes through there: a spout that emits by chance once a millisecond, bolts, an acker,
and back to the spout, with a delay on every hop. Machines pause, and so do spouts, which hear late
then. How long and how often is fitted (:mod:`taut.sim.papers.calibrate`). Where each number that is
not fitted comes from is listed in ``docs/simulator.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from taut.policy.balance import BALANCES
from taut.policy.timeout import REPLAYS, AdaptiveTimeout, NoReplay, Replay
from taut.sim.cluster import (
    Balanced,
    Grouping,
    Machine,
    Network,
    Operator,
    Pauses,
    Shuffle,
    Spout,
    Topology,
)
from taut.sim.draws import Constant, Draws, Gamma, Geometric

MACHINES = 5
TICK = 0.001


@dataclass(frozen=True, slots=True)
class Fit:
    """What is not known of the cluster, in seconds.

    Attributes
    ----------
    hop, hop_scv
        Delay of a hop from task to task: mean, and squared coefficient of variation.
    every, length, length_scv
        Pauses of a machine.
    spout_every
        Pauses of a spout, of the same lengths.
    service, service_scv
        Time that a bolt takes. Its spread is set by hand, but for queues.
    acker
        Time that a tuple takes to be sent and accounted for beside what bolts do: of ackers, which
        are on every machine. Set by hand where tasks wait, as it hardly matters there.
    slow, longer
        Of the machines that are not like the others: their speed, and how many times as long their
        pauses are.
    """

    hop: float = 0.001
    hop_scv: float = 0.3
    every: float = 4.0
    length: float = 0.02
    length_scv: float = 1.0
    spout_every: float = 4.0
    service: float = 0.0001
    service_scv: float = 0.1
    acker: float = 2e-5
    slow: float = 1.0
    longer: float = 1.0

    def machines(self, cores: Sequence[int | None], odd: int) -> tuple[Machine, ...]:
        """The five, with so many cores; the first so many are not like the others."""
        pauses = Pauses(self.every, Gamma(self.length, self.length_scv))
        long = Pauses(self.every, Gamma(self.longer * self.length, self.length_scv))
        return tuple(
            Machine(many, self.slow, long) if n < odd else Machine(many, pauses=pauses)
            for n, many in enumerate(cores)
        )


@dataclass(frozen=True, slots=True)
class Bolt:
    """A bolt of a topology: how many tasks, where, after which others.

    All of them send on every tuple: what filters let through was not published.
    """

    name: str
    after: str
    tasks: int = MACHINES
    machines: tuple[int, ...] | None = None


EXCLAMATION = (Bolt("one", "spout"), Bolt("two", "one"), Bolt("three", "two"))
PAGE_LOAD = (
    Bolt("transform", "spout"),
    Bolt("filter", "transform"),
    Bolt("join", "filter"),
    Bolt("second-filter", "join"),
    Bolt("aggregate", "second-filter"),
    Bolt("output", "aggregate"),
)
PROCESSING = (
    Bolt("transform", "spout"),
    Bolt("filter", "transform"),
    Bolt("join", "filter"),
    Bolt("output", "join"),
    Bolt("second-join", "transform"),
    Bolt("normalise", "second-join"),
    Bolt("second-output", "normalise"),
)


def storm(
    bolts: Sequence[Bolt],
    fit: Fit,
    chance: float,
    *,
    replay: Callable[[], Replay] = NoReplay,
    grouping: Grouping | None = None,
    shared: bool = False,
    spouts: int = MACHINES,
    cores: Sequence[int | None] = (None,) * MACHINES,
    odd: int = 0,
) -> Topology:
    """A topology on the cluster; spouts emit with this chance every millisecond."""
    grouping = grouping or Shuffle()
    operators = [
        Operator(
            bolt.name,
            bolt.tasks,
            _time(fit.service, fit.service_scv),
            grouping,
            after=(bolt.after,),
            shared=shared,
            machines=bolt.machines,
        )
        for bolt in bolts
    ]
    inner = {bolt.after for bolt in bolts}
    last = tuple(bolt.name for bolt in bolts if bolt.name not in inner)
    # the acker hears of every tuple and tells the spout
    operators.append(Operator("acker", MACHINES, Constant(fit.acker), Shuffle(), after=last))
    return Topology(
        Spout(
            spouts,
            Geometric(chance, TICK),
            replay,
            pauses=Pauses(fit.spout_every, Gamma(fit.length, fit.length_scv)),
            # a spout keeps what it waits for in two buckets and empties the older one once a
            # timeout, so that a tuple is replayed after one to two of them
            late=1.0,
        ),
        tuple(operators),
        fit.machines(cores, odd),
        Network(_time(fit.hop, fit.hop_scv)),
        ack=_time(fit.hop, fit.hop_scv),
    )


def replaying(variant: str) -> Callable[[], Replay]:
    """The published timeout has no budget; the replications are as Taut has them."""
    if variant == "timeout":
        return lambda: AdaptiveTimeout(budget=1.0)
    return NoReplay if variant == "default" else REPLAYS[variant]


def balancing(variant: str) -> Grouping:
    """Shuffle, or by latency: shares that follow it, or the better of two drawn."""
    return Shuffle() if variant == "default" else Balanced(BALANCES[variant])


def queue(
    fit: Fit,
    shared: bool = False,
    chance: float = 0.35,
    replay: Callable[[], Replay] = NoReplay,
    grouping: Grouping | None = None,
) -> Topology:
    """The micro-benchmark of queues: 20 tasks, four on each machine, each gets 350 tuples/s.

    How many spouts there were was not published; as many as tasks, so that each emits as published.
    """
    bolts = (Bolt("bolt", "spout", 20),)
    return storm(bolts, fit, chance, replay=replay, grouping=grouping, shared=shared, spouts=20)


def pages_in_workers(bolts: Sequence[Bolt], fit: Fit, shared: bool = False) -> Topology:
    """Pages as queues were measured on them: all four tasks of an inner bolt on one machine."""
    placed = []
    for n, bolt in enumerate(bolts):
        inner = any(other.after == bolt.name for other in bolts)
        where = (n % MACHINES,) * 4
        placed.append(replace(bolt, tasks=4, machines=where) if inner else bolt)
    return storm(placed, fit, chance=0.53, shared=shared)


def balance_a(fit: Fit, variant: str = "default") -> Topology:
    """Scenario (a): 14 tasks on five machines, so that one has fewer; another is slower.

    That one is slower is assumed: the work has unequal numbers of tasks only.
    """
    bolts = (Bolt("one", "spout", 3), Bolt("two", "one", 3), Bolt("three", "two", 3))
    # load over time was published, under balance: 3,830 tuples/s
    return storm(bolts, fit, 0.766, grouping=balancing(variant), cores=_CORES, odd=1)


def balance_b(fit: Fit, variant: str = "default") -> Topology:
    """Scenario (b): a compression program on two machines, which the fit makes slower.

    The rate is assumed to be that of pages, as in (c).
    """
    return storm(EXCLAMATION, fit, 0.6, grouping=balancing(variant), cores=_CORES, odd=2)


def balance_c(
    fit: Fit,
    variant: str = "default",
    chance: float = 0.6,
    replay: Callable[[], Replay] = NoReplay,
) -> Topology:
    """Scenario (c): one machine has one core instead of two."""
    return storm(
        EXCLAMATION,
        fit,
        chance,
        replay=replay,
        grouping=balancing(variant),
        cores=_ONE_SMALL,
        odd=1,
    )


def pages_on_unequal(bolts: Sequence[Bolt], fit: Fit, variant: str = "default") -> Topology:
    """Pages on the machines of scenario (c).

    Bolts other than those of page load get as many tuples as machines have as much to do with.
    """
    chance = 0.6 * _work(PAGE_LOAD, fit) / _work(bolts, fit)
    return storm(bolts, fit, chance, grouping=balancing(variant), cores=_ONE_SMALL, odd=1)


def _work(bolts: Sequence[Bolt], fit: Fit) -> float:
    """Seconds of cores that a tuple takes; the acker hears of every end."""
    inner = {bolt.after for bolt in bolts}
    ends = sum(bolt.name not in inner for bolt in bolts)
    return len(bolts) * fit.service + ends * fit.acker


_CORES = (2, 2, 2, 2, 2)
_ONE_SMALL = (1, 2, 2, 2, 2)


def _time(mean: float, scv: float) -> Draws:
    """Always the same where there is no spread, else at least half of the mean."""
    if scv <= 0.0 or mean <= 0.0:
        return Constant(max(0.0, mean))
    return Gamma(mean, scv, least=mean / 2.0)

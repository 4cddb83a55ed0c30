"""Which task of an operator a tuple goes to.

Some groupings look neither at the tuple nor at anybody's load: the next task is known before the
tuple leaves. The others choose as it leaves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Protocol

from numpy.random import Generator

from taut.policy.balance import Balance, EvenSplit
from taut.sim.cluster.station import Station
from taut.sim.draws import Uniform, drawing
from taut.sim.kernel import Kernel

_MANY = 256
"""Beyond so many tasks nobody keeps an order of them for each task upstream."""
_HASH = 2_654_435_761
_OTHER = 3_266_489_909


class Keyed(Protocol):
    """What of a tuple is looked at."""

    key: int


class Choosing(Protocol):
    """Tasks for tuples, as one upstream task sees them."""

    order: Sequence[int] | None
    """The places of tasks that are taken in turn for ever; None where there is no such order."""
    blind: Callable[[], int] | None
    """The place of the next task; None where that depends on the tuple or on load."""
    due: Callable[[], int] | None
    """The place of the task for a tuple that leaves now; None where that depends on the tuple."""

    def choose(self, flight: Keyed) -> Sequence[int]:
        """The places of the tasks that a tuple goes to."""
        ...

    def check(self) -> None:
        """Assert what holds between events."""
        ...


class Grouping(Protocol):
    """A grouping by its parameters."""

    watches: bool
    """Whether it looks at how long tuples stay at the tasks."""

    def build(self, kernel: Kernel, name: str, tasks: Sequence[Station]) -> Choosing:
        """For one upstream task."""
        ...


class _Blind:
    """The next of an endless series of places."""

    def __init__(self, places: Callable[[], int], order: Sequence[int] | None = None) -> None:
        self.order = order
        self.blind: Callable[[], int] | None = places
        self.due: Callable[[], int] | None = places
        self._next = places

    def choose(self, flight: Keyed) -> Sequence[int]:
        """The next one."""
        return (self._next(),)

    def check(self) -> None:
        """Nothing can be wrong."""


class _Seeing:
    """Looks at the tuple, or at load."""

    order: Sequence[int] | None = None
    blind: Callable[[], int] | None = None
    due: Callable[[], int] | None = None

    def check(self) -> None:
        """Nothing can be wrong where nothing is kept."""


@dataclass(frozen=True, slots=True)
class Shuffle:
    """In turn, in an order that each upstream task has drawn once."""

    watches = False

    def build(self, kernel: Kernel, name: str, tasks: Sequence[Station]) -> Choosing:
        """For one upstream task."""
        random = kernel.stream(f"{name}/shuffle")
        if len(tasks) <= _MANY:
            order = random.permutation(len(tasks)).tolist()
            return _Blind(cycle(order).__next__, order)
        return _Blind(_leaping(random, len(tasks)).__next__)


def _leaping(random: Generator, tasks: int) -> Iterator[int]:
    """Every place in turn, in leaps of one length: an order that need not be kept."""
    leap = int(random.integers(1, tasks))
    while math.gcd(leap, tasks) > 1:
        leap = int(random.integers(1, tasks))
    place = int(random.integers(tasks))
    while True:
        yield place
        place = (place + leap) % tasks


@dataclass(frozen=True, slots=True)
class Random:
    """Any, each with the same chance."""

    watches = False

    def build(self, kernel: Kernel, name: str, tasks: Sequence[Station]) -> Choosing:
        """For one upstream task."""
        draw, many = drawing(Uniform(), kernel.stream(f"{name}/random")), len(tasks)
        return _Blind(lambda: int(draw() * many))


@dataclass(frozen=True, slots=True)
class Fields:
    """By key: tuples of the same key go to the same task."""

    watches = False

    def build(self, kernel: Kernel, name: str, tasks: Sequence[Station]) -> Choosing:
        """For one upstream task."""
        return _ByKey(len(tasks))


class _ByKey(_Seeing):
    def __init__(self, tasks: int) -> None:
        self._tasks = tasks

    def choose(self, flight: Keyed) -> Sequence[int]:
        """The one that the key says."""
        return (_spread(flight.key, _HASH, self._tasks),)


@dataclass(frozen=True, slots=True)
class All:
    """A copy for every task."""

    watches = False

    def build(self, kernel: Kernel, name: str, tasks: Sequence[Station]) -> Choosing:
        """For one upstream task."""
        return _Everyone(len(tasks))


class _Everyone(_Seeing):
    def __init__(self, tasks: int) -> None:
        self._tasks = range(tasks)

    def choose(self, flight: Keyed) -> Sequence[int]:
        """All."""
        return self._tasks


@dataclass(frozen=True, slots=True)
class PartialKey:
    """Two tasks for every key; the one that the upstream task has sent less to."""

    watches = False

    def build(self, kernel: Kernel, name: str, tasks: Sequence[Station]) -> Choosing:
        """For one upstream task."""
        return _OfTwo(len(tasks))


class _OfTwo(_Seeing):
    def __init__(self, tasks: int) -> None:
        self._sent = [0] * tasks

    def choose(self, flight: Keyed) -> Sequence[int]:
        """The lesser of the two that the key says; the first if they are equal."""
        sent = self._sent
        first = _spread(flight.key, _HASH, len(sent))
        second = _spread(flight.key, _OTHER, len(sent))
        if second == first:
            second = (first + 1) % len(sent)
        chosen = second if sent[second] < sent[first] else first
        sent[chosen] += 1
        return (chosen,)

    def check(self) -> None:
        """Assert what holds between events."""
        assert min(self._sent) >= 0


def _spread(key: int, by: int, tasks: int) -> int:
    """A task for a key; multiplied and cut from the top, so that keys in a row spread."""
    return ((key + 1) * by % 2**32) * tasks >> 32


@dataclass(frozen=True, slots=True)
class Balanced:
    """By shares that follow how long tuples stay at the tasks.

    Every upstream task has a policy of its own, and they adjust at different moments.
    """

    policy: Callable[[float], Balance]
    """Built with the period, as those of :data:`taut.policy.balance.BALANCES` are."""
    period: float = 5.0
    watches = True

    def __post_init__(self) -> None:
        if not self.period > 0.0:
            raise ValueError(f"period={self.period}: must be above 0")

    def build(self, kernel: Kernel, name: str, tasks: Sequence[Station]) -> Choosing:
        """For one upstream task."""
        return _ByShare(kernel, name, tasks, self)


class _ByShare(_Seeing):
    def __init__(self, kernel: Kernel, name: str, tasks: Sequence[Station], spec: Balanced) -> None:
        self.balance = spec.policy(spec.period)
        self._kernel = kernel
        self._tasks = tasks
        self._period = spec.period
        # a queue that tasks share is there once for each of them
        self._names = [f"{task.name}/{n}" for n, task in enumerate(tasks)]
        self._seen = [(0, 0.0) for _ in tasks]
        for task in self._names:
            self.balance.join(task)
        self.due = self._due
        phase = kernel.stream(f"{name}/balance").random() * spec.period
        kernel.after(phase, self._adjust)

    def choose(self, flight: Keyed) -> Sequence[int]:
        """The one that is due."""
        return (self._due(),)

    def check(self) -> None:
        """Assert what holds between events."""
        assert list(self.balance.tasks) == self._names
        assert abs(math.fsum(self.balance.shares(self._names)) - 1.0) < 1e-9
        if isinstance(self.balance, EvenSplit):
            self.balance.check()

    def _due(self) -> int:
        return self.balance.deal(self._names, 1).index(1)

    def _adjust(self, _: object) -> None:
        """Tell the policy of the period just over."""
        for n, task in enumerate(self._tasks):
            tuples, stayed = self._seen[n]
            self._seen[n] = task.tuples, task.stayed
            if task.tuples > tuples:
                rows = task.tuples - tuples
                self.balance.observe(self._names[n], (task.stayed - stayed) / rows, rows)
        self.balance.adjust(self._kernel.now)
        self._kernel.after(self._period, self._adjust)

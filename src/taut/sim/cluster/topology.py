"""A topology: a spout, operators, the machines that their tasks are on, and the network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from taut.sim.cluster.grouping import All, Fields, Grouping, PartialKey, Shuffle
from taut.sim.cluster.machine import Machine, Running
from taut.sim.cluster.network import Departures, Edge, Link, Network
from taut.sim.cluster.spout import Emitting, Spout
from taut.sim.cluster.station import Computing, Station, Waiting
from taut.sim.draws import NOTHING, Array, Draws, Uniform, drawing
from taut.sim.kernel import Kernel


class Overloaded(RuntimeError):
    """More comes than can be worked off."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    Parameters
    ----------
    name
        Told apart by it.
    tasks
        How many.
    service
        Seconds that a tuple takes on a machine of speed 1.
    grouping
        How tuples choose their task.
    after
        The operators, or ``spout``, that its tuples come from; it must be listed after them.
    shared
        Whether its tasks on one machine take from one queue.
    selectivity
        The chance of a tuple to go on from here.
    machines
        Which machine each of its tasks is on; else they go round, from where the operator before
        has ended.
    """

    name: str
    tasks: int
    service: Draws
    grouping: Grouping = field(default_factory=Shuffle)
    after: tuple[str, ...] = ("spout",)
    shared: bool = False
    selectivity: float = 1.0
    machines: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.tasks < 1:
            raise ValueError(f"{self.name}: tasks={self.tasks}: at least 1 is needed")
        if not 0.0 <= self.selectivity <= 1.0:
            raise ValueError(f"{self.name}: selectivity={self.selectivity}: from 0 to 1")
        if self.shared and isinstance(self.grouping, Fields | PartialKey | All):
            raise ValueError(
                f"{self.name}: shared queues with {type(self.grouping).__name__}: only where any "
                "task may have any tuple"
            )
        if self.machines is not None and len(self.machines) != self.tasks:
            raise ValueError(
                f"{self.name}: {len(self.machines)} machines for {self.tasks} tasks: one each"
            )


_ONE = Machine()
_AT_ONCE = Network()


@dataclass(frozen=True, slots=True)
class Topology:
    """What a run is made of.

    Parameters
    ----------
    spout, operators
        In an order in which tuples flow.
    machines
        What there is; tasks go round them, one after the other, unless operators say otherwise.
    network
        Between the tasks.
    ack
        How long word that a tuple is done takes to its spout.
    """

    spout: Spout
    operators: tuple[Operator, ...]
    machines: tuple[Machine, ...] = (_ONE,)
    network: Network = _AT_ONCE
    ack: Draws = NOTHING

    def __post_init__(self) -> None:
        known = {"spout"}
        for operator in self.operators:
            if operator.name in known:
                raise ValueError(f"two operators are called {operator.name!r}")
            for before in operator.after:
                if before not in known:
                    raise ValueError(f"{operator.name} is after {before!r}, listed before: {known}")
            known.add(operator.name)
        if not self.operators or not self.machines:
            raise ValueError("a topology needs an operator and a machine")

    def run(
        self,
        seconds: float,
        warm_up: float = 0.0,
        seed: int = 0,
        every: float | None = None,
        patience: float = 3_600.0,
    ) -> Outcome:
        """Emit for ``warm_up + seconds``, let all of it end, and return what was measured.

        Parameters
        ----------
        seconds
            Units issued in these, after the warm-up, are measured.
        warm_up
            Seconds before.
        seed
            Of all that is random.
        every
            Note the load and the latency of every task so often; None for never.
        patience
            Seconds, in virtual time, that tuples may take to end once no more are emitted.

        Raises
        ------
        Overloaded
            They took longer.
        """
        if not seconds > 0.0 or not warm_up >= 0.0:
            raise ValueError(f"seconds={seconds}, warm_up={warm_up}: above 0, and not negative")
        if every is not None and not every > 0.0:
            raise ValueError(f"every={every}: must be above 0")
        kernel = Kernel(seed)
        built = _Built(self, kernel, warm_up, warm_up + seconds)
        if every is not None:
            built.watch(every)
        events = kernel.run(warm_up + seconds)
        end = kernel.now
        while any(spout.flying for spout in built.spouts):
            if end > warm_up + seconds + patience:
                left = sum(spout.flying for spout in built.spouts)
                raise Overloaded(f"{left} tuples had not ended {patience:g} s after the last came")
            end += 1.0
            events += kernel.run(end)
        built.check()
        kernel.check()
        return Outcome(built, events)


class Noted(NamedTuple):
    """Of the tasks of an operator, since the moment before."""

    at: float
    tuples: list[int]
    stayed: list[float]
    """Mean seconds in queue and service; nan where there were none."""
    waited: float
    """Mean seconds in the queues of all of them; nan where there were none."""


class _Built:
    """A topology at work."""

    def __init__(self, spec: Topology, kernel: Kernel, since: float, until: float) -> None:
        self.spec = spec
        self.kernel = kernel
        self.machines = [m.build(kernel, f"machine{n}") for n, m in enumerate(spec.machines)]
        self.stations: dict[str, list[Station]] = {}
        self.series: dict[str, list[Noted]] = {}
        self.edges: list[Edge] = []
        self._link: dict[int, Link] = {}
        if spec.network.link is not None:
            self._link = {id(m): Link(spec.network.link) for m in self.machines}
        places = self._places()
        self._places_of = places
        for operator in reversed(spec.operators):
            self.stations[operator.name] = self._tasks(operator, places[operator.name])
        self.spouts = []
        ways = self._edges("spout")
        for n, place in enumerate(places["spout"]):
            machine, name = self.machines[place], f"spout{n}"
            departures = self._departures(name, machine, ways, _together(spec.spout.tasks))
            self.spouts.append(
                Emitting(kernel, name, machine, spec.spout, departures, since, until)
            )

    def watch(self, every: float) -> None:
        """Note load and latency of every task."""
        seen: dict[str, list[tuple[int, float, float]]] = {}

        def look(_: object) -> None:
            for name, stations in self.stations.items():
                before = seen.get(name, [(0, 0.0, 0.0)] * len(stations))
                counts = [s.tuples - b[0] for s, b in zip(stations, before, strict=True)]
                means = [
                    (s.stayed - b[1]) / n if n else math.nan
                    for s, b, n in zip(stations, before, counts, strict=True)
                ]
                waited = sum(s.waited - b[2] for s, b in zip(stations, before, strict=True))
                waited = waited / sum(counts) if sum(counts) else math.nan
                seen[name] = [(s.tuples, s.stayed, s.waited) for s in stations]
                noted = Noted(self.kernel.now, counts, means, waited)
                self.series.setdefault(name, []).append(noted)
            self.kernel.after(every, look)

        self.kernel.after(every, look)

    def check(self) -> None:
        """Assert what holds when all has ended."""
        for machine in self.machines:
            machine.check()
        for spout in self.spouts:
            spout.check()
        for station in chain.from_iterable(self.stations.values()):
            station.check()
        for link in self._link.values():
            link.check()
        for edge in self.edges:
            edge.check()
        assert all(spout.open == 0 for spout in self.spouts), "units that never ended"

    def _places(self) -> dict[str, Sequence[int]]:
        """Which machine every task is on."""
        machines, turn = len(self.machines), 0
        found: dict[str, Sequence[int]] = {}
        for name, tasks, given in (
            ("spout", self.spec.spout.tasks, None),
            *((o.name, o.tasks, o.machines) for o in self.spec.operators),
        ):
            found[name] = given or tuple((turn + n) % machines for n in range(tasks))
            turn += 0 if given else tasks
            if not all(0 <= place < machines for place in found[name]):
                raise ValueError(f"{name}: machines {given}: there are {machines}, from 0 on")
        return found

    def _tasks(self, operator: Operator, places: Sequence[int]) -> list[Station]:
        """The stations of an operator: one a task, or one a machine where they share."""
        groups = [(place, 1) for place in places]
        if operator.shared:
            groups = [(place, list(places).count(place)) for place in sorted(set(places))]
        watched = operator.grouping.watches
        ways, together = self._edges(operator.name), _together(operator.tasks)
        stations: list[Station] = []
        for n, (place, servers) in enumerate(groups):
            machine, name = self.machines[place], f"{operator.name}:{n}"
            known_ahead = servers == 1 and not watched and machine.spec.cores is None
            kind = Waiting if known_ahead else Computing
            service = self.kernel.stream(f"{name}/service")
            work = drawing(operator.service, service, together)
            onward = self._departures(name, machine, ways, together, operator.selectivity)
            stations.append(kind(self.kernel, name, machine, servers, work, onward))
        return stations

    def _edges(self, operator: str) -> list[Edge]:
        """The ways out of an operator; those that follow are built already."""
        made = [
            Edge(
                self.kernel,
                following.name,
                self.stations[following.name],
                following.grouping,
                self.spec.network,
            )
            for following in self.spec.operators
            if operator in following.after
        ]
        self.edges += made
        return made

    def _departures(
        self,
        name: str,
        machine: Running,
        ways: Sequence[Edge],
        together: int,
        selectivity: float = 1.0,
    ) -> Departures:
        routes = [edge.route(name, machine, together) for edge in ways]
        ack, drawn = _never, None
        if not routes or selectivity < 1.0:
            ack = drawing(self.spec.ack, self.kernel.stream(f"{name}/ack"), together)
        if selectivity < 1.0:
            drawn = drawing(Uniform(), self.kernel.stream(f"{name}/selectivity"), together)
        link = self._link.get(id(machine))
        return Departures(self.kernel, routes, ack, link, selectivity, drawn)


def _never() -> float:
    raise AssertionError("nothing ends at a task that sends everything on")


def _together(tasks: int) -> int:
    """Draws to make at a time: fewer where many tasks would keep them."""
    return max(16, min(1024, 65_536 // tasks))


class Outcome:
    """What a run has shown."""

    def __init__(self, built: _Built, events: int) -> None:
        self.events = events
        self.latencies: Array = np.concatenate([np.frombuffer(s.latencies) for s in built.spouts])
        """Seconds, of the measured units."""
        self.units = sum(spout.issued for spout in built.spouts)
        self.twice = sum(spout.measured_twice for spout in built.spouts)
        self.hops = sum(s.tuples for stations in built.stations.values() for s in stations)
        self.hops += sum(spout.issued + spout.twice for spout in built.spouts)
        self.stations = built.stations
        self.machines = built.machines
        self.series = built.series
        """By operator, moment after moment."""

    @property
    def cost(self) -> float:
        """Instances beyond the first of a unit, over units."""
        return self.twice / max(1, len(self.latencies))

    @property
    def mean(self) -> float:
        """Seconds of a unit on average."""
        return float(self.latencies.mean())

    def quantile(self, share: float) -> float:
        """Seconds within which this share of the units ended."""
        return float(np.quantile(self.latencies, share, method="inverted_cdf"))

    def waited(self, operator: str) -> float:
        """Seconds in the queues of an operator on average, warm-up included."""
        stations = self.stations[operator]
        return sum(s.waited for s in stations) / max(1, sum(s.tuples for s in stations))

"""From task to task: delays, and the link that the tasks of a machine share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappush
from itertools import cycle, repeat

from taut.sim.cluster.grouping import Choosing, Grouping
from taut.sim.cluster.machine import Running
from taut.sim.cluster.station import Hop, Station
from taut.sim.cluster.unit import Flight
from taut.sim.draws import NOTHING, Draws, drawing
from taut.sim.kernel import Action, Kernel


@dataclass(frozen=True, slots=True)
class Network:
    """How long tuples are under way.

    Parameters
    ----------
    delay
        From machine to machine.
    local
        From task to task on one machine; None for the same as between machines.
    link
        Tuples a second that leave a machine at most, one after the other; None for any number.
        Those that stay on it do not count.
    """

    delay: Draws = NOTHING
    local: Draws | None = None
    link: float | None = None

    def __post_init__(self) -> None:
        if self.link is not None and not self.link > 0.0:
            raise ValueError(f"link={self.link} tuples/s: must be above 0; None for no limit")


class Link:
    """One tuple after the other."""

    def __init__(self, rate: float) -> None:
        self._seconds = 1.0 / rate
        self._free = 0.0
        self.tuples = 0
        self.waited = 0.0

    def through(self, now: float) -> float:
        """When a tuple that comes now has passed."""
        start = max(now, self._free)
        self._free = start + self._seconds
        self.tuples += 1
        self.waited += start - now
        return self._free

    def check(self) -> None:
        """Assert what holds between events."""
        assert self.waited >= 0.0
        assert self._free >= self.tuples * self._seconds - 1e-6 * max(1.0, self._free)


class Edge:
    """From an operator to one that follows; all tasks of the operator share it."""

    def __init__(
        self, kernel: Kernel, to: str, tasks: Sequence[Station], grouping: Grouping, over: Network
    ) -> None:
        self.to = to
        # a queue that several tasks share is in line once for each of them
        self.tasks = [station for station in tasks for _ in range(station.servers)]
        self.arrivals: list[Action] = [station.arrive for station in self.tasks]
        self.grouping = grouping
        self.network = over
        self.kernel = kernel
        self._routes: list[Route] = []

    def route(self, name: str, machine: Running, together: int) -> Route:
        """For one task of the operator before."""
        made = Route(self, f"{name}/{self.to}", machine, together)
        self._routes.append(made)
        return made

    def check(self) -> None:
        """Assert what holds between events."""
        for route in self._routes:
            route.check()


class Route:
    """From one task to an operator: who gets a tuple, and how long it takes there."""

    def __init__(self, edge: Edge, name: str, machine: Running, together: int) -> None:
        kernel, network = edge.kernel, edge.network
        self._edge = edge
        self._machine = machine
        self._choosing: Choosing = edge.grouping.build(kernel, name, edge.tasks)
        self._delay = drawing(network.delay, kernel.stream(f"{name}/network"), together)
        self._local = self._delay
        if network.local is not None:
            self._local = drawing(network.local, kernel.stream(f"{name}/local"), together)

    def hops(self, flight: Flight) -> list[tuple[Action, float, bool]]:
        """Where a tuple that leaves now goes, after how long, and whether to another machine."""
        found: list[tuple[Action, float, bool]] = []
        for place in self._choosing.choose(flight):
            action, delay = self._hop(place)
            remote = self._edge.tasks[place].machine is not self._machine
            found.append((action, delay(), remote))
        return found

    def next_hop(self) -> Callable[[], Hop] | None:
        """The same for a tuple that nobody needs to look at; None where that cannot be."""
        order, places = self._choosing.order, self._choosing.blind
        if order is not None:
            return cycle([self._hop(place) for place in order]).__next__
        if places is None:
            return None
        if self._local is self._delay:
            arrivals, delay = self._edge.arrivals, self._delay
            return lambda: (arrivals[places()], delay)
        return lambda: self._hop(places())

    @property
    def apart(self) -> bool:
        """Whether there is more than one queue to go to."""
        first, *others = self._edge.tasks
        return any(task is not first for task in others)

    def check(self) -> None:
        """Assert what holds between events."""
        self._choosing.check()

    def hop_now(self) -> Callable[[], Hop] | None:
        """The same for one that leaves now, where only that matters. O(tasks) once."""
        due = self._choosing.due
        if due is None:
            return None
        ways = [self._hop(place) for place in range(len(self._edge.tasks))]
        return lambda: ways[due()]

    def _hop(self, place: int) -> Hop:
        near = self._edge.tasks[place].machine is self._machine
        return self._edge.arrivals[place], self._local if near else self._delay


class Departures:
    """What becomes of the tuples that a task has done with: the ways out of it."""

    def __init__(
        self,
        kernel: Kernel,
        routes: Sequence[Route],
        ack: Callable[[], float],
        link: Link | None = None,
        selectivity: float = 1.0,
        drawn: Callable[[], float] | None = None,
    ) -> None:
        self._kernel = kernel
        self._routes = routes
        self._link = link
        self._keep = selectivity
        self._drawn = drawn
        self._ack = ack
        self.next_hop: Callable[[], Hop] | None = None
        self.hop_now: Callable[[], Hop] | None = None
        if selectivity >= 1.0:
            if not routes:
                # a sink: all that is left is to tell the spout
                self.next_hop = repeat((piece_done, self._ack)).__next__
            elif len(routes) == 1 and link is None:
                self.next_hop = routes[0].next_hop()
                if self.next_hop is None:
                    self.hop_now = routes[0].hop_now()
        self.hop_now = self.next_hop or self.hop_now

    @property
    def apart(self) -> bool:
        """Whether tuples that need not be looked at have more than one place to go to."""
        return self.hop_now is not None and any(route.apart for route in self._routes)

    def depart(self, flight: Flight) -> None:
        """Send a tuple on to every operator that follows, or tell its spout that it is done."""
        kernel, link = self._kernel, self._link
        now = kernel.now
        hops = []
        if self._drawn is None or self._drawn() < self._keep:
            hops = [hop for route in self._routes for hop in route.hops(flight)]
        if not hops:
            heappush(kernel.heap, (now + self._ack(), next(kernel.ids), piece_done, flight))
            return
        flight.pieces += len(hops) - 1
        for action, delay, remote in hops:
            sent = link.through(now) if link is not None and remote else now
            heappush(kernel.heap, (sent + delay, next(kernel.ids), action, flight))


def piece_done(flight: Flight) -> None:
    """A piece of an instance is done; the last one is the instance."""
    flight.pieces -= 1
    if not flight.pieces:
        flight.unit.spout.acknowledged(flight)

"""When lanes should share a queue: how long a row waits for a lane, by the theory of queues.

Lanes that take from one queue never wait while another has a row to spare, so a row waits less.
What that is worth depends on the load: at a low one a row hardly waits in any case. The theory is
M/M/c: rows come independently of each other, and service times are exponential. Rows that come
more evenly, or need times more alike, wait less than it says, in all the ways of sharing.

Times are seconds.
"""

from __future__ import annotations

import math

_STEPS = 200


def erlang_c(servers: int, load: float) -> float:
    """The chance that a row finds all servers busy (Erlang C).

    Parameters
    ----------
    servers
        Lanes that take from the queue.
    load
        Service time that comes in each second, so that each server is busy for ``load / servers``
        of the time. From ``servers`` on all are busy for ever.

    Examples
    --------
    >>> erlang_c(1, 0.5), round(erlang_c(4, 4 * 350 / 450), 3), erlang_c(4, 4.0)
    (0.5, 0.557, 1.0)
    """
    if servers < 1:
        raise ValueError(f"servers={servers}: at least 1 is needed")
    if not load >= 0.0:
        raise ValueError(f"load={load}: must not be negative")
    if load >= servers:
        return 1.0
    # Erlang B one server at a time: powers and factorials would overflow at some hundreds
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked / (1.0 - load / servers * (1.0 - blocked))


def mean_wait(servers: int, arrivals_per_s: float, service_s: float) -> float:
    """The mean time in the queue before so many servers; infinite when they cannot keep up.

    >>> mean_wait(1, 50.0, 0.01), mean_wait(1, 100.0, 0.01)
    (0.01, inf)
    """
    if not arrivals_per_s >= 0.0:
        raise ValueError(f"arrivals_per_s={arrivals_per_s}: must not be negative")
    if not service_s > 0.0:
        raise ValueError(f"service_s={service_s}: must be above 0")
    load = arrivals_per_s * service_s
    busy = erlang_c(servers, load)
    return math.inf if load >= servers else busy * service_s / (servers - load)


def in_turn(queues: int, servers: int, arrivals_per_s: float, service_s: float) -> float:
    """The mean time in one of so many queues, each with so many servers, that rows go round.

    Every queue sees each so manieth arrival, at intervals that are more even than random ones, so
    rows wait less than where they choose a queue at random. For one server this is exact (GI/M/1):
    a row finds it busy with the chance s that solves s = A((1 - s) / service), where A is the
    Laplace transform of the intervals, and then waits s / (1 - s) services. For more servers it is
    the approximation of Allen and Cunneen. With one queue it is :func:`mean_wait`.

    Parameters
    ----------
    arrivals_per_s
        Of all queues together.

    Examples
    --------
    >>> round(in_turn(1, 1, 50.0, 0.01), 6), round(in_turn(4, 1, 4 * 50.0, 0.01), 6)
    (0.01, 0.004325)
    """
    if queues < 1:
        raise ValueError(f"queues={queues}: at least 1 is needed")
    random = mean_wait(servers, arrivals_per_s / queues, service_s)
    if queues == 1 or math.isinf(random) or random == 0.0:
        return random
    if servers > 1:
        return random * (1.0 + 1.0 / queues) / 2.0
    load = arrivals_per_s * service_s
    low, high = 0.0, 1.0 - 1e-12
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        arrived = (load / (load + 1.0 - middle)) ** queues
        # below the root of a convex function that ends at 1 it is above the diagonal
        low, high = (middle, high) if arrived > middle else (low, middle)
    return low / (1.0 - low) * service_s


def mean_waits(
    lanes: int, executors: int, arrivals_per_s: float, service_s: float
) -> dict[str, float]:
    """The mean time in a queue by the way of sharing, as ``taut.policy.sharing`` names them.

    ``fixed``: a queue before each lane; ``executor``: a queue on each executor; ``shared``: one
    queue for all. Rows go round the queues. Lanes are on executors as evenly as they go, and each
    lane brings an even share of the rows to its executor's queue.

    Examples
    --------
    Four lanes that can do 450 rows a second each, at 350. There 2.07 and 0.516 ms are published as
    measured, a quarter; the theory says a third, of more, because times there varied less.

    >>> waits = mean_waits(lanes=4, executors=1, arrivals_per_s=4 * 350, service_s=1 / 450)
    >>> {sharing: f"{1_000 * wait:.2f} ms" for sharing, wait in waits.items()}
    {'fixed': '4.35 ms', 'executor': '1.39 ms', 'shared': '1.39 ms'}
    """
    if lanes < 1:
        raise ValueError(f"lanes={lanes}: at least 1 is needed")
    if executors < 1:
        raise ValueError(f"executors={executors}: at least 1 is needed")
    used = min(lanes, executors)
    few, larger = divmod(lanes, used)
    by_executor = 0.0
    for together, times in ((few, used - larger), (few + 1, larger)):
        if times:
            # as if all executors were like this one
            rate = arrivals_per_s * together / lanes * used
            by_executor += times * together / lanes * in_turn(used, together, rate, service_s)
    fixed, shared = (
        in_turn(lanes, 1, arrivals_per_s, service_s),
        mean_wait(lanes, arrivals_per_s, service_s),
    )
    # an approximation beside two that are exact: at low loads it can come out above
    return {"fixed": fixed, "executor": max(shared, min(fixed, by_executor)), "shared": shared}


def worth_sharing(
    lanes: int, executors: int, arrivals_per_s: float, service_s: float, gain: float = 0.1
) -> str:
    """The least sharing that is worth it.

    Sharing costs something: lanes that ask for what they take, over the network when not on one
    executor. So the least of fixed, executor and shared is taken whose mean time in queue and
    service is at most ``gain`` (a share) above the best. Where lanes cannot keep up no sharing
    helps them, and it is fixed.

    >>> [worth_sharing(8, 2, arrivals_per_s, 0.01) for arrivals_per_s in (40, 400, 720, 800)]
    ['fixed', 'executor', 'shared', 'fixed']
    """
    if not gain >= 0.0:
        raise ValueError(f"gain={gain}: must not be negative")
    waits = mean_waits(lanes, executors, arrivals_per_s, service_s)
    enough = (1.0 + gain) * (min(waits.values()) + service_s)
    return next(sharing for sharing, wait in waits.items() if wait + service_s <= enough)

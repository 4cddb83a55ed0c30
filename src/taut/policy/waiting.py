"""When lanes should share a queue: how long a row waits for a lane, by the theory of queues.

Lanes that take from one queue never wait while another has a row to spare, so a row waits less.
What that is worth depends on the load: at a low one a row hardly waits in any case. The theory is
M/M/c: rows come independently of each other, and service times are exponential. Rows that come
more evenly, or need times more alike, wait less than it says, in all the ways of sharing.

Times are seconds.
"""

from __future__ import annotations

import math


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


def mean_waits(
    lanes: int, executors: int, arrivals_per_s: float, service_s: float
) -> dict[str, float]:
    """The mean time in a queue by the way of sharing, as ``taut.policy.sharing`` names them.

    ``fixed``: a queue before each lane, and each row goes to one of them at random; ``executor``:
    a queue on each executor; ``shared``: one queue for all. Lanes are on executors as evenly as
    they go, and each lane brings an even share of the rows to its executor's queue.

    Examples
    --------
    Four lanes that can do 450 rows a second each, at 350. There 2.07 and 0.516 ms are published as
    measured: a quarter with one queue, where the theory says less than a fifth, of more.

    >>> waits = mean_waits(lanes=4, executors=1, arrivals_per_s=4 * 350, service_s=1 / 450)
    >>> {sharing: f"{1_000 * wait:.2f} ms" for sharing, wait in waits.items()}
    {'fixed': '7.78 ms', 'executor': '1.39 ms', 'shared': '1.39 ms'}
    """
    if lanes < 1:
        raise ValueError(f"lanes={lanes}: at least 1 is needed")
    if executors < 1:
        raise ValueError(f"executors={executors}: at least 1 is needed")

    def wait(together: int) -> float:
        return mean_wait(together, arrivals_per_s * together / lanes, service_s)

    few, larger = divmod(lanes, executors)
    by_executor = 0.0
    for together, times in ((few, executors - larger), (few + 1, larger)):
        if together and times:
            by_executor += times * together / lanes * wait(together)
    return {"fixed": wait(1), "executor": by_executor, "shared": wait(lanes)}


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

"""How long tuples should wait for a lane when their service times are exponential. Pure."""

from __future__ import annotations

from taut.policy.waiting import mean_wait

_STEPS = 200


def waits(lanes: int, rate: float, service_s: float) -> dict[str, float]:
    """Mean seconds in the queue for the variants that a formula is known for.

    ``shared`` is M/M/c. ``default`` deals tuples out to the lanes in turn, so that each lane sees
    every c-th arrival: intervals of an Erlang distribution, which wait less than the M/M/1 of lanes
    that tuples choose at random.

    >>> told = waits(4, 0.78 * 4 / 0.01, 0.01)
    >>> {variant: f"{1e3 * wait:.1f} ms" for variant, wait in told.items()}
    {'default': '19.9 ms', 'shared': '6.4 ms'}
    """
    told = {"default": in_turn(lanes, rate, service_s), "shared": mean_wait(lanes, rate, service_s)}
    return told if rate * service_s < lanes else {}


def in_turn(lanes: int, rate: float, service_s: float) -> float:
    """The mean wait before one of so many lanes that arrivals go round (GI/M/1).

    A tuple finds its lane busy with the chance s that solves s = A((1 - s) / service), where A is
    the Laplace transform of the intervals; it then waits s / (1 - s) services.

    >>> round(in_turn(1, 50.0, 0.01), 6)  # one lane: M/M/1
    0.01
    """
    if rate * service_s >= lanes:
        return float("inf")
    low, high = 0.0, 1.0 - 1e-12
    for _ in range(_STEPS):
        middle = (low + high) / 2.0
        arrived = (rate * service_s / (rate * service_s + 1.0 - middle)) ** lanes
        # below the root of a convex function that ends at 1 it is above the diagonal
        low, high = (middle, high) if arrived > middle else (low, middle)
    return low / (1.0 - low) * service_s

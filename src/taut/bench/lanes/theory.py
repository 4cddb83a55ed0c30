"""How long tuples should wait for a lane when their service times are exponential. Pure."""

from __future__ import annotations

from taut.policy.waiting import mean_waits

_WAYS = {"default": "fixed", "shared": "shared"}


def waits(lanes: int, rate: float, service_s: float) -> dict[str, float]:
    """Mean seconds in the queue for the variants that a formula is known for.

    >>> told = waits(4, 0.78 * 4 / 0.01, 0.01)
    >>> {variant: f"{1e3 * wait:.1f} ms" for variant, wait in told.items()}
    {'default': '19.9 ms', 'shared': '6.4 ms'}
    """
    told = mean_waits(lanes, 1, rate, service_s)
    return {v: told[way] for v, way in _WAYS.items()} if rate * service_s < lanes else {}

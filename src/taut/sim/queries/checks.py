"""What every run of queries must have."""

from __future__ import annotations

from collections.abc import Sequence

from taut.policy.view import Policy


def check_names(names: Sequence[str]) -> None:
    """At least one query, and none twice."""
    if not names:
        raise ValueError("no queries: at least one is needed")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"two queries are called {twice[0]!r}: names must differ")


def check_times(seconds: float, warm_up: float) -> None:
    """Something to measure, after something or nothing."""
    if not seconds > 0.0:
        raise ValueError(f"seconds={seconds}: must be above 0")
    if not warm_up >= 0.0:
        raise ValueError(f"warm_up={warm_up}: must not be negative")


def check_policy(policy: Policy | None) -> None:
    """Let a policy that keeps state assert that it is sound."""
    check = getattr(policy, "check", None)
    if check is not None:
        check()

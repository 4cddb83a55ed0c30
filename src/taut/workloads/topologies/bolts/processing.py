"""Processing: a transform feeds two branches.

A tuple is a sale: who bought, and for how much. Branch 0 (filter, join, output) tells large sales
with the region of the customer; branch 1 (join, normalise, output) tells every sale as a share of
what the customer may spend. A large sale so has two outputs, any other one.
"""

from __future__ import annotations

from collections.abc import Mapping

from taut.workloads.topologies.topology import Bolt, part, uniform

_CUSTOMERS, _REGIONS, _LARGE = 300, 12, 5_000
CUSTOMERS: Mapping[str, tuple[int, int]] = {
    f"c{n}": (n * 5 % _REGIONS, 10_000 + n * 37 % 90_000) for n in range(_CUSTOMERS)
}
"""Region and limit of each customer."""


def emit(n: int) -> str:
    """A sale, in whole units and hundredths."""
    customer = int(uniform(n, 1) * _CUSTOMERS) % _CUSTOMERS
    cents = int(uniform(n, 2) * 10_000)
    return f"{n} 0 c{customer} {cents // 100}.{cents % 100:02}"


def transform(value: str) -> list[str]:
    """The sale in hundredths, once for each branch."""
    n, _, customer, amount = value.split(" ")
    units, _, hundredths = amount.partition(".")
    cents = 100 * int(units) + int(hundredths)
    return [f"{n} 0 {customer} {cents}", f"{n} 1 {customer} {cents}"]


def large(value: str) -> bool:
    """Whether the sale is large: half of them are."""
    return int(value.rpartition(" ")[2]) >= _LARGE


def join(value: str) -> str:
    """What the branch needs to know of the customer, in the customer's place."""
    n, branch, customer, cents = value.split(" ")
    return f"{n} {branch} {CUSTOMERS[customer][int(branch)]} {cents}"


def normalise(value: str) -> str:
    """The sale in thousandths of the customer's limit."""
    n, branch, limit, cents = value.split(" ")
    return f"{n} {branch} {limit} {1_000 * int(cents) // int(limit)}"


def output(value: str) -> str:
    """The line that is written."""
    n, branch, known, told = value.split(" ")
    names = ("region", "cents") if part(value) == 0 else ("limit", "thousandths")
    return f"{n} {branch} {names[0]}={known} {names[1]}={told}"


BOLTS = (
    Bolt("flat_map", transform),
    Bolt("filter", large, only=0),
    Bolt("map", join, visits=2),
    Bolt("map", normalise, only=1),
    Bolt("map", output, visits=2),
)

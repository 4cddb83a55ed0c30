"""Page load: transform, filter, join, filter, aggregate, output, in a line.

A tuple is a page as a browser loaded it: its address, who asked, and the times of its phases. What
robots loaded is dropped, and so are pages of sites that nobody watches; of the others the times are
added up.
"""

from __future__ import annotations

from collections.abc import Mapping

from taut.workloads.topologies.topology import Bolt, uniform

_PAGES, _SITES, _AGENTS, _ROBOTS = 500, 40, 20, 2
_PHASES = ("lookup", "connect", "wait", "load")
SITES: Mapping[str, int] = {f"/page/{n}": n * 7 % _SITES for n in range(_PAGES)}
"""The site that each page belongs to."""


def emit(n: int) -> str:
    """A page as it was loaded."""
    page, agent = int(uniform(n, 1) * _PAGES) % _PAGES, int(uniform(n, 2) * _AGENTS) % _AGENTS
    times = (f"{phase}={int(uniform(n, 3 + i) * 200)}" for i, phase in enumerate(_PHASES))
    return f"{n} 0 GET /page/{page} agent={agent} {' '.join(times)}"


def transform(value: str) -> str:
    """The fields that matter: page, agent, and the times without their names."""
    n, part, _, page, agent, *times = value.split(" ")
    told = ",".join(time.partition("=")[2] for time in times)
    return f"{n} {part} {page} {agent.partition('=')[2]} {told}"


def by_person(value: str) -> bool:
    """Whether it was no robot that asked: nine in ten."""
    return int(value.split(" ")[3]) >= _ROBOTS


def join(value: str) -> str:
    """The page's site in place of the page, out of a static table."""
    n, part, page, _, times = value.split(" ")
    return f"{n} {part} {SITES[page]} {times}"


def watched(value: str) -> bool:
    """Whether the site is watched: seven in eight are."""
    return int(value.split(" ")[2]) % 8 != 0


def aggregate(value: str) -> str:
    """The sum of the page's times, and the longest."""
    n, part, site, told = value.split(" ")
    times = [int(time) for time in told.split(",")]
    return f"{n} {part} {site} {sum(times)} {max(times)}"


def output(value: str) -> str:
    """The line that is written."""
    n, part, site, total, longest = value.split(" ")
    return f"{n} {part} site={site} total={total} longest={longest}"


BOLTS = (
    Bolt("map", transform),
    Bolt("filter", by_person),
    Bolt("map", join),
    Bolt("filter", watched),
    Bolt("map", aggregate),
    Bolt("map", output),
)

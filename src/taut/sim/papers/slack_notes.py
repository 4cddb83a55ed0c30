"""What is to be said of a table of policies: all of it follows from the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from taut.sim.papers.experiment import Figures
from taut.sim.papers.show import number

OURS = "least-slack"
EVEN = 0.01
"""Figures that are no further apart than this are said to be the same."""


def at_points(figures: Figures, figure: str) -> dict[str, dict[str, float]]:
    """A figure by point and variant.

    >>> at_points({"20/a": {"x": 1.0}, "20/b": {"x": 2.0, "y": 3.0}}, "y")
    {'20': {'b': 3.0}}
    """
    found: dict[str, dict[str, float]] = {}
    for key, told in figures.items():
        if figure in told:
            point, variant = key.split("/", 1)
            found.setdefault(point, {})[variant] = told[figure]
    return found


def lowest(figures: Figures, figure: str, what: str, points: str = "queries") -> str:
    """Where least slack has the lowest figure, and who has it where it has not."""
    ahead, level, behind = [], [], []
    for point, told in at_points(figures, figure).items():
        others = {name: told[name] for name in told if not name.startswith(OURS)}
        best = min(others, key=others.__getitem__)
        if told[OURS] < others[best] * (1.0 - EVEN):
            ahead.append(point)
        elif told[OURS] <= others[best] * (1.0 + EVEN):
            same = [name for name in others if others[name] <= told[OURS] * (1.0 + EVEN)]
            level.append((point, listed([*same, "least slack"])))
        else:
            behind.append((point, f"{best} ({number(others[best])} against {number(told[OURS])})"))
    said = [f"at {listed(ahead)} {points} least slack"] if ahead else []
    said += [f"at {listed(where)} {points} {names} alike" for where, names in _by(level)]
    said += [f"at {point} {points} {best}" for point, best in behind]
    return f"The lowest {what}: {'; '.join(said)}."


def order(figures: Figures, published: Figures, figure: str, point: str) -> str:
    """Whether variants come in the order published, and in which they do."""
    theirs = at_points(published, figure)[point]
    ours = {name: at_points(figures, figure)[point][name] for name in theirs}
    mine, wanted = (sorted(told, key=told.__getitem__) for told in (ours, theirs))
    if mine == wanted:
        return f"The order of {figure} at {point} queries is that published."
    apart = 100.0 * (ours[mine[-1]] / ours[mine[0]] - 1.0)
    return (
        f"From the lowest {figure} at {point} queries to the highest, {apart:.0f} % above it: "
        f"{listed(mine)}; published {listed(wanted)}."
    )


def alike(figures: Figures, figure: str, one: str, other: str) -> bool:
    """Whether two variants have the same figure at all points, to the last digits."""
    return all(
        abs(told[one] - told[other]) <= 1e-9 * told[one]
        for told in at_points(figures, figure).values()
    )


def compared(now: float, before: float) -> str:
    """How much lower or higher.

    >>> compared(8.0, 10.0), compared(10.01, 10.0), compared(13.0, 10.0)
    ('20 % lower', 'the same to 1 %', '30 % higher')
    """
    change = now / before - 1.0
    if abs(change) <= EVEN:
        return f"the same to {100.0 * EVEN:.0f} %"
    return f"{100.0 * abs(change):.0f} % {'lower' if change < 0.0 else 'higher'}"


def managed(figures: Figures, asked: Mapping[str, tuple[str, str]]) -> str:
    """What memory management changes, by what it is of: a point and a figure there."""
    said = []
    for what, (point, figure) in asked.items():
        told = at_points(figures, figure)[point]
        said.append(f"{what} {compared(told[OURS], told[f'{OURS}, no memory'])}")
    return f"With memory management, against least slack without: {listed(said)}."


def listed(words: Iterable[str]) -> str:
    """As one writes it.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _by(pairs: Sequence[tuple[str, str]]) -> list[tuple[list[str], str]]:
    """Points of which the same is said together."""
    said = dict.fromkeys(names for _, names in pairs)
    return [([point for point, names in pairs if names == each], each) for each in said]

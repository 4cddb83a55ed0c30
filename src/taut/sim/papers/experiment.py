"""An experiment: a published table or figure, and how to simulate it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

Figures = Mapping[str, Mapping[str, float]]
"""By variant, or by point of a curve: figures by name."""
Ranges = Mapping[str, Mapping[str, tuple[float, float]]]
"""The same, where only the least and the most was published."""
Curve = tuple[Sequence[float], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Effort:
    """How thoroughly to simulate.

    Attributes
    ----------
    seed
        Of all that is random.
    scale
        Times of the length that figures are meant for; below 1 for a quick look.
    """

    seed: int = 1
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.scale > 0.0:
            raise ValueError(f"scale={self.scale}: must be above 0")


@dataclass(frozen=True, slots=True)
class Axes:
    """What a picture's axes say, and from where on y is shown, if not from the least."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    low_y: float | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """Curves by label; those that were measured by the authors begin with "measured"."""

    axes: Axes
    curves: Mapping[str, Curve]


@dataclass(frozen=True, slots=True)
class Found:
    """What the simulation has shown.

    Attributes
    ----------
    figures
        To be put beside the published ones.
    curves
        Of the picture.
    notes
        What a reader should know.
    more
        Further pictures, by what they show.
    """

    figures: Figures
    curves: Mapping[str, Curve] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    more: Mapping[str, Picture] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why simulated figures are apart from the published ones; told only where they are.

    Attributes
    ----------
    why
        The reason.
    below, above
        Which figures are below or above the published ones for it, as ``variant.name``, where *
        stands for anything.
    """

    why: str
    below: tuple[str, ...] = ()
    above: tuple[str, ...] = ()

    def covers(self, figure: str, by: float) -> bool:
        """Whether it is the reason for a figure that is apart by so much.

        >>> reason = Reason("no replicas", below=("replicate-*.p999_ms",))
        >>> reason.covers("replicate-20.p999_ms", -30.0), reason.covers("default.p999_ms", -30.0)
        (True, False)
        """
        figures = self.above if by > 0.0 else self.below
        return any(fnmatchcase(figure, like) for like in figures)


def distance(name: str, simulated: float, published: float) -> float:
    """How far apart two figures are: in points if they are percentages, else in percent.

    >>> distance("p99_ms", 22.0, 20.0), distance("p99_lower_percent", 22.0, 20.0)
    (10.0, 2.0)
    """
    if name.endswith("_percent"):
        return simulated - published
    return round(100.0 * (simulated / published - 1.0), 9)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One table or figure.

    Attributes
    ----------
    name
        On the command line, and in the names of figures.
    source
        The work, and where in it.
    title
        What it shows.
    run
        The simulation.
    published
        What was published for the same.
    absent
        By figure (``variant.name``) or variant: why there is nothing simulated to compare it with.
    axes
        None where there is nothing to draw.
    ranges
        Where no single figure was published.
    near
        Figures that are further apart than so many percent, or half as many points if they are
        percentages, or outside of their range, are named below the table; None to name none.
    reasons
        Why such figures are apart.
    """

    name: str
    source: str
    title: str
    run: Callable[[Effort], Found]
    published: Figures = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    axes: Axes | None = None
    ranges: Ranges = field(default_factory=dict)
    near: float | None = None
    reasons: tuple[Reason, ...] = ()

    def off(self, found: Found) -> dict[str, float]:
        """Figures that are not near, as ``variant.name``, and how far apart they are."""
        if self.near is None:
            return {}
        apart: dict[str, float] = {}
        for variant, figures in found.figures.items():
            for name, simulated in figures.items():
                key = f"{variant}.{name}"
                published = self.published.get(variant, {}).get(name)
                within = self.ranges.get(variant, {}).get(name)
                if published:
                    by = distance(name, simulated, published)
                    if abs(by) > self.near / (2.0 if name.endswith("_percent") else 1.0):
                        apart[key] = by
                elif within is not None and not within[0] <= simulated <= within[1]:
                    apart[key] = distance(name, simulated, within[simulated > within[1]])
        return apart

    def flat(self, found: Found) -> dict[str, float]:
        """All figures by dotted names, simulated and published."""
        told = {
            f"{self.name}.{variant}.{figure}": value
            for variant, figures in found.figures.items()
            for figure, value in figures.items()
        }
        told |= {
            f"{self.name}.published.{variant}.{figure}": value
            for variant, figures in self.published.items()
            for figure, value in figures.items()
        }
        told |= {
            f"{self.name}.published.{variant}.{figure}.{which}": value
            for variant, ranges in self.ranges.items()
            for figure, ends in ranges.items()
            for which, value in zip(("least", "most"), ends, strict=True)
        }
        return told

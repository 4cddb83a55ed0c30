"""An experiment: a published table or figure, and how to simulate it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Figures = Mapping[str, Mapping[str, float]]
"""By variant, or by point of a curve: figures by name."""
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
    """

    name: str
    source: str
    title: str
    run: Callable[[Effort], Found]
    published: Figures = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    axes: Axes | None = None

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
        return told

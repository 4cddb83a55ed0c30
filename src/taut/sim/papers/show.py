"""Tables and pictures of experiments: simulated beside published."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from taut.bench.picture_style import COLOURS, MUTED, sheet
from taut.sim.papers.experiment import Experiment, Found, Picture, distance

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: what its columns are called, and its rows; all but the first columns are numbers."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    words: int = 1
    """Columns of words."""


def grids(experiment: Experiment, found: Found) -> list[Grid]:
    """Figures that variants have as such, and for each figure that they have at points a table."""
    both = (found.figures, experiment.published, experiment.ranges)
    keys = list(dict.fromkeys(key for figures in both for key in figures))
    made = []
    plain = [key for key in keys if "/" not in key]
    if plain:
        made.append(_listed(experiment, found, plain))
    at_points = [key for key in keys if "/" in key]
    figures = dict.fromkeys(
        name for key in at_points for told in both for name in told.get(key, {})
    )
    return made + [_crossed(experiment, found, at_points, name) for name in figures]


def _listed(experiment: Experiment, found: Found, variants: Sequence[str]) -> Grid:
    rows = []
    for variant in variants:
        mine = found.figures.get(variant, {})
        theirs = experiment.published.get(variant, {})
        ranges = experiment.ranges.get(variant, {})
        for name in dict.fromkeys([*mine, *theirs, *ranges]):
            told, published, ends = mine.get(name), theirs.get(name), ranges.get(name)
            cells = number(published), apart(name, told, published)
            if published is None and ends is not None:
                cells = f"{number(ends[0])} to {number(ends[1])}", beside(name, told, ends)
            rows.append((variant, name, number(told), *cells))
    return Grid(("variant", "figure", "simulated", "published", "apart"), rows, words=2)


def _crossed(experiment: Experiment, found: Found, keys: Sequence[str], figure: str) -> Grid:
    """Points down, variants across; what was published is in brackets."""

    def cell(key: str) -> str:
        told = number(found.figures.get(key, {}).get(figure))
        published = experiment.published.get(key, {}).get(figure)
        return told if published is None else f"{told} ({number(published)})".strip()

    having = [
        key
        for key in keys
        if figure in found.figures.get(key, {}) or figure in experiment.published.get(key, {})
    ]
    points = list(dict.fromkeys(key.split("/", 1)[0] for key in having))
    variants = list(dict.fromkeys(key.split("/", 1)[1] for key in having))
    rows = [(point, *(cell(f"{point}/{variant}") for variant in variants)) for point in points]
    return Grid((figure, *variants), rows)


def apart(name: str, simulated: float | None, published: float | None) -> str:
    """How far a simulated figure is from the published one.

    >>> apart("p99_ms", 20.6, 24.1), apart("lower_percent", 20.6, 24.1), apart("p99_ms", 1.0, None)
    ('-15 %', '-3.5 points', '')
    """
    if simulated is None or not published:
        return ""
    return _signed(name, distance(name, simulated, published))


def _signed(name: str, by: float) -> str:
    return f"{by:+.1f} points" if name.endswith("_percent") else f"{by:+.0f} %"


def beside(name: str, simulated: float | None, ends: tuple[float, float]) -> str:
    """Where a simulated figure is, of a published range.

    >>> beside("lower_percent", 30.0, (28.0, 40.0)), beside("lower_percent", 20.0, (28.0, 40.0))
    ('within', '-8.0 points')
    """
    if simulated is None:
        return ""
    if ends[0] <= simulated <= ends[1]:
        return "within"
    return apart(name, simulated, ends[simulated > ends[1]])


def number(value: float | None) -> str:
    """To three digits or so.

    >>> number(0.0292), number(29.23), number(12_345.6), number(1e-12), number(None)
    ('0.0292', '29.2', '12,346', '0', '')
    """
    if value is None:
        return ""
    if abs(value) < 1e-9 or abs(value) >= 100.0:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10.0 else f"{value:.3g}"


def tables(experiment: Experiment, found: Found) -> list[Table]:
    """For a terminal."""
    from rich import box
    from rich.table import Table

    made = []
    for grid in grids(experiment, found):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for n, head in enumerate(grid.head):
            table.add_column(head, justify="left" if n < grid.words else "right", no_wrap=True)
        for row in grid.rows:
            table.add_row(*row)
        made.append(table)
    return made


def remarks(experiment: Experiment, found: Found) -> list[str]:
    """Notes, what is not near what was published, and what has nothing beside it."""
    absent = [f"Not compared, {what}: {why}." for what, why in experiment.absent.items()]
    return [*found.notes, *_order(experiment, found), *_far(experiment, found), *absent]


_TOLD_APART = 1.02
"""How many times as large a figure must be to be the larger one."""


def _order(experiment: Experiment, found: Found) -> list[str]:
    """Variants that are not in the order published, by p99 and p99.9."""
    lines = []
    for figure in ("p99_ms", "p999_ms") if experiment.near is not None else ():
        published = {
            variant: told[figure]
            for variant, told in experiment.published.items()
            if figure in told and figure in found.figures.get(variant, {})
        }
        ranked = sorted(published, key=published.__getitem__)
        wrong = [
            f"{lower} and {higher}"
            for lower, higher in pairwise(ranked)
            if found.figures[higher][figure] < _TOLD_APART * found.figures[lower][figure]
        ]
        if wrong:
            lines.append(
                f"In the order published by {figure}, and here the other way round or less than "
                f"2 % apart: {', '.join(wrong)}."
            )
    return lines


def _far(experiment: Experiment, found: Found) -> list[str]:
    """Figures that are not near the published ones: with the reason, where one is known."""
    if experiment.near is None:
        return []
    off = experiment.off(found)
    bound = f"{experiment.near:g} %, or {experiment.near / 2.0:g} points"
    if not off:
        return [f"All figures are within {bound}, of those published."]
    lines = []
    for reason in experiment.reasons:
        mine = {key: by for key, by in off.items() if reason.covers(key, by)}
        if mine:
            lines.append(f"{_named(mine)}: {reason.why}")
        off = {key: by for key, by in off.items() if key not in mine}
    if off:
        lines.append(
            f"More than {bound}, from what was published, and not explained: {_named(off)}."
        )
    return lines


def _named(off: Mapping[str, float]) -> str:
    """Figures, and how far apart they are.

    >>> _named({"timeout.cost": -41.2, "shared.p99_lower_percent": 22.34})
    'timeout cost (-41 %), shared p99_lower_percent (+22.3 points)'
    """
    told = []
    for key, by in off.items():
        variant, name = key.rsplit(".", 1)
        told.append(f"{variant} {name} ({_signed(name, by)})")
    return ", ".join(told)


def markdown(experiment: Experiment, found: Found, pictures: Sequence[str]) -> str:
    """A section of the page of all experiments."""
    lines = [
        f"## {experiment.title}",
        "",
        f"`taut simulate {experiment.name}`. {experiment.source}.",
    ]
    for grid in grids(experiment, found):
        ruler = ["---"] * grid.words + ["--:"] * (len(grid.head) - grid.words)
        lines += ["", _line(grid.head), _line(ruler), *map(_line, grid.rows)]
    for remark in remarks(experiment, found):
        lines += ["", remark]
    for picture in pictures:
        lines += ["", f"![{experiment.title}]({picture})"]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def draw(path: Path, experiment: Experiment, found: Found) -> list[Path]:
    """All pictures of an experiment: one there, further ones beside it; and where they are."""
    pictures = {path: Picture(experiment.axes, found.curves)} if experiment.axes else {}
    for what, picture in found.more.items():
        pictures[path.with_name(f"{path.stem}-{what}{path.suffix}")] = picture
    drawn = []
    for there, picture in pictures.items():
        if picture.curves:
            _draw(there, experiment.title, picture)
            drawn.append(there)
    return drawn


def _draw(path: Path, title: str, picture: Picture) -> None:
    with sheet(path, title) as axes:
        for label, (x, y) in picture.curves.items():
            colour, style = _look(label, list(picture.curves))
            axes.plot(x, y, color=colour, ls=style, lw=2.0, label=label)
        if picture.axes.log_x:
            axes.set_xscale("log")
        if picture.axes.log_y:
            axes.set_yscale("log")
        if picture.axes.low_y is not None:
            axes.set_ylim(bottom=picture.axes.low_y)
        axes.set_xlabel(picture.axes.x)
        axes.set_ylabel(picture.axes.y)
    _small(path)


def _small(path: Path) -> None:
    """A palette is enough for lines, and takes half of the room."""
    from PIL import Image

    with Image.open(path) as drawn:
        few = drawn.convert("RGB").quantize(256)
    few.save(path, optimize=True)


def _look(label: str, labels: Sequence[str]) -> tuple[str, str]:
    """The colour of a curve, and dashes for what was measured: of the same colour as its own."""
    measured = label.removeprefix("measured ")
    own = [name for name in labels if not name.startswith("measured ")]
    place = own.index(measured) if measured in own else len(own)
    colour = MUTED if measured == "default" else COLOURS[place % len(COLOURS)]
    if label != measured:
        return colour, "--"
    # with more curves than colours, the next ones have dots
    dotted = place >= len(COLOURS) and "default" not in own
    return colour, ":" if dotted else "-"

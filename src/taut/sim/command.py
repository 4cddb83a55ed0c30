"""``taut simulate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from taut.bench.commands.options import FILE, json_option, wide_console, write
from taut.progress import bar

if TYPE_CHECKING:
    from rich.console import Console

    from taut.sim.papers import Effort, Experiment, Found

FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="Name the experiments.")
@click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="Of all that is random."
)
@click.option(
    "--scale",
    type=click.FloatRange(0.01, 100),
    default=1.0,
    show_default=True,
    help="Times of the usual length: 0.1 for a quick look.",
)
@json_option
@click.option("--picture", "picture_file", type=FILE, help="Draw a single experiment here, as PNG.")
@click.option("--pictures", type=FOLDER, help="Draw every experiment into this folder.")
@click.option("--page", type=FILE, help="Write all tables here, as Markdown.")
def simulate(
    name: str | None,
    listed: bool,
    seed: int,
    scale: float,
    json_file: Path | None,
    picture_file: Path | None,
    pictures: Path | None,
    page: Path | None,
) -> None:
    """Published tables and figures, simulated with Taut's own policies.

    NAME is an experiment, or all; calibrate fits the simulated cluster anew, and calibrate/CASE a
    part of it.
    """
    from taut.sim.papers import EXPERIMENTS, Effort
    from taut.sim.papers.calibrate import CASES, calibrate

    console = wide_console()
    known = _experiments()
    if listed or name is None:
        for each in known.values():
            console.print(f"{each.name:24s} {each.title}", highlight=False, soft_wrap=True)
        for extra, what in (
            ("all", "All but the last two"),
            ("calibrate", "Fit the simulated cluster anew: 40 minutes of a core"),
            ("calibrate/CASE", f"A part of it: {', '.join(CASES)}"),
        ):
            console.print(f"{extra:24s} {what}", highlight=False, soft_wrap=True)
        return
    kind, _, case = name.partition("/")
    if kind == "calibrate":
        if any((json_file, picture_file, pictures, page)) or scale != 1.0:
            raise click.UsageError("calibrate takes no option but --seed")
        if case and case not in CASES:
            raise click.BadParameter(f"{case!r}: one of {', '.join(CASES)}", param_hint="CASE")
        calibrate(console, seed, (case,) if case else tuple(CASES))
        return
    if name != "all" and name not in known:
        raise click.BadParameter(
            f"{name!r}: all, calibrate, or one of {', '.join(known)}", param_hint="NAME"
        )
    names = list(EXPERIMENTS) if name == "all" else [name]
    if picture_file and len(names) > 1:
        raise click.BadParameter("draws one experiment: --pictures FOLDER", param_hint="--picture")
    _run(console, names, Effort(seed, scale), name, json_file, picture_file, pictures, page)


def _run(
    console: Console,
    names: Sequence[str],
    effort: Effort,
    title: str,
    json_file: Path | None,
    picture_file: Path | None,
    pictures: Path | None,
    page: Path | None,
) -> None:
    from taut.bench.record import Record
    from taut.sim.papers.show import draw, markdown, remarks, tables

    record = Record(title, {"seed": effort.seed, "scale": effort.scale})
    sections = []
    done, failed = _found(console, names, effort)
    for name, found in done:
        experiment = _experiments()[name]
        console.print(f"[bold]{experiment.name}[/bold]: {experiment.title}. {experiment.source}.")
        for table in tables(experiment, found):
            console.print(table)
        for remark in remarks(experiment, found):
            console.print(remark, highlight=False, soft_wrap=True)
        record.add(experiment.flat(found))
        to = picture_file or (pictures / f"{name}.png" if pictures else None)
        drawn = draw(to, experiment, found) if to else []
        for picture in drawn:
            console.print(f"picture: {picture}", highlight=False, markup=False, soft_wrap=True)
        beside = [_relative(picture, page) for picture in drawn] if page else []
        sections.append(markdown(experiment, found, beside))
    write(console, json_file, record)
    if page:
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(HEAD + "\n" + "\n".join(sections), encoding="utf-8")
        console.print(f"page: {page}", highlight=False, markup=False, soft_wrap=True)
    if failed:
        told = "; ".join(f"{name}: {error!r}" for name, error in failed.items())
        raise click.ClickException(f"{len(failed)} of {len(names)} failed: {told}")


def _found(
    console: Console, names: Sequence[str], effort: Effort
) -> tuple[list[tuple[str, Found]], Mapping[str, BaseException]]:
    """What experiments have shown, in order, several at a time; and what went wrong with others."""
    if len(names) == 1:
        with bar(console) as tell:
            tell(0, 1, f"simulating {names[0]}")
            return [(names[0], _one(names[0], effort))], {}
    done: dict[str, Found] = {}
    failed: dict[str, BaseException] = {}
    with workers() as pool, bar(console) as tell:
        running = {pool.submit(_one, name, effort): name for name in names}
        for future in as_completed(running):
            name, error = running[future], future.exception()
            if error is None:
                done[name] = future.result()
            else:
                failed[name] = error
            tell(len(done) + len(failed), len(names), name)
    return [(name, done[name]) for name in names if name in done], failed


def workers() -> ProcessPoolExecutor:
    """A process for each core, none of which outlives this one, however it ends."""
    return ProcessPoolExecutor(mp_context=get_context("spawn"), initializer=_end_with_parent)


def _end_with_parent() -> None:
    """A worker that waits for work does not notice that there is nobody left to give it any."""
    import os

    parent = parent_process()
    if parent is None:
        raise RuntimeError("only in a worker")

    def wait() -> None:
        parent.join()
        os._exit(1)

    Thread(target=wait, name="end-with-parent", daemon=True).start()


def _one(name: str, effort: Effort) -> Found:
    return _experiments()[name].run(effort)


def _experiments() -> Mapping[str, Experiment]:
    """The published ones, and those with the simulator itself."""
    from taut.sim import speed
    from taut.sim.papers import EXPERIMENTS

    return {**EXPERIMENTS, **speed.EXPERIMENTS}


def _relative(picture: Path, page: Path) -> str:
    import os

    return Path(os.path.relpath(picture, page.parent)).as_posix()


HEAD = """# The published works, simulated

Made by `taut simulate all --page docs/papers.md --pictures docs/figures/papers`. Every table or
figure of the works that Taut builds on is an experiment; the policies in it are the classes that
run on Spark. How the cluster was fitted: [simulator](simulator.md).
"""

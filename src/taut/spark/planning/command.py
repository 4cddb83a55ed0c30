"""``taut plan``: from an app and an objective to settings for Spark."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.errors import SloError
from taut.planning.trials import SECONDS
from taut.slo import Slo

if TYPE_CHECKING:
    from taut.planning.profile import Profile

_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kM]?)\s*", re.ASCII)
_NODES = re.compile(r"\s*([0-9]+)\s*(?:(?:\.\.|-)\s*([0-9]+)\s*)?", re.ASCII)
_MOST_NODES = 1_000
FILE = click.Path(path_type=Path, dir_okay=False)


class Rate(click.ParamType[float]):
    """Rows a second: ``50k``, ``1.5M``, ``20000``."""

    name = "rows/s"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read the rate."""
        match = _RATE.fullmatch(str(value))
        rate = float(match[1]) * {"": 1.0, "k": 1e3, "M": 1e6}[match[2]] if match else 0.0
        if rate <= 0.0:
            self.fail(f"{value!r}: rows a second above zero, such as 50k", param, ctx)
        return rate


class Nodes(click.ParamType[range]):
    """A number of executors or a range of them: ``4``, ``1..10``."""

    name = "n or a..b"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> range:
        """Read the range."""
        if isinstance(value, range):
            return value
        match = _NODES.fullmatch(str(value))
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else 0
        if not 1 <= first <= last <= _MOST_NODES:
            self.fail(f"{value!r}: such as 4 or 1..10, at most {_MOST_NODES}", param, ctx)
        return range(first, last + 1)


@click.command()
@click.argument("app", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--slo", required=True, help="The objective, such as 'p99 <= 1 s'.")
@click.option("--rate", type=Rate(), help="Rows a second; without it, as many as can be on time.")
@click.option("--nodes", type=Nodes(), help="Executors: the fewest of these that suffice.")
@click.option("--cores", type=click.IntRange(1), help="Of each executor; as profiled by default.")
@click.option("--master", default="local[*]", show_default=True, help="Where to profile.")
@click.option(
    "--profile",
    "profile_file",
    type=FILE,
    help="Read the profile from here if it is there, else take it and write it here.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=5.0),
    default=SECONDS,
    show_default=True,
    help="How long to profile; with less there are fewer batches to plan from.",
)
@click.option("--save", type=FILE, help="Write the plan here, as JSON.")
@click.option("--conf", "conf_file", type=FILE, help="Write Spark's settings here.")
def plan(
    app: Path,
    slo: str,
    rate: float | None,
    nodes: range | None,
    cores: int | None,
    master: str,
    profile_file: Path | None,
    seconds: float,
    save: Path | None,
    conf_file: Path | None,
) -> None:
    """Profile APP for a minute or two and plan how to run it under an objective.

    APP is a Python file with a function app(spark, settings) that gives a streaming DataFrame and
    the sink of its batches.
    """
    import pyspark

    from taut.planning.plan import make
    from taut.planning.profile import Profile
    from taut.planning.settings import Cluster

    try:
        objective = Slo(slo)
    except SloError as error:
        raise click.BadParameter(str(error), param_hint="--slo") from None
    if profile_file is not None and profile_file.exists():
        profile = Profile.load(profile_file)
        if profile.app != app.stem:
            raise click.BadParameter(
                f"{profile_file} is of {profile.app!r}, and the app is {app.stem!r}: give each a "
                "file of its own",
                param_hint="--profile",
            )
        click.echo(f"profile: {profile_file}, {len(profile.samples)} batches", err=True)
    else:
        profile = _profiled(app, master, rate, objective, seconds)
        if profile_file is not None:
            profile.save(profile_file)
    each = cores or profile.cores
    executors = nodes or range(profile.executors, profile.executors + 1)
    clusters = [Cluster(many, each) for many in executors]
    found = make(profile, objective, rate, clusters, spark=pyspark.__version__)
    click.echo(found.explain())
    click.echo("Spark's settings:")
    for name, value in found.conf().items():
        click.echo(f"  {name}={value}")
    if save is not None:
        found.save(save)
    if conf_file is not None:
        lines = [f"{name} {value}\n" for name, value in found.conf().items()]
        conf_file.write_text("".join(lines))


def _profiled(path: Path, master: str, rate: float | None, slo: Slo, seconds: float) -> Profile:
    from rich.console import Console

    import taut
    from taut.progress import bar
    from taut.spark.planning.app import load_app
    from taut.spark.planning.profiling import Step, take

    name, app = load_app(path)
    with bar(Console(stderr=True)) as tell:
        tell(0, 1, "starting Spark")
        spark = taut.session(master)
        try:

            def at(step: Step) -> None:
                tell(step.done, step.of, f"profiled; now {step.doing}")

            return take(
                spark, app, name, rate=rate, objective=slo.seconds, seconds=seconds, watch=at
            )
        finally:
            spark.stop()

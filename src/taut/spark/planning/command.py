"""``taut plan``: from an app and an objective to settings for Spark."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from taut.errors import SloError
from taut.planning.settings import SPARE, Cluster
from taut.planning.trials import LEAST_SECONDS, RESIDENT_SECONDS, SECONDS
from taut.slo import Slo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from taut.spark.planning.app import App
    from taut.spark.planning.profiling import Step, Watcher

    Profiling = tuple[SparkSession, str, App, Watcher]

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


def _settings(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> dict[str, str]:
    given = dict(each.partition("=")[::2] for each in value)
    for name, setting in given.items():
        if not name.startswith("spark.") or not setting:
            raise click.BadParameter(
                f"{name!r}: a setting of Spark and its value, such as spark.driver.memory=4g"
            )
    return given


def _finite(ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """A range lets others through."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value}: a number is needed")
    return value


@click.command()
@click.argument("app", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--slo", required=True, help="The objective, such as 'p99 <= 1 s'.")
@click.option("--rate", type=Rate(), help="Rows a second; without it, as many as can be on time.")
@click.option(
    "--nodes",
    type=Nodes(),
    help="Executors: the fewest of these that suffice for --rate; without it, those with the most.",
)
@click.option("--cores", type=click.IntRange(1), help="Of each executor; as profiled by default.")
@click.option("--master", default="local[*]", show_default=True, help="Where to profile.")
@click.option(
    "--set",
    "given",
    multiple=True,
    callback=_settings,
    metavar="KEY=VALUE",
    help="A setting of the Spark that profiles, such as spark.jars.packages; again for each.",
)
@click.option(
    "--profile",
    "profile_file",
    type=FILE,
    help="Read the profile from here if it is there, else take it and write it here.",
)
@click.option(
    "--resident",
    is_flag=True,
    help="APP reads with resident timing: plan its lanes, chunks and horizon.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=LEAST_SECONDS),
    callback=_finite,
    help="How long to profile; with less there is less to plan from.  "
    f"[default: {SECONDS:g}, resident {RESIDENT_SECONDS:g}]",
)
@click.option(
    "--spare",
    type=click.FloatRange(min=0.0),
    callback=_finite,
    help="What batches may cost more than they did, as a share: more for a shared machine.  "
    f"[default: {SPARE:g}]",
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
    given: dict[str, str],
    profile_file: Path | None,
    resident: bool,
    seconds: float | None,
    spare: float | None,
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

    try:
        objective = Slo(slo)
    except SloError as error:
        raise click.BadParameter(str(error), param_hint="--slo") from None
    if resident:
        if spare is not None:
            raise click.UsageError(
                "--spare does not go with --resident: it is about what batches cost, and resident "
                "lanes take rows as they come"
            )
        for option, asked in (("nodes", nodes), ("cores", cores), ("conf", conf_file)):
            if asked is not None:
                raise click.UsageError(
                    f"--{option} does not go with --resident, which plans lanes: how many there "
                    "may be is what --master says, such as local[16]"
                )
        profiling = partial(_profiling, app, master, given)
        _plan_resident(app, objective, rate, profiling, profile_file, seconds, save)
        return
    if profile_file is not None and profile_file.exists():
        profile = Profile.load(profile_file)
        _refuse_other(profile.app, app, profile_file)
        click.echo(f"profile: {profile_file}, {len(profile.samples)} batches", err=True)
    else:
        with _profiling(app, master, given) as (spark, name, run, watch):
            # imports pandas, which takes long
            from taut.spark.planning.profiling import take

            long = seconds or SECONDS
            profile = take(spark, run, name, rate=rate, slo=objective, seconds=long, watch=watch)
        if profile_file is not None:
            profile.save(profile_file)
    each = cores or profile.cores
    executors = nodes or range(profile.executors, profile.executors + 1)
    clusters = [Cluster(many, each) for many in executors]
    left = SPARE if spare is None else spare
    found = make(profile, objective, rate, clusters, spare=left, spark=pyspark.__version__)
    click.echo(found.explain())
    click.echo("Spark's settings:")
    for name, value in found.conf().items():
        click.echo(f"  {name}={value}")
    if save is not None:
        found.save(save)
    if conf_file is not None:
        lines = [f"{name} {value}\n" for name, value in found.conf().items()]
        conf_file.write_text("".join(lines))


def _refuse_other(found: str, app: Path, file: Path) -> None:
    if found != app.stem:
        raise click.BadParameter(
            f"{file} is of {found!r}, and the app is {app.stem!r}: give each a file of its own",
            param_hint="--profile",
        )


def _plan_resident(
    app: Path,
    slo: Slo,
    rate: float | None,
    profiling: Callable[[], AbstractContextManager[Profiling]],
    profile_file: Path | None,
    seconds: float | None,
    save: Path | None,
) -> None:
    import pyspark

    from taut.planning.resident import Served, check_asked, make_resident
    from taut.spark.planning.lanes import serve

    check_asked(slo, rate, None)
    if profile_file is not None and profile_file.exists():
        served = Served.load(profile_file)
        _refuse_other(served.app, app, profile_file)
        click.echo(f"profile: {profile_file}, {len(served.rows)} rows", err=True)
    else:
        with profiling() as (spark, name, run, watch):
            served = serve(spark, run, name, seconds=seconds or RESIDENT_SECONDS, watch=watch)
        if profile_file is not None:
            served.save(profile_file)
    found = make_resident(served, slo, rate, served.lanes, spark=pyspark.__version__)
    click.echo(found.explain())
    click.echo("options of taut.read:")
    for name, value in found.settings.source().items():
        click.echo(f"  {name}={value!r}")
    if save is not None:
        found.save(save)


@contextlib.contextmanager
def _profiling(path: Path, master: str, given: dict[str, str]) -> Iterator[Profiling]:
    """Spark, the app, and a bar that tells how its profile stands."""
    from rich.console import Console

    import taut
    from taut.progress import bar
    from taut.spark.planning.app import load_app

    name, app = load_app(path)
    with bar(Console(stderr=True)) as tell:
        tell(0, 1, "starting Spark")
        spark = taut.session(master, conf=given)
        try:

            def at(step: Step) -> None:
                tell(step.done, step.of, f"profiled; now {step.doing}")

            yield spark, name, app, at
        finally:
            spark.stop()

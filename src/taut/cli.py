"""The ``taut`` command. Subcommands live beside what they run and are imported when called."""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import click

from taut import __version__
from taut.errors import TautError


class Entry(NamedTuple):
    """Where a subcommand lives, and its line in ``taut --help``."""

    target: str
    help: str


COMMANDS = {
    "bench": Entry("taut.bench.commands:bench", "Measure stock Spark and Taut, alternating."),
    "demo": Entry("taut.bench.commands:demo", "Show stock Spark and Taut, live, in minutes."),
    "plan": Entry("taut.spark.planning.command:plan", "From an objective to settings for Spark."),
    "replay": Entry("taut.sim.replay.command:command", "A recorded run under other policies."),
    "report": Entry("taut.watch.report.command:command", "A recorded run as one page to mail."),
    "simulate": Entry("taut.sim.command:simulate", "Published experiments under virtual time."),
    "doctor": Entry("taut.doctor:command", "Check that this machine has what Taut needs."),
}


class LazyGroup(click.Group):
    """A group that imports a subcommand only when it runs, and shows Taut's errors as messages."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(ctx)])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except TautError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="taut %(version)s")
def main() -> None:
    """Keep PySpark streams on time."""

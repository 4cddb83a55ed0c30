import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import taut
from taut import cli, doctor
from taut.doctor import Check
from taut.errors import EnvironmentProblem


def test_version() -> None:
    result = CliRunner().invoke(cli.main, ["--version"])
    assert (result.exit_code, result.output) == (0, f"taut {taut.__version__}\n")


def test_help_lists_every_command_without_importing_it() -> None:
    program = """
import sys
from taut.cli import main
main(["--help"], standalone_mode=False)
slow = {"taut.bench", "pyspark", "rich", "matplotlib"} & set(sys.modules)
assert not slow, slow
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for name, entry in cli.COMMANDS.items():
        assert name in done.stdout
        assert entry.help.split()[0] in done.stdout


@pytest.mark.parametrize("name", sorted(cli.COMMANDS))
def test_every_command_exists_and_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli.main, [name, "--help"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("name", ["backlog", "lanes", "queries"])
def test_every_benchmark_explains_itself(name: str) -> None:
    result = CliRunner().invoke(cli.main, ["bench", name, "--help"])
    assert result.exit_code == 0, result.output
    assert "--seconds" in result.output


def test_unknown_command() -> None:
    result = CliRunner().invoke(cli.main, ["nonsense"])
    assert result.exit_code == 2
    assert "nonsense" in result.output


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_doctor_exits_with_1_when_something_fails(
    monkeypatch: pytest.MonkeyPatch, status: doctor.Status, code: int
) -> None:
    check = Check("Java", status, "found [it] here", "do that")
    monkeypatch.setattr(doctor, "examine", lambda: [check])
    result = CliRunner().invoke(cli.main, ["doctor"])
    assert result.exit_code == code
    for word in ("Java", status, "found [it] here", "do that"):
        assert word in result.output


def test_errors_of_taut_are_messages_not_tracebacks(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command
    def broken() -> None:
        raise EnvironmentProblem("no Java")

    monkeypatch.setattr(doctor, "command", broken)
    result = CliRunner().invoke(cli.main, ["doctor"])
    assert (result.exit_code, result.output) == (1, "Error: no Java\n")

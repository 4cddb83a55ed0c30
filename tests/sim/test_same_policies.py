"""The simulator decides nothing by itself: every policy in it is the class that runs on Spark."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import taut.policy
import taut.sim

PROTOCOLS = {
    "Policy": {"decide"},
    "Balance": {"deal", "adjust"},
    "Replay": {"due", "observe"},
    "Signals": {"pick"},
    "Schedule": {"release", "given_up"},
    "Sharing": {"take", "relieve"},
}
"""What makes a class a policy of each kind."""


def modules(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(found.name)


def policies_in(module: ModuleType) -> list[str]:
    """Classes of a module that have what makes a policy."""
    return [
        f"{module.__name__}.{name} is a {kind} of its own"
        for name, made in inspect.getmembers(module, inspect.isclass)
        if made.__module__ == module.__name__
        for kind, methods in PROTOCOLS.items()
        if all(callable(getattr(made, method, None)) for method in methods)
    ]


def written_again(module: ModuleType, known: set[str]) -> set[str]:
    """Functions of a module that a policy has too."""
    tree = ast.parse(Path(str(module.__file__)).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} & known


def functions_of_policies() -> set[str]:
    return {
        node.name
        for module in modules(taut.policy)
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        # methods that any object may have
        and node.name not in {"check", "build", "size", "left", "join", "end", "cost", "run"}
    }


def test_no_class_of_the_simulator_is_a_policy() -> None:
    assert [found for module in modules(taut.sim) for found in policies_in(module)] == []


def test_no_function_of_a_policy_is_written_again() -> None:
    known = functions_of_policies()
    assert {"timeout_for", "largest_first", "erlang_c", "expected_slack"} <= known
    for module in modules(taut.sim):
        assert not written_again(module, known), module.__name__


def test_the_checks_find_an_offender(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "offender.py").write_text(
        "class Own:\n"
        "    def decide(self, now, queries): ...\n"
        "def timeout_for(samples): ...\n"
        "def harmless(): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("offender")
    assert policies_in(module) == ["offender.Own is a Policy of its own"]
    assert written_again(module, functions_of_policies()) == {"timeout_for"}

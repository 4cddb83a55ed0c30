"""The simulator decides nothing by itself: every policy in it is the class that runs on Spark."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

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


def test_no_class_of_the_simulator_is_a_policy() -> None:
    for module in modules(taut.sim):
        for name, made in inspect.getmembers(module, inspect.isclass):
            if made.__module__ != module.__name__:
                continue
            for kind, methods in PROTOCOLS.items():
                has = {method for method in methods if callable(getattr(made, method, None))}
                assert has != methods, f"{module.__name__}.{name} is a {kind} of its own"


def test_no_function_of_a_policy_is_written_again() -> None:
    known = {
        node.name
        for module in modules(taut.policy)
        for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text()))
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        # methods that any object may have
        and node.name not in {"check", "build", "size", "left", "join", "end", "cost", "run"}
    }
    assert {"timeout_for", "largest_first", "erlang_c", "expected_slack"} <= known
    for module in modules(taut.sim):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        again = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)} & known
        assert not again, f"{module.__name__} has its own {again}"


def test_the_check_would_find_one() -> None:
    class Own:
        def decide(self) -> None: ...

    assert all(callable(getattr(Own, method, None)) for method in PROTOCOLS["Policy"])
    assert all(hasattr(taut.policy, name) for name in ("LeastSlack", "Fcfs"))

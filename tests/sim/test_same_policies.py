"""The simulator decides nothing by itself: every policy in it is the class that runs on Spark.

Names tell of a policy that was written again under the same one. That experiments do as policies
say, whatever is written elsewhere, shows when these say something else.
"""

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
from taut.policy.backlog import LargestBacklog, RoundRobinSignal
from taut.policy.balance import LatencyBalance, TwoChoices
from taut.policy.deadline import CostAware, Dover
from taut.policy.memory import MemoryManaged
from taut.policy.order import Fcfs, HighestRate, RoundRobin, StreamBox
from taut.policy.sharing import Range, SharedQueue
from taut.policy.slack import LeastSlack
from taut.policy.timeout import AdaptiveTimeout, Replication
from taut.policy.turns import Turns
from taut.sim.papers import EXPERIMENTS, Effort

EFFORT = Effort(seed=17, scale=0.01)
"""Not one that other tests have run, and some experiments remember."""

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


class Asked(Exception):
    """A policy was."""


@pytest.mark.parametrize(
    ("experiment", "policy", "method"),
    [
        ("timeout", AdaptiveTimeout, "due"),
        ("timeout", Replication, "due"),
        ("page-load-timeout", AdaptiveTimeout, "due"),
        ("queue", SharedQueue, "take"),
        ("waiting", SharedQueue, "take"),
        ("page-load-queue", SharedQueue, "take"),
        ("conditions-utilisation", SharedQueue, "take"),
        ("conditions-load", LatencyBalance, "deal"),
        ("balance-a", LatencyBalance, "deal"),
        ("balance-b", LatencyBalance, "adjust"),
        ("balance-c", TwoChoices, "deal"),
        ("page-load-balance", LatencyBalance, "deal"),
        ("backlog-rate", LargestBacklog, "pick"),
        ("backlog-rate", RoundRobinSignal, "pick"),
        ("slack-ysb", LeastSlack, "decide"),
        ("slack-ysb", MemoryManaged, "decide"),
        ("slack-ysb", Fcfs, "decide"),
        ("slack-ysb", RoundRobin, "decide"),
        ("slack-ysb", HighestRate, "decide"),
        ("slack-ysb", StreamBox, "decide"),
        ("slack-spark", Turns, "grant"),
        ("deadline-cold", CostAware, "release"),
        ("deadline-cold", Dover, "release"),
    ],
)
def test_experiments_ask_the_policies(
    experiment: str, policy: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: object, **__: object) -> object:
        raise Asked

    monkeypatch.setattr(policy, method, asked)
    with pytest.raises(Asked):
        EXPERIMENTS[experiment].run(EFFORT)


def test_a_shared_queue_gives_out_what_its_policy_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last first, instead of the first."""
    before = EXPERIMENTS["queue"].run(EFFORT).figures

    def last(self: SharedQueue, lane: int) -> Range | None:
        queue = self._queue
        if not queue._ranges:
            return None
        taken, _ = queue._ranges.pop()
        queue.size -= taken.size
        return taken

    monkeypatch.setattr(SharedQueue, "take", last)
    after = EXPERIMENTS["queue"].run(EFFORT).figures
    assert after["default"] == before["default"]
    assert after["shared"]["p999_ms"] > before["shared"]["p999_ms"]


def test_load_moves_as_balance_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never, instead of to the fast ones."""
    before = EXPERIMENTS["balance-b"].run(EFFORT).figures
    monkeypatch.setattr(LatencyBalance, "_learn", lambda self, means: False)
    after = EXPERIMENTS["balance-b"].run(EFFORT).figures
    assert after["default"] == before["default"]
    assert after["balance"] != before["balance"]


def test_tuples_are_issued_twice_when_the_timeout_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never, instead of late."""
    monkeypatch.setattr(AdaptiveTimeout, "due", lambda self, size, now: None)
    found = EXPERIMENTS["timeout"].run(EFFORT).figures
    assert found["timeout"]["cost"] == 0.0
    assert found["timeout"]["p99_ms"] == found["default"]["p99_ms"]
    assert found["replicate-100"]["cost"] > 0.9

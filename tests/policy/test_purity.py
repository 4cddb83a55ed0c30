import ast
from pathlib import Path

import pytest

import taut.policy
from taut.policy import POLICIES, Decision

FOLDER = Path(taut.policy.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
IMPURE = {
    "asyncio", "io", "logging", "multiprocessing", "os", "pathlib", "pyspark", "queue", "random",
    "secrets", "select", "socket", "subprocess", "sys", "threading", "time", "datetime",
}  # fmt: skip
BUILTINS = {"open", "print", "input", "exec", "eval", "__import__"}


def imports(tree: ast.AST) -> set[str]:
    """Every module that is imported anywhere, also inside a function."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import without its full name"
            found.add(node.module or "")
    return found


def test_there_is_something_to_look_at() -> None:
    names = {str(module.relative_to(FOLDER)) for module in MODULES}
    assert {"view.py", "slack.py", "turns.py", "deadline/tree.py"} <= names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(FOLDER)))
def test_only_values_in_and_out(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for module in imports(tree):
        assert module.split(".")[0] not in IMPURE, module
        if module.split(".")[0] == "taut":
            assert module == "taut.slo" or module.startswith("taut.policy."), module
    calls = {n.func.id for n in ast.walk(tree)
             if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}  # fmt: skip
    assert not calls & BUILTINS


@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_builds_and_takes_nothing(name: str) -> None:
    build = POLICIES[name]
    policy = build()
    assert policy.decide(0.0, []) == Decision(None)
    assert getattr(build(), "_until", None) is None
    stateful = hasattr(policy, "observe")
    assert not stateful or build() is not policy, "state is not shared"

"""Every example and the README's code run as they are written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(arguments: list[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.spark
def test_the_code_of_the_readme(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "readme.py"
    script.write_text(code)
    said = run([str(script)], tmp_path)
    assert "Status(name='views'" in said
    assert list((tmp_path / "out" / "views").glob("batch_id=*/*.parquet"))


@pytest.mark.spark
def test_the_example_of_many_queries(tmp_path: Path) -> None:
    said = run([str(ROOT / "examples" / "many_queries.py"), "25"], tmp_path)
    assert len(re.findall(r"^sensors-\d: .* windows out", said, re.MULTILINE)) == 8


def test_the_commands_of_the_readme_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"^\$ make (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named == ["demo", "test"]
    assert set(named) <= set(targets)

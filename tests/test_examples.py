"""Every example in a docstring does what it says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import taut

MODULES = [module.name for module in pkgutil.walk_packages(taut.__path__, "taut.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_all_modules_are_looked_at() -> None:
    assert {"taut.slo", "taut.policy.sharing", "taut.spark.source.logs.schedule"} < set(MODULES)

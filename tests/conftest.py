"""One Spark for all tests that need one, and waiting without sleeping for an effect."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Eventually = Callable[..., None]

# no test leaves a trace of its runs behind, nor does a process that one starts
os.environ["TAUT_TRACE"] = "off"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    import taut

    session = taut.session(master="local[2]", conf={"spark.sql.session.timeZone": "UTC"})
    yield session
    session.stop()


def wait_until(condition: Callable[[], object], within: float = 120.0) -> None:
    """Poll a condition until it holds; fails, telling what was seen last, after a bound."""
    limit = time.monotonic() + within
    while not (seen := condition()):
        if time.monotonic() > limit:
            pytest.fail(f"not within {within} s: {condition}, last {seen!r}")
        time.sleep(0.02)  # between two looks at another process; nothing relies on its length


@pytest.fixture
def eventually() -> Eventually:
    """:func:`wait_until`, for a test."""
    return wait_until

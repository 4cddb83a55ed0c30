"""Hearing what sources, reduces and plans tell."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from taut.watch import hub
from taut.watch.records import Record


@pytest.fixture
def heard() -> Iterator[list[Record]]:
    """All records that are told while the test runs."""
    records: list[Record] = []
    listen = records.append
    hub.subscribe(listen)
    yield records
    hub.unsubscribe(listen)

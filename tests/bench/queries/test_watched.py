"""Pages that are open while it is measured."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.watch.scenes import Scene

from taut.bench.queries.watched import WATCHED, trace_of, watched
from taut.bench.record import BenchError
from taut.watch.server import Server
from taut.watch.snapshot import Snapshot


class Shown:
    """A runtime with a page, and nothing else."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self.page: Server | None = None

    def watch(self) -> Server:
        self.page = Server(self._snapshot)
        return self.page


def test_pages_are_open_for_as_long_as_the_block(eventually: Callable[..., None]) -> None:
    scene, looks = Scene(time.time() - 100), []

    def look() -> Snapshot:
        looks.append(time.time())
        return scene.at(time.time())

    runtime: Any = Shown(look)
    try:
        with watched(runtime, pages=3):
            eventually(lambda: len(looks) >= 2)
    finally:
        assert runtime.page is not None
        runtime.page.close()


def test_pages_that_cannot_be_opened_are_said() -> None:
    class Gone:
        url = "http://127.0.0.1:9/"

    class Runtime:
        def watch(self) -> Gone:
            return Gone()

    nowhere: Any = Runtime()
    with pytest.raises(BenchError, match="no page could be opened"), watched(nowhere, pages=1):
        pass


def test_only_what_is_about_being_watched_is_recorded(tmp_path: Path) -> None:
    assert trace_of(WATCHED, tmp_path) == tmp_path / "trace"
    assert trace_of("least-slack", tmp_path) is False

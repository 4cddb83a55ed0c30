"""The page of a demo: bound first, one for all runs, counted after the warm-up."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from tests.spark.watched import Owner

from taut.bench.queries.shown import COUNTING, OVER, WARMING, Shown
from taut.cli import main
from taut.errors import WatchError
from taut.spark.watching import Watching
from taut.watch.snapshot import Snapshot, decode


class Runtime(Owner):
    """One that can be asked how it stands, as the demo does."""

    def __init__(self) -> None:
        super().__init__()
        self._watching = Watching(self, False)

    def snapshot(self) -> Snapshot:
        return self._watching.snapshot()

    @property
    def trace(self) -> Path | None:
        return self._watching.folder


@pytest.fixture
def runtime() -> Iterator[Any]:
    made = Runtime()
    yield made
    made._watching.close()


@pytest.fixture
def taken() -> Iterator[int]:
    """A port that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_one_address_for_all_runs(
    runtime: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    monkeypatch.setenv("TAUT_TRACE", str(tmp_path))
    with Shown(0) as shown:

        def look() -> Snapshot:
            return decode(httpx.get(f"{shown.url}snapshot.json").content)

        assert look().policy == "Spark starts"
        shown.warming_up(runtime)
        eventually(lambda: look().notes == (WARMING,))
        warming = look().run
        shown.counting(runtime)
        eventually(lambda: look().notes == (COUNTING,))
        counted = look().run
        assert counted != warming
        shown.over()
        runtime._watching.close()
        eventually(lambda: look().notes == (OVER,))
        assert look().run == counted
        assert shown.recorded == [runtime.trace]
        assert shown.recorded[0].parent == tmp_path
    with pytest.raises(httpx.ConnectError):
        look()


def test_nothing_is_recorded_where_that_is_off(
    runtime: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAUT_TRACE", "off")
    with Shown(0) as shown:
        shown.warming_up(runtime)
        shown.counting(runtime)
        assert shown.recorded == []


def test_a_port_in_use_is_said_before_anything_is_started(
    taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(WatchError, match="in use"):
        Shown(taken)

    def started(*_: object, **__: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("taut.bench.queries.measure.spark_session", started)
    done = CliRunner().invoke(main, ["demo", "--watch", "--port", str(taken)])
    assert done.exit_code == 1
    assert f"port={taken} is in use" in done.output
    assert "Look at" not in done.output


def test_any_free_port_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise WatchError("far enough")

    monkeypatch.setattr("taut.bench.queries.measure.spark_session", started)
    done = CliRunner().invoke(main, ["demo", "--watch", "--port", "0"])
    (port,) = [
        line.split(":")[2].split("/")[0] for line in done.output.splitlines() if "http" in line
    ]
    assert int(port) > 0

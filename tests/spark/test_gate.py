"""The gate without Spark: who waits where, whatever comes first."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from taut.spark.gate import Gate


class Latch:
    """As the one in the JVM: opening counts, a query that is stopped is interrupted."""

    def __init__(self) -> None:
        self.semaphore = threading.Semaphore(0)
        self.waits = 0

    def wait(self) -> None:
        self.waits += 1
        self.semaphore.acquire()
        self.waits -= 1

    def open(self) -> None:
        self.semaphore.release()


class Sources:
    def __init__(self) -> None:
        self.held = False
        self.can_hold = True

    def hold(self) -> bool:
        self.held = self.can_hold
        return self.held

    def go(self) -> None:
        self.held = False


class Query:
    """A query whose turns a test gives."""

    def __init__(self, sources: Sources | None = None) -> None:
        self.latch = Latch()
        self.may_run = self.may_go_on = True
        self.log: list[str] = []
        self.on_planned: Callable[[], None] = lambda: None
        self.on_written: Callable[[], None] = lambda: None
        self.gate = Gate(
            self.latch, self._sink, self._planned, self._written, lambda: self.log.append("go"),
            lambda *_: self.log.append("failed"), sources,
        )  # fmt: skip

    def _sink(self, df: object, batch_id: int) -> None:
        self.log.append(f"write {batch_id}")

    def _planned(self, batch_id: int) -> bool:
        self.on_planned()
        return self.may_run

    def _written(self, batch_id: int) -> bool:
        self.on_written()
        return self.may_go_on

    def batch(self, batch_id: int) -> threading.Thread:
        df: Any = None
        thread = threading.Thread(target=self.gate, args=(df, batch_id), daemon=True)
        thread.start()
        return thread


def over(thread: threading.Thread) -> bool:
    thread.join(60)
    return not thread.is_alive()


def test_a_query_is_held_in_its_thread_until_it_is_granted(
    eventually: Callable[..., None],
) -> None:
    query = Query()
    query.may_go_on = False
    thread = query.batch(0)
    eventually(lambda: query.latch.waits)
    assert query.log == ["write 0"]
    query.gate.grant()
    assert over(thread)
    assert query.log == ["write 0", "go"]


def test_a_grant_that_comes_before_the_wait_counts_once(eventually: Callable[..., None]) -> None:
    query = Query()
    query.may_go_on = False
    query.on_written = query.gate.grant
    assert over(query.batch(0))
    query.on_written = lambda: None
    thread = query.batch(1)
    eventually(lambda: query.latch.waits)
    query.gate.grant()
    assert over(thread)


def test_sources_are_held_instead_and_the_batch_commits() -> None:
    sources = Sources()
    query = Query(sources)
    query.may_go_on = False
    assert over(query.batch(0))
    assert sources.held
    assert query.gate.held_in_sources
    assert query.log == ["write 0"], "the next batch has not begun"
    query.gate.grant()
    assert not sources.held
    assert query.log == ["write 0", "go"]


def test_an_early_grant_leaves_the_sources_free() -> None:
    sources = Sources()
    query = Query(sources)
    query.may_go_on = False
    query.on_written = query.gate.grant
    assert over(query.batch(0))
    assert not sources.held
    assert query.log == ["write 0", "go"]


def test_sources_that_cannot_be_held_leave_it_to_the_thread(
    eventually: Callable[..., None],
) -> None:
    sources = Sources()
    sources.can_hold = False
    query = Query(sources)
    query.may_go_on = False
    thread = query.batch(0)
    eventually(lambda: query.latch.waits)
    query.gate.grant()
    assert over(thread)


def test_a_batch_planned_before_the_sources_heard_waits_here_and_frees_them(
    eventually: Callable[..., None],
) -> None:
    sources = Sources()
    query = Query(sources)
    query.may_go_on = False
    assert over(query.batch(0))
    query.may_run = False
    thread = query.batch(1)
    eventually(lambda: query.latch.waits)
    assert not sources.held, "they would be held for ever: the grant is for the batch"
    query.may_go_on = True
    query.gate.grant()
    assert over(thread)
    assert query.log[-2:] == ["write 1", "go"]


def test_a_grant_between_the_plan_and_the_wait_counts() -> None:
    sources = Sources()
    query = Query(sources)
    query.may_go_on = False
    assert over(query.batch(0))
    query.may_run, query.on_planned = False, query.gate.grant
    assert over(query.batch(1))
    assert sources.held


def test_a_grant_that_a_batch_runs_by_is_not_one_for_the_next() -> None:
    sources = Sources()
    query = Query(sources)
    query.may_go_on = False
    query.on_planned = query.gate.grant
    assert over(query.batch(0))
    assert sources.held


@pytest.mark.parametrize("where", ["planned", "written"])
def test_draining_ends_a_wait_and_parks_the_next_batch(
    where: str, eventually: Callable[..., None]
) -> None:
    query = Query()
    query.may_run, query.may_go_on = where != "planned", where != "written"
    thread = query.batch(0)
    eventually(lambda: query.latch.waits)
    query.gate.drain()
    if where == "written":
        assert over(thread)
        thread = query.batch(1)
    eventually(query.gate.parked.is_set)
    assert "write 1" not in query.log
    assert thread.is_alive()


def test_draining_before_the_wait_ends_it_too() -> None:
    sources = Sources()
    query = Query(sources)
    query.may_go_on = False
    query.on_written = query.gate.drain
    assert over(query.batch(0))
    assert not sources.held


def test_draining_leaves_held_sources_held() -> None:
    sources = Sources()
    query = Query(sources)
    query.may_go_on = False
    assert over(query.batch(0))
    query.gate.drain()
    assert sources.held, "no batch is to be planned any more"

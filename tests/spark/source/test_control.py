"""How the driver steers sources, over a real socket."""

from __future__ import annotations

import gc
import logging
import socket
from collections.abc import Callable, Iterator

import pytest

from taut.policy.admission import Limits
from taut.spark.source.control import Control, Desk, Sources
from taut.spark.source.follower import OPTION, Follower, Look, Wheel
from taut.spark.source.frames import Client

Eventually = Callable[..., None]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()


def wheel(control: Control) -> Wheel:
    made = Wheel.of({OPTION: control.option})
    assert made is not None
    return made


@pytest.fixture
def follow() -> Iterator[Callable[[Control], Follower]]:
    made = []

    def follow(control: Control) -> Follower:
        made.append(Follower(wheel(control)))
        return made[-1]

    yield follow
    for follower in made:
        follower.stop()


@pytest.fixture
def held(
    desk: Desk, follow: Callable[[Control], Follower], eventually: Eventually
) -> tuple[Control, Follower]:
    """A source that is held, and its control."""
    control = desk.control()
    control.claim("query")
    source = follow(control)
    assert source.wait(0)
    assert control.hold()
    eventually(lambda: not source.wait(0))
    return control, source


def test_a_source_does_what_it_is_told(
    held: tuple[Control, Follower], eventually: Eventually
) -> None:
    control, source = held
    assert source.most is None
    control.limit(500)
    eventually(lambda: source.most == 500)
    assert not source.wait(0), "still held"
    control.go()
    assert source.wait(60)
    control.limit(None)
    eventually(lambda: source.most is None)


def test_two_sources_of_one_read_are_not_held(
    held: tuple[Control, Follower], follow: Callable[[Control], Follower]
) -> None:
    control, first = held
    second = follow(control)
    assert first.wait(60), "a second source has come: neither is held for the other's sake"
    assert second.wait(60)
    assert not control.hold()


def test_two_queries_of_one_read_are_not_held(desk: Desk) -> None:
    control = desk.control()
    control.seen("source")
    control.claim("a")
    assert control.hold()
    control.claim("b")
    assert not control.told.held
    assert not control.hold()
    control.release("a")
    assert control.hold()
    control.release("a")
    assert control.told.held, "it was released before"
    control.release("b")
    assert not control.told.held


def test_a_source_that_is_gone_no_longer_counts(desk: Desk) -> None:
    now = [100.0]
    control = Control(desk, clock=lambda: now[0])
    control.claim("query")
    control.seen("old")
    now[0] += 1
    control.seen("new")
    assert not control.hold()
    now[0] += 5.5
    assert control.hold()


def test_sources_are_held_all_or_none(desk: Desk) -> None:
    controls = [desk.control(), desk.control()]
    sources = Sources(controls)
    sources.claim()
    controls[0].seen("source")
    assert not sources.hold()
    assert not controls[0].told.held
    controls[1].seen("source")
    assert sources.hold()
    assert all(control.told.held for control in controls)
    sources.go()
    assert not any(control.told.held for control in controls)
    assert not Sources([]).hold()


def test_a_source_that_loses_the_driver_goes_on(
    desk: Desk,
    held: tuple[Control, Follower],
    eventually: Eventually,
    caplog: pytest.LogCaptureFixture,
) -> None:
    control, source = held
    control.limit(7)
    eventually(lambda: source.most == 7)
    with caplog.at_level(logging.WARNING, "taut"):
        desk.close()
        assert source.wait(60)
        eventually(lambda: "does not steer it now" in caplog.text)
    assert source.most == 7


def test_a_source_whose_connection_breaks_is_steered_again(
    held: tuple[Control, Follower], eventually: Eventually
) -> None:
    _, source = held
    for client in [each for each in gc.get_objects() if isinstance(each, Client)]:
        client._socket.shutdown(socket.SHUT_RDWR)
    assert source.wait(60), "un-held while it cannot hear"
    eventually(lambda: not source.wait(0))


def test_a_source_with_a_wrong_token_is_not_steered(
    desk: Desk, caplog: pytest.LogCaptureFixture, eventually: Eventually
) -> None:
    with caplog.at_level(logging.WARNING, "taut"):
        source = Follower(Wheel(desk.address, "wrong token", "name"))
        eventually(lambda: "does not steer it now" in caplog.text)
        assert source.wait(0)
        source.stop()


def test_a_control_that_is_not_known_holds_nobody(desk: Desk) -> None:
    client = Client(desk.address, desk.token)
    client._socket.settimeout(60)
    assert client.ask(Look("unknown", "source", -1)) == ["Told", -1, False, -1]
    client.close()


def test_wrong_limits_are_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match=r"limit\(0\): at least 1"):
        desk.control().limit(0)


def test_a_budget_is_above_the_least_a_batch_waits_for() -> None:
    assert Limits(least=100).capped(10) == Limits(most=10, least=10)
    assert Limits(most=5, least=2).capped(10) == Limits(most=10, least=2)

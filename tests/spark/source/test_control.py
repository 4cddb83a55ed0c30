"""How the driver steers sources, over a real socket."""

from __future__ import annotations

import gc
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from taut.policy.admission import Limits
from taut.spark.source.control import Control, Desk, Sources
from taut.spark.source.follower import OPTION, TELL_EVERY, Follower, Look, Stats, Wheel
from taut.spark.source.frames import Client
from taut.watch import hub
from taut.watch.records import Lane, Record, Source

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
    assert client.ask(Look("unknown", "source", -1)) == ["Told", -1, False, -1, False]
    client.close()


def test_wrong_limits_are_refused(desk: Desk) -> None:
    with pytest.raises(ValueError, match=r"limit\(0\): at least 1"):
        desk.control().limit(0)


def test_a_budget_is_above_the_least_a_batch_waits_for() -> None:
    assert Limits(least=100).capped(10) == Limits(most=10, least=10)
    assert Limits(most=5, least=2).capped(10) == Limits(most=10, least=2)


# -- what those hear who watch -------------------------------------------------------------------


class Watched:
    """A source that counts how often it was asked how its lanes fare."""

    def __init__(self) -> None:
        self.wanted: list[bool] = []

    def stats(self) -> Stats:
        return Stats(issued=5, replayed=1, timeout=0.5, shares={"here#0": 1.0})

    def facts(self, wanted: bool) -> Source | None:
        self.wanted.append(wanted)
        return Source(len(self.wanted), "", lanes=(Lane(0, "here", 5),)) if wanted else None


def test_a_source_tells_while_somebody_listens(
    desk: Desk, heard: list[Record], eventually: Eventually
) -> None:
    control, source = desk.control(), Watched()
    control.named("ads")
    follower = Follower(wheel(control), source.stats, source.facts)
    assert source.wanted == [True], "it gathers before it may plan its first batch"
    begun = time.monotonic()
    eventually(lambda: len(heard) >= 2)
    assert time.monotonic() - begun > 1.5 * TELL_EVERY
    lanes = (Lane(0, "here", 5),)
    assert heard[0] == Source(
        2, "ads", issued=5, replayed=1, timeout=0.5, shares={"here#0": 1.0}, lanes=lanes
    )
    hub.unsubscribe(heard.append)
    eventually(lambda: source.wanted[-1] is False)
    told = len(source.wanted)
    follower.stop()
    assert len(source.wanted) == told, "nobody listens, nothing is gathered"


def test_nothing_is_gathered_before_somebody_listens(desk: Desk, eventually: Eventually) -> None:
    control, source = desk.control(), Watched()
    follower = Follower(wheel(control), source.stats, source.facts)
    eventually(lambda: control.stats is not None)
    assert source.wanted == []
    control.limit(3)
    eventually(lambda: follower.most == 3)
    assert source.wanted == []
    follower.stop()


def test_a_source_that_ends_tells_the_rest(desk: Desk, heard: list[Record]) -> None:
    control, source = desk.control(), Watched()
    control.named("ads", "2")
    follower = Follower(wheel(control), source.stats, source.facts)
    follower.stop()
    follower.stop()
    (last,) = heard
    assert isinstance(last, Source)
    assert (last.query, last.source, last.at) == ("ads", "2", 2)


def test_the_last_word_is_heard_last(
    desk: Desk, heard: list[Record], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a look of the source's own is under way as it ends."""
    monkeypatch.setattr("taut.spark.source.follower._LAST_WORD", 60.0)
    under_way, go_on, times = threading.Event(), threading.Event(), itertools.count()

    def facts(wanted: bool) -> Source | None:
        at = next(times)
        if at == 1:
            under_way.set()
            assert go_on.wait(30)
        return Source(at, "") if wanted else None

    follower = Follower(wheel(desk.control()), facts=facts)
    assert under_way.wait(30), "it tells every second"
    ending = threading.Thread(target=follower.stop)
    ending.start()
    # one that did not wait would have said it long before
    ending.join(0.5)
    assert ending.is_alive()
    assert not heard
    go_on.set()
    ending.join(30)
    eventually(lambda: len(heard) >= 2)
    assert [record.at for record in heard if isinstance(record, Source)] == [1, 2]


def test_a_source_that_ends_is_heard_out(
    desk: Desk, heard: list[Record], eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taut.spark.source.control._PARTS_WITHIN", 60.0)
    control, other = desk.control(), desk.control()
    mine, others = (
        Sources([], named=[(each, name, "")]) for each, name in ((control, "ads"), (other, "views"))
    )
    mine.announce()
    source = Watched()
    follower = Follower(wheel(control), source.stats, source.facts)
    eventually(lambda: mine.telling)
    assert not others.telling
    ending = threading.Timer(0.3, follower.stop)
    ending.start()
    others.hear_out()
    mine.hear_out()
    # the source's own last word, and not what it told before
    last = [record for record in heard if isinstance(record, Source)][-1]
    assert (last.query, last.at) == ("ads", len(source.wanted))
    assert follower._stopped
    ending.join(30)
    assert not mine.telling


def test_a_source_that_was_killed_is_not_waited_for(
    desk: Desk, heard: list[Record], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("taut.spark.source.control._PARTS_WITHIN", 0.2)
    now = [100.0]
    control = Control(desk, clock=lambda: now[0])
    control.named("ads")
    control.seen("killed")
    control.hear(Look(control.name, "killed", 0, wait=TELL_EVERY))
    Sources([], named=[(control, "ads", "")]).hear_out()
    assert control.telling("ads")
    now[0] += 100.0
    assert not control.telling("ads")


def test_a_source_of_a_query_that_nobody_watches_has_no_last_word(
    desk: Desk, eventually: Eventually
) -> None:
    control = desk.control()
    mine = Sources([], named=[(control, "ads", "")])
    mine.announce()
    follower = Follower(wheel(control), lambda: None, Watched().facts)
    eventually(lambda: control.heard)
    assert not mine.telling
    follower.stop()


def test_a_source_that_cannot_tell_is_steered_all_the_same(
    desk: Desk, heard: list[Record], eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(wanted: bool) -> Source | None:
        raise ValueError("no lanes")

    control = desk.control()
    follower = Follower(wheel(control), facts=failing)
    control.limit(5)
    eventually(lambda: follower.most == 5)
    follower.stop()
    assert not heard
    assert caplog.text.count("no lanes") == 1


def test_news_in_between_make_it_tell_no_more_often(
    desk: Desk, heard: list[Record], eventually: Eventually
) -> None:
    control, source = desk.control(), Watched()
    follower = Follower(wheel(control), source.stats, source.facts)
    begun = time.monotonic()
    for most in range(1, 100):
        control.limit(most)
        eventually(lambda most=most: follower.most == most)
    follower.stop()
    assert len(heard) <= 2 + (time.monotonic() - begun) / (0.9 * TELL_EVERY)


def test_a_source_is_of_the_query_that_was_named_before_it_came(
    desk: Desk, heard: list[Record]
) -> None:
    control = desk.control()
    for name in ("first", "second"):
        control.named(name)
        control.seen(name[0])
    for source in "fsx":
        control.hear(Look(control.name, source, 0, None, Source(0.0, "")))
    assert [record.query for record in heard] == ["first", "second", "second"]
    unnamed = desk.control()
    unnamed.hear(Look(unnamed.name, "x", 0, None, Source(0.0, "")))
    assert heard[-1].query == f"taut.read {unnamed.name[:6]}"


def test_sources_that_come_late_are_of_the_queries_in_their_order(
    desk: Desk, heard: list[Record]
) -> None:
    control = desk.control()
    failed, *queries = (object() for _ in range(3))
    control.named("failed", owner=failed)
    for owner, name in zip(queries, ("first", "second"), strict=True):
        control.named(name, owner=owner)
    control.release(failed)
    assert not control.settled
    for source in "abc":
        control.seen(source)
    assert control.settled
    for source in "abc":
        control.hear(Look(control.name, source, 0, None, Source(0.0, "")))
    assert [record.query for record in heard] == ["first", "second", "second"]


def test_a_source_that_was_silent_is_still_its_query_s(desk: Desk, heard: list[Record]) -> None:
    now = [0.0]
    control = Control(desk, clock=lambda: now[0])
    control.named("first")
    control.seen("f")
    control.named("second")
    control.seen("s")
    now[0] = 100.0
    control.seen("s")
    assert not control.hold()
    control.seen("f")
    control.hear(Look(control.name, "f", 0, None, Source(0.0, "")))
    assert [record.query for record in heard] == ["first"]
    for n in range(1_000):
        control.seen(f"{n}")
    assert len(control._queries) <= 100


def test_a_query_waits_until_the_sources_before_its_own_have_come(
    desk: Desk, heard: list[Record]
) -> None:
    control = desk.control()
    first, second = (
        Sources([], named=[(control, name, label) for label in labels])
        for name, labels in (("first", "12"), ("second", ("",)))
    )
    first.announce()
    control.seen("a")
    later = threading.Thread(target=second.announce)
    later.start()
    later.join(0.05)
    assert later.is_alive()
    control.seen("b")
    later.join(60)
    control.seen("c")
    for source in "abc":
        control.hear(Look(control.name, source, 0, None, Source(0.0, "")))
    told = [(r.query, r.source) for r in heard if isinstance(r, Source)]
    assert told == [("first", "1"), ("first", "2"), ("second", "")]
    first.announce()
    first.release()
    assert control.settled, "what has not come of a query that has ended will not"

"""The source's end of the steering: asks the driver what to do, and knows the last answer.

A source that cannot reach the driver goes on by itself: holding a query back must never stop it.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from taut.spark.source.frames import Client, FrameError
from taut.watch.records import Source

log = logging.getLogger("taut")

OPTION = "controltoken"
"""The option of a data source that carries a control's address, token and name.

Spark hides options with such a name where it shows a plan.
"""
ASK_FOR = 2.0
"""Seconds that a source waits for news before it asks again."""
TELL_EVERY = 1.0
"""Seconds between two tellings of how its lanes fare, while somebody wants to know."""
_SOON = 0.9
"""Of these, after which it may be told when the driver has just answered."""
_LAST_WORD = 3.0
"""Seconds that a source that ends has for what it has to tell."""
_AGAIN_AFTER = 1.0
"""Seconds after which it tries to reach a driver again that was not there."""


class Stats(msgspec.Struct, frozen=True):
    """How a source deals its rows out.

    Attributes
    ----------
    issued
        Offsets handed out to lanes so far, those included that were handed out once more.
    replayed
        Offsets handed out once more, because their timeout had passed or blindly.
    timeout
        Seconds a row after which that happens now; None while there is no timeout.
    shares
        What each place (a slot of an executor) gets of the rows, where shares follow latency.
    """

    issued: int = 0
    replayed: int = 0
    timeout: float | None = None
    shares: dict[str, float] = {}

    @property
    def cost(self) -> float:
        """What was worked on twice, as a share of the rows.

        >>> Stats(issued=103, replayed=3).cost
        0.03
        """
        rows = self.issued - self.replayed
        return self.replayed / rows if rows else 0.0


class Look(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """A source asks what it is to do; ``seen`` is the number of what it knows.

    ``facts`` has no query: that the driver knows. ``wait``: the seconds after which it wants an
    answer though there is no news; 0 when it asks for the last time.
    """

    name: str
    source: str
    seen: int
    stats: Stats | None = None
    facts: Source | None = None
    wait: float = ASK_FOR


class Told(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """What a source is to do: plan no batch while ``held``, and take at most ``most`` offsets.

    ``most`` is -1 to leave it at what the options say. While it is ``watched`` it tells how its
    lanes fare.
    """

    number: int
    held: bool = False
    most: int = -1
    watched: bool = False


@dataclass(frozen=True, slots=True)
class Wheel:
    """Where a source finds its control."""

    address: tuple[str, int]
    token: str
    name: str

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Wheel | None:
        """From the options of a data source."""
        given = options.get(OPTION)
        if given is None:
            return None
        place, token, name = given.split(" ")
        host, _, port = place.rpartition(":")
        return cls((host, int(port)), token, name)


class Follower:
    """Asks the driver, in a thread of its own, and knows what the source is to do.

    Parameters
    ----------
    stats
        How rows were dealt out.
    facts
        How the lanes fare, and what was done since the last call: called once more before anything
        is told, and with False when nobody wants to know any more.
    """

    def __init__(
        self,
        wheel: Wheel,
        stats: Callable[[], Stats | None] = lambda: None,
        facts: Callable[[bool], Source | None] = lambda wanted: None,
    ) -> None:
        self._wheel = wheel
        self._stats = stats
        self._facts = facts
        self._told_at: float | None = None
        self._source = uuid.uuid4().hex
        self._told = Told(-1)
        self._change = threading.Condition()
        self._speaking = threading.Lock()
        """Held from a look until it is sent: the last one is heard last."""
        self._stopped = self._warned = self._failed = False
        self._heard = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="taut-follower", daemon=True)
        self._thread.start()
        # the driver must know of this source before it plans its first batch
        self._heard.wait(ASK_FOR)

    @property
    def most(self) -> int | None:
        """Offsets that a batch may take, if the driver has said."""
        return None if self._told.most < 0 else self._told.most

    def wait(self, seconds: float) -> bool:
        """Wait while the source is held, so long at most; whether it may plan a batch."""
        with self._change:
            return self._change.wait_for(lambda: self._stopped or not self._told.held, seconds)

    def stop(self) -> None:
        """Ask no more; who watches hears of what was done until now."""
        again = self._stopped
        with self._change:
            self._stopped = True
            self._change.notify_all()
        self._ended.set()
        if again or not self._speaking.acquire(timeout=_LAST_WORD):
            return
        # the thread says no more
        self._speaking.release()
        if self._told_at is not None:
            with contextlib.suppress(OSError, FrameError, msgspec.MsgspecError):
                client = Client(self._wheel.address, self._wheel.token, timeout=_LAST_WORD)
                with contextlib.closing(client):
                    client.ask(self._look(last=True))

    def _tell(self, told: Told) -> None:
        with self._change:
            self._told = told
            self._change.notify_all()
        self._heard.set()

    def _run(self) -> None:
        while not self._stopped:
            try:
                self._ask()
            except (OSError, FrameError, msgspec.MsgspecError) as error:
                if not self._stopped and not self._warned:
                    self._warned = True
                    log.warning("source: the driver does not steer it now: %r", error)
            self._watch(False)
            # goes on by itself until the driver answers again
            self._tell(Told(-1, most=self._told.most))
            self._ended.wait(_AGAIN_AFTER)

    def _ask(self) -> None:
        decode = msgspec.msgpack.Decoder(Told).decode
        client = Client(self._wheel.address, self._wheel.token)
        try:
            while not self._stopped:
                with self._speaking:
                    if self._stopped:
                        break
                    client.send(self._look())
                told = client.answer(decode)
                self._watch(told.watched)
                self._tell(told)
        finally:
            client.close()

    def _watch(self, watched: bool) -> None:
        """Begin to gather what is told, or end it."""
        with self._speaking:
            if not self._stopped and watched != (self._told_at is not None):
                self._gather(watched)
                self._told_at = time.monotonic() if watched else None

    def _gather(self, wanted: bool) -> Source | None:
        try:
            return self._facts(wanted)
        except Exception as error:  # who watches must not end what is watched
            if not self._failed:
                self._failed = True
                log.warning("source: how its lanes fare cannot be told: %r", error)
            return None

    def _look(self, last: bool = False) -> Look:
        facts, wait, now = None, ASK_FOR, time.monotonic()
        if self._told_at is not None:
            # it also asks in between, whenever the driver had news for it
            passed = now - self._told_at
            if last or passed >= _SOON * TELL_EVERY:
                facts, self._told_at, passed = self._gather(True), now, 0.0
            wait = 0.0 if last else TELL_EVERY - passed
        stats = self._stats()
        return Look(self._wheel.name, self._source, self._told.number, stats, facts, wait)

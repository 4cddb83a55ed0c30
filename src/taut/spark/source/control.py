"""How the driver steers a source while its query runs: when it may plan a batch, and how large.

The source lives in a process of Spark's own. A :class:`Control` in the driver says what it is to
do, a :class:`.follower.Follower` in the source does it; between them is a socket on loopback, on
which the source asks and the driver answers when there is news.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec

from taut.spark.source.follower import ASK_FOR, OPTION, Look, Stats, Told
from taut.spark.source.listener import Listener
from taut.watch import hub

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger("taut")

FORMAT = "taut"
_RESIDENT = "resident"
_REQUESTS = 65_536
_GONE_AFTER = 3 * ASK_FOR
_MOST_REMEMBERED = 100
"""Sources of one read whose query is remembered: one that was silent for long may ask again."""
_COMES_WITHIN = 2.0
"""Seconds that a source may take to come before the next is named all the same."""
_PARTS_WITHIN = 3.0
"""Seconds that sources of a query that has ended may take for their last word."""
_POLL = 0.01


class Control:
    """Steers the sources of one ``taut.read``.

    Several queries may come of one read. Holding them together would hold a query for another's
    sake: :meth:`hold` works only while there is one.
    """

    def __init__(self, desk: Desk, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = uuid.uuid4().hex
        self._desk = desk
        self._clock = clock
        self._told = Told(0)
        self._sources: dict[str, tuple[float, int]] = {}
        self.stats: Stats | None = None
        """What a source has told last."""
        self._owners: set[object] = set()
        self._query = (f"taut.read {self.name[:6]}", "")
        self._coming: list[tuple[object, tuple[str, str]]] = []
        self._queries: dict[str, tuple[str, str]] = {}
        self._telling: dict[str, float] = {}

    @property
    def option(self) -> str:
        """The text for the option ``control``."""
        host, port = self._desk.address
        return f"{host}:{port} {self._desk.token} {self.name}"

    @property
    def told(self) -> Told:
        """What sources are told now."""
        return self._told

    def named(self, query: str, label: str = "", owner: object = None) -> None:
        """A source of this query comes; labelled where the query has several.

        Sources do not know whose they are: they are taken to come in the order in which they were
        named. One that nobody has named, such as of a query that Spark has started again, is the
        last one's.
        """
        with self._desk.lock:
            self._query = (query, label)
            self._coming.append((owner, self._query))

    @property
    def settled(self) -> bool:
        """Whether all sources have come that were named."""
        return not self._coming

    def claim(self, owner: object) -> None:
        """A query begins that may want to hold its source."""
        with self._desk.lock:
            self._owners.add(owner)
            if not self._alone():
                self._tell(held=False)

    def release(self, owner: object) -> None:
        """The query has ended; a source of it that has not come will not."""
        with self._desk.lock:
            self._coming = [each for each in self._coming if each[0] is not owner]
            if owner in self._owners:
                self._owners.discard(owner)
                self._tell(held=False)

    def hold(self) -> bool:
        """Let the source plan no batch until :meth:`go`; False where that cannot be."""
        with self._desk.lock:
            if not self._alone():
                return False
            self._tell(held=True)
            return True

    def go(self) -> None:
        """Let the source plan batches."""
        with self._desk.lock:
            self._tell(held=False)

    def limit(self, most: int | None) -> None:
        """Offsets that a batch may take from the next one on; None for what the options say."""
        if most is not None and most < 1:
            raise ValueError(f"limit({most}): at least 1 offset a batch is needed, or None")
        with self._desk.lock:
            self._tell(most=-1 if most is None else most)

    @property
    def heard(self) -> bool:
        """Whether all sources know what they are told now."""
        return all(number == self._told.number for _, number in self._sources.values())

    def seen(self, source: str, number: int = 0) -> None:
        """A source has asked; a second one ends what was for the first alone."""
        if source not in self._queries:
            self._queries[source] = self._coming.pop(0)[1] if self._coming else self._query
            if len(self._queries) > _MOST_REMEMBERED:
                del self._queries[next(iter(self._queries))]
        self._sources[source] = (self._clock(), number)
        if self._told.held and not self._alone():
            self._tell(held=False)

    def _alone(self) -> bool:
        limit = self._clock() - _GONE_AFTER
        self._sources = {s: seen for s, seen in self._sources.items() if seen[0] >= limit}
        return len(self._sources) == 1 and len(self._owners) == 1

    def hear(self, look: Look) -> None:
        """Hand on how the lanes of a source fare, and whose they are, to those who watch."""
        if look.facts is not None and hub.heard():
            query, label = self._queries.get(look.source, self._query)
            stats = look.stats or Stats()
            hub.tell(
                msgspec.structs.replace(
                    look.facts,
                    query=query,
                    source=label,
                    issued=stats.issued,
                    replayed=stats.replayed,
                    timeout=stats.timeout,
                    shares=stats.shares,
                )
            )
        with self._desk.lock:
            # one that tells wants to be asked sooner than one that does not
            if 0.0 < look.wait < ASK_FOR:
                self._telling[look.source] = self._clock()
            else:
                self._telling.pop(look.source, None)

    def telling(self, query: str) -> bool:
        """Whether a source of the query still has a last word to say."""
        with self._desk.lock:
            limit = self._clock() - _GONE_AFTER
            self._telling = {s: at for s, at in self._telling.items() if at >= limit}
            return any(self._queries.get(s, self._query)[0] == query for s in self._telling)

    def _tell(self, **change: object) -> None:
        told = msgspec.structs.replace(self._told, **change)
        if told != self._told:
            self._told = msgspec.structs.replace(told, number=told.number + 1)
            self._desk.ring()


class Desk:
    """All controls of a driver, and the port at which sources ask for them."""

    _one: ClassVar[Desk | None] = None
    _making: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def one(cls) -> Desk:
        """This process's desk, made when first asked for."""
        with cls._making:
            if cls._one is None:
                cls._one = cls()
            return cls._one

    @classmethod
    def search(cls, option: str | None) -> Control | None:
        """The control that an option names, if it was made in this process."""
        if cls._one is None or option is None:
            return None
        return cls._one._controls.get(option.rpartition(" ")[2])

    @classmethod
    def cpu_seconds(cls) -> float:
        """CPU seconds that steering has used in this process."""
        return 0.0 if cls._one is None else cls._one._listener.cpu_seconds

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._controls: dict[str, Control] = {}
        self._listener = Listener("taut-control", "127.0.0.1", Look, self._answer, _REQUESTS)
        self.address = self._listener.address
        self.token = self._listener.token

    def control(self) -> Control:
        """A new control. It is kept: the DataFrame that carries its name may be started later."""
        control = Control(self)
        with self.lock:
            self._controls[control.name] = control
        return control

    def ring(self) -> None:
        """Something is told otherwise now."""
        self._listener.ring()

    def close(self) -> None:
        """Answer no more: all sources go on by themselves."""
        self._listener.close()

    async def _answer(self, request: Look) -> Told:
        wait = min(max(0.0, request.wait), ASK_FOR)
        limit = time.monotonic() + wait
        control = self._controls.get(request.name)
        if control is not None:
            control.hear(request)
        while True:
            with self.lock:
                told = Told(request.seen)
                if control is not None:
                    if wait:
                        control.seen(request.source, request.seen)
                    control.stats = request.stats or control.stats
                    told = control.told
            left = limit - time.monotonic()
            # that somebody watches now is news for a source that would wait so long
            watched = hub.heard()
            if told.number != request.seen or left <= 0 or (watched and wait == ASK_FOR):
                return msgspec.structs.replace(told, watched=watched)
            await self._listener.news(left)


class Sources:
    """All sources of one query, held and let go together."""

    def __init__(
        self,
        controls: Sequence[Control],
        *,
        resident: int = 0,
        named: Sequence[tuple[Control, str, str]] = (),
    ) -> None:
        self._controls = controls
        self._named = named
        self.known = bool(controls)
        """Whether all of them are Taut's and can be steered from here."""
        self.resident = resident
        """Tasks that some of them keep for good; then turns mean nothing."""

    def announce(self) -> None:
        """The query is about to begin: what its sources tell is told as its own.

        Sources of another query of the same read that are still to come are waited for, so that
        they are not taken for this one's.
        """
        limit = time.monotonic() + _COMES_WITHIN
        while not all(c.settled for c, _, _ in self._named) and time.monotonic() < limit:
            time.sleep(_POLL)
        for control, query, label in self._named:
            control.named(query, label, self)

    def claim(self) -> None:
        """The query begins, and wants to hold its sources."""
        self.announce()
        for control in self._controls:
            control.claim(self)

    def release(self) -> None:
        """The query has ended."""
        for control in {*self._controls, *(control for control, _, _ in self._named)}:
            control.release(self)

    @property
    def telling(self) -> bool:
        """Whether one of them still has a last word to say to those who watch."""
        return any(control.telling(query) for control, query, _ in self._named)

    def hear_out(self, deadline: float = math.inf) -> None:
        """The query has ended: wait, not for long, for what its sources tell last.

        Nothing else waits for it: Spark tells a source's process to end, and goes on.
        """
        limit = min(time.monotonic(), deadline) + _PARTS_WITHIN
        while self.telling and time.monotonic() < limit:
            time.sleep(_POLL)

    def hold(self) -> bool:
        """Let no source plan a batch until :meth:`go`; False where that cannot be."""
        held = self.known and all(control.hold() for control in self._controls)
        if not held:
            self.go()
        return held

    def go(self) -> None:
        """Let the sources plan batches."""
        for control in self._controls:
            control.go()


def sources_of(df: DataFrame, query: str | None = None) -> Sources:
    """The sources of a streaming DataFrame; they can be held if all of them are Taut's.

    What Taut's tell is of this query once it is announced.
    """
    try:
        return _sources(df, query)
    except Exception as error:
        # the plan is Spark's own: one that reads otherwise means holding the query elsewhere
        log.warning("the sources of a query cannot be steered: %r", error)
        return Sources([])


def options_of(df: DataFrame) -> list[dict[str, str] | None]:
    """Of each of its streaming sources, keys in lower case; None of one that is not Taut's."""
    found: list[dict[str, str] | None] = []
    leaves = df._jdf.queryExecution().analyzed().collectLeaves()
    for leaf in (leaves.apply(index) for index in range(leaves.size())):
        if leaf.isStreaming():
            # only sources of Spark's newer kind carry their options, and a Taut source is one
            newer = leaf.getClass().getSimpleName() == "StreamingRelationV2"
            found.append(
                {key.lower(): value for key, value in leaf.extraOptions().items()}
                if newer and leaf.sourceName() == FORMAT
                else None
            )
    return found


def _sources(df: DataFrame, query: str | None) -> Sources:
    controls: list[Control | None] = []
    resident = 0
    for options in options_of(df):
        controls.append(None if options is None else Desk.search(options.get(OPTION)))
        if options is not None and options.get("timing") == _RESIDENT:
            lanes = str(options.get("lanes"))
            resident += int(lanes) if lanes.isdecimal() else 1
    known = [control for control in controls if control is not None]
    named = [
        (control, query, str(number) if len(known) > 1 else "")
        for number, control in enumerate(known, 1)
        if query is not None
    ]
    steered = known if len(known) == len(controls) else []
    return Sources(steered, resident=resident, named=named)

"""The board: what records say of a run, as it stands now. No Spark, no files, no clock of its own.

Fed with records in about the order of their times, by a runtime while it runs or from a trace
after it has. Memory is bounded, however long the run and however many batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from taut.watch.query_board import Live, QueryBoard
from taut.watch.records import (
    Batch,
    Ended,
    Expected,
    LeftOut,
    Record,
    Reduced,
    Run,
    Source,
    Started,
    Turn,
)
from taut.watch.results import source_name
from taut.watch.snapshot import Snapshot
from taut.watch.source_board import ReduceBoard, SourceBoard, plan_now
from taut.watch.verdict import Turnout

MOST_ENDED = 100
"""Queries that have ended and are still shown."""
MOST_OTHERS = 500
"""Sources, reduces and plans."""


class Board:
    """Takes records, gives snapshots.

    Examples
    --------
    >>> board = Board()
    >>> board.observe(Run(0.0, "r", "least-slack", concurrency=2, hold_limit=60.0))
    >>> board.observe(Started(0.0, "q", slo="p99 <= 1 s", objective=1.0, window=(10.0, 10.0, 0.0)))
    >>> board.observe(Batch("q", 0, 20.1, 20.1, 20.2, 20.3, 20.6, ends=(20.0,), windows=1))
    >>> (query,) = board.snapshot(21.0).queries
    >>> query.state, query.verdict, round(query.latency.max, 3)
    ('held', 'met', 0.6)
    """

    def __init__(self) -> None:
        self._run = Run(0.0, "", "", 1, 0.0)
        self._queries: dict[str, QueryBoard] = {}
        self._sources: dict[tuple[str, str], SourceBoard] = {}
        self._reduces: dict[str, ReduceBoard] = {}
        self._plans: dict[str, Expected] = {}
        self._left_out = 0
        self._left_out_why = ""

    def observe(self, record: Record) -> None:
        """Take a record in."""
        match record:
            case Batch():
                self._query(record.query, record.begun).batch(record)
            case Turn():
                self._query(record.query, record.at).turn(record)
            case Source():
                self._source(record)
            case Reduced():
                self._reduce(record)
                if record.query in self._queries:
                    self._queries[record.query].reduced(record)
            case Expected():
                self._plans[record.query] = record
                _bound(self._plans, MOST_OTHERS)
            case Started():
                self._start(record)
            case Ended():
                self._query(record.query, record.at).end(record)
                self._forget_ended()
            case LeftOut():
                self._left_out += record.records
                self._left_out_why = record.why
            case Run():
                self._run = record

    def snapshot(
        self,
        now: float,
        live: Mapping[str, Live] | None = None,
        *,
        notes: Iterable[str] = (),
        overhead: float = 0.0,
    ) -> Snapshot:
        """Everything as it stands; ``live`` has what a runtime knows of its queries right now."""
        live = live or {}
        queries = self._queries
        stand = {name: query.stands(live.get(name)) for name, query in queries.items()}
        running = sum(
            state == "running" and not queries[name].started.resident
            for name, (state, _) in stand.items()
        )
        waiting = sum(
            state == "planned" or (state == "held" and (due is None or due <= now))
            for state, due in stand.values()
        )
        run = self._run
        return Snapshot(
            at=now,
            run=run.run,
            policy=run.policy,
            concurrency=run.concurrency,
            started=run.at,
            machine=run.machine,
            running=running,
            queries=tuple(
                query.now(now, live.get(name), Turnout(running, waiting, run.concurrency))
                for name, query in sorted(queries.items())
            ),
            sources=tuple(
                found for _, s in sorted(self._sources.items()) if (found := s.now(now)) is not None
            ),
            reduces=tuple(
                stands for _, r in sorted(self._reduces.items()) if (stands := r.now()) is not None
            ),
            plans=tuple(plan_now(expected) for _, expected in sorted(self._plans.items())),
            notes=(*notes, *self._notes()),
            overhead=overhead,
        )

    def check(self) -> None:
        """Assert the invariants."""
        assert sum(q.ended is not None for q in self._queries.values()) <= MOST_ENDED
        assert max(len(self._sources), len(self._reduces), len(self._plans)) <= MOST_OTHERS
        for query in self._queries.values():
            query.check()
        for source in self._sources.values():
            source.check()

    def _query(self, name: str, at: float) -> QueryBoard:
        """The query; one that is heard of before it is told to have started is taken up."""
        found = self._queries.get(name)
        if found is None:
            found = self._queries[name] = QueryBoard(Started(at, name), told=False)
        return found

    def _start(self, started: Started) -> None:
        before = self._queries.get(started.query)
        if before is not None and before.lives_on(started):
            before.start(started)
            return
        if before is not None:
            self._forget_parts(started.query)
        self._queries[started.query] = QueryBoard(started)

    def _source(self, source: Source) -> None:
        key = source.query, source.source
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = SourceBoard(source_name(*key))
        found.observe(source)
        _bound(self._sources, MOST_OTHERS)

    def _reduce(self, reduced: Reduced) -> None:
        found = self._reduces.get(reduced.query)
        if found is None:
            found = self._reduces[reduced.query] = ReduceBoard(reduced.query)
        found.observe(reduced)
        _bound(self._reduces, MOST_OTHERS)

    def _forget_ended(self) -> None:
        ended = [(q.ended.at, name) for name, q in self._queries.items() if q.ended is not None]
        for _, name in sorted(ended)[:-MOST_ENDED]:
            self._forget_parts(name)
            del self._queries[name]
            self._plans.pop(name, None)

    def _forget_parts(self, query: str) -> None:
        """Of a query that is over: they count since their start."""
        self._reduces.pop(query, None)
        for key in [key for key in self._sources if key[0] == query]:
            del self._sources[key]

    def _notes(self) -> list[str]:
        if not self._left_out:
            return []
        return [f"{self._left_out} records were left out: {self._left_out_why}"]


class _Heard(Protocol):
    @property
    def at(self) -> float:
        """When it was last heard of."""


K = TypeVar("K")
V = TypeVar("V", bound=_Heard)


def _bound(them: dict[K, V], most: int) -> None:
    """Forget the one that was not heard of for longest."""
    if len(them) > most:
        del them[min(them, key=lambda key: them[key].at)]

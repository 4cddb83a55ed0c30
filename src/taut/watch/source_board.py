"""What a board keeps of a Taut source, of a reduce and of a plan."""

from __future__ import annotations

from collections import deque

from taut.watch.latency import Latencies
from taut.watch.records import Expected, Lane, Reduced, Source
from taut.watch.snapshot import PlanNow, Quantiles, ReduceNow, SourceNow

MOST_HISTORY = 240
MOST_LANES = 256
_BUSY_OVER = 10.0
_ENOUGH_CHUNKS = 20


class SourceBoard:
    """One Taut source, from its records."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._last: Source | None = None
        self._chunks = Latencies(whole=False)
        self._lanes: dict[int, Latencies] = {}
        self._history: deque[tuple[float, int, float]] = deque(maxlen=MOST_HISTORY)
        self._shares: deque[tuple[float, dict[str, float]]] = deque(maxlen=MOST_HISTORY)
        self._busy: deque[tuple[float, dict[int, float]]] = deque(maxlen=MOST_HISTORY)

    @property
    def at(self) -> float:
        """When it was last heard of."""
        return self._last.at if self._last else 0.0

    def observe(self, source: Source) -> None:
        """How it stands."""
        before = self._last
        rows = sum(lane.rows for lane in source.lanes)
        rate = 0.0
        if before is not None and source.at > before.at:
            done = rows - sum(lane.rows for lane in before.lanes)
            rate = max(0, done) / (source.at - before.at)
        self._history.append((source.at, sum(source.backlog.values()), rate))
        if source.shares and (not self._shares or self._shares[-1][1] != source.shares):
            self._shares.append((source.at, source.shares))
        if before is not None and source.at < before.at:
            self._busy.clear()  # the clock was set back
        self._busy.append(
            (source.at, {lane.lane: _worked(lane, source.at) for lane in source.lanes})
        )
        while len(self._busy) > 2 and self._busy[1][0] <= source.at - _BUSY_OVER:
            self._busy.popleft()
        for chunk in source.chunks:
            took = chunk.done - chunk.claimed
            self._chunks.observe(chunk.done, took)
            if chunk.lane in self._lanes or len(self._lanes) < MOST_LANES:
                of_lane = self._lanes.setdefault(chunk.lane, Latencies(whole=False))
                of_lane.observe(chunk.done, took)
        self._last = source

    def now(self, now: float) -> SourceNow | None:
        """As it stands."""
        last = self._last
        if last is None:
            return None
        rows = last.issued - last.replayed
        chunk = self._chunks.quantiles(now)
        return SourceNow(
            query=self.name,
            at=last.at,
            issued=last.issued,
            replayed=last.replayed,
            cost=last.replayed / rows if rows > 0 else 0.0,
            timeout=last.timeout,
            lanes=last.lanes,
            busy=self._busy_now(last),
            stragglers=_stragglers(last, chunk),
            shares=last.shares,
            share_history=tuple(self._shares),
            backlog=last.backlog,
            history=tuple(self._history),
            unit=last.unit,
            chunk=chunk,
            lane_chunks={
                lane: found
                for lane, each in sorted(self._lanes.items())
                if (found := each.quantiles(now)) is not None
            },
        )

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._lanes) <= MOST_LANES
        for latencies in (self._chunks, *self._lanes.values()):
            latencies.check()

    def _busy_now(self, last: Source) -> tuple[float, ...]:
        since, before = self._busy[0]
        span = last.at - since
        if span <= 0:
            return (0.0,) * len(last.lanes)
        worked = (_worked(lane, last.at) - before.get(lane.lane, 0.0) for lane in last.lanes)
        return tuple(min(1.0, max(0.0, seconds / span)) for seconds in worked)


class ReduceBoard:
    """One reduce, from its records."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._last: Reduced | None = None
        self._rows = self._on_time = self._late = 0
        self._shed: dict[str, int] = {}
        self._history: deque[tuple[float, int, int, int]] = deque(maxlen=MOST_HISTORY)

    @property
    def at(self) -> float:
        """When it was last heard of."""
        return self._last.at if self._last else 0.0

    def observe(self, reduced: Reduced) -> None:
        """A batch is out."""
        self._last = reduced
        self._rows += reduced.rows
        self._on_time += reduced.on_time
        self._late += reduced.late
        for reason, rows in reduced.shed.items():
            self._shed[reason] = self._shed.get(reason, 0) + rows
        shed = sum(reduced.shed.values())
        self._history.append((reduced.at, reduced.on_time, reduced.late, shed))

    def now(self) -> ReduceNow | None:
        """As it stands: rows are counted since the start."""
        last = self._last
        if last is None:
            return None
        return ReduceNow(
            query=self.name,
            at=last.at,
            objective=last.objective,
            rows=self._rows,
            on_time=self._on_time,
            late=self._late,
            waiting=last.waiting,
            shed=dict(self._shed),
            hot=last.hot,
            hot_bytes=last.hot_bytes,
            cold=last.cold,
            history=tuple(self._history),
        )


def plan_now(expected: Expected) -> PlanNow:
    """A planned query as it stands."""
    return PlanNow(
        query=expected.query,
        at=expected.at,
        measure=expected.measure,
        expected=expected.seconds,
        low=expected.low,
        high=expected.high,
        observed=expected.observed,
        rate=expected.rate,
        planned_rate=expected.planned_rate,
        phases=expected.phases,
    )


def _worked(lane: Lane, at: float) -> float:
    """Seconds that a lane had worked by then: on chunks that are done, and on the open one."""
    return lane.busy + (0.0 if lane.open_since is None else max(0.0, at - lane.open_since))


def _stragglers(last: Source, chunk: Quantiles | None) -> tuple[int, ...]:
    if chunk is None or chunk.count < _ENOUGH_CHUNKS:
        return ()
    # twice the middle as well: where all chunks take alike, every one is near the tail
    usual = max(chunk.p99, 2 * chunk.p50)
    return tuple(
        lane.lane
        for lane in last.lanes
        if lane.open_since is not None and last.at - lane.open_since > usual
    )

"""What a board keeps of one query: counts, sketches, and the last two minutes."""

from __future__ import annotations

import math
from collections import deque

import msgspec
import numpy as np

from taut.errors import SloError
from taut.slo import Slo
from taut.watch.latency import Latencies
from taut.watch.records import Batch, Ended, Reduced, SlackParts, Started, Turn
from taut.watch.snapshot import Bar, Quantiles, QueryNow
from taut.watch.verdict import Turnout, budget, measured, verdict, waiting_for

RECENT = 120.0
"""Seconds that are looked back at."""
MOST_BARS = 480
MOST_POINTS = 240
MOST_RESULTS = 1_200
"""Of one batch: what came out beyond that is not told apart."""
_APART = 0.05

PHASES = ("held", "planning", "running")


class Live(msgspec.Struct, frozen=True):
    """What only the runtime itself knows of a query at this moment."""

    state: str
    since: float
    due: float | None = None
    slack: SlackParts | None = None


class Counts:
    """Results and late ones of the last while, in slices of time. O(1), bounded."""

    def __init__(self, seconds: float = 10.0, slices: int = 12) -> None:
        self._seconds = seconds
        self._slices: deque[list[int]] = deque(maxlen=slices)

    def add(self, at: float, results: int, late: int) -> None:
        """So many came out, so many of them late."""
        index = math.floor(at / self._seconds)
        if not self._slices or self._slices[-1][0] < index:
            self._slices.append([index, 0, 0])
        # what comes out of order by some seconds counts with the newest
        self._slices[-1][1] += results
        self._slices[-1][2] += late

    def recent(self, now: float) -> tuple[int, int]:
        """Results and late ones up to now."""
        first = math.floor(now / self._seconds) - (self._slices.maxlen or 0)
        kept = [s for s in self._slices if s[0] > first]
        return sum(s[1] for s in kept), sum(s[2] for s in kept)


class QueryBoard:
    """One query, from its records."""

    def __init__(self, started: Started) -> None:
        self.started = started
        self.ended: Ended | None = None
        self.results = self.late = self.batches = 0
        self.held_seconds = 0.0
        self.objective = started.objective
        self.latencies = Latencies()
        self._after_due = Latencies()
        self._phases = {phase: Latencies() for phase in PHASES}
        self._counts = Counts()
        self._bars: deque[Bar] = deque(maxlen=MOST_BARS)
        self._points: deque[tuple[float, float]] = deque(maxlen=MOST_POINTS)
        self._turn: Turn | None = None
        self._last: Batch | None = None
        self._reduces = False
        self._state, self._since = "waiting for data", started.at

    # -- records ----------------------------------------------------------------------------

    def start(self, started: Started) -> None:
        """It is told again, once more is known of it."""
        self.started = started
        self.objective = started.objective if started.objective is not None else self.objective

    def end(self, ended: Ended) -> None:
        """It is over."""
        self.ended = ended
        self._state, self._since = ("failed" if ended.error else "ended"), ended.at

    def turn(self, turn: Turn) -> None:
        """It may run."""
        self._turn = turn
        if self.ended is None:
            self._state, self._since = "running", turn.at

    def batch(self, batch: Batch) -> None:
        """A batch is out."""
        # a clock that was set back while it ran makes no phase negative
        begun = min(batch.begun, batch.written)
        run = min(max(begun, batch.run), batch.written)
        held = min(self._held_from(batch), begun)
        self.batches += 1
        self.held_seconds += begun - held
        for phase, took in zip(
            PHASES, (begun - held, run - begun, batch.written - run), strict=True
        ):
            self._phases[phase].observe(batch.written, took)
        late = self._count(batch)
        self._bars.append(Bar(held, begun, run, batch.written, batch.batch, batch.windows, late))
        self._last = batch
        if self.ended is None and not (self._turn and self._turn.at > batch.written):
            stays = batch.goes_on or self.started.resident
            self._state, self._since = "running" if stays else "held", batch.written

    def reduced(self, reduced: Reduced) -> None:
        """Rows of a reduce are out: they are counted, and not the moments of batches."""
        if not self._reduces:
            self._reduces = True
            self.results = self.late = 0
            self._counts = Counts()
        if self.started.objective is None:
            self.objective = reduced.objective
        self._add(reduced.at, reduced.on_time + reduced.late, reduced.late)

    # -- how it stands ------------------------------------------------------------------------

    def stands(self, live: Live | None) -> tuple[str, float | None]:
        """Its state, and when it is due: as the runtime says, or as far as records tell."""
        if live is not None and self.ended is None:
            return live.state, live.due
        return self._state, self._due()

    def now(self, now: float, live: Live | None, turns: Turnout) -> QueryNow:
        """All of it; ``live`` where the runtime is there to ask."""
        state, due = self.stands(live)
        since, slack = self._since, self._turn.slack if self._turn else None
        if live is not None and self.ended is None:
            since, slack = live.since, live.slack
        active = self.ended is None
        slo = _slo(self.started)
        results, late = self._counts.recent(now)
        rank = slo.quantile if slo is not None else 1.0
        observed = None if self.objective is None else self._after_due.quantile(now, rank)
        said = measured(slo, self.objective, observed, results, late)
        held = state in ("held", "planned")
        error = self.ended.error if self.ended else None
        return QueryNow(
            name=self.started.query,
            state=state,
            verdict=verdict(said, now, self.objective, due, slack, held=held, active=active),
            waiting_for=waiting_for(
                state, now, due, turns, error=error, windowed=self.started.window is not None
            ),
            since=since,
            slo=self.started.slo,
            objective=self.objective,
            window=self.started.window,
            due=due if active else None,
            slack=slack if active else None,
            latency=self.latencies.quantiles(now),
            observed=observed,
            on_time=self._on_time(),
            budget=budget(slo, self.results, self.late),
            results=self.results,
            late=self.late,
            batches=self.batches,
            held_seconds=self.held_seconds,
            error=error,
            bars=tuple(bar for bar in self._bars if bar.written > now - RECENT),
            latencies=tuple(self._points),
            phases=self._phases_now(now),
        )

    def check(self) -> None:
        """Assert the invariants."""
        assert 0 <= self.late <= self.results
        assert self.held_seconds >= 0.0
        assert len(self._bars) <= min(self.batches, MOST_BARS)
        for bar in self._bars:
            assert bar.held <= bar.begun <= bar.run <= bar.written
        for latencies in (self.latencies, self._after_due, *self._phases.values()):
            latencies.check()

    def _held_from(self, batch: Batch) -> float:
        """Since when it had waited for this batch: only the first of a turn waits."""
        turn = self._turn
        first = self._last is None or self._last.granted != batch.granted
        if turn is None or turn.at != batch.granted or not first:
            return batch.begun
        return turn.held_since

    def _count(self, batch: Batch) -> int:
        """Take a batch's results in; returns how many of them were late."""
        if self.started.resident:
            return 0  # rows are out long before a resident batch is
        if self.started.window is not None or batch.windows:
            ends = _ends(batch, self.started.window)
            latencies = batch.written - ends
            after_due = latencies - max(0.0, batch.delay)
            results, late = batch.windows, batch.late
            self._points.extend((batch.written, float(each)) for each in after_due[-MOST_POINTS:])
        else:
            latencies = after_due = _spread(batch)
            results = len(latencies)
            late = 0 if self.objective is None else int((latencies > self.objective).sum())
            if results:
                self._points.append((batch.written, batch.written - batch.planned + batch.input))
        self.latencies.observe_all(batch.written, latencies)
        self._after_due.observe_all(batch.written, after_due)
        if not self._reduces:
            self._add(batch.written, results, min(late, results))
        return min(late, results)

    def _add(self, at: float, results: int, late: int) -> None:
        self.results += results
        self.late += late
        self._counts.add(at, results, late)

    def _on_time(self) -> float | None:
        if self.objective is None or not self.results:
            return None
        return 1.0 - self.late / self.results

    def _due(self) -> float | None:
        window, last = self.started.window, self._last
        if window is None or last is None or last.watermark <= 0:
            return None
        length, slide, start = window
        passed = math.floor((last.watermark - start - length) / slide)
        return (passed + 1) * slide + start + length + last.delay

    def _phases_now(self, now: float) -> dict[str, Quantiles]:
        found = {phase: each.quantiles(now) for phase, each in self._phases.items()}
        return {phase: each for phase, each in found.items() if each is not None}


def _slo(started: Started) -> Slo | None:
    if started.slo is None:
        return None
    try:
        return Slo(started.slo)
    except SloError:
        return None


def _ends(batch: Batch, window: tuple[float, float, float] | None) -> np.ndarray:
    """The ends of the windows that came out, the last ones if there are very many."""
    ends = np.asarray(batch.ends[-MOST_RESULTS:], dtype=np.float64)
    more = min(batch.windows, MOST_RESULTS) - len(ends)
    if more <= 0 or window is None or not len(ends):
        return ends
    # a batch names its last windows only; those before ended a slide apart
    before = ends[0] - window[1] * np.arange(more, 0, -1)
    return np.concatenate([before, ends])


def _spread(batch: Batch) -> np.ndarray:
    """Latencies of rows that came evenly over the time in which the batch's input arrived.

    None where that is not known: to call such rows on time would be a guess.
    """
    if not batch.input_known:
        return np.zeros(0)
    fastest = batch.written - batch.planned
    points = min(MOST_RESULTS, max(1, round(batch.input / _APART)))
    return fastest + batch.input * (np.arange(points) + 0.5) / points

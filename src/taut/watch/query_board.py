"""What a board keeps of one query: counts, sketches, and the last two minutes."""

from __future__ import annotations

import math
from collections import deque

import msgspec

from taut.watch.latency import Latencies, trim
from taut.watch.records import Batch, Ended, Reduced, SlackParts, Started, Turn
from taut.watch.results import ends, held_from, rows_reduced, same_life, spread, stated
from taut.watch.snapshot import Bar, Quantiles, QueryNow
from taut.watch.verdict import Turnout, budget, measured, verdict, waiting_for

RECENT = 120.0
"""Seconds that are looked back at."""
MOST_BARS = 480
MOST_POINTS = 240

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
        self._most = slices
        self._slices: dict[int, tuple[int, int]] = {}

    def add(self, at: float, results: int, late: int) -> None:
        """So many came out, so many of them late."""
        index = math.floor(at / self._seconds)
        if index not in self._slices:
            trim(self._slices, index, self._most)
        before = self._slices.get(index, (0, 0))
        self._slices[index] = before[0] + results, before[1] + late

    def recent(self, now: float) -> tuple[int, int]:
        """Results and late ones up to now."""
        index = math.floor(now / self._seconds)
        kept = [s for i, s in self._slices.items() if index - self._most < i <= index]
        return sum(s[0] for s in kept), sum(s[1] for s in kept)

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._slices) <= self._most


class QueryBoard:
    """One query, from its records; ``told`` is whether its start was, or is made up."""

    def __init__(self, started: Started, *, told: bool = True) -> None:
        self.started = started
        self._told = told
        self._windowed = started.window is not None
        self.ended: Ended | None = None
        self.results = self.late = self.batches = 0
        self.held_seconds = 0.0
        self.objective = started.objective
        self.latencies = Latencies()
        self._after_due = Latencies(whole=False)
        self._phases = {phase: Latencies(whole=False) for phase in PHASES}
        self._counts = Counts()
        self._bars: deque[Bar] = deque(maxlen=MOST_BARS)
        self._points: deque[tuple[float, float]] = deque(maxlen=MOST_POINTS)
        self._turn: Turn | None = None
        self._last: Batch | None = None
        self._reduced: Reduced | None = None
        self._state, self._since = "waiting for data", started.at

    # -- records ----------------------------------------------------------------------------

    def lives_on(self, started: Started) -> bool:
        """Whether this tells more of it, and not of another that was started under its name."""
        return same_life(self.started if self._told else None, self.ended is not None, started)

    def start(self, started: Started) -> None:
        """It is told again, once more is known of it."""
        self.started, self._told = started, True
        if started.window is not None:
            self._has_windows()
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
        if self._reduced is None:
            self._begin_to_count()
        self._reduced = reduced
        if self.started.objective is None:
            self.objective = reduced.objective
        self._add(reduced.at, *rows_reduced(reduced))

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
        slo = stated(self.started)
        results, late = self._counts.recent(now)
        rank = slo.quantile if slo is not None else 1.0
        observed = None if self.objective is None else self._after_due.quantile(now, rank)
        said = measured(slo, self.objective, observed, results, late)
        error = self.ended.error if self.ended else None
        awaited = self._could_be_out(state, since, due)
        return QueryNow(
            name=self.started.query,
            state=state,
            verdict=verdict(said, now, self.objective, awaited, slack, state),
            waiting_for=waiting_for(
                state, now, due, turns, error=error, windowed=self.started.window is not None
            ),
            since=since,
            slo=self.started.slo,
            objective=self.objective,
            window=self.started.window,
            due=due if active else None,
            awaited=awaited if active else None,
            # without an objective it is when to run next, and says nothing of being late
            slack=slack if active and self.objective is not None else None,
            latency=self.latencies.quantiles(now),
            whole=self.latencies.total(),
            observed=observed,
            on_time=self._on_time(),
            budget=budget(slo, self.results, self.late) if self.results else None,
            results=self.results,
            late=self.late,
            batches=self.batches,
            held_seconds=self.held_seconds,
            error=error,
            bars=tuple(bar for bar in self._bars if now - RECENT < bar.written <= now),
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
        self._counts.check()
        for latencies in (self.latencies, self._after_due, *self._phases.values()):
            latencies.check()

    def _held_from(self, batch: Batch) -> float:
        """Since when it had waited for this batch: only the first of a turn waits."""
        turn = self._turn
        granted = turn is not None and turn.at == batch.granted
        return held_from(batch, self._last, turn.held_since if turn and granted else None)

    def _count(self, batch: Batch) -> int:
        """Take a batch's results in; returns how many of them were late."""
        if self.started.resident:
            return 0  # rows are out long before a resident batch is
        if self._reduced is not None:
            # when which of its rows had come is not told, only how many were late or shed
            return rows_reduced(self._reduced)[1] if self._reduced.batch == batch.batch else 0
        if batch.windows:
            self._has_windows()
        if self._windowed:
            latencies = batch.written - ends(batch, self.started.window)
            after_due = latencies - max(0.0, batch.delay)
            results, late = batch.windows, batch.late
            self._points.extend((batch.written, float(each)) for each in after_due[-MOST_POINTS:])
        else:
            latencies = after_due = spread(batch)
            results = len(latencies)
            late = 0 if self.objective is None else int((latencies > self.objective).sum())
            if results:
                self._points.append((batch.written, batch.written - batch.planned + batch.input))
        self.latencies.observe_all(batch.written, latencies)
        self._after_due.observe_all(batch.written, after_due)
        late = min(late, results)
        self._add(batch.written, results, late)
        return late

    def _has_windows(self) -> None:
        """Its results are windows; the moments that were counted before it was known are none."""
        if not self._windowed and self._reduced is None:
            self._begin_to_count()
        self._windowed = True

    def _begin_to_count(self) -> None:
        """What counts as a result is another thing from here on."""
        self.results = self.late = 0
        self._counts = Counts()
        self._points.clear()
        self.latencies.clear()
        self._after_due.clear()

    def _add(self, at: float, results: int, late: int) -> None:
        self.results += results
        self.late += late
        self._counts.add(at, results, late)

    def _on_time(self) -> float | None:
        if self.objective is None or not self.results:
            return None
        return 1.0 - self.late / self.results

    def _due(self) -> float | None:
        last = self._last
        if last is None or last.watermark <= 0:
            return None
        end = self._end_after(last.watermark)
        return None if end is None else end + last.delay

    def _end_after(self, time: float) -> float | None:
        """The end of the first window that ends past a time, where its window is known."""
        if self.started.window is None:
            return None
        length, slide, start = self.started.window
        passed = math.floor((time - start - length) / slide)
        return (passed + 1) * slide + start + length

    def _could_be_out(self, state: str, since: float, due: float | None) -> float | None:
        """When the result to come could first be out: of rows, when their batch was taken up.

        Of a held query that is when it last read: rows are taken to have come since. Before a
        window's first watermark it is the end of the window that runs then, as if event time were
        the clock's. Of a query that takes no turns it is not known.
        """
        if due is not None or self.started.resident:
            return due
        last = self._last
        if state == "held":
            # before the first watermark the rows that it has read are not out either
            read = 0.0 if last is None or not self._windowed else last.input
            waits = since if last is None else last.planned - read
        elif state == "planned" or (state == "running" and self._turn is not None):
            waits = since if last is None else max(since, last.written)
        else:
            return None
        if self._windowed:
            return self._end_after(waits)
        return waits

    def _phases_now(self, now: float) -> dict[str, Quantiles]:
        found = {phase: each.quantiles(now) for phase, each in self._phases.items()}
        return {phase: each for phase, each in found.items() if each is not None}

"""Snapshots that look like those of a real run, as a function of the time: for the page's tests.

Everything follows from the time and a seed, so two looks at the same moment are the same.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from statistics import fmean

from taut.watch.records import Lane, SlackParts
from taut.watch.snapshot import (
    Bar,
    PlanNow,
    Quantiles,
    QueryNow,
    ReduceNow,
    Snapshot,
    SourceNow,
)

SPAN = 120.0
NAMES = (
    "ad-clicks-by-campaign",
    "sessions-eu",
    "fraud-scores",
    "page-views-1m",
    "cart-abandonment",
    "sensor-alerts",
    "tolls-by-segment",
    "taxi-trips-by-zone",
    "login-failures",
    "search-latency",
    "inventory-levels",
    "video-starts",
    "payments-by-country",
    "error-rates",
    "price-changes",
    "active-users",
)


@dataclass(frozen=True)
class Scene:
    """A run with so many queries, lanes and log partitions.

    Attributes
    ----------
    calm
        Every query meets its objective; else one misses it, some are at risk, one has failed.
    every
        Seconds between two windows of the busiest query: 240 latencies need half a second.
    unit
        Of the source's offsets.
    """

    start: float
    queries: int = 16
    lanes: int = 8
    partitions: int = 12
    run: str = "20261117-141502-7f3a"
    calm: bool = False
    every: float = 4.0
    unit: str = "rows"

    def at(self, now: float) -> Snapshot:
        """How it stands at a moment."""
        queries = tuple(self._query(i, now) for i in range(self.queries))
        return Snapshot(
            at=now,
            run=self.run,
            policy="least-slack",
            concurrency=max(2, self.queries // 5),
            started=self.start,
            machine={"cores": 8, "python": "3.11.9", "pyspark": "4.3.0"},
            running=sum(q.state == "running" for q in queries),
            queries=queries,
            sources=self._sources(now) if self.lanes else (),
            reduces=(self._reduce(now),) if self.lanes else (),
            plans=self._plans(now) if self.lanes else (),
            overhead=0.0021,
        )

    def _query(self, i: int, now: float) -> QueryNow:
        name = NAMES[i % len(NAMES)] + (f"-{i // len(NAMES) + 1}" if i >= len(NAMES) else "")
        kind = "plain" if self.calm else {1: "bad", 2: "edge", 6: "edge", 9: "free", 13: "failed"}
        kind = kind if isinstance(kind, str) else kind.get(i, "plain")
        objective = None if kind == "free" else (1.0, 0.5, 2.0)[i % 3]
        length = self.every * (1 + i % 4)
        phase = (i * 0.618) % 1 * length
        ends = [
            phase + length * k
            for k in range(
                math.ceil((now - SPAN - phase) / length), int((now - phase) / length) + 1
            )
        ]
        bars, latencies, late = [], [], 0
        before = ends[0] - length / 2
        for end in ends:
            took, waited = self._latency(i, end, objective or 1.0, kind)
            written = end + took
            if written > now:
                break
            begun = end + waited
            is_late = objective is not None and took > objective
            late += is_late
            bars.append(
                Bar(
                    held=round(before, 3),
                    begun=round(begun, 3),
                    run=round(begun + (took - waited) * 0.25, 3),
                    written=round(written, 3),
                    batch=int(end / length) % 10_000,
                    windows=1,
                    late=int(is_late),
                )
            )
            latencies.append((round(written, 3), round(took, 4)))
            before = written
        if kind == "failed":
            bars, latencies = bars[:-8], latencies[:-8]
        return self._standing(i, name, now, kind, objective, length, ends, bars, latencies, late)

    def _latency(self, i: int, end: float, objective: float, kind: str) -> tuple[float, float]:
        dice = random.Random(f"{i}/{end:.3f}")
        # The bad one always misses, those at the edge come close and never do.
        level, swing, noise = {"bad": (1.1, 0.1, 0.12), "edge": (0.86, 0.05, 0.02)}.get(
            kind, (0.38, 0.3, 0.12)
        )
        level *= 1 + swing * math.sin(end / 40 + i)
        took = objective * level * math.exp(dice.gauss(0, noise))
        return took, took * dice.uniform(0.1, 0.45)

    def _standing(
        self,
        i: int,
        name: str,
        now: float,
        kind: str,
        objective: float | None,
        length: float,
        ends: list[float],
        bars: list[Bar],
        latencies: list[tuple[float, float]],
        late: int,
    ) -> QueryNow:
        took = sorted(latency for _, latency in latencies)
        observed = took[int(0.99 * (len(took) - 1))] if took else None
        due = ends[-1] if bars and bars[-1].written < ends[-1] else ends[-1] + length
        running = due <= now
        cost = 0.15 + 0.02 * (i % 5)
        value = due + (objective or 1.0) - now - cost
        state = "running" if running else "held"
        waiting = (
            "The batch that runs."
            if running
            else f"Its next window, expected to be complete in {due - now:.1f} s."
        )
        if kind == "failed":
            state, waiting = "failed", "Nothing: it has failed."
        verdict = "no objective" if objective is None else "met"
        if objective is not None and observed is not None:
            if observed > objective:
                verdict = "missed"
            elif observed > 0.9 * objective or (value < cost and not running):
                verdict = "at risk"
        if not took:
            verdict = "no data"
        if kind == "failed":
            verdict = "failed"
        since = bars[-1].written if bars else self.start
        results = int((now - self.start) / length) + 400
        return QueryNow(
            name=name,
            state=state,
            verdict=verdict,
            waiting_for=waiting,
            since=max(since, due) if running else since,
            slo=None
            if objective is None
            else f"p99 <= {objective:g} s"
            if objective >= 1
            else f"p99 <= {objective * 1000:g} ms",
            objective=objective,
            window=(length, length, 0.0),
            due=None if kind == "failed" else due,
            slack=None
            if kind == "failed" or objective is None
            else SlackParts(value, due, due, due + objective, cost),
            latency=_quantiles(took),
            observed=observed,
            on_time=None if objective is None else 1 - late / max(1, results),
            budget=None if objective is None else 1 - late / max(1, results) / 0.01,
            results=results,
            late=late,
            batches=results * 2,
            held_seconds=(now - self.start) * 0.93,
            error="StreamingQueryException: [STREAM_FAILED] sink: No space left on device"
            if kind == "failed"
            else None,
            bars=tuple(bars),
            latencies=tuple(latencies[-240:]),
            phases=_phases(bars),
        )

    def _sources(self, now: float) -> tuple[SourceNow, ...]:
        second = int(now)
        lanes, busy, stragglers = [], [], []
        for lane in range(self.lanes):
            dice = random.Random(f"lane {lane} {second // 3}")
            slow = lane % 11 == 3 and second % 10 < 6
            share = min(
                1.0, max(0.04, 0.62 + 0.25 * math.sin(now / 25 + lane) + dice.gauss(0, 0.06))
            )
            busy.append(1.0 if slow else share)
            if slow:
                stragglers.append(lane)
            lanes.append(
                Lane(
                    lane=lane,
                    place=f"executor {lane * 4 // max(1, self.lanes) + 1}",
                    rows=second * 40 + lane * 13,
                    chunks=second // 4,
                    busy=share * (now - self.start),
                    open_since=now - (1.9 if slow else dice.uniform(0.001, 0.05)),
                    replays=lane % 3,
                )
            )
        places = sorted({lane.place for lane in lanes})
        moments = [now - SPAN + 2 * k for k in range(61)]
        return (
            SourceNow(
                query=NAMES[0],
                at=now,
                issued=4_120_000 + second % 100_000 * 40,
                replayed=53_000,
                cost=0.0129,
                timeout=0.0042,
                lanes=tuple(lanes),
                busy=tuple(busy),
                stragglers=tuple(stragglers),
                shares=_shares(places, now),
                share_history=tuple((t, _shares(places, t)) for t in moments),
                backlog={
                    f"clicks-{p}": int(900 * (1 + math.sin(now / 30 + p)) * (3 if p == 4 else 1))
                    for p in range(self.partitions)
                },
                history=tuple(
                    (
                        t,
                        int(9000 + 5200 * math.sin(t / 18) + 2000 * math.sin(t / 5)),
                        41_000 + 6000 * math.sin(t / 11),
                    )
                    for t in moments
                ),
                chunk=_quantiles([0.002, 0.011, 0.019, 0.052]),
                unit=self.unit,
            ),
        )

    def _reduce(self, now: float) -> ReduceNow:
        history = []
        for k in range(60):
            end = int(now / 2) * 2 - 2 * (59 - k)
            dice = random.Random(f"reduce {end}")
            burst = max(0.0, math.sin(end / 22)) ** 6
            history.append(
                (
                    float(end),
                    int(8200 + dice.gauss(0, 300)),
                    int(900 * burst),
                    int(2400 * burst**2),
                )
            )
        gone = int(now - self.start)
        return ReduceNow(
            query=NAMES[4],
            at=now,
            objective=2.0,
            rows=12_900_000 + gone * 4100,
            on_time=12_610_000 + gone * 4000,
            late=88_100,
            waiting=1240,
            shed={"deadline passed": 140_300, "cannot finish in time": 61_240, "bad row": 31},
            hot=48_211,
            hot_bytes=61_200_000,
            cold=1_204_882,
            history=tuple(history),
        )

    def _plans(self, now: float) -> tuple[PlanNow, ...]:
        swing = 0.02 * math.sin(now / 9)
        return (
            PlanNow(
                query=NAMES[0],
                at=now,
                measure="p99",
                expected=0.462,
                low=0.391,
                high=0.561,
                observed=0.487 + swing,
                rate=40_950.0,
                planned_rate=42_000.0,
                phases={
                    "wait for the window": 0.051,
                    "planning": 0.058,
                    "read": 0.082,
                    "shuffle": 0.044,
                    "aggregate": 0.121,
                    "sink": 0.069,
                    "commit": 0.037,
                },
            ),
            PlanNow(
                query=NAMES[7],
                at=now,
                measure="p99",
                expected=0.81,
                low=0.66,
                high=0.95,
                observed=1.12 + swing,
                rate=9800.0,
                planned_rate=6000.0,
                phases={"planning": 0.09, "read": 0.3, "aggregate": 0.28, "sink": 0.14},
            ),
        )


def _shares(places: list[str], t: float) -> dict[str, float]:
    raw = {place: 1 + 0.35 * math.sin(t / 30 + 2 * n) for n, place in enumerate(places)}
    total = sum(raw.values())
    return {place: share / total for place, share in raw.items()}


def _phases(bars: list[Bar]) -> dict[str, Quantiles]:
    spent = {
        "held": sorted(bar.begun - bar.held for bar in bars),
        "planning": sorted(bar.run - bar.begun for bar in bars),
        "running": sorted(bar.written - bar.run for bar in bars),
    }
    return {name: found for name, each in spent.items() if (found := _quantiles(each))}


def _quantiles(took: list[float]) -> Quantiles | None:
    if not took:
        return None

    def at(quantile: float) -> float:
        return took[int(quantile * (len(took) - 1))]

    return Quantiles(len(took), fmean(took), at(0.5), at(0.9), at(0.99), at(0.999), took[-1])

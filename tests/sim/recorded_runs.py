"""Runs that were recorded on Spark, and runs that are made up."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from taut.policy import POLICIES
from taut.policy.turns import Turns
from taut.sim.kernel import Kernel
from taut.sim.queries.microbatch import Running
from taut.sim.replay.costs import Contended, Cost, Pace
from taut.sim.replay.query import Front, Past, Replayed, Result
from taut.watch.recorded import Recorded, load
from taut.watch.records import Batch, Record, Run, Started

RUNS = Path(__file__).parent / "runs"
NAMES = ["least-slack", "round-robin", "spark-default"]
"""Runs one after the other under these policies, before a runtime wrote traces by itself."""
TRACED, MIXED = "traced", "mixed"
"""Runs under least-slack as a runtime traced them; two queries of the latter have no windows."""
RATE = "rate"
"""A run under round-robin of two queries on Spark's rate source, whose rows come once a second."""
ZERO = 1_700_000_000.0


def unpacked(name: str, to: Path) -> Path:
    """A run of eight queries on two cores, as it was recorded; its folder."""
    folder = to / name
    folder.mkdir(parents=True, exist_ok=True)
    packed = RUNS / f"{name}.jsonl.gz"
    (folder / "000001.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def on_spark(name: str, to: Path) -> Recorded:
    return load(unpacked(name, to))


class Noted(Replayed):
    """A made-up query that is recorded while it is at work."""

    def __init__(self, past: Past, to: list[Record]) -> None:
        super().__init__(past)
        self._to = to
        self._begun = 0.0

    def lead(self, now: float) -> float:
        self._begun = now
        return super().lead(now)

    def emit(self, watermark: float, now: float) -> None:
        before = len(self.out)
        super().emit(watermark, now)
        windowed = self.past_record.slide is not None
        ends = tuple(end + ZERO for end, _ in self.out[before:]) if windowed else ()
        self._to.append(
            Batch(
                self.name,
                self.batches - 1,
                granted=self._begun + ZERO,
                begun=self._begun + ZERO,
                planned=self.read + ZERO,
                run=self.read + ZERO,
                written=now + ZERO,
                input=self._input,
                watermark=watermark + ZERO if watermark > -1e9 else 0.0,
                ends=ends,
                windows=len(ends),
                late=sum(now - (end - ZERO) > self.objective for end in ends),
            )
        )


def made_up(
    pasts: Sequence[Past], policy: str | None, pace: Pace, seconds: float, concurrency: int = 2
) -> Recorded:
    """What would be recorded of queries that the simulator runs."""
    records: list[Record] = []
    kernel = Kernel()
    turns = None if policy is None else Turns(POLICIES[policy](), concurrency=concurrency)
    queries = [Noted(past, records) for past in pasts]
    running = Running(queries, Contended(kernel, pace), turns, kernel)
    running.begin()
    kernel.run(seconds)
    running.check()
    head: list[Record] = [
        Run(ZERO, "made-up", policy or "spark-default", concurrency, 60.0, machine={"cores": 2})
    ]
    head += [
        Started(
            ZERO,
            past.name,
            f"p99 <= {past.objective:g} s",
            past.objective,
            0.99,
            None if past.slide is None else (past.slide, past.slide, past.results[0].end),
        )
        for past in pasts
    ]
    return Recorded.of([*head, *records])


def past(
    name: str,
    *,
    slide: float | None = 10.0,
    offset: float = 0.0,
    fixed: float = 0.25,
    per_second: float = 0.0,
    lead: float = 0.02,
    delay: float = 0.05,
    seconds: float = 200.0,
    noise: Sequence[float] = (1.0,),
    gaps: Sequence[tuple[float, float]] = (),
    ends: float | None = None,
) -> Past:
    """A query whose rows come with a steady delay."""
    step = slide or 1.0
    count = int((seconds - offset) / step) - 1
    results = [Result(offset + n * step, offset + n * step + 1.0, 0.0) for n in range(1, count)]
    reads = [(float(t), t - delay) for t in range(int(seconds))]
    cost = Cost(fixed, per_second, (lead,) * len(noise), tuple(noise))
    times = tuple(seconds * n / len(noise) for n in range(len(noise)))
    return Past(name, 1.0, slide, tuple(results), 0.0, ends, Front(reads, gaps), cost, times)

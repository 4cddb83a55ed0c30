"""Least slack: the figures of its work, with an operator at a time as there and as on Spark.

An engine with an operator at a time is given what was published of its throughput: without a policy
it does not grow past 40 queries, when memory is full, and with room a node does 30 % more (3.25M
events/s against 2.5M). How large an event is was not published, and is assumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from taut.policy import POLICIES, LeastSlack, MemoryManagement, Policy
from taut.policy.memory import best_cut
from taut.policy.slack import DelayHistory, interval
from taut.policy.view import Operator, Stream
from taut.sim.draws import Draws, Uniform, Zipf
from taut.sim.kernel import Kernel
from taut.sim.papers.experiment import Axes, Curve, Effort, Experiment, Figures, Found, Picture
from taut.sim.papers.slack_notes import alike, at_points, compared, listed, lowest, managed, order
from taut.sim.queries.microbatch import Cluster, Query
from taut.sim.queries.operators import Node, Outcome, Pipeline

SOURCE = "Klink"
CORES = 4
"""Queries that run at a time; each stands for six of the 24 cores."""
SATURATED = 40.0
"""Queries that keep a node busy when its memory is full."""
SLOWER = 1.3
GIGABYTES, EVENT_KB = 17.5, 2.5
"""Memory, as published, and what an event takes of it, which is assumed."""
QUERIES = (20, 40, 60, 80)
_SECONDS, _WARM_UP = 90.0, 30.0
_DELAY = Uniform(0.1)
_SHARES = tuple(n / 200.0 for n in range(1, 200))

_POLICIES: dict[str, Callable[[], Policy | None]] = {
    "default": lambda: None,
    "fcfs": POLICIES["fcfs"],
    "round-robin": POLICIES["round-robin"],
    "highest-rate": POLICIES["highest-rate"],
    "streambox": POLICIES["streambox"],
    # as published: an event costs the same whenever it is worked on
    "least-slack": lambda: MemoryManagement().build(LeastSlack(patient=False)),
    "least-slack, no memory": lambda: LeastSlack(patient=False),
}
_ALONE = ("default", "fcfs", "round-robin", "highest-rate", "streambox", "least-slack")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One of the three benchmarks.

    Attributes
    ----------
    rate, window
        Events a second of a query, and seconds from window to window.
    inputs
        Streams that are joined.
    steps
        Of each operator: cost relative to the others, and events out for one in.
    """

    rate: float
    window: float
    inputs: int
    steps: tuple[tuple[float, float], ...]

    def queries(self, many: int, effort: Effort) -> list[Pipeline]:
        """So many, whose windows end at random times."""
        shape = Pipeline("shape", self.rate, self.window, self.steps, _DELAY)
        unit = CORES / (SLOWER * SATURATED * self.rate) / shape.event_cost
        steps = tuple((cost * unit, selectivity) for cost, selectivity in self.steps)
        begin = Kernel(effort.seed).stream("begin").random(many) * self.window
        return [
            Pipeline(
                f"q{n:03}", self.rate, self.window, steps, _DELAY, float(begin[n]), self.inputs
            )
            for n in range(many)
        ]

    @property
    def notes(self) -> tuple[str, ...]:
        """What there is to say of the pipeline."""
        full = [Operator(math.inf, selectivity, cost) for cost, selectivity in self.steps]
        if best_cut(full, MemoryManagement().cycle)[1] < len(full):
            return ()
        return (
            "Under memory stress this pipeline frees most when it is run to its end, and of "
            "queries that free as much the one with the least slack goes first: where queues are "
            "long, memory management has nothing to change.",
        )

    def run(self, name: str, queries: Sequence[Pipeline], effort: Effort) -> Outcome:
        """Queries on a node under a policy."""
        warm_up, seconds = _lasts(effort)
        node = Node(CORES, memory=GIGABYTES * 1e6 / EVENT_KB, slower=SLOWER)
        return node.run(queries, _POLICIES[name](), seconds, warm_up, effort.seed)


def _lasts(effort: Effort) -> tuple[float, float]:
    """Seconds before measurement, and of it."""
    return max(8.0, _WARM_UP * effort.scale), max(8.0, _SECONDS * effort.scale)


YSB = Benchmark(10_000.0, 3.0, 1, ((1.0, 1.0), (1.0, 0.33), (3.0, 1.0), (2.0, 0.01)))
LRB = Benchmark(9_750.0, 3.0, 3, ((1.0, 1.0), (3.0, 0.5), (3.0, 0.5), (2.0, 0.01)))
NYT = Benchmark(7_000.0, 1.0, 1, ((1.0, 1.0), (1.0, 0.9), (1.0, 0.9), (1.0, 0.9), (4.0, 0.01)))


def _latency(
    benchmark: Benchmark, *more: str, published: Figures | None = None
) -> Callable[[Effort], Found]:
    """Mean latency by queries; at 60 the quantiles, at 80 throughput and slowdown too."""

    def run(effort: Effort) -> Found:
        figures: dict[str, dict[str, float]] = {}
        rates: dict[str, list[float]] = {name: [] for name in _POLICIES}
        spread: dict[str, Curve] = {}
        alone = benchmark.queries(1, effort)[0].event_cost
        for many in QUERIES:
            queries = benchmark.queries(many, effort)
            for name in _POLICIES:
                outcome = benchmark.run(name, queries, effort)
                rates[name].append(outcome.throughput)
                told = {"mean_s": outcome.mean, "missed_percent": 100.0 * outcome.missed}
                if many == 60:
                    told |= {"p90_s": outcome.quantile(0.9), "p99_s": outcome.quantile(0.99)}
                    spread[name] = (
                        [outcome.quantile(s) for s in _SHARES],
                        [100 * s for s in _SHARES],
                    )
                if many == 80:
                    told["inside_s"] = float(outcome.inside.mean()) if outcome.inside.size else 0.0
                    told["slowdown"] = outcome.mean / alone
                figures[f"{many}/{name}"] = told
        _compare(figures, rates)
        curves = _curves(figures, "mean_s")
        slowdown = {name: (x, [each / alone for each in y]) for name, (x, y) in curves.items()}
        pictures = {
            "cdf": Picture(Axes("latency of windows, s", "percent of windows, 60 queries"), spread),
            "slowdown": Picture(Axes("queries", "slowdown", log_y=True), slowdown),
            "throughput": Picture(
                Axes("queries", "events/s"), {name: (QUERIES, line) for name, line in rates.items()}
            ),
        }
        # what comes, less what rounds to nothing
        comes = [0.99 * many * benchmark.rate for many in QUERIES]
        beyond = [
            f"{many}"
            for many, rate, least in zip(QUERIES, rates["default"], comes, strict=True)
            if rate < least
        ]
        notes = latency_notes(figures, beyond, published or {}, effort) + benchmark.notes
        return Found(figures, curves, notes, {what: pictures[what] for what in more})

    return run


def _compare(figures: dict[str, dict[str, float]], rates: Mapping[str, Sequence[float]]) -> None:
    """Put in how policies differ: p99 at 60 queries, the mean at 80, throughput at both."""
    p99, means = at_points(figures, "p99_s")["60"], at_points(figures, "mean_s")["80"]
    for name in p99:
        figures[f"60/{name}"]["p99_lower_percent"] = _lower(p99[name], p99["default"])
        figures[f"80/{name}"]["mean_lower_percent"] = _lower(means[name], means["default"])
        for many, rate, default in zip(QUERIES, rates[name], rates["default"], strict=True):
            if many >= 60:
                more = 100.0 * (rate / default - 1.0)
                figures[f"{many}/{name}"]["throughput_more_percent"] = more
    figures["60/least-slack"]["p99_lower_than_no_memory_percent"] = _lower(
        p99["least-slack"], p99["least-slack, no memory"]
    )


def _lower(value: float, than: float) -> float:
    return 100.0 * (1.0 - value / than)


def _curves(figures: Figures, figure: str) -> dict[str, Curve]:
    """A figure over the points, for each variant."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for point, told in at_points(figures, figure).items():
        for name, value in told.items():
            x, y = found.setdefault(name, ([], []))
            x.append(float(point))
            y.append(value)
    return dict(found)


def latency_notes(
    figures: Figures, beyond: Sequence[str], published: Figures, effort: Effort
) -> tuple[str, ...]:
    """What is to be said of a table of latencies; ``beyond`` are the points of overload."""
    notes = [
        "Given to the model, not found by it: a node whose memory is full does the work of "
        f"{SATURATED:.0f} queries, and {SLOWER:.1f} times as much while less than 90 % is in use "
        "(from the throughput published). Assumed: the cost of operators relative to each other, "
        f"and {EVENT_KB} kB an event, of which {GIGABYTES} GB are published to fit. No latency is "
        "fitted."
    ]
    if beyond:
        warm_up, seconds = _lasts(effort)
        most = max(
            value
            for told in at_points(figures, "missed_percent").values()
            for value in told.values()
        )
        notes.append(
            f"Overload, at {listed(beyond)} queries: more comes than the cores can do, and windows "
            "are the later the longer a run lasts. Latency counts from a window's end, in a run "
            f"of {seconds:.0f} s after {warm_up:.0f} s; a window that is not out {seconds:.0f} s "
            "later counts as late as it is by then, and in missed_percent (at most "
            f"{most:.0f} %). Published means of 20 minutes stay within seconds there, which they "
            "cannot with what waits at held sources. inside_s is without that: what is in memory, "
            "which for a size that is assumed says little."
        )
    notes += [lowest(figures, "mean_s", "mean"), lowest(figures, "p99_s", "p99")]
    means = at_points(figures, "mean_s").values()
    if all(abs(told["streambox"] / told["least-slack"] - 1.0) <= 0.05 for told in means):
        notes.append(
            "StreamBox is within 5 % of least slack throughout: queries are alike here, so that "
            "the nearest end of a window is mostly the least slack too."
        )
    if at_points(published, "mean_s"):
        notes.append(order(figures, published, "mean_s", "80"))
    notes.append(
        managed(
            figures,
            {
                "the mean at 60 queries": ("60", "mean_s"),
                "p99 there": ("60", "p99_s"),
                "the mean at 80 queries": ("80", "mean_s"),
            },
        )
    )
    return tuple(notes)


_MEMORY = ("default", "least-slack", "least-slack, no memory")


def _memory(effort: Effort) -> Found:
    """The share of memory in use by offered load, with and without a policy."""
    figures: dict[str, dict[str, float]] = {}
    for many in (40, 50, 60, 70):
        queries = YSB.queries(many, effort)
        for name in _MEMORY:
            memory = YSB.run(name, queries, effort).memory
            used = memory[len(memory) // 3 :]
            figures[f"{many}/{name}"] = {
                "memory_percent": 100.0 * float(used.mean()),
                "memory_p90_percent": 100.0 * float(np.quantile(used, 0.9)),
            }
    said = [
        f"at {point} queries {compared(told['least-slack'], told['default'])}"
        for point, told in at_points(figures, "memory_percent").items()
    ]
    warm_up, seconds = _lasts(effort)
    notes = (
        f"Mean memory in use under least slack, against the default: {listed(said)}. Beyond what "
        f"the cores can do memory fills: the figures are of the last two thirds of "
        f"{warm_up + seconds:.0f} s.",
    )
    return Found(figures, _curves(figures, "memory_percent"), notes)


def _nodes(effort: Effort) -> Found:
    """80 queries on one to eight nodes."""
    figures: dict[str, dict[str, float]] = {}
    effort = replace(effort, scale=effort.scale / 2.0)
    queries = YSB.queries(80, effort)
    for nodes in (1, 2, 4, 8):
        for name in _ALONE:
            late = np.concatenate(
                [YSB.run(name, queries[n::nodes], effort).latencies for n in range(nodes)]
            )
            mean = float(late.mean())
            default = figures.get(f"{nodes}/default", {"mean_s": mean})["mean_s"]
            figures[f"{nodes}/{name}"] = {
                "mean_s": mean,
                "mean_lower_percent": _lower(mean, default),
            }
    notes = (
        f"Of a run of {_lasts(effort)[1]:.0f} s: on a node that is overloaded windows are the "
        "later the longer it is.",
        lowest(figures, "mean_s", "mean", "nodes"),
    )
    return Found(figures, _curves(figures, "mean_s"), notes)


def _interval(effort: Effort) -> Found:
    """How often a sweeping watermark comes when it is expected."""
    figures: dict[str, dict[str, float]] = {}
    epochs = max(600, round(6_000 * effort.scale))
    delays: dict[str, Draws] = {"uniform": Uniform(0.1), "zipf": Zipf(0.99, 100, 0.001)}
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for confidence in (0.99, 0.95, 0.90, 0.80):
        for label, draws in delays.items():
            random = Kernel(effort.seed).stream(label)
            history, inside = DelayHistory(confidence=confidence), 0
            for n, delay in enumerate(draws.sample(random, epochs).tolist()):
                low, high = interval(Stream(0.0, history.estimate()), confidence)
                inside += n >= 400 and low - 1e-9 <= delay <= high + 1e-9
                history.close(delay)
            history.check()
            told = {"inside_percent": 100.0 * inside / (epochs - 400)}
            figures[f"{label}/f-{100 * confidence:.0f}"] = told
            line = curves.setdefault(label, ([], []))
            line[0].append(100.0 * confidence)
            line[1].append(told["inside_percent"])
    return Found(figures, curves, ("Wanted is f: an interval that holds more is wider than said.",))


SPARK_QUERIES = (4, 8, 16, 24, 32)


def _spark(effort: Effort) -> Found:
    """The same policies in micro-batches: each batch has a fixed cost, two cores."""
    figures: dict[str, dict[str, float]] = {}
    seconds = max(60.0, 240.0 * effort.scale)
    for many in SPARK_QUERIES:
        queries = spark_queries(many, effort.seed)
        for name in _ALONE:
            policy = None if name == "default" else POLICIES[name]()
            outcome = Cluster(cores=2.0, concurrency=2).run(
                queries, policy, seconds, 60.0, effort.seed
            )
            figures[f"{many}/{name}"] = {
                "mean_s": outcome.mean,
                "p99_s": outcome.quantile(0.99),
            }
    notes = [lowest(figures, "mean_s", "mean"), lowest(figures, "p99_s", "p99")]
    if all(alike(figures, figure, "fcfs", "round-robin") for figure in ("mean_s", "p99_s")):
        notes.append(
            "fcfs and round-robin are the same in micro-batches: a batch reads all that waits, so "
            "that the oldest row is that of the query whose last turn is furthest back."
        )
    return Found(figures, _curves(figures, "mean_s"), tuple(notes))


def spark_queries(many: int, seed: int = 1, window: float = 12.0) -> Sequence[Query]:
    """Windowed counts of unlike rate and cost, whose windows end at random times."""
    drawn = Kernel(seed).stream("queries").random((many, 3)).tolist()
    return [
        Query(
            f"q{n:02}",
            rate=500.0 + 1_000.0 * rate,
            window=window,
            fixed=0.1 + 0.2 * fixed,
            row_cost=5e-6,
            delay=Uniform(0.05),
            offset=window * offset,
        )
        for n, (rate, fixed, offset) in enumerate(drawn)
    ]


def _published(**means: float) -> dict[str, dict[str, float]]:
    return {f"80/{name.replace('_', '-')}": {"mean_s": value} for name, value in means.items()}


_MEAN = Axes("queries", "mean latency of windows, s")
_CLOSE = "published only as between 12 and 15 s for all policies but least slack"
_YSB: Figures = _published(
    default=15.0, fcfs=15.5, round_robin=13.5, highest_rate=12.8, streambox=13.5
) | {
    "60/default": {"p90_s": 9.0, "p99_s": 26.0},
    "60/least-slack": {"p99_lower_percent": 55.0, "p99_lower_than_no_memory_percent": 20.0},
    "80/least-slack": {
        "mean_s": 7.3,
        "mean_lower_percent": 50.0,
        "throughput_more_percent": 25.0,
    },
}

EXPERIMENTS = (
    Experiment(
        "slack-ysb",
        f"{SOURCE}, figures 6a to 6d",
        "Yahoo! streaming benchmark, up to 80 queries on a node",
        _latency(YSB, "cdf", "slowdown", "throughput", published=_YSB),
        _YSB,
        axes=_MEAN,
    ),
    Experiment(
        "slack-lrb",
        f"{SOURCE}, figure 7",
        "Linear Road, up to 80 queries on a node",
        _latency(LRB, "cdf"),
        {
            "60/default": {"p90_s": 15.0, "p99_s": 32.0},
            "60/least-slack": {"p99_lower_percent": 60.0},
            "80/least-slack": {"mean_lower_percent": 45.0},
        },
        absent={"means at 80 queries": _CLOSE},
        axes=_MEAN,
    ),
    Experiment(
        "slack-nyt",
        f"{SOURCE}, figure 7",
        "New York taxis, up to 80 queries on a node",
        _latency(NYT, "cdf"),
        {
            "60/default": {"p90_s": 10.0, "p99_s": 17.0},
            "60/least-slack": {"p99_lower_percent": 50.0},
            "80/least-slack": {"mean_lower_percent": 45.0},
        },
        absent={"means at 80 queries": _CLOSE},
        axes=_MEAN,
    ),
    Experiment(
        "slack-memory",
        f"{SOURCE}, figures 8 and 9a",
        "Memory in use by the number of queries, without a policy and with least slack",
        _memory,
        absent={
            "25 to 60 % less memory": "published by throughput, of a Java heap with what waits to "
            "be collected; the model counts events that wait before operators"
        },
        axes=Axes("queries", "memory in use, percent"),
    ),
    Experiment(
        "slack-nodes",
        f"{SOURCE}, figure 6e",
        "80 queries dealt to one to eight nodes that do not talk",
        _nodes,
        {f"{nodes}/least-slack": {"mean_lower_percent": 40.0} for nodes in (2, 4, 8)},
        absent={
            "pipelines that are split over nodes": "published are nodes that tell each other of "
            "delays and costs; here whole queries are dealt to nodes, and each schedules its own"
        },
        axes=Axes("nodes", "mean latency of windows, s", log_y=True),
    ),
    Experiment(
        "slack-interval",
        f"{SOURCE}, figure 9c",
        "Sweeping watermarks that come within the interval expected",
        _interval,
        {
            "uniform/f-95": {"inside_percent": 98.0},
            "uniform/f-90": {"inside_percent": 95.0},
            "zipf/f-95": {"inside_percent": 95.0},
            "zipf/f-90": {"inside_percent": 85.0},
        },
        absent={"linear regression": "how wide its range is was not published"},
        axes=Axes("wanted, percent", "inside, percent"),
    ),
    Experiment(
        "slack-spark",
        "Taut, docs/least-slack.md",
        "As on Spark: micro-batches of 0.1 to 0.3 core seconds, two cores, windows of 12 s",
        _spark,
        axes=Axes("queries", "mean latency of windows, s", log_y=True),
    ),
)

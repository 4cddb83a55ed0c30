"""Largest backlog first, as simulated in its work: queues that share a link, slot by slot."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean

import numpy as np

from taut.policy.backlog import EGRESSES, Signals
from taut.sim.cluster.grouping import PartialKey
from taut.sim.draws import Array, Zipf
from taut.sim.kernel import Kernel
from taut.sim.link import Sent, jain, poisson, send
from taut.sim.papers.experiment import Axes, Effort, Experiment, Figures, Found

SOURCE = "Largest backlog first"
SLOTS, SLOT_S = 10_000, 100e-6
RATES = (500, 1_000, 1_500, 2_000, 3_000, 4_000, 5_000)
QUEUES = (10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
INTERVALS_MS = (0.1, 1.0, 10.0, 40.0, 70.0, 100.0, 130.0)
_REPEATS = 20
_ROUND_ROBIN, _ALL, _LARGEST = _VARIANTS = ("round-robin", "all", "largest-backlog")

Series = Mapping[str, Sequence[float]]
"""By variant: a figure of every run."""
Curves = dict[str, tuple[list[float], list[float]]]


def _slots(effort: Effort) -> int:
    return max(100, round(SLOTS * effort.scale))


def _looked(slots: int) -> list[int]:
    """After which slots backlogs are looked at: nine, evenly spread."""
    return [n * slots // 10 for n in range(1, 10)]


def _signals(variant: str) -> Signals | None:
    make = EGRESSES[variant]
    return make() if make else None


def _ms(sent: Sent) -> float:
    """The mean delay: whole slots, none for a tuple that is sent in the slot it comes in."""
    return 1e3 * SLOT_S * float(sent.delays.mean())


@dataclass(frozen=True, slots=True)
class _Point:
    """What all ways come to at one point, run by run."""

    most: Series
    peak: Series
    delay_ms: Series
    fairer: Array
    """Jain's index over that of round robin, by run and slot looked at; no number where one of the
    two has no backlog."""
    fairer_if_empty: Array
    """The same, with 1 for the index of no backlog."""


@cache
def _point(effort: Effort, queues: int, rate: float) -> _Point:
    """All ways on the same arrivals, repeatedly. Three figures show the same runs."""
    slots = _slots(effort)
    look = _looked(slots)
    runs: dict[str, list[Sent]] = {variant: [] for variant in _VARIANTS}
    for repeat in range(_REPEATS):
        random = Kernel(effort.seed).stream(f"{queues}/{rate}/{repeat}")
        arrivals = poisson(random, slots, [rate] * queues, SLOT_S)
        for variant in _VARIANTS:
            runs[variant].append(send(arrivals, _signals(variant), look=look))
    largest, turns = (
        np.array([[jain(backlogs) for backlogs in sent.backlogs] for sent in runs[variant]])
        for variant in (_LARGEST, _ROUND_ROBIN)
    )
    return _Point(
        {variant: [sent.most for sent in made] for variant, made in runs.items()},
        {variant: [sent.peak for sent in made] for variant, made in runs.items()},
        {variant: [_ms(sent) for sent in made] for variant, made in runs.items()},
        largest / turns,
        np.nan_to_num(largest, nan=1.0) / np.nan_to_num(turns, nan=1.0),
    )


@dataclass(frozen=True, slots=True)
class _At:
    label: str
    queues: int
    rate: float
    x: float


@dataclass(frozen=True, slots=True)
class _Count:
    """A way to count what a figure is of."""

    figure: str
    """How much lower it is with largest backlog first than in round robin."""
    told: str
    of: Callable[[_Point], Series]


def _later(slots: float) -> Callable[[_Point], Series]:
    """Delays with so many slots more."""

    def of(point: _Point) -> Series:
        more = 1e3 * SLOT_S * slots
        return {variant: [ms + more for ms in told] for variant, told in point.delay_ms.items()}

    return of


_BACKLOGS = (
    _Count(
        "lower_percent",
        "what a slot leaves to the next, as its equation 1 has it",
        lambda point: point.most,
    ),
    _Count(
        "before_sending_lower_percent", "before a slot's tuple is sent", lambda point: point.peak
    ),
)
_DELAYS = (
    _Count(
        "lower_percent", "whole slots, none for a tuple sent in the slot it comes in", _later(0.0)
    ),
    _Count("half_slot_lower_percent", "from any moment of a slot to the end of one", _later(0.5)),
    _Count("own_slot_lower_percent", "with the slot it is sent in", _later(1.0)),
)


def _lower(by_variant: Series, than: str = _ROUND_ROBIN) -> float:
    """Percent by which the mean of all runs is lower with largest backlog first."""
    return 100.0 * (1.0 - fmean(by_variant[_LARGEST]) / fmean(by_variant[than]))


def _over(points: Sequence[_At], name: str, counts: Sequence[_Count]) -> Callable[[Effort], Found]:
    """A figure over points; the first way to count is the one shown."""

    def run(effort: Effort) -> Found:
        figures: dict[str, dict[str, float]] = {}
        curves: Curves = {variant: ([], []) for variant in _VARIANTS}
        made = [_point(effort, at.queues, at.rate) for at in points]
        for at, point in zip(points, made, strict=True):
            told = counts[0].of(point)
            for variant in _VARIANTS:
                curves[variant][0].append(at.x)
                curves[variant][1].append(fmean(told[variant]))
                figures[f"{at.label}/{variant}"] = {name: fmean(told[variant])}
            figures[at.label] = {"lower_percent": _lower(told)}
        figures["best"] = {
            count.figure: max(_lower(count.of(point)) for point in made) for count in counts
        }
        figures["best"]["lower_than_all_percent"] = max(
            _lower(counts[0].of(point), _ALL) for point in made
        )
        best = max(range(len(made)), key=lambda n: _lower(counts[0].of(made[n])))
        notes = (
            _capacity(),
            f"Means of {_REPEATS} runs. {_between(points[best].label, counts[0].of(made[best]))}",
            _counted(counts, figures["best"]),
            "Round robin loses the turns of queues that are empty. Against all sending at once, "
            "which loses none, largest backlog first is lower by "
            f"{figures['best']['lower_than_all_percent']:.1f} % at the most.",
        )
        return Found(figures, curves, notes)

    return run


def _capacity() -> str:
    """What the link can bear, in words."""
    fits = next(at for at in _BY_RATE if at.queues * at.rate * SLOT_S >= 1.0 - 1e-9)
    return (
        f"{fits.queues} queues at {fits.rate:,.0f} tuples/s each are all that a link of one tuple "
        "a slot can send: beyond that, backlogs grow for as long as the run lasts, in every way."
    )


def _between(label: str, told: Series) -> str:
    """How far single runs are apart; the work does not say how many it has."""
    pairs = zip(told[_LARGEST], told[_ROUND_ROBIN], strict=True)
    single = sorted(100.0 * (1.0 - largest / turns) for largest, turns in pairs)
    return f"Single runs of {label} are lower by {single[0]:.1f} to {single[-1]:.1f} %."


def _counted(counts: Sequence[_Count], best: Mapping[str, float]) -> str:
    told = "; ".join(f"{count.told}: {best[count.figure]:.1f} %" for count in counts)
    return f"How much lower the best is depends on what is counted. {told[0].upper()}{told[1:]}."


def _interval(effort: Effort) -> Found:
    """Mean delay when the signal stays for longer, at 90 % of what the link can send."""
    figures: dict[str, dict[str, float]] = {}
    lines: Curves = {variant: ([], []) for variant in _VARIANTS}
    slots = max(1_000, round(10 * SLOTS * effort.scale))
    arrivals = poisson(Kernel(effort.seed).stream("interval"), slots, [900.0] * 10, SLOT_S)
    at_once = _ms(send(arrivals, _signals(_ALL)))
    for ms in INTERVALS_MS:
        hold = max(1, round(ms / 1e3 / SLOT_S))
        for variant in _VARIANTS:
            signals = _signals(variant)
            delay = _ms(send(arrivals, signals, hold)) if signals else at_once
            figures[f"{ms:g}-ms/{variant}"] = {"delay_ms": delay}
            lines[variant][0].append(ms)
            lines[variant][1].append(delay)
    delays = lines[_LARGEST][1]
    best = INTERVALS_MS[delays.index(min(delays))]
    notes = (
        f"Largest backlog first does best with {best:g} ms here: {min(delays):.3g} ms of delay, "
        f"and {at_once:.3g} ms where all send at once and there is no signal to keep. A queue "
        "keeps it when it has nothing more to send, and the link is idle meanwhile. Delays in "
        "whole slots.",
    )
    return Found(figures, lines, notes)


def _partial_keys(effort: Effort) -> Found:
    """Words to the lesser of two tasks each, whose queues share the link."""
    figures: dict[str, dict[str, float]] = {}
    lines: Curves = {variant: ([], []) for variant in _VARIANTS}
    slots = max(1_000, round(2 * SLOTS * effort.scale))
    for share in (0.5, 0.7, 0.8, 0.9, 0.95, 0.99):
        random = Kernel(effort.seed).stream(f"words/{share}")
        arrivals = np.zeros((slots, 10), np.int64)
        choosing = PartialKey().build(Kernel(effort.seed), "words", [None] * 10)  # type: ignore[list-item]
        coming = random.poisson(share, slots)
        words = np.searchsorted(
            np.cumsum(Zipf(1.0, 10_000, 1.0).chances()), random.random(int(coming.sum()))
        )
        for slot, word in zip(np.repeat(np.arange(slots), coming), words.tolist(), strict=True):
            (task,) = choosing.choose(_Word(word))
            arrivals[slot, task] += 1
        choosing.check()
        told = {}
        for variant in _VARIANTS:
            told[variant] = [_ms(send(arrivals, _signals(variant)))]
            figures[f"load-{share}/{variant}"] = {"delay_ms": told[variant][0]}
            lines[variant][0].append(100.0 * share)
            lines[variant][1].append(told[variant][0])
        figures[f"load-{share}"] = {"lower_percent": _lower(told)}
    least = min(v["lower_percent"] for k, v in figures.items() if "/" not in k)
    figures["least"] = {"lower_percent": least}
    apart = max(
        abs(largest / at_once - 1.0)
        for largest, at_once in zip(lines[_LARGEST][1], lines[_ALL][1], strict=True)
    )
    notes = (
        "Delays in whole slots. Those of largest backlog first and of all sending at once, both of "
        f"which always send while something waits, are within {100.0 * apart:.1g} %.",
    )
    return Found(figures, lines, notes)


@dataclass(slots=True)
class _Word:
    """All that a grouping looks at."""

    key: int


def _most(factors: Array) -> float:
    """The largest of every run, on average over the runs that have any."""
    having = factors[~np.isnan(factors).all(axis=1)]
    return float(np.nanmax(having, axis=1).mean()) if len(having) else 1.0


def _jain(
    points: Sequence[_At], why: Callable[[Effort], tuple[str, ...]]
) -> Callable[[Effort], Found]:
    """Jain's index over that of round robin, at the slots that are looked at."""

    def run(effort: Effort) -> Found:
        looked = np.array(_looked(_slots(effort)), np.float64)
        figures: dict[str, dict[str, float]] = {}
        curves: Curves = {}
        made = [_point(effort, at.queues, at.rate) for at in points]
        for at, point in zip(points, made, strict=True):
            left_out = np.isnan(point.fairer)
            figures[at.label] = {
                "factor": float(point.fairer[~left_out].mean()),
                "largest": _most(point.fairer),
                "left_out_percent": 100.0 * float(left_out.mean()),
            }
            some = ~left_out.all(axis=0)
            means = np.nanmean(point.fairer[:, some], axis=0)
            curves[at.label] = (looked[some].tolist(), means.tolist())
        figures["best"] = {
            "largest": _most(np.hstack([point.fairer for point in made])),
            "largest_if_empty_is_alike": _most(np.hstack([p.fairer_if_empty for p in made])),
        }
        notes = (
            f"Means of {_REPEATS} runs: of all looks (factor), and of the largest of a run's nine, "
            "or of all its looks at all points (largest).",
            "Where nothing waits the index is nothing over nothing: looks at which one of the two "
            "ways has no backlog are left out.",
            *why(effort),
        )
        return Found(figures, curves, notes)

    return run


def _why_ten(effort: Effort) -> tuple[str, ...]:
    """What a factor of ten takes."""
    made = [_point(effort, at.queues, at.rate) for at in _BY_RATE]
    there = np.hstack([point.fairer for point in made])
    with_empty = np.hstack([point.fairer_if_empty for point in made])
    queues = _BY_RATE[0].queues
    return (
        f"{queues} is the most that {queues} queues allow: all backlogs the same where round robin "
        "has only one. If no backlog at all counts as all the same, the largest of a run is "
        f"{_most(with_empty):.1f} on average and {np.nanmax(with_empty):.1f} in one of the runs; "
        f"of looks at backlogs that are there {_most(there):.1f}, and {np.nanmax(there):.1f} in "
        "one. The work does not say which it counts.",
    )


def _why_less(effort: Effort) -> tuple[str, ...]:
    """How unlike backlogs in round robin can be when more comes than can be sent."""
    at = next(at for at in _BY_QUEUES if at.label == _PUBLISHED_AT)
    first = _looked(_slots(effort))[0]
    needed = round(unlike(at.queues, at.rate, 1) / (_PUBLISHED_FACTOR - 1.0))
    return (
        f"{at.queues} queues bring {at.queues * at.rate * SLOT_S:g} times what the link can send, "
        f"so that all backlogs grow alike, in round robin too: its index is about "
        f"{1.0 / (1.0 + unlike(at.queues, at.rate, first)):.2f} after {first:,} slots, and equal "
        f"backlogs are a factor of {1.0 + unlike(at.queues, at.rate, first):.2f} from that. "
        f"{_PUBLISHED_FACTOR:g} takes backlogs of the first {needed} slots, or queues that bring "
        "what the link can just send.",
    )


def unlike(queues: int, rate: float, slots: int) -> float:
    """Variance over mean squared of a queue's backlog in round robin that never finds it empty.

    What comes is Poisson, what goes is always the same.
    """
    comes = rate * SLOT_S
    return comes / (slots * (comes - 1.0 / queues) ** 2)


_BY_RATE = [_At(f"rate-{rate}", 10, float(rate), rate) for rate in RATES]
_BY_QUEUES = [_At(f"queues-{queues}", queues, 1_000.0, queues) for queues in QUEUES]
_ONLY_DRAWN = "published as a picture only"
_PUBLISHED_AT, _PUBLISHED_FACTOR = "queues-20", 1.9


def _delays(lower: float) -> Figures:
    """Beside every way to count: the work does not say which it is."""
    return {"best": {count.figure: lower for count in _DELAYS}}


EXPERIMENTS = (
    Experiment(
        "backlog-rate",
        f"{SOURCE}, figure 6a",
        "Largest backlog of 10 queues by the rate of each",
        _over(_BY_RATE, "most", _BACKLOGS),
        {"best": {"lower_percent": 83.3}},
        axes=Axes("tuples/s of a queue", "largest backlog, tuples", log_y=True),
    ),
    Experiment(
        "backlog-queues",
        f"{SOURCE}, figure 6b",
        "Largest backlog by the number of queues at 1,000 tuples/s",
        _over(_BY_QUEUES, "most", _BACKLOGS),
        axes=Axes("queues", "largest backlog, tuples"),
        absent={"points": _ONLY_DRAWN},
    ),
    Experiment(
        "backlog-jain-rate",
        f"{SOURCE}, figure 7a",
        "How much more alike backlogs are (Jain index, ratio), by the rate of a queue",
        _jain(_BY_RATE, _why_ten),
        {"best": {"largest": 10.0, "largest_if_empty_is_alike": 10.0}},
        axes=Axes("slot", "Jain index over round robin's"),
    ),
    Experiment(
        "backlog-jain-queues",
        f"{SOURCE}, figure 7b",
        "How much more alike backlogs are (Jain index, ratio), by the number of queues",
        _jain(_BY_QUEUES, _why_less),
        {_PUBLISHED_AT: {"largest": _PUBLISHED_FACTOR}},
        axes=Axes("slot", "Jain index over round robin's"),
    ),
    Experiment(
        "backlog-delay-rate",
        f"{SOURCE}, figure 8a",
        "Mean delay of 10 queues by the rate of each",
        _over(_BY_RATE, "delay_ms", _DELAYS),
        _delays(89.8),
        axes=Axes("tuples/s of a queue", "mean delay, ms", log_y=True),
    ),
    Experiment(
        "backlog-delay-queues",
        f"{SOURCE}, figure 8b",
        "Mean delay by the number of queues at 1,000 tuples/s",
        _over(_BY_QUEUES, "delay_ms", _DELAYS),
        _delays(70.1),
        axes=Axes("queues", "mean delay, ms"),
    ),
    Experiment(
        "backlog-interval",
        f"{SOURCE}, figure 10",
        "Mean delay by how long a queue keeps the signal, 10 queues at 900 tuples/s",
        _interval,
        absent={
            "best at 40 to 100 ms": "short intervals cost threads that tell each other, which was "
            "measured on Storm and is not in the model",
            "78.7 % lower on average": "latency on Storm against all sending at once, which costs "
            "nothing in the model",
        },
        axes=Axes("interval, ms", "mean delay, ms", log_x=True, log_y=True),
    ),
    Experiment(
        "backlog-partial-key",
        f"{SOURCE}, figure 12",
        "Mean delay under partial key grouping, words of a Zipf distribution on 10 tasks",
        _partial_keys,
        absent={
            "94.2 % lower on average": "latency on Storm against all sending at once, which costs "
            "nothing in the model; here the delay before the link against round robin"
        },
        axes=Axes("load of the link, percent", "mean delay, ms", log_y=True),
    ),
)

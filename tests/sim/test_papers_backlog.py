"""The experiments with backlogs and with deadlines: what their tables and notes say holds."""

from __future__ import annotations

import re
from functools import cache
from statistics import fmean

import numpy as np
import pytest

from taut.policy.backlog import RoundRobinSignal
from taut.sim.link import jain, poisson, send
from taut.sim.papers import EXPERIMENTS, Effort, Found, backlog, deadline
from taut.sim.papers.backlog import INTERVALS_MS, SLOT_S, SLOTS, unlike

DEADLINES = [name for name in EXPERIMENTS if name.startswith("deadline")]
SHARES = [name for name in DEADLINES if name != "deadline-optimum"]


@cache
def found_by(name: str, scale: float = 1.0) -> Found:
    """What an experiment shows; several tests look at the same run."""
    return EXPERIMENTS[name].run(Effort(scale=scale))


def note(found: Found, begins: str) -> str:
    (told,) = [each for each in found.notes if each.startswith(begins)]
    return told


# Backlogs


def test_the_largest_backlog_is_as_much_lower_as_published() -> None:
    best = found_by("backlog-rate").figures["best"]
    assert best["lower_percent"] == pytest.approx(83.3, abs=3.0)
    # with its tuple of the slot, a short queue is that much longer
    assert best["before_sending_lower_percent"] < best["lower_percent"]


def test_delays_are_as_published_with_half_a_slot_and_apart_without() -> None:
    best = found_by("backlog-delay-rate").figures["best"]
    assert best["half_slot_lower_percent"] == pytest.approx(89.8, abs=3.0)
    assert best["own_slot_lower_percent"] < 89.8 < best["lower_percent"]
    told = note(found_by("backlog-delay-rate"), "How much lower")
    assert re.findall(r"[\d.]+ %", told) == [
        f"{best[figure]:.1f} %"
        for figure in ("lower_percent", "half_slot_lower_percent", "own_slot_lower_percent")
    ]


@pytest.mark.parametrize("figure", ["most", "delay_ms"])
def test_all_at_once_loses_no_turn(figure: str) -> None:
    """It has the delays of largest backlog first, and backlogs between those of the other two."""
    name = "backlog-rate" if figure == "most" else "backlog-delay-rate"
    told = found_by(name).figures
    for rate in backlog.RATES:
        turns, at_once, largest = (
            told[f"rate-{rate}/{variant}"][figure]
            for variant in ("round-robin", "all", "largest-backlog")
        )
        if figure == "most":
            assert largest < at_once < turns
        else:
            assert at_once == pytest.approx(largest, rel=0.02)
            assert at_once < turns
    least = told["best"]["lower_than_all_percent"]
    assert f"lower by {least:.1f} % at the most" in note(found_by(name), "Round robin")


def test_looks_at_no_backlog_do_not_count() -> None:
    told = found_by("backlog-jain-rate").figures
    assert told["rate-500"]["left_out_percent"] > 50.0
    assert told["rate-1500"]["left_out_percent"] == 0.0
    # one tuple in one queue is as unlike as can be, and round robin has more of them
    assert told["rate-500"]["factor"] < 1.0 < told["rate-1000"]["factor"]
    assert told["best"]["largest"] < 3.0
    assert told["best"]["largest_if_empty_is_alike"] > 6.0
    said = note(found_by("backlog-jain-rate"), "10 is the most")
    empty, in_one, there, in_one_there = map(float, re.findall(r"\d+\.\d", said))
    assert empty == pytest.approx(told["best"]["largest_if_empty_is_alike"], abs=0.06)
    assert there == pytest.approx(told["best"]["largest"], abs=0.06)
    assert in_one == 10.0 > in_one_there >= there
    assert max(told[f"rate-{rate}"]["largest"] for rate in backlog.RATES) <= told["best"]["largest"]


def test_with_more_than_can_be_sent_backlogs_are_alike_in_round_robin_too() -> None:
    """What the note says of 20 queues is what is simulated."""
    slots = SLOTS // 10
    indices = []
    for seed in range(40):
        arrivals = poisson(np.random.default_rng(seed), slots, [1_000.0] * 20, SLOT_S)
        indices.append(jain(send(arrivals, RoundRobinSignal(), look=[slots]).backlogs[0]))
    # a little more alike: the first slots find queues empty, and send nothing of them
    assert 1.0 / fmean(indices) == pytest.approx(1.0 + unlike(20, 1_000.0, slots), abs=0.01)
    # a quick look has its first look earlier
    first = round(0.02 * SLOTS) // 10
    found = found_by("backlog-jain-queues", 0.02)
    assert found.curves["queues-20"][0][0] == first
    told = note(found, "20 queues bring")
    assert "bring 2 times" in told
    assert f"after {first} slots" in told
    assert f"factor of {1.0 + unlike(20, 1_000.0, first):.2f}" in told
    (early,) = re.findall(r"first (\d+) slots", told)
    assert 1.0 + unlike(20, 1_000.0, int(early)) == pytest.approx(1.9, rel=0.02)


def test_the_link_bears_what_the_note_says() -> None:
    queues, rate = re.findall(r"[\d,]+", note(found_by("backlog-rate"), "10 queues"))[:2]
    assert int(queues) * float(rate.replace(",", "")) * SLOT_S == pytest.approx(1.0)


def test_the_best_interval_is_the_one_that_the_note_says() -> None:
    found = found_by("backlog-interval", 0.1)
    delays = {ms: found.figures[f"{ms:g}-ms/largest-backlog"]["delay_ms"] for ms in INTERVALS_MS}
    best = min(delays, key=lambda ms: delays[ms])
    assert f"best with {best:g} ms" in note(found, "Largest backlog first")
    assert best == min(INTERVALS_MS)
    (at_once,) = {found.figures[f"{ms:g}-ms/all"]["delay_ms"] for ms in INTERVALS_MS}
    assert at_once == pytest.approx(delays[best], rel=0.01)


def test_under_partial_key_grouping_delays_are_lower_at_every_load() -> None:
    told = found_by("backlog-partial-key", 0.2).figures
    lower = [figures["lower_percent"] for key, figures in told.items() if key.startswith("load")
             if "/" not in key]  # fmt: skip
    assert told["least"]["lower_percent"] == min(lower) > 20.0
    (within,) = re.findall(r"within (\S+) %", note(found_by("backlog-partial-key", 0.2), "Delays"))
    assert float(within) < 1.0


# Deadlines


@pytest.mark.parametrize("name", DEADLINES)
def test_cost_aware_is_never_behind(name: str) -> None:
    """But for the rows at the ends of the seconds that count, which differ by schedule."""
    found = found_by(name, 0.1)
    for key, told in found.figures.items():
        if "/" in key:
            (figure,) = told
            best = found.figures[f"{key.split('/')[0]}/cost-aware"][figure]
            assert best >= told[figure] - 0.3, key


def test_on_small_instances_cost_aware_is_within_two_percent_of_the_optimum() -> None:
    told = found_by("deadline-optimum").figures
    assert told["least"]["of_optimum_percent"] >= 98.0
    assert all(figures["of_optimum_percent"] <= 100.0 for figures in told.values())
    shares = [f["of_optimum_percent"] for key, f in told.items() if key.endswith("/cost-aware")]
    assert told["least"]["of_optimum_percent"] == min(shares)


@pytest.mark.parametrize("name", ["deadline-memory", "deadline-windows", "deadline-overload"])
def test_without_a_schedule_none_is_on_time_once_the_backlog_has_passed(name: str) -> None:
    found = found_by(name, 0.1)
    told = note(found, "Without a schedule")
    passed = {label: float(s) for label, s in re.findall(r"(\S+-[\d.]+) ([\d.]+) s", told)}
    (warm_up,) = re.findall(r"warm-up of ([\d.]+) s", note(found, "Rows of"))
    assert passed
    for key, figures in found.figures.items():
        label, schedule = key.split("/")
        if schedule == "none":
            assert (figures["on_time_percent"] == 0.0) == (label in passed), key
            assert passed.get(label, 0.0) < float(warm_up)


@pytest.mark.parametrize("load", [1.36, 1.8])
def test_under_overload_as_many_are_on_time_as_can_be_done(load: float) -> None:
    told = found_by("deadline-overload", 0.1).figures[f"load-{load:g}/cost-aware"]
    can = 100.0 / (0.95 * load)
    assert told["on_time_percent"] == pytest.approx(can, rel=0.015)


@pytest.mark.parametrize("name", SHARES)
def test_what_was_chosen_is_said(name: str) -> None:
    reducer = {
        "deadline-memory": deadline.WORDS,
        "deadline-windows": deadline.WINDOWED,
        "deadline-overload": deadline.WORDS,
        "deadline-cold": deadline.SESSIONS,
        "deadline-spark": deadline.SPARK.reducer,
    }[name]
    told = note(found_by(name, 0.1), "A row in memory costs")
    assert "costs 200 us, 100 times the 2 us published" in told
    assert f"exponent of {reducer.zipf:g}," in told
    assert f"{reducer.keys:,} keys" in told
    assert ("25 times one in memory" in told) == (name != "deadline-cold")
    full = 50 if name == "deadline-spark" else 95
    assert f"work for {full} %" in told


def test_a_quick_look_has_fewer_rows_and_the_same_shares() -> None:
    quick, longer = (found_by("deadline-memory", scale).figures for scale in (0.02, 0.1))
    for key in ("memory-100/cost-aware", "memory-50/cost-aware", "memory-200/none"):
        assert quick[key]["on_time_percent"] == pytest.approx(
            longer[key]["on_time_percent"], abs=2.0
        )

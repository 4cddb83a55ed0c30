"""With too little time: no row is lost, what can be on time is, and wrong estimates heal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from tests.spark.reduce.stores import EPOCH, Clock, Row, Told, World

from taut.errors import JobError
from taut.policy.deadline import CHOICES
from taut.spark.reduce import keyed
from taut.spark.reduce.job import Job
from taut.spark.reduce.terms import CROWDED, LATE, WAITED, Terms

PROCESS = {"late": "process", "patience": math.inf}
READMIT = {"late": "side-output", "patience": 2.0}
CHOOSING = [name for name in CHOICES if name != "fifo"]


@pytest.fixture(autouse=True)
def _new_worker() -> Iterator[None]:
    keyed.forget()
    yield
    keyed.forget()


def test_what_it_takes_to_start_is_not_what_batches_take() -> None:
    work = Work()
    world = World(work.job(), Terms(5.0), clock=work.clock, lead=20.0)
    for _ in range(2):
        # a process that has just begun: nobody has told of a batch, and a reducer begins late
        world._written = None
        world.batch([(world.now, "a", 1, world.now)])
        assert not world.store.read_head().lead.seen
    assert (world.told.stats[-1].kept, world.told.stats[-1].rows) == (1, 1)


def test_where_nothing_can_be_on_time_what_waits_is_worked_on_all_the_same() -> None:
    work = Work(0.001)
    world = World(work.job(), Terms(0.1, **PROCESS), clock=work.clock, lead=0.5, after=0.4)
    world.batch([(0.0, f"k{n % 50}", n, 0.0) for n in range(2_000)])
    batches = 0
    while world.waiting() and batches < 20:
        world.batch()
        batches += 1
    # a batch takes 0.9 s without a row, and as long with rows is time enough for hundreds
    assert not world.waiting()
    assert Counter(value for _, value in world.told.results) == Counter(range(2_000))


class Work:
    """Functions that take time: each row so many seconds, and it comes out as it was."""

    def __init__(self, takes: float = 0.001) -> None:
        self.clock = Clock()
        self.takes = takes

    def job(self, **changes: Any) -> Job:
        given = {
            "init": lambda key, window=None: 0,
            "update": self._update,
            "output": "key string, value bigint",
            "name": "work",
        }
        return Job(**{**given, **changes})

    def windows(self, window: str) -> Job:
        def gather(time: float, key: str, value: int, state: list[int]) -> tuple[list[int], None]:
            self.clock.pass_(self.takes)
            return [*state, value], None

        return self.job(
            update=gather,
            init=lambda key, window: [],
            finalize=lambda key, window, state: [(key, value) for value in state],
            state=list[int],
            window=window,
        )

    def _update(self, time: float, key: str, value: int, state: int) -> tuple[int, list[Any]]:
        self.clock.pass_(self.takes)
        return state + 1, [(key, value)]


class Stream:
    """Rows at a rate, each with a value of its own; batches of all that has arrived by now."""

    def __init__(
        self, world: World, rate: float, key: Callable[[int], str] = lambda n: f"k{n % 20}"
    ) -> None:
        self.world = world
        self.rate = rate
        self.key = key
        self.given: list[Row] = []

    def batch(self, watermark: float | None = None) -> Told:
        """The next batch; it waits for a tenth of a second if nothing has come."""
        upto = int(self.world.now * self.rate)
        if upto == len(self.given):
            self.world.clock.pass_(0.1)
            upto = int(self.world.now * self.rate)
        rows = [
            (n / self.rate, self.key(n), n, n / self.rate) for n in range(len(self.given), upto)
        ]
        self.given += rows
        return self.world.batch(rows, watermark)

    def balance(self) -> None:
        """Every row is worked on, put aside or waits, and is so once."""
        told = self.world.told
        done = Counter(value for _, value in told.results)
        done += Counter(row["value"] for row in told.shed) + Counter(self.world.waiting())
        assert done == Counter(row[2] for row in self.given)
        stats = told.stats
        counted = sum(s.kept + s.readmitted + sum(s.shed.values()) for s in stats)
        assert counted + len(self.world.waiting()) == len(self.given)


def in_time(told: Told, out: float) -> float:
    """The share of rows worked on that are out by their deadline."""
    due = [deadline for stats in told.stats for deadline in stats.deadlines]
    return sum(n for at, n in due if at >= out - 0.011) / max(1, sum(n for _, n in due))


# -- no row is lost --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", CHOICES)
@pytest.mark.parametrize("late", [{}, PROCESS, READMIT], ids=["aside", "process", "readmit"])
@pytest.mark.parametrize("reducers", [1, 3])
def test_every_row_is_worked_on_put_aside_or_waits(
    policy: str, late: dict[str, Any], reducers: int
) -> None:
    work = Work(0.0015)
    terms = Terms(1.0, policy, **late)
    world = World(work.job(), terms, reducers=reducers, clock=work.clock, pieces=3)
    stream = Stream(world, 1_000.0)
    while world.now < 6.0:
        stream.batch()
        stream.balance()
    aside = len(world.told.shed)
    if policy == "fifo":
        assert aside == len(world.waiting()) == 0
    elif late is PROCESS:
        assert (aside, bool(world.waiting())) == (0, True)
    else:
        assert aside > 500


@pytest.mark.parametrize("policy", CHOOSING)
@pytest.mark.parametrize(
    ("objective", "after"),
    [(1.0, 0.01), (0.3, 0.2), (0.2, 0.5)],
    ids=["loose", "tight", "impossible"],
)
def test_what_waits_is_worked_on_when_no_more_comes(
    policy: str, objective: float, after: float
) -> None:
    work = Work(0.002)
    world = World(work.job(), Terms(objective, policy, **PROCESS), clock=work.clock, after=after)
    stream = Stream(world, 1_000.0)
    while world.now < 3.0:
        stream.batch()
    assert len(world.waiting()) > 100
    for _ in range(300):
        if not world.waiting():
            break
        told = world.batch()
        assert told.stats[0].readmitted > 0
        stream.balance()
    assert world.waiting() == []
    assert sorted(value for _, value in world.told.results) == [row[2] for row in stream.given]


def test_what_waits_is_worked_on_though_a_row_was_taken_to_cost_more_than_there_is() -> None:
    work = Work(10.0)
    world = World(work.job(), Terms(1.0, **PROCESS), clock=work.clock)
    stream = Stream(world, 15.0)
    stream.batch()
    stream.batch()
    assert len(world.waiting()) > 100
    work.takes = 0.001
    for _ in range(15):
        world.batch()
        stream.balance()
    assert world.waiting() == [], "the first of them have told what a row costs"


def test_what_has_waited_too_long_goes_aside() -> None:
    work = Work(0.004)
    world = World(work.job(), Terms(1.0, **READMIT), clock=work.clock)
    stream = Stream(world, 1_000.0)
    while world.now < 6.0:
        stream.batch()
    stream.balance()
    aside = world.told.shed
    assert {row["reason"] for row in aside} == {WAITED}
    assert len(aside) > 500
    world.clock.pass_(5.0)
    world.batch()
    stream.balance()
    assert world.waiting() == []
    for row in aside:
        assert row["deadline"].timestamp() == pytest.approx(row["arrival"].timestamp() + 1.0)


def test_rows_that_waited_are_worked_on_in_time_that_is_left() -> None:
    work = Work(0.001)
    world = World(work.job(), Terms(1.0, **READMIT), clock=work.clock)
    stream = Stream(world, 2_000.0)
    while world.now < 2.0:
        stream.batch()
    stream.rate, at = 300.0, world.now
    stream.given = []
    world.told = Told()
    waited = len(world.waiting())
    assert waited > 100
    rows = iter(range(10_000, 10_000_000))
    for _ in range(10):
        upto = int((world.now - at) * 300.0)
        new = [(world.now, "k1", next(rows), world.now) for _ in range(upto - len(stream.given))]
        stream.given += new
        world.batch(new)
        world.clock.pass_(0.1)
    assert sum(stats.readmitted for stats in world.told.stats) > 0.5 * waited
    late = sum(stats.kept for stats in world.told.stats)
    assert late == len(stream.given), "and those that come are not kept waiting"


def test_late_rows_fail_the_query_by_name() -> None:
    work = Work(0.01)
    world = World(work.job(), Terms(1.0, late="fail"), clock=work.clock)
    stream = Stream(world, 50.0)
    for _ in range(10):
        stream.batch()
    rows = [(world.now - 3.0, "slow", 7, world.now - 3.0), *((9.0, "k", 1, world.now),) * 10]
    with pytest.raises(
        JobError,
        match=r"job 'work': 1 of 11 rows cannot be out within 1 s, such as \{.*'key': 'slow', "
        r"'value': 7, .*\}, expected out 3\.\d+ s after its arrival; late='side-output' would go "
        "on",
    ):
        world.attempt(rows)


@pytest.mark.parametrize("late", [{}, PROCESS, READMIT], ids=["aside", "process", "readmit"])
def test_rows_of_windows_are_not_lost_either(late: dict[str, Any]) -> None:
    work = Work(0.0015)
    world = World(work.windows("1 s"), Terms(1.0, **late), clock=work.clock)
    stream = Stream(world, 1_000.0)
    while world.now < 6.0:
        stream.batch(watermark=world.now - 1.5)
    world.clock.pass_(20.0)
    world.batch((), watermark=100.0)
    assert world.states() == {}
    told = world.told
    done = Counter(value for _, value in told.results) + Counter(r["value"] for r in told.shed)
    assert done == Counter(row[2] for row in stream.given)
    if late is PROCESS:
        assert not told.shed
        assert sum(stats.readmitted for stats in told.stats) > 500


# -- the objective ---------------------------------------------------------------------------------


def test_rows_that_are_worked_on_are_on_time() -> None:
    work = Work(0.0015)
    world = World(work.job(), Terms(1.0), clock=work.clock, lead=0.05, after=0.08)
    stream = Stream(world, 1_000.0)
    while world.now < 10.0:
        told = stream.batch()
        if world.now > 3.0:
            assert in_time(told, world.clock.now) == 1.0
            assert told.stats[0].predicted == pytest.approx(world.clock.now, abs=0.05)
    kept = sum(stats.kept for stats in world.told.stats)
    assert kept > 0.55 * len(stream.given), "two thirds is what there is time for"


def test_reasons_and_predictions_are_told() -> None:
    work = Work(0.001)
    world = World(work.job(), Terms(1.0), clock=work.clock)
    stream = Stream(world, 900.0)
    for _ in range(10):
        stream.batch()
    now = world.now
    rows = [(now, "late", 1, now - 2.0)] + [(now, "k", 2 + n, now - 0.1) for n in range(2_000)]
    told = world.batch(rows)
    reasons = Counter(row["reason"] for row in told.shed)
    assert reasons[LATE] == 1
    assert 1_000 < reasons[CROWDED] < 1_400
    (stats,) = told.stats
    assert stats.shed == dict(reasons)
    for row in told.shed:
        assert row["predicted"].timestamp() == pytest.approx(stats.predicted, abs=1e-5)
        assert row["deadline"].timestamp() == pytest.approx(row["arrival"].timestamp() + 1.0)
        assert row["row"] is None
    (late,) = [row for row in told.shed if row["reason"] == LATE]
    assert (late["key"], late["value"]) == ("late", 1)
    assert late["time"].timestamp() == pytest.approx(EPOCH + now, abs=1e-5)


@pytest.mark.parametrize("policy", CHOICES)
@pytest.mark.parametrize("late", [{}, PROCESS, READMIT], ids=["aside", "process", "readmit"])
def test_what_is_decided_follows_from_the_store_and_the_rows_and_the_plan(
    policy: str, late: dict[str, Any]
) -> None:
    work = Work(0.0015)
    world = World(work.job(), Terms(1.0, policy, budget=2_500.0, **late), clock=work.clock,
                  cold_takes=0.001)  # fmt: skip
    draw = np.random.default_rng(4)
    for _ in range(25):
        now = world.now
        keys = (draw.zipf(1.3, 150) % 40).tolist()
        rows = [(now, f"k{key}", n, now - n / 500) for n, key in enumerate(keys)]
        decided = []
        for lead, takes, cold_takes in ((0.01, 0.0015, 0.001), (3.0, 0.7, 0.2), (0.0, 0.0, 0.0)):
            world.clock.now = EPOCH + now
            world.lead, work.takes, world.store.cold_takes = lead, takes, cold_takes
            told = world.attempt(rows)
            shed = [(row["value"], row["reason"], row["predicted"]) for row in told.shed]
            decided.append((told.results, shed, world.waiting()))
            world.rollback()
            keyed.forget()
        assert decided[0] == decided[1] == decided[2]
        world.clock.now = EPOCH + now
        world.lead, work.takes, world.store.cold_takes = 0.01, 0.0015, 0.001
        world.batch(rows)


@pytest.mark.parametrize("policy", ["cost-aware", "dover"])
@pytest.mark.parametrize("late", [{}, PROCESS], ids=["aside", "process"])
@pytest.mark.parametrize("window", [None, "1 s", ("3 s", "1 s")], ids=str)
def test_the_same_rows_are_worked_on_whichever_way_they_came(
    policy: str, late: dict[str, Any], window: Any
) -> None:
    # rows of one arrival, in another order and in other pieces, as other lanes would bring them
    work = Work(0.002)
    job = work.job() if window is None else work.windows(window)
    world = World(job, Terms(1.0, policy, budget=2_500.0, **late), clock=work.clock,
                  cold_takes=0.001)  # fmt: skip
    draw = np.random.default_rng(4)
    left = 0
    for at in range(8):
        now = world.now
        keys = (draw.zipf(1.3, 800) % 40).tolist()
        rows = [(now, f"k{key}", n % 50, now - (n % 2) / 10) for n, key in enumerate(keys)]
        half, mixed = len(rows) // 2, [rows[n] for n in draw.permutation(len(rows)).tolist()]
        decided = []
        for others, pieces in ((rows, 1), (rows[half:] + rows[:half], 2), (mixed, 5)):
            world.clock.now, world.pieces = EPOCH + now, pieces
            told = world.attempt(others)
            shed = Counter((row["key"], row["value"], row["arrival"]) for row in told.shed)
            held = Counter(map(repr, map(sorted, world.states().values())) if window else ())
            decided.append((Counter(told.results), shed, held, Counter(world.waiting())))
            world.rollback()
            keyed.forget()
        assert decided[0] == decided[1] == decided[2], at
        left += decided[0][1].total() + decided[0][3].total()
        world.clock.now = EPOCH + now
        world.batch(rows)
    assert left > 500


# -- costs -----------------------------------------------------------------------------------------


def test_costs_are_learned() -> None:
    work = Work(0.0005)
    world = World(work.job(), Terms(5.0, budget=3_000.0), clock=work.clock,
                  lead=0.07, after=0.04, cold_takes=0.003, head_takes=0.025)  # fmt: skip
    stream = Stream(world, 300.0, key=lambda n: f"k{n * 7 % 50}")
    for _ in range(12):
        stream.batch()
    head = world.store.read_head()
    assert head.row_cost.value == pytest.approx(0.0005, rel=0.01)
    assert head.fixed_cost.value == pytest.approx(0.025, rel=0.01)
    assert 0.003 <= head.cold_cost.value <= 0.012, "sought, and put back or changed places"
    assert head.lead.value == pytest.approx(0.07, rel=0.01)
    assert head.after.value == pytest.approx(0.04, rel=0.01)
    (stats,) = world.told.stats[-1:]
    assert stats.row_us == pytest.approx(500.0, rel=0.01)
    assert (stats.lead, stats.after) == (
        pytest.approx(0.07, rel=0.01),
        pytest.approx(0.04, rel=0.01),
    )


def test_hot_rows_are_kept_and_cold_ones_put_aside() -> None:
    work = Work(0.0002)
    draw = np.random.default_rng(8)
    rare = draw.random(50_000) < 0.4
    which = draw.integers(0, 2_000, 50_000)
    world = World(work.job(), Terms(1.0, budget=8_000.0), clock=work.clock, cold_takes=0.004)
    stream = Stream(
        world, 500.0, key=lambda n: f"rare {which[n]}" if rare[n] else f"often {which[n] % 10}"
    )
    while world.now < 5.0:
        stream.batch()
    world.told = Told()
    begun = len(stream.given)
    while world.now < 25.0:
        stream.batch()
    kept = Counter(key.split()[0] for key, _ in world.told.results)
    came = Counter(row[1].split()[0] for row in stream.given[begun:])
    assert kept["often"] > 0.99 * came["often"]
    assert 0.1 * came["rare"] < kept["rare"] < 0.8 * came["rare"]
    aside = Counter(row["key"].split()[0] for row in world.told.shed)
    assert aside["often"] + kept["often"] == came["often"]


def test_few_rows_tell_what_one_costs_if_they_take_long() -> None:
    work = Work(0.03)
    world = World(work.job(), Terms(1.0), clock=work.clock)
    stream = Stream(world, 20.0)
    for takes in (0.03, 0.06, 0.02):
        work.takes = takes
        for _ in range(20):
            stream.batch()
        assert world.store.read_head().row_cost.value == pytest.approx(takes, rel=0.01)


def test_few_rows_in_no_time_do_not_tell_that_rows_are_dear() -> None:
    work = Work(1e-5)
    world = World(work.job(), Terms(1.0), clock=work.clock)
    world.batch([(0.0, "a", n, 0.0) for n in range(100)])
    work.takes = 0.005
    for _ in range(9):
        world.batch([(world.now, "a", 1, world.now)])
    assert world.store.read_head().row_cost.value == pytest.approx(1e-5, rel=0.01)


def test_a_batch_without_rows_that_takes_long_tells_nothing_of_rows() -> None:
    class Ticking(Clock):
        def __call__(self) -> float:
            self.pass_(0.02)
            return self.now

    world = World(Work().job(), Terms(1.0), clock=Ticking())
    assert world.batch().stats[0].rows == 0
    assert world.store.read_head().row_cost.seen == ()


@pytest.mark.parametrize("policy", CHOOSING)
@pytest.mark.parametrize("rate", [40.0, 3_000.0])
def test_a_row_cost_that_was_wrong_heals(policy: str, rate: float) -> None:
    work = Work(10.0)
    world = World(work.job(), Terms(1.0, policy), clock=work.clock)
    world.batch([(0.0, f"k{n}", n, 0.0) for n in range(60)])
    work.takes = 1e-5
    assert world.store.read_head().row_cost.value == pytest.approx(10.0)
    for _ in range(15):
        now = world.now
        told = world.batch([(now, f"k{n % 9}", n, now) for n in range(int(rate / 5))])
        world.clock.pass_(0.2)
    assert told.shed == []


@pytest.mark.parametrize("policy", CHOOSING)
def test_a_cost_of_cold_keys_that_was_wrong_heals(policy: str) -> None:
    work = Work(1e-5)
    world = World(work.job(), Terms(1.0, policy, budget=2_500.0), clock=work.clock)
    world.batch([(0.0, f"k{n % 50}", n, 0.0) for n in range(100)])
    world.store.cold_takes = 10.0
    now = world.now
    world.batch([(now, f"k{n % 50}", n, now) for n in range(100)])
    assert world.store.read_head().cold_cost.value >= 10.0
    world.store.cold_takes = 1e-5
    for _ in range(15):
        now = world.now
        told = world.batch([(now, f"k{n % 50}", n, now) for n in range(100)])
        world.clock.pass_(0.2)
    assert told.shed == []


@pytest.mark.parametrize("policy", CHOOSING)
def test_a_pause_says_nothing_of_what_follows(policy: str) -> None:
    work = Work(1e-4)
    world = World(work.job(), Terms(1.0, policy), clock=work.clock)
    for at in range(30):
        now = world.now
        world.store.head_takes = 20.0 if at == 15 else 0.01
        world.lead = 30.0 if at == 20 else 0.01
        work.takes = 0.3 if at == 25 else 1e-4
        told = world.batch([(now, f"k{n % 9}", n, now) for n in range(100)])
        assert told.shed == [], at
        world.clock.pass_(0.2)


def test_times_of_rows_say_nothing_about_when_they_are_due() -> None:
    work = Work(1e-4)
    world = World(work.job(), Terms(1.0), clock=work.clock)
    told = world.batch([(-9_999.0, "a", 1, 0.0), (9_999.0, "a", 2, 0.0)])
    assert told.stats[0].kept == 2

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from statistics import fmean, pstdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from taut.policy.balance import BALANCES, PERIOD, Balance, EvenSplit, LatencyBalance, TwoChoices

STEADY = settings(derandomize=True, deadline=None, database=None, max_examples=150)
NAMES = [f"task {n}" for n in range(6)]
BUILDS = pytest.mark.parametrize("name", BALANCES)
SEEDS = st.integers(0, 2**32)


def joined(balance: Balance, tasks: Sequence[str]) -> Balance:
    for task in tasks:
        balance.join(task)
    return balance


class Literal:
    """Latency balance as it is written down, with fractions and everything worked out anew."""

    def __init__(self, age: float, ratio: float, unit: Fraction) -> None:
        self.age, self.ratio, self.whole_unit = age, ratio, unit
        self.share: dict[str, Fraction] = {}
        self.latency: dict[str, float] = {}
        self.seen: list[tuple[str, float, int]] = []

    @property
    def unit(self) -> Fraction:
        return min(self.whole_unit, Fraction(1, 4 * len(self.share))) if self.share else Fraction(0)

    def lift(self) -> None:
        low = [t for t in self.share if self.share[t] < self.unit]
        missing = sum((self.unit - self.share[t] for t in low), Fraction(0))
        spare = {t: self.share[t] - self.unit for t in self.share if t not in low}
        total = sum(spare.values())
        for t in low:
            self.share[t] = self.unit
        for t, above in spare.items():
            self.share[t] -= missing * above / total

    def join(self, task: str) -> None:
        if task not in self.share:
            even = Fraction(1, len(self.share) + 1)
            self.share = {t: share * (1 - even) for t, share in self.share.items()} | {task: even}
            self.lift()

    def leave(self, task: str) -> None:
        gone = self.share.pop(task, None)
        self.latency.pop(task, None)
        self.seen = [s for s in self.seen if s[0] != task]
        if gone is not None and self.share:
            self.share = {t: share / (1 - gone) for t, share in self.share.items()}
            self.lift()

    def observe(self, task: str, seconds: float, rows: int) -> None:
        if task in self.share:
            self.seen.append((task, seconds, rows))

    def adjust(self) -> bool:
        fresh = {t for t, _, n in self.seen if n}
        for task in self.share:
            rows = sum(n for t, _, n in self.seen if t == task)
            if rows:
                mean = sum(x * n for t, x, n in self.seen if t == task) / rows
                known = self.latency.get(task, mean)
                self.latency[task] = self.age * mean + (1.0 - self.age) * known
        self.seen = []
        ranking = [t for t in self.share if t in self.latency]
        ranking.sort(key=lambda t: self.latency[t])
        changed = False
        while len(ranking) > 1:
            fast, slow = ranking.pop(0), ranking.pop()
            if self.latency[slow] <= self.ratio * self.latency[fast]:
                break
            if not {fast, slow} & fresh:
                continue
            moved = min(self.unit, self.share[slow] - self.unit)
            self.share[slow] -= moved
            self.share[fast] += moved
            changed |= moved > 1e-12
        return changed


def history(seed: int, steps: int) -> list[tuple[str, tuple[object, ...]]]:
    """Tasks come and go, now and then; mostly they report, some of them ten times slower."""
    draw = random.Random(seed)
    pace = {task: draw.choice([0.1, 0.11, 0.2, 1.0]) for task in NAMES}
    found: list[tuple[str, tuple[object, ...]]] = [("join", (task,)) for task in NAMES[:3]]
    for _ in range(steps):
        verb = draw.choices(["join", "leave", "observe", "adjust"], [3, 1, 30, 30])[0]
        task = draw.choice(NAMES)
        seconds = pace[task] * draw.choice([0.0, 0.9, 1.0, 1.1])
        values = {"observe": (task, seconds, draw.randrange(50)), "adjust": (draw.uniform(2, 8),)}
        found.append((verb, values.get(verb, (task,))))
    return found


@settings(STEADY, max_examples=60)
@given(
    seed=SEEDS,
    age=st.sampled_from([0.25, 0.5, 1.0]),
    ratio=st.sampled_from([1.0, 1.2, 2.0]),
    percent=st.sampled_from([1, 3, 10]),
)
def test_any_history_gives_the_shares_of_the_literal_rule(
    seed: int, age: float, ratio: float, percent: int
) -> None:
    balance = LatencyBalance(5.0, age, ratio, percent / 100)
    literal = Literal(age, ratio, Fraction(percent, 100))
    now, over = 100.0, 105.0
    balance.adjust(now)
    for verb, values in history(seed, steps=200):
        if verb == "adjust":
            now += float(values[0])  # type: ignore[arg-type]
            changed = balance.adjust(now)
            assert changed == (now >= over and literal.adjust())
            over = now + 5.0 if now >= over else over
        else:
            getattr(balance, verb)(*values)
            getattr(literal, verb)(*values)
        assert balance.tasks == list(literal.share)
        shares = balance.shares(balance.tasks)
        pairs = zip(shares, literal.share.values(), strict=True)
        assert all(abs(mine - float(share)) < 1e-9 for mine, share in pairs)
        if shares:
            assert abs(math.fsum(shares) - 1.0) < 1e-12
            assert min(shares) >= min(percent / 100, 0.25 / len(shares)) - 1e-9
            balance.deal(balance.tasks, 3)
        balance.check()


@STEADY
@given(slow=st.lists(st.floats(0.001, 10.0), min_size=2, max_size=40), periods=st.integers(1, 40))
def test_every_task_keeps_a_unit(slow: list[float], periods: int) -> None:
    balance = LatencyBalance()
    tasks = [str(n) for n in range(len(slow))]
    joined(balance, tasks)
    balance.adjust(0.0)
    for n in range(1, periods + 1):
        for task, seconds in zip(tasks, slow, strict=True):
            balance.observe(task, seconds, 10)
        balance.adjust(5.0 * n)
        balance.check()
        assert min(balance.shares(tasks)) >= min(0.01, 0.25 / len(tasks)) - 1e-9


def test_pairs_from_the_outside_in_and_the_middle_stays() -> None:
    balance = LatencyBalance(age=1.0)
    tasks = list("abcde")
    joined(balance, tasks)
    balance.adjust(0.0)
    for task, seconds in zip(tasks, [1.0, 1.1, 5.0, 9.0, 1.05], strict=True):
        balance.observe(task, seconds, 1)
    assert balance.adjust(5.0)
    assert balance.shares(tasks) == pytest.approx([0.21, 0.2, 0.19, 0.19, 0.21])
    for task, seconds in zip(tasks, [1.0, 1.1, 1.15, 9.0, 1.05], strict=True):
        balance.observe(task, seconds, 1)
    assert balance.adjust(10.0)
    assert balance.shares(tasks) == pytest.approx([0.22, 0.2, 0.19, 0.18, 0.21])


def test_no_rows_no_news() -> None:
    """A task without rows keeps what is known; one that has had none yet is not paired."""
    balance = LatencyBalance()
    joined(balance, ["a", "b", "new"])
    balance.adjust(0.0)
    balance.observe("a", 1.0, 1)
    balance.observe("b", 4.0, 1)
    assert balance.adjust(5.0)
    assert not balance.adjust(10.0), "nothing new, and nothing moves"
    balance.observe("a", 1.0, 1)
    assert balance.adjust(15.0), "b is still known"
    assert balance.shares(["a", "b", "new"]) == pytest.approx([1 / 3 + 0.02, 1 / 3 - 0.02, 1 / 3])
    balance.leave("b")
    balance.join("b")
    balance.observe("a", 1.0, 1)
    assert not balance.adjust(20.0), "another of that name"


# Dealing


@STEADY
@given(
    weights=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    sizes=st.lists(st.integers(0, 40) | st.just(1), max_size=60),
)
def test_rows_are_dealt_by_share_over_time(weights: list[int], sizes: list[int]) -> None:
    balance = LatencyBalance()
    tasks = [str(n) for n in range(len(weights))]
    joined(balance, tasks)
    balance._shares = {t: w / sum(weights) for t, w in zip(tasks, weights, strict=True)}
    got, dealt = [0] * len(tasks), 0
    for rows in sizes:
        due = [s * (dealt + rows) - n for s, n in zip(balance.shares(tasks), got, strict=True)]
        given_ = balance.deal(tasks, rows)
        assert sum(given_) == rows
        assert min(given_) >= 0
        # one by one to whom most is due leaves the least open
        best = [0] * len(tasks)
        for _ in range(rows):
            best[max(range(len(due)), key=lambda n: due[n] - best[n])] += 1
        assert (sum((d - n) ** 2 for d, n in zip(due, given_, strict=True))
                <= sum((d - n) ** 2 for d, n in zip(due, best, strict=True)) + 1e-6)  # fmt: skip
        got = [n + more for n, more in zip(got, given_, strict=True)]
        dealt += rows
        for share, n in zip(balance.shares(tasks), got, strict=True):
            assert n - share * dealt < 1.0 + 1e-6
            assert share * dealt - n < max(1, len(tasks) - 1) + 1e-6


@STEADY
@given(calls=st.lists(st.tuples(st.sets(st.sampled_from(NAMES)), st.integers(0, 9)), max_size=40))
def test_whoever_is_there_gets_all_of_it(calls: list[tuple[set[str], int]]) -> None:
    for build in BALANCES.values():
        balance = build(PERIOD)
        joined(balance, NAMES)
        for some, rows in calls:
            tasks = sorted(some)
            given_ = balance.deal(tasks, rows if tasks else 0)
            assert len(given_) == len(tasks)
            assert sum(given_) == (rows if tasks else 0)
            assert min(given_, default=0) >= 0
            balance.check()  # type: ignore[attr-defined]


def test_single_rows_go_round() -> None:
    balance = EvenSplit()
    joined(balance, NAMES)
    for _ in range(50):
        hands = [balance.deal(NAMES, 1) for _ in NAMES]
        assert [sum(column) for column in zip(*hands, strict=True)] == [1] * 6
    assert balance.deal(NAMES, 600_000) == [100_000] * 6
    assert balance.shares(NAMES) == pytest.approx([1 / 6] * 6)
    assert not balance.adjust(1_000.0)


def test_what_is_open_stays_open_when_others_are_dealt_to() -> None:
    """A row for two of three, each time another two: whose turn it is must not be forgotten."""
    for build in (EvenSplit, LatencyBalance):
        balance = build()
        joined(balance, ["a", "b", "c"])
        got: Counter[str] = Counter()
        for pair in itertools.islice(itertools.cycle(["ab", "bc", "ac"]), 300):
            got[pair[balance.deal(list(pair), 1).index(1)]] += 1
        assert all(abs(n - 100) <= 2 for n in got.values())


def test_no_more_is_dealt_than_there_is_to_those_who_are_behind() -> None:
    """Three of five are due a row each, and there are two: the others have had too much."""
    balance = LatencyBalance()
    joined(balance, NAMES[:5])
    balance._shares = dict(zip(NAMES[:5], [0.3, 0.3, 0.3, 0.05, 0.05], strict=True))
    balance._credits = dict(zip(NAMES[:5], [0.5, 0.6, 0.4, -0.75, -0.75], strict=True))
    assert balance.deal(NAMES[:5], 2) == [1, 1, 0, 0, 0]
    balance.check()
    assert balance.deal(NAMES[:5], 1) == [0, 0, 1, 0, 0]


def test_shares_of_some_are_in_proportion() -> None:
    balance = LatencyBalance()
    joined(balance, ["a", "b", "c"])
    balance._shares = {"a": 0.6, "b": 0.3, "c": 0.1}
    assert balance.shares(["c", "b"]) == pytest.approx([0.25, 0.75])
    assert Counter(balance.deal(["c", "b"], 1).index(1) for _ in range(400)) == {0: 100, 1: 300}


# Two choices


@pytest.mark.parametrize(
    "latency",
    [
        {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0},
        {"a": 1.0, "b": 1.0, "c": 0.5},
        {"a": 1.0, "b": None, "c": 2.0, "d": None, "e": 0.1},
        {"a": None, "b": 1.0},
        {"a": 3.0},
        {"a": None, "b": None},
    ],
)
@pytest.mark.parametrize("at_once", [1, 20_000])
def test_two_are_drawn_and_the_faster_one_taken(
    latency: dict[str, float | None], at_once: int
) -> None:
    balance = TwoChoices(seed=4)
    tasks = list(latency)
    joined(balance, tasks)
    balance.adjust(0.0)
    for task, seconds in latency.items():
        if seconds is not None:
            balance.observe(task, seconds, 3)
    balance.adjust(5.0)
    wins: Counter[str] = Counter()
    for first, second in itertools.permutations(tasks, 2):
        one, other = latency[first], latency[second]
        wins[second if one is not None and other is not None and other < one else first] += 1
    chances = [wins[task] / max(1, wins.total()) if len(tasks) > 1 else 1.0 for task in tasks]
    hands = [balance.deal(tasks, at_once) for _ in range(20_000 // at_once)]
    for chance, dealt in zip(chances, zip(*hands, strict=True), strict=True):
        spread = math.sqrt(20_000 * chance * (1 - chance))
        assert abs(sum(dealt) - 20_000 * chance) <= 4 * spread
    assert balance.shares(tasks) == pytest.approx([1 / len(tasks)] * len(tasks)), "none dealt yet"
    balance.adjust(10.0)
    assert balance.shares(tasks) == [sum(dealt) / 20_000 for dealt in zip(*hands, strict=True)]


def test_what_two_choices_know_is_a_period_old() -> None:
    balance = TwoChoices()
    joined(balance, ["a", "b"])
    balance.adjust(0.0)
    balance.observe("a", 1.0, 1)
    balance.observe("b", 2.0, 1)
    assert min(balance.deal(["a", "b"], 1_000)) > 0, "nothing known yet"
    assert balance.adjust(5.0)
    balance.observe("a", 9.0, 1)
    balance.observe("b", 1.0, 1)
    assert balance.deal(["a", "b"], 1_000) == [1_000, 0], "whatever has come since"
    balance.adjust(10.0)
    assert balance.deal(["a", "b"], 1_000) == [0, 1_000]
    assert balance.shares(["a", "b"]) == [1.0, 0.0]
    balance.adjust(15.0)
    assert min(balance.deal(["a", "b"], 1_000)) > 0, "nothing finished, nothing known"


# In a model of queues


class Queues:
    """Tasks with a queue each; rows come evenly, are dealt one by one and take a little chance.

    What a task reports is known when the row has finished, as it would be.
    """

    def __init__(self, balance: Balance, speeds: Sequence[float], load: float) -> None:
        self.balance, self.load = balance, load
        self.tasks = [str(n) for n in range(len(speeds))]
        self.speeds = dict(zip(self.tasks, speeds, strict=True))
        self.free = dict.fromkeys(self.tasks, 0.0)
        self.under_way: list[tuple[float, float, str]] = []
        self.draw = random.Random(1)
        self.rows = 0
        joined(balance, self.tasks)
        balance.adjust(0.0)

    def period(self) -> tuple[list[float], list[float], bool]:
        """Of five seconds: what each task got, how long its rows took, and if shares changed."""
        got: Counter[str] = Counter()
        took: dict[str, list[float]] = {task: [] for task in self.tasks}
        rows = round(5.0 * self.load)
        for _ in range(rows):
            self.rows += 1
            now = self.rows / self.load
            while self.under_way and self.under_way[0][0] <= now:
                end, start, task = heapq.heappop(self.under_way)
                self.balance.observe(task, end - start, 1)
            task = self.tasks[self.balance.deal(self.tasks, 1).index(1)]
            got[task] += 1
            service = self.draw.uniform(0.5, 1.5) / self.speeds[task]
            self.free[task] = max(now, self.free[task]) + service
            took[task].append(self.free[task] - now)
            heapq.heappush(self.under_way, (self.free[task], now, task))
        changed = self.balance.adjust(self.rows / self.load)
        return (
            [got[task] / rows for task in self.tasks],
            [fmean(seconds) if seconds else 0.0 for seconds in took.values()],
            changed,
        )

    def run(self, periods: int) -> tuple[list[list[float]], list[list[float]]]:
        """Shares and latencies by period."""
        seen = [self.period() for _ in range(periods)]
        return [shares for shares, _, _ in seen], [latencies for _, latencies, _ in seen]


class Averages:
    """Tasks as queues with random arrivals, of which only the mean latency is worked out."""

    def __init__(self, balance: Balance, speeds: Sequence[float], load: float) -> None:
        self.balance, self.speeds, self.load = balance, list(speeds), load
        self.tasks = [str(n) for n in range(len(speeds))]
        self.backlogs = [0.0] * len(speeds)
        self.latencies = [0.0] * len(speeds)
        self.now = 0.0
        joined(balance, self.tasks)
        balance.adjust(self.now)

    def run(self, periods: int) -> list[bool]:
        """In which of them shares have changed."""
        changed = []
        for _ in range(periods):
            dealt = self.balance.deal(self.tasks, round(5.0 * self.load))
            for n, (speed, rows) in enumerate(zip(self.speeds, dealt, strict=True)):
                before = self.backlogs[n]
                self.backlogs[n] = max(0.0, before + rows - 5.0 * speed)
                busy = min(rows / (5.0 * speed), 0.98)
                waiting = (before + self.backlogs[n]) / 2
                self.latencies[n] = (waiting + 1.0 / (1.0 - busy)) / speed
                finished = round(before + rows - self.backlogs[n])
                self.balance.observe(self.tasks[n], self.latencies[n], finished)
            self.now += 5.0
            changed.append(self.balance.adjust(self.now))
        return changed


def swing(shares: list[list[float]]) -> float:
    """How far a task's share strays from one period to another, in even shares."""
    return len(shares[0]) * fmean(pstdev(by_period) for by_period in zip(*shares, strict=True))


@pytest.mark.parametrize(
    ("speeds", "load"),
    [
        ([400.0] * 4 + [200.0], 1_300.0),
        ([400.0] * 3 + [200.0] * 2, 1_200.0),
        ([500.0, 450.0, 400.0, 350.0, 300.0, 250.0], 1_700.0),
        ([400.0, 100.0], 350.0),
    ],
)
def test_latencies_come_together(speeds: list[float], load: float) -> None:
    model = Averages(LatencyBalance(), speeds, load)
    even = Averages(EvenSplit(), speeds, load)
    changed = model.run(150)
    even.run(150)
    assert not any(changed[60:]), "settled"
    assert max(model.latencies) < 1.25 * min(model.latencies)
    assert max(model.latencies) < 0.001 * max(even.latencies), "which the slow cannot keep up with"
    shares = model.balance.shares(model.tasks)
    assert shares == sorted(shares, reverse=True) or len(set(speeds)) == 2
    assert max(model.backlogs) == 0.0


def test_equal_tasks_are_left_alone() -> None:
    model = Averages(LatencyBalance(), [400.0] * 8, 2_500.0)
    assert not any(model.run(50))
    assert model.balance.shares(model.tasks) == pytest.approx([1 / 8] * 8)


def test_a_lane_that_recovers_gets_its_load_back() -> None:
    model = Averages(LatencyBalance(), [400.0] * 4 + [4.0], 1_300.0)
    model.run(40)
    assert model.balance.shares(model.tasks)[4] == pytest.approx(0.01), "hardly anything"
    assert model.latencies[4] > 1_000.0
    model.speeds[4] = 400.0
    model.run(60)
    assert model.balance.shares(model.tasks) == pytest.approx([0.2] * 5, abs=0.03)
    assert max(model.latencies) < 1.25 * min(model.latencies)


def test_old_news_make_two_choices_swing_and_latency_balance_settle() -> None:
    speeds, load = [48.0, 40.0, 40.0, 40.0, 32.0], 150.0
    shares, latencies = {}, {}
    for name in ("balance", "two-choices"):
        every = Queues(BALANCES[name](PERIOD), speeds, load).run(60)
        shares[name], latencies[name] = every[0][30:], every[1][30:]
    assert swing(shares["two-choices"]) > 0.4, "of an even share"
    assert swing(shares["balance"]) < 0.1
    assert swing(shares["two-choices"]) > 8 * swing(shares["balance"])
    worst = {name: max(map(max, by_period)) for name, by_period in latencies.items()}
    assert worst["two-choices"] > 10 * worst["balance"]


# What is refused, and names


@BUILDS
def test_who_comes_and_goes(name: str) -> None:
    balance = BALANCES[name](PERIOD)
    assert list(balance.tasks) == []
    assert balance.shares([]) == []
    assert balance.deal([], 0) == []
    for task in ("a", "b", "a", "c"):
        balance.join(task)
    assert list(balance.tasks) == ["a", "b", "c"]
    assert balance.shares(["a", "b", "c"]) == pytest.approx([1 / 3] * 3)
    balance.leave("b")
    balance.leave("never here")
    balance.observe("b", 1.0, 5)
    assert list(balance.tasks) == ["a", "c"]
    assert balance.shares(["a", "c"]) == [0.5, 0.5]
    balance.adjust(0.0)
    balance.adjust(10.0)
    balance.leave("a")
    assert balance.deal(["c"], 7) == [7]
    balance.leave("c")
    assert list(balance.tasks) == []
    balance.join("d")
    assert balance.shares(["d"]) == [1.0]
    assert BALANCES[name](PERIOD) is not BALANCES[name](PERIOD)


@BUILDS
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda b: b.deal(["a"], -1), "-1 rows to deal"),
        (lambda b: b.deal([], 5), "no task to deal them to"),
        (lambda b: b.deal([], 1), "no task to deal them to"),
        (lambda b: b.deal(["a", "x"], 1), "task 'x' has not joined"),
        (lambda b: b.shares(["x"]), "task 'x' has not joined"),
        (
            lambda b: [b.deal(["a", "b"], 1), b.leave("b"), b.deal(["a", "b"], 1)],
            "task 'b' has not",
        ),
    ],
)
def test_wrong_calls_are_refused(name: str, wrong: Callable[[Balance], object], told: str) -> None:
    balance = joined(BALANCES[name](PERIOD), ["a", "b"])
    with pytest.raises(ValueError, match=told):
        wrong(balance)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda: LatencyBalance(period=0.0), r"period=0\.0 s"),
        (lambda: LatencyBalance(age=0.0), r"age=0\.0"),
        (lambda: LatencyBalance(ratio=0.9), r"ratio=0\.9"),
        (lambda: LatencyBalance(unit=0.0), r"unit=0\.0"),
        (lambda: LatencyBalance(unit=1.0), r"unit=1\.0"),
        (lambda: TwoChoices(period=-1.0), r"period=-1\.0 s"),
        (lambda: LatencyBalance().observe("a", 1.0, -2), "-2 rows of task 'a'"),
    ],
)
def test_wrong_values_are_refused(wrong: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        wrong()


def test_names() -> None:
    assert list(BALANCES) == ["even", "balance", "two-choices"]

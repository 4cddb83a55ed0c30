"""How many of the next rows each task gets, where tasks are not equally fast.

A row that has been dealt out cannot be taken back, so what a task gets has to follow how long its
rows take: each period a little is moved from the slow tasks to the fast ones. Compared with that
are an even split, and the better of two tasks drawn for each row, which swings to and fro when
what it knows of the tasks is a period old.

A task that finishes nothing at all has no latency and keeps its share: whoever sees that it is
gone says so with ``leave``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import add
from typing import Protocol


class Balance(Protocol):
    """Which share of the rows each task gets."""

    def join(self, task: str) -> None:
        """A task is there: it gets an even share, of which the others give up theirs in proportion.

        One that is known already keeps what it has.
        """
        ...

    def leave(self, task: str) -> None:
        """A task is gone: its share goes to the others in proportion."""
        ...

    @property
    def tasks(self) -> Sequence[str]:
        """Those that are there, in the order they came."""
        ...

    def observe(self, task: str, seconds: float, rows: int) -> None:
        """So many rows have finished, each so long after it was dealt out."""
        ...

    def adjust(self, now: float) -> bool:
        """Look at the period just over, if one is; True if shares have changed. Call it often."""
        ...

    def shares(self, tasks: Sequence[str]) -> list[float]:
        """What each of these gets of the rows that all of these get."""
        ...

    def deal(self, tasks: Sequence[str], rows: int) -> list[int]:
        """How many of the next rows each of these gets: whole, ``rows`` together.

        What is due to a task beyond that it gets in later calls.
        """
        ...


class EvenSplit:
    """All tasks get the same, however long they take.

    >>> balance = EvenSplit()
    >>> for task in ("a", "b", "c"):
    ...     balance.join(task)
    >>> balance.deal(["a", "b", "c"], 5), balance.deal(["a", "b", "c"], 4)
    ([2, 2, 1], [1, 1, 2])
    """

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}
        self._credits: dict[str, float] = {}
        self._hand = _Hand([], [], [])

    @property
    def tasks(self) -> Sequence[str]:
        """Those that are there, in the order they came."""
        return list(self._shares)

    def join(self, task: str) -> None:
        """A new task gets an even share."""
        if task in self._shares:
            return
        others = len(self._shares)
        self._shares = {t: share * others / (others + 1) for t, share in self._shares.items()}
        self._shares[task] = 1.0 / (others + 1)
        self._credits[task] = 0.0
        self._settle()

    def leave(self, task: str) -> None:
        """The others get its share; nothing where it is not known."""
        if task not in self._shares:
            return
        self._put_down()
        del self._shares[task], self._credits[task]
        self._settle()

    def observe(self, task: str, seconds: float, rows: int) -> None:
        """Nothing to learn."""

    def adjust(self, now: float) -> bool:
        """Never."""
        return False

    def shares(self, tasks: Sequence[str]) -> list[float]:
        """In proportion to what each has of the whole."""
        self._known(tasks)
        found = [self._shares[task] for task in tasks]
        total = math.fsum(found)
        return [share / total for share in found]

    def deal(self, tasks: Sequence[str], rows: int) -> list[int]:
        """Rows by share, and by what earlier calls have left open. O(tasks), however many rows."""
        hand = self._hand
        if hand.tasks != list(tasks):
            hand = self._pick_up(tasks)
        if rows == 1 and hand.tasks:
            return hand.one()
        _check_rows(tasks, rows)
        return hand.many(rows)

    def check(self) -> None:
        """Assert what holds at all times."""
        self._put_down()
        assert self._shares.keys() == self._credits.keys()
        assert not self._shares or abs(math.fsum(self._shares.values()) - 1.0) < 1e-9
        assert all(share >= self._floor() - 1e-9 for share in self._shares.values())
        assert all(credit > -1.0 - 1e-6 for credit in self._credits.values())

    def _floor(self) -> float:
        """What every task keeps at least."""
        return 0.0

    def _settle(self) -> None:
        """Make shares one whole again, none of them below the floor."""
        self._put_down()
        total, floor = math.fsum(self._shares.values()), self._floor()
        shares = {task: share / total for task, share in self._shares.items()}
        lacking = sum(floor - share for share in shares.values() if share < floor)
        if lacking > 0.0:
            # from what the others have above the floor, in proportion, so that none falls below
            above = sum(share - floor for share in shares.values() if share > floor)
            kept = 1.0 - lacking / above
            shares = {t: floor + max(0.0, share - floor) * kept for t, share in shares.items()}
        self._shares = shares

    def _known(self, tasks: Sequence[str]) -> None:
        for task in tasks:
            if task not in self._shares:
                raise ValueError(f"task {task!r} has not joined; there are {list(self._shares)}")

    def _pick_up(self, tasks: Sequence[str]) -> _Hand:
        self._put_down()
        shares = self.shares(tasks)
        open_ = [self._credits[task] for task in tasks]
        # what these have ahead of, or behind, others that now get nothing is not dealt out here
        ahead = math.fsum(open_)
        credits = [mine - ahead * share for mine, share in zip(open_, shares, strict=True)]
        self._hand = _Hand(list(tasks), shares, credits)
        return self._hand

    def _put_down(self) -> None:
        """Before shares change: keep what is open, and ask for them anew."""
        self._credits.update(zip(self._hand.tasks, self._hand.credits, strict=True))
        self._hand = _Hand([], [], [])


class _Hand:
    """Deals rows to a few tasks whose shares stand still.

    A credit is what a task should have got by now, less what it got; all together they are 0.
    """

    __slots__ = ("credits", "shares", "tasks")

    def __init__(self, tasks: list[str], shares: list[float], credits: list[float]) -> None:
        self.tasks = tasks
        self.shares = shares
        self.credits = credits

    def one(self) -> list[int]:
        """One row, to the task to which most is due."""
        self.credits = credits = list(map(add, self.credits, self.shares))
        given = [0] * len(credits)
        first = credits.index(max(credits))
        given[first] = 1
        credits[first] -= 1.0
        return given

    def many(self, rows: int) -> list[int]:
        """What is due to each, rounded so that it comes to ``rows`` together."""
        due = [mine + share * rows for mine, share in zip(self.credits, self.shares, strict=True)]
        given = [max(0, math.floor(wanted)) for wanted in due]
        rest = rows - sum(given)
        by_credit = sorted(range(len(due)), key=lambda n: given[n] - due[n])
        if rest < 0:
            # those to whom less than nothing is due have got nothing, so others had too much
            by_credit = [n for n in reversed(by_credit) if given[n] > 0]
        for n in by_credit[: abs(rest)]:
            given[n] += 1 if rest > 0 else -1
        self.credits = [wanted - got for wanted, got in zip(due, given, strict=True)]
        return given


class _Measured(EvenSplit):
    """Looks once a period at how long rows took in it."""

    def __init__(self, period: float) -> None:
        if not period > 0.0:
            raise ValueError(f"period={period} s: must be above 0")
        super().__init__()
        self.period = period
        self._over: float | None = None
        self._seconds: dict[str, float] = {}
        self._rows: dict[str, int] = {}

    def observe(self, task: str, seconds: float, rows: int) -> None:
        """Count them in; those of a task that is gone, or of a clock set back, are left out."""
        if rows < 0:
            raise ValueError(f"{rows} rows of task {task!r}: must not be negative")
        if task in self._shares and seconds >= 0.0:
            self._seconds[task] = self._seconds.get(task, 0.0) + seconds * rows
            self._rows[task] = self._rows.get(task, 0) + rows

    def leave(self, task: str) -> None:
        """Forget it."""
        self._rows.pop(task, None)
        self._seconds.pop(task, None)
        super().leave(task)

    def adjust(self, now: float) -> bool:
        """Once a period; the first one begins with the first call."""
        if self._over is None:
            self._over = now + self.period
        if now < self._over:
            return False
        self._over = now + self.period
        means = {task: self._seconds[task] / rows for task, rows in self._rows.items() if rows}
        self._seconds.clear()
        self._rows.clear()
        return self._learn(means)

    def _learn(self, means: dict[str, float]) -> bool:
        """The mean latencies of a period; True if shares have changed."""
        raise NotImplementedError


class LatencyBalance(_Measured):
    """Each period, a little of the load moves from slow tasks to fast ones.

    The fastest is paired with the slowest, the second fastest with the second slowest, and so on;
    from each pair far enough apart one unit moves, from the slow one to the fast one. Every task
    keeps a unit, whatever it takes: without rows nobody would see that it has recovered.

    Parameters
    ----------
    period
        Seconds from one adjustment to the next.
    age
        Weight of the last period's mean latency against what was known before. A task without
        rows in it keeps what was known; one of which nothing is known yet is not paired. Between
        two that had no rows in it nothing moves.
    ratio
        How many times longer the slower of a pair takes before anything moves.
    unit
        Share of the load that moves, and that every task keeps. With so many tasks that four
        units would be more than an even share, it is a quarter of an even share.

    Examples
    --------
    >>> balance = LatencyBalance(period=5.0)
    >>> for task in ("a", "b", "c", "d"):
    ...     balance.join(task)
    ...     balance.observe(task, seconds=0.5 if task == "c" else 0.1, rows=1)
    >>> balance.adjust(now=0.0), balance.adjust(now=5.0)
    (False, True)
    >>> [round(share, 2) for share in balance.shares(["a", "b", "c", "d"])]
    [0.26, 0.25, 0.24, 0.25]
    """

    def __init__(
        self, period: float = 5.0, age: float = 0.5, ratio: float = 1.2, unit: float = 0.01
    ) -> None:
        super().__init__(period)
        if not 0.0 < age <= 1.0:
            raise ValueError(f"age={age}: above 0, at most 1")
        if not ratio >= 1.0:
            raise ValueError(f"ratio={ratio}: at least 1")
        if not 0.0 < unit < 1.0:
            raise ValueError(f"unit={unit}: above 0, below 1")
        self.age = age
        self.ratio = ratio
        self.unit = unit
        self._latency: dict[str, float] = {}

    def leave(self, task: str) -> None:
        """Forget it: one that comes back under its name may be on another machine."""
        self._latency.pop(task, None)
        super().leave(task)

    def _floor(self) -> float:
        return min(self.unit, 0.25 / max(1, len(self._shares)))

    def _learn(self, means: dict[str, float]) -> bool:
        for task, mean in means.items():
            before = self._latency.get(task, mean)
            self._latency[task] = self.age * mean + (1.0 - self.age) * before
        known = sorted(
            (t for t in self._shares if t in self._latency), key=self._latency.__getitem__
        )
        self._put_down()
        changed = False
        unit = self._floor()
        for n in range(len(known) // 2):
            fast, slow = known[n], known[-1 - n]
            if not self._latency[slow] > self.ratio * self._latency[fast]:
                break
            if fast not in means and slow not in means:
                continue  # nothing new of either: what was known must not move load for ever
            moved = min(unit, self._shares[slow] - unit)
            if moved > 1e-12:
                self._shares[slow] -= moved
                self._shares[fast] += moved
                changed = True
        return changed


class TwoChoices(_Measured):
    """Each row draws two tasks and takes the one that was faster in the last period.

    Where they were alike, or one of them finished nothing, the row takes the first it drew. What
    is known stands still until the next adjustment, and all rows until then follow it: those that
    were fast get the most, are slow by the end of the period, and get nothing in the next.

    ``shares`` are what has come of it in the last period; even before that.
    """

    def __init__(self, period: float = 5.0, seed: int = 0) -> None:
        from numpy.random import default_rng

        super().__init__(period)
        self._random = default_rng(seed)
        self._latency: dict[str, float] = {}
        self._dealt: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._drawn: list[str] = []
        self._chances: list[float] = []

    def leave(self, task: str) -> None:
        """Forget it."""
        for known in (self._latency, self._dealt, self._before):
            known.pop(task, None)
        self._drawn = []
        super().leave(task)

    def shares(self, tasks: Sequence[str]) -> list[float]:
        """What each of these got of the rows that all of these got in the last period."""
        self._known(tasks)
        before = [self._before.get(task, 0) for task in tasks]
        total = sum(before)
        return [n / total if total else 1.0 / len(tasks) for n in before]

    def deal(self, tasks: Sequence[str], rows: int) -> list[int]:
        """As many as draw it. O(tasks), and O(tasks squared) once a period."""
        if self._drawn != list(tasks):
            self._known(tasks)
            self._drawn, self._chances = list(tasks), self._chances_of(tasks)
        _check_rows(tasks, rows)
        # rows draw alike until the next adjustment, so all of them can be drawn at once
        given: list[int] = self._random.multinomial(rows, self._chances).tolist() if tasks else []
        for task, n in zip(tasks, given, strict=True):
            if n:
                self._dealt[task] = self._dealt.get(task, 0) + n
        return given

    def _chances_of(self, tasks: Sequence[str]) -> list[float]:
        """The chance of each to be the one taken of two that are drawn."""
        if len(tasks) == 1:
            return [1.0]
        taken = dict.fromkeys(tasks, 0)
        for first in tasks:
            for second in tasks:
                if first != second:
                    taken[second if self._faster(second, first) else first] += 1
        return [n / (len(tasks) * (len(tasks) - 1)) for n in taken.values()]

    def _faster(self, task: str, than: str) -> bool:
        return self._latency.get(task, math.inf) < self._latency.get(than, -math.inf)

    def _learn(self, means: dict[str, float]) -> bool:
        before = self.shares(self.tasks)
        self._latency, self._drawn = means, []
        self._before, self._dealt = self._dealt, {}
        return self.shares(self.tasks) != before


def _check_rows(tasks: Sequence[str], rows: int) -> None:
    if rows < 0:
        raise ValueError(f"{rows} rows to deal: must not be negative")
    if rows and not tasks:
        raise ValueError(f"{rows} rows to deal, and no task to deal them to")


PERIOD = 5.0
"""Seconds from one adjustment to the next, unless told otherwise."""
BALANCES: Mapping[str, Callable[[float], Balance]] = {
    "even": lambda period: EvenSplit(),
    "balance": lambda period: LatencyBalance(period=period),
    "two-choices": lambda period: TwoChoices(period=period),
}
"""The ways of dealing rows by name; each value builds a fresh one, for a period."""

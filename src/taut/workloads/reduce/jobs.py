"""The three jobs. Their functions can be pickled without help: none is a closure."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import msgspec
import numpy as np

from taut.spark.reduce.job import Job, Span
from taut.workloads.reduce.options import micros, whole

_WORD = re.compile(r"\w+(?:['\u2019]\w+)*")
_COUNTED = "word string, total bigint"

Rows = list[tuple[Any, ...]]


def words(threshold: int = 1_000, *, lines: bool = False, vectorised: bool = False) -> Job:
    """Count words; a row ``word, total`` for every multiple of a threshold that a count reaches.

    Parameters
    ----------
    threshold
        A count that passes several multiples at once gives a row for each.
    lines
        Values are lines of text, split by :func:`split_words`. Otherwise keys are words and values
        their numbers, 0 or more.
    vectorised
        In the form of ``update_many``. The rows are the same.

    Examples
    --------
    >>> words(threshold=2).update(0.0, "tea", 1, 3)
    (4, [('tea', 4)])
    """
    step = whole("threshold", threshold, least=1)
    return Job(
        name="words",
        map=split_words if lines else None,
        init=_nothing_counted,
        update=None if vectorised else partial(_count, step),
        update_many=partial(_count_many, step) if vectorised else None,
        key="string",
        value="bigint",
        output=_COUNTED,
        state=int,
    )


def windowed_words(
    length: str = "30 s", *, slide: str | None = None, lines: bool = False, vectorised: bool = False
) -> Job:
    """Count words by window: a row ``word, end, count`` for every word of a window.

    Parameters
    ----------
    length
        Of the windows; ``end`` is theirs, in epoch seconds.
    slide
        From one window to the next. They tumble without it.
    lines, vectorised
        As in :func:`words`.
    """
    for option, given in (("length", length), ("slide", slide)):
        if given is not None:
            micros(option, given, least=1)
    return Job(
        name="windowed_words",
        map=split_words if lines else None,
        init=_nothing_counted,
        update=None if vectorised else _add,
        update_many=_add_many if vectorised else None,
        finalize=_counted,
        key="string",
        value="bigint",
        output="word string, end double, count bigint",
        state=int,
        window=length if slide is None else (length, slide),
    )


def split_words(time: float, key: object, line: str) -> list[tuple[str, int]]:
    """The words of a line in lower case, each counted once.

    >>> split_words(0.0, None, "It's a plain, PLAIN line.")
    [("it's", 1), ('a', 1), ('plain', 1), ('plain', 1), ('line', 1)]
    """
    return [(word, 1) for word in _WORD.findall(line.lower())]


class Session(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A visit that may go on; of a user who has not clicked yet, one of no clicks."""

    began: float = 0.0
    ended: float = 0.0
    clicks: int = 0


def sessions(gap: str = "30 s") -> Job:
    """Cut the clicks of each user into sessions: ``user, began, ended, clicks`` once one is over.

    Keys are users, values pages, times say when they clicked. A session is over when its user
    clicks more than ``gap`` after its last click; so the last one of each user stays in the state.

    Clicks may be out of order. One that lies inside the open session, or at most ``gap`` before it,
    is counted there. One from longer ago has missed its session and is one by itself. Either way,
    no click is lost and none counts twice.

    Examples
    --------
    >>> update = sessions("30 s").update
    >>> update(100.0, 7, 1, Session(began=50.0, ended=60.0, clicks=3))
    (Session(began=100.0, ended=100.0, clicks=1), [(7, 50.0, 60.0, 3)])
    >>> update(55.0, 7, 1, Session(began=50.0, ended=60.0, clicks=3))
    (Session(began=50.0, ended=60.0, clicks=4), None)
    """
    # half a microsecond more: the difference of two times in seconds is a little off at 30.000000
    limit = (micros("gap", gap, least=1) + 0.5) / 1e6
    return Job(
        name="sessions",
        init=_no_session,
        update=partial(_click, limit),
        key="bigint",
        value="bigint",
        output="user bigint, began double, ended double, clicks bigint",
        state=Session,
    )


def _nothing_counted(word: str, window: Span | None = None) -> int:
    return 0


def _count(threshold: int, time: float, word: str, n: int, total: int) -> tuple[int, Rows | None]:
    now = total + n
    return now, _reached(threshold, word, total, now)


def _count_many(
    threshold: int, times: Any, word: str, numbers: Any, total: int
) -> tuple[int, Rows | None]:
    now = total + int(np.add.reduce(numbers))
    return now, _reached(threshold, word, total, now)


def _reached(threshold: int, word: str, before: int, now: int) -> Rows | None:
    if before // threshold == now // threshold:
        return None
    multiples = range(before // threshold + 1, now // threshold + 1)
    return [(word, multiple * threshold) for multiple in multiples]


def _add(time: float, word: str, n: int, count: int) -> tuple[int, None]:
    return count + n, None


def _add_many(times: Any, word: str, numbers: Any, count: int) -> tuple[int, None]:
    return count + int(np.add.reduce(numbers)), None


def _counted(word: str, window: Span, count: int) -> Rows:
    return [(word, window.end, count)]


_UNSEEN = Session()


def _no_session(user: int) -> Session:
    return _UNSEEN


def _click(
    gap: float, time: float, user: int, page: int, open_: Session
) -> tuple[Session, Rows | None]:
    if open_.clicks == 0:
        return Session(time, time, 1), None
    if time - open_.ended > gap:
        return Session(time, time, 1), [(user, open_.began, open_.ended, open_.clicks)]
    if open_.began - time > gap:
        return open_, [(user, time, time, 1)]
    return Session(min(open_.began, time), max(open_.ended, time), open_.clicks + 1), None

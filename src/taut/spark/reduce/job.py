"""A job: what becomes of a row, what is kept for each key, and what comes out.

Functions are plain Python, called in Spark's workers: they are pickled there once, and may be
called again for the same row when Spark tries a batch again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from taut.errors import JobError
from taut.spark.ddl import Columns, columns
from taut.spark.window import Window

MICRO = 1_000_000
TAKEN = ("taut_time", "taut_arrival")
"""Columns that rows which come out have beside their own, for jobs that take them."""
PLAIN = (bool, int, float, str, bytes, type(None))
"""Types of states that can be kept without state=."""
_KEYS = (
    pa.types.is_string, pa.types.is_binary, pa.types.is_integer, pa.types.is_boolean,
    pa.types.is_date, pa.types.is_timestamp,
)  # fmt: skip


class Span(NamedTuple):
    """A window, [start, end) in epoch seconds: what comes at its end belongs to the next."""

    start: float
    end: float


Pairs = Iterable[tuple[Any, Any]]
Step = tuple[Any, Iterable[Any] | None]


@dataclass(frozen=True, kw_only=True)
class Job:
    """A map and a reduce, with state for every key.

    Parameters
    ----------
    init
        ``init(key)``, or ``init(key, window)`` with a window: the state before the first row.
    update
        ``update(time, key, value, state)`` gives ``(state, rows)``: the new state, and rows that
        come out at once (or None).
    update_many
        In place of ``update``, for speed: ``update_many(times, key, values, state)`` takes all rows
        of a key in a batch, as arrays in the order they came.
    finalize
        ``finalize(key, window, state)`` gives the rows of a window that is over.
    map
        ``map(time, key, value)`` gives pairs of key and value. Without it rows go as they are.
    output
        Columns of the rows that come out, as Spark writes them: ``"word string, n bigint"``. Rows
        are tuples in that order; of a single column, bare values will do.
    key, value
        Types of keys and values after ``map``.
    state
        The type of the states, such as ``list[int]``, a dataclass or a ``msgspec.Struct``. Needed
        unless states are numbers, text, bytes, booleans or None. A state that would not come back
        as it was is refused before it is stored.
    window
        Length, or (length, slide[, start]); rows belong to windows [start, end).
    name
        In errors, side output and statistics.
    after
        The name of the job whose output this one takes: ``map(time, None, row)`` is then called
        with each of its rows.

    Examples
    --------
    >>> Job(
    ...     map=lambda time, key, line: [(word, 1) for word in line.split()],
    ...     init=lambda word: 0,
    ...     update=lambda time, word, n, total: (total + n, [(word, total + n)]),
    ...     key="string", value="bigint", output="word string, total bigint",
    ... ).incremental
    True
    """

    init: Callable[..., Any]
    output: Columns
    update: Callable[[float, Any, Any, Any], Step] | None = None
    update_many: Callable[..., Step] | None = None
    finalize: Callable[[Any, Span, Any], Iterable[Any]] | None = None
    map: Callable[[float, Any, Any], Pairs] | None = None
    key: str = "string"
    value: str = "bigint"
    state: Any = None
    window: str | tuple[str, ...] | Window | None = None
    name: str = "reduce"
    after: str | None = None
    _windows: Windows | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise JobError(f"name={self.name!r}: letters, digits and _ are needed, as in 'words'")
        if (self.update is None) == (self.update_many is None):
            raise self._wrong("either update or update_many is needed, and not both")
        if self.window is None and self.finalize is not None:
            raise self._wrong("finalize is called at the end of a window: window= is missing")
        if self.window is not None and self.finalize is None:
            raise self._wrong("window= needs finalize(key, window, state)")
        for what in ("init", "update", "update_many", "finalize", "map"):
            given = getattr(self, what)
            if given is not None and not callable(given):
                raise self._wrong(f"{what}={given!r}: a function is needed")
        if self.after is not None and self.map is None:
            raise self._wrong(f"after={self.after!r}: map= is needed, to make keys of its rows")
        if self.window is not None:
            object.__setattr__(self, "_windows", Windows(Window.of(self.window)))
        if not any(fits(self.key_type) for fits in _KEYS):
            raise self._wrong(
                f"key={self.key!r}: text, bytes, whole numbers, booleans, dates or timestamps can "
                "be keys; make one of them in map"
            )
        _ = self.value_type
        if ours := [name for name in self.schema.names if name in TAKEN]:
            raise self._wrong(f"output: {ours[0]!r} is a name of Taut's; take another")

    @property
    def incremental(self) -> bool:
        """Whether it has no windows."""
        return self.window is None

    @property
    def windows(self) -> Windows | None:
        """Its windows in whole microseconds."""
        return self._windows

    @cached_property
    def schema(self) -> pa.Schema:
        """Of the rows that come out."""
        return self._read("output", self.output)

    @cached_property
    def key_type(self) -> pa.DataType:
        """Of keys after map."""
        return self._read("key", {"key": self.key}).field("key").type

    @cached_property
    def value_type(self) -> pa.DataType:
        """Of values after map."""
        return self._read("value", {"value": self.value}).field("value").type

    def _read(self, what: str, given: Columns) -> pa.Schema:
        try:
            schema = columns(given)
        except ValueError as error:
            raise self._wrong(f"{what}: {error}") from None
        if not schema.names:
            raise self._wrong(f"{what}={given!r}: at least one column is needed")
        return schema

    def _wrong(self, what: str) -> JobError:
        return JobError(f"job {self.name!r}: {what}")

    def __getstate__(self) -> Mapping[str, Any]:
        # types of Arrow are read again where they are used
        lazy = ("schema", "key_type", "value_type")
        return {name: value for name, value in self.__dict__.items() if name not in lazy}


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows [start + i slide, start + i slide + length), as Spark's, in whole microseconds."""

    window: Window

    def __post_init__(self) -> None:
        for what in ("length", "slide", "start"):
            given = getattr(self.window, what)
            if abs(given * 1e3 - round(given * 1e3)) > 1e-6:
                raise JobError(f"window {what} {given} s: whole milliseconds are needed")

    @property
    def length_us(self) -> int:
        """From start to end."""
        return round(self.window.length * MICRO)

    @property
    def slide_us(self) -> int:
        """From end to end."""
        return round(self.window.slide * MICRO)

    @property
    def most(self) -> int:
        """Windows that a row may belong to."""
        return -(-self.length_us // self.slide_us)

    def first_end(self, times_us: Any) -> Any:
        """The end of the first window that holds a time; of numbers or arrays.

        >>> windows = Windows(Window(10.0, 5.0))
        >>> [windows.first_end(t * MICRO) // MICRO for t in (10, 11, 15, 16)]
        [15, 15, 20, 20]
        """
        phase = round((self.window.start + self.window.length) * MICRO) % self.slide_us
        return ((times_us - phase) // self.slide_us + 1) * self.slide_us + phase

    def holds(self, end_us: Any, times_us: Any) -> Any:
        """Whether windows with these ends hold these times."""
        return (end_us - self.length_us <= times_us) & (times_us < end_us)

    def span(self, end_us: int) -> Span:
        """The window that ends there."""
        return Span((end_us - self.length_us) / MICRO, end_us / MICRO)


def order(jobs: Iterable[Job]) -> list[list[Job]]:
    """Jobs by level: those that take the input, those that take the output of these, and so on."""
    given = list(jobs)
    names = [job.name for job in given]
    if not given:
        raise JobError("no job was given")
    if twice := [name for name in names if names.count(name) > 1]:
        raise JobError(f"two jobs are called {twice[0]!r}: give each a name=")
    for job in given:
        if job.after is not None and job.after not in names:
            raise JobError(f"job {job.name!r}: after={job.after!r}: there are {', '.join(names)}")
    levels: list[list[Job]] = []
    placed: set[str | None] = {None}
    while left := [job for job in given if job.name not in placed]:
        level = [job for job in left if job.after in placed]
        if not level:
            circle = ", ".join(job.name for job in left)
            raise JobError(f"jobs {circle} wait for each other: after= must not go round")
        levels.append(level)
        placed |= {job.name for job in level}
    return levels


def is_plain(state: object) -> bool:
    """Whether a state can be kept without state=."""
    return type(state) in PLAIN

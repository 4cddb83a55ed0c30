"""Loads for the jobs: keyed rows that arrive by a schedule, made from their numbers in the JVM.

A load is columns ``time``, ``key``, ``value`` and ``arrival``. Row n arrives at ``start + n/rate``,
whatever the reader does; ``time`` is its arrival, or up to ``out_of_order`` earlier.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pyspark.sql import functions as F

from taut.workloads.generator import Load
from taut.workloads.reduce.draws import (
    Longs,
    Zipf,
    pick,
    pick_array,
    uniform,
    uniform_array,
)
from taut.workloads.reduce.options import micros, whole

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_KEY, _LATE, _PAGE = 1, 2, 3
_CHUNK = 65_536
_MICRO = 1_000_000


class KeyedRow(NamedTuple):
    """A row of a load; times in epoch seconds."""

    time: float
    key: Any
    value: Any
    arrival: float


@dataclass(frozen=True, slots=True)
class KeyedLoad(ABC):
    """What all loads of keyed rows have.

    Parameters
    ----------
    load
        When rows arrive, and how they are read.
    out_of_order
        The time of a row is earlier than its arrival by a random amount, evenly from 0 to this.
    """

    load: Load
    _: KW_ONLY
    out_of_order: str = "0 s"

    def __post_init__(self) -> None:
        _ = self.load.schedule, self.late_us

    @property
    def late_us(self) -> int:
        """The most by which a time is earlier than the arrival, in microseconds."""
        return micros("out_of_order", self.out_of_order, least=0)

    def stream(self, spark: SparkSession) -> DataFrame:
        """The rows as a streaming DataFrame."""
        return self._rows_of(self.load.stream(spark))

    def batch(self, spark: SparkSession) -> DataFrame:
        """The same rows, all at once; the load needs ``total``."""
        return self._rows_of(self.load.batch(spark))

    def rows(self, low: int, high: int) -> Iterator[KeyedRow]:
        """Rows ``low`` to ``high`` (exclusive) in plain Python: those that Spark would make."""
        schedule = self.load.schedule
        for first in range(low, high, _CHUNK):
            n = np.arange(first, min(first + _CHUNK, high), dtype=np.int64)
            late = pick_array(n, _LATE, self.late_us + 1).tolist()
            for number, key, value, by in zip(n.tolist(), *self._arrays(n), late, strict=True):
                at = schedule.arrival_us(number)
                yield KeyedRow((at - by) / _MICRO, key, value, at / _MICRO)

    def _rows_of(self, numbers: DataFrame) -> DataFrame:
        n = F.col("n")
        arrival = F.col("arrival_us")
        time = arrival - pick(n, _LATE, self.late_us + 1) if self.late_us else arrival
        key, value = self._columns(n)
        return numbers.select(
            F.timestamp_micros(time).alias("time"),
            key.alias("key"),
            value.alias("value"),
            F.timestamp_micros(arrival).alias("arrival"),
        )

    @abstractmethod
    def _columns(self, n: Column) -> tuple[Column, Column]:
        """Key and value of row ``n``."""

    @abstractmethod
    def _arrays(self, n: Longs) -> tuple[list[Any], list[Any]]:
        """Keys and values of rows."""


@dataclass(frozen=True, slots=True)
class WordLoad(KeyedLoad):
    """Words ``w1``, ``w2``, ... with Zipf's frequencies: ``w1`` is the most frequent.

    Parameters
    ----------
    keys, zipf
        How many different words there are, and the exponent of :class:`Zipf`, which has the law.
    words_per_line
        0: a row is a word, its key, with the value 1. Otherwise it is a line, its value, of so many
        words, and its key is null. The words are the same: line n has those from n times this on.
    """

    keys: int = 20_000
    zipf: float = 1.0
    words_per_line: int = 0

    def __post_init__(self) -> None:
        KeyedLoad.__post_init__(self)
        whole("words_per_line", self.words_per_line, least=0)
        _ = self.law

    @property
    def law(self) -> Zipf:
        """Which words come how often: that of rank r is ``w{r}``."""
        return Zipf(self.keys, self.zipf)

    def _columns(self, n: Column) -> tuple[Column, Column]:
        if not self.words_per_line:
            return self._word(n), F.lit(1).cast("bigint")
        first = n * F.lit(self.words_per_line)
        line = [self._word(first + F.lit(i)) for i in range(self.words_per_line)]
        return F.lit(None).cast("string"), F.concat_ws(" ", *line)

    def _word(self, number: Column) -> Column:
        return F.concat(F.lit("w"), self.law.rank(uniform(number, _KEY)).cast("string"))

    def _arrays(self, n: Longs) -> tuple[list[Any], list[Any]]:
        if not self.words_per_line:
            return self._words(n), [1] * len(n)
        numbers = n[:, None] * self.words_per_line + np.arange(self.words_per_line)
        each = self._words(numbers.ravel())
        cuts = range(0, len(each), self.words_per_line)
        lines = [" ".join(each[cut : cut + self.words_per_line]) for cut in cuts]
        return [None] * len(n), lines

    def _words(self, numbers: Longs) -> list[str]:
        return [f"w{rank}" for rank in self.law.ranks(uniform_array(numbers, _KEY)).tolist()]


@dataclass(frozen=True, slots=True)
class ClickLoad(KeyedLoad):
    """Clicks of users on pages. Users click with Zipf's frequencies, pages are evenly likely.

    Each click is drawn by itself, so the user of rank r clicks at random moments, on average
    ``rate`` times their share a second; seldom users have many short sessions, the most frequent
    ones a single one that hardly ever ends.

    Parameters
    ----------
    users, zipf
        How many users, numbered from 1, and the exponent of :class:`Zipf`, which has the law.
    pages
        How many pages, numbered from 0.
    """

    users: int = 20_000
    zipf: float = 1.0
    pages: int = 1_000

    def __post_init__(self) -> None:
        KeyedLoad.__post_init__(self)
        whole("users", self.users, least=1)
        whole("pages", self.pages, least=1)
        _ = self.law

    @property
    def law(self) -> Zipf:
        """Which users come how often: rank r is user r."""
        return Zipf(self.users, self.zipf)

    def _columns(self, n: Column) -> tuple[Column, Column]:
        return self.law.rank(uniform(n, _KEY)), pick(n, _PAGE, self.pages)

    def _arrays(self, n: Longs) -> tuple[list[Any], list[Any]]:
        users = self.law.ranks(uniform_array(n, _KEY))
        return users.tolist(), pick_array(n, _PAGE, self.pages).tolist()


def words_load(
    spark: SparkSession,
    rate: int,
    start: float,
    *,
    keys: int = 20_000,
    zipf: float = 1.0,
    words_per_line: int = 0,
    out_of_order: str = "0 s",
    total: int | None = None,
    partitions: int = 1,
    max_rows_per_batch: int | None = None,
) -> DataFrame:
    """The stream of a :class:`WordLoad`: ``rate`` rows a second from ``start`` (epoch seconds)."""
    load = Load(start, rate, total, partitions, max_rows_per_batch)
    return WordLoad(
        load, keys=keys, zipf=zipf, words_per_line=words_per_line, out_of_order=out_of_order
    ).stream(spark)


def clicks_load(
    spark: SparkSession,
    rate: int,
    start: float,
    *,
    users: int = 20_000,
    zipf: float = 1.0,
    pages: int = 1_000,
    out_of_order: str = "0 s",
    total: int | None = None,
    partitions: int = 1,
    max_rows_per_batch: int | None = None,
) -> DataFrame:
    """The stream of a :class:`ClickLoad`: ``rate`` rows a second from ``start`` (epoch seconds)."""
    load = Load(start, rate, total, partitions, max_rows_per_batch)
    return ClickLoad(load, users=users, zipf=zipf, pages=pages, out_of_order=out_of_order).stream(
        spark
    )

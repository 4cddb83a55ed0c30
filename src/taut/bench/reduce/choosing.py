"""What it costs a row that a reducer chooses among those of its batch."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import fmean

import numpy as np
import pyarrow as pa

from taut.policy.deadline import Recent
from taut.spark.reduce.blobs import Rows, row_schema
from taut.spark.reduce.chosen import Chosen
from taut.spark.reduce.codec import Codec
from taut.spark.reduce.job import MICRO, Job
from taut.spark.reduce.keyed import Keyed, forget
from taut.spark.reduce.reducer import Reducer, _by_arrival, _Run
from taut.spark.reduce.terms import Moment, Terms

KEYS = 20_000
_HOT = 2_450
"""Keys that are in memory: of Zipf's law they have four fifths of the rows."""
_OBJECTIVE = 1.0
_BATCH = 0.4
"""Seconds in which the rows of a batch arrive, and that they take at load 1."""
_NOW_US = 1_700_000_000 * MICRO


class Shelf:
    """What Spark keeps for a reducer, in memory."""

    def __init__(self) -> None:
        self._head: bytes | None = None
        self._log: dict[int, bytes] = {}
        self._cold: dict[bytes, bytes] = {}

    def head(self) -> bytes | None:
        """As Spark's."""
        return self._head

    def set_head(self, data: bytes) -> None:
        """As Spark's."""
        self._head = data

    def read(self, place: int) -> bytes:
        """As Spark's."""
        return self._log[place]

    def write(self, place: int, data: bytes) -> None:
        """As Spark's."""
        self._log[place] = data

    def drop(self, place: int) -> None:
        """As Spark's."""
        del self._log[place]

    def cold(self, key: bytes) -> bytes | None:
        """As Spark's."""
        return self._cold.get(key)

    def set_cold(self, key: bytes, data: bytes) -> None:
        """As Spark's."""
        self._cold[key] = data

    def drop_cold(self, key: bytes) -> None:
        """As Spark's."""
        del self._cold[key]

    def all_cold(self) -> Iterator[tuple[bytes, bytes]]:
        """As Spark's."""
        yield from self._cold.items()


class Choosing:
    """A reducer that counts words, most of which it keeps outside memory.

    Parameters
    ----------
    load
        Times the work for which a batch has time.
    rows
        Of a batch.
    """

    def __init__(self, load: float, rows: int) -> None:
        from taut.workloads.reduce import words

        self._job: Job = words()
        self._rows = rows
        self._store = Shelf()
        self._terms = Terms(_OBJECTIVE, budget=self._fill())
        self._reducer = Reducer(self._job, self._terms, 0)
        # four fifths at the price of a row, the rest at ten times that
        each = load * _BATCH / rows / (0.8 + 0.2 * 10.0)
        keyed = self._keyed(self._terms.budget)
        head = keyed.head
        head.row_cost, head.cold_cost = Recent(each), Recent(9.0 * each)
        head.lead = head.after = head.fixed_cost = Recent(0.0)
        keyed.save()

    def _fill(self) -> float:
        """Count each word once, and those that are to be in memory more often; their bytes."""
        keyed = self._keyed()
        keyed.states.update({f"w{n}": n for n in range(1, KEYS + 1)})
        keyed.commit({f"w{n}": 2 if n <= _HOT else 1 for n in range(1, KEYS + 1)})
        keyed.save()
        budget = sum(keyed.memory.sizes[f"w{n}"] for n in range(1, _HOT + 1)) / 0.95
        # a batch that changes one of them finds that memory is short
        keyed = self._keyed(budget)
        keyed.commit({"w1": 1})
        keyed.save()
        return budget

    def _keyed(self, budget: float = float("inf")) -> Keyed:
        return Keyed(self._store, Codec(self._job), self._job.name, budget)

    def batch(self, random: np.random.Generator) -> Rows:
        """Rows of Zipf's words, which arrived one after the other until now."""
        from taut.workloads.reduce import Zipf

        schema = row_schema(self._job)
        ranks = Zipf(KEYS).ranks(random.random(self._rows)).tolist()
        ages = np.sort(random.random(self._rows))[::-1] * _BATCH * MICRO
        arrivals = _NOW_US - ages.astype(np.int64)
        keys = pa.array([f"w{rank}" for rank in ranks], self._job.key_type)
        values = pa.array([1] * self._rows, self._job.value_type)
        columns = [pa.array(arrivals), pa.array(arrivals), keys, values]
        return Rows([pa.RecordBatch.from_arrays(columns, schema=schema)], schema)

    def choose(self, rows: Rows) -> tuple[Chosen, float]:
        """What is chosen, and the seconds that it took: from rows to which are worked on."""
        run = _Run(self._reducer, self._store, Moment(1, _NOW_US))
        begun = time.thread_time()
        units = run._units(rows, _by_arrival(rows.arrivals))
        chosen = run._choose(rows, units)
        return chosen, time.thread_time() - begun


def reducer_us(random: np.random.Generator, load: float, batches: int, rows: int) -> float:
    """Microseconds a row, the mean over batches; what a first one loads is not counted."""
    choosing = Choosing(load, rows)
    drawn = [choosing.batch(random) for _ in range(batches)]
    choosing.choose(drawn[0])
    took = fmean(choosing.choose(each)[1] for each in drawn)
    forget()
    return 1e6 * took / rows

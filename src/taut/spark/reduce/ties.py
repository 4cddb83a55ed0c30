"""Which of rows that are alike go first: the same ones, in whichever order they came.

A source may deal the rows of a batch that is tried again to other tasks. What is worked on must not
depend on that, or rows would be in the results of one attempt and put aside by none.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from taut.spark.reduce.blobs import Rows
from taut.spark.reduce.mapper import key_hashes
from taut.spark.values import to_python

Numbers = np.ndarray[Any, Any]
_MIX = np.uint64(0x9E3779B97F4A7C15)


class Ties:
    """An order of rows that follows from what they are.

    Parameters
    ----------
    rows, places
        The rows, and those of them that are meant: the n-th is at ``places[n]``.
    turn
        What differs from batch to batch: it is not always the same keys that are left out.
    """

    def __init__(self, rows: Rows, places: Numbers, turn: int) -> None:
        self._rows = rows
        self._places = places
        self._turn = np.uint64(turn % 2**63)

    def first(self, at: Numbers, many: int, by_key: bool) -> Numbers:
        """Out of some rows so many: of as few keys as can be, or those that arrived first."""
        rows, places = self._rows, self._places[at]
        arrivals, times = rows.arrivals[places], rows.times[places]
        if not by_key and many < len(at):
            # those that arrived before the last that is taken need no order among themselves
            last = np.partition(arrivals, many - 1)[many - 1]
            before, tied = np.flatnonzero(arrivals < last), np.flatnonzero(arrivals == last)
        else:
            before, tied = np.zeros(0, np.int64), np.arange(len(at))
        keys = self._ranks(places[tied])
        columns = (times[tied], arrivals[tied], keys) if by_key else (keys, times[tied])
        order = np.lexsort(columns)
        left = many - len(before)
        same = np.ones(len(tied), bool)
        for column in columns:
            same &= column[order] == column[order[left - 1]]
        run = np.flatnonzero(same)
        if run[-1] >= left:
            order[run] = order[run][self._by_value(places[tied[order[run]]])]
        return np.concatenate([at[before], at[tied[order[:left]]]])

    def _ranks(self, places: Numbers) -> Numbers:
        """Of the keys of rows, in an order that begins with another key in every batch."""
        encoded = self._rows.keys.take(pa.array(places)).dictionary_encode()
        keys = encoded.dictionary.to_pylist()
        mixed = ((key_hashes(encoded.dictionary) + self._turn) * _MIX).tolist()
        ranks = np.empty(len(keys), np.int64)
        ranks[sorted(range(len(keys)), key=lambda n: (mixed[n], keys[n]))] = np.arange(len(keys))
        ranked: Numbers = ranks[encoded.indices.to_numpy()]
        return ranked

    def _by_value(self, places: Numbers) -> Numbers:
        """The order of rows that differ in nothing else."""
        values = self._rows.values.take(pa.array(places))
        kind = values.type
        if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and not values.null_count:
            return np.argsort(values.to_numpy(), kind="stable")
        texts = [repr(value) for value in to_python(values)]
        return np.array(sorted(range(len(texts)), key=texts.__getitem__))

"""What a job must give: a fold over its rows in plain Python, one after the other.

This is the meaning of a job. The reducer on Spark is tested against it, so it is written to be
seen to be right, and shares nothing with the reducer but the job itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from taut.spark.reduce.job import Job, Span, Windows

_MICRO = 1_000_000


def fold(job: Job, rows: Iterable[tuple[float, Any, Any]]) -> tuple[list[Any], dict[Any, Any]]:
    """Run a job over rows of time, key and value, in the order given.

    Returns
    -------
    outputs : list of tuple
        What ``update`` put out, in order; then what ``finalize`` made of the windows, in order of
        their ends, and of their first rows among windows of the same end.
    states : dict
        By key; with windows by (key, window), as they were when ``finalize`` got them.

    Examples
    --------
    >>> from taut.workloads.reduce import words
    >>> fold(words(threshold=2), [(0.0, "a", 1), (0.1, "b", 1), (0.2, "a", 1)])
    ([('a', 2)], {'a': 2, 'b': 1})
    """
    outputs: list[Any] = []
    states: dict[Any, Any] = {}
    for time, key, value in mapped(job, rows):
        if job.windows is None:
            places: list[tuple[Any, tuple[Any, ...]]] = [(key, (key,))]
        else:
            places = [((key, window), (key, window)) for window in spans(job.windows, time)]
        for place, arguments in places:
            if place not in states:
                states[place] = job.init(*arguments)
            states[place], made = _updated(job, time, key, value, states[place])
            outputs.extend(_row(job, row) for row in made or ())
    if job.finalize is not None:
        for key, window in sorted(states, key=lambda place: place[1].end):
            made = job.finalize(key, window, states[key, window])
            outputs.extend(_row(job, row) for row in made or ())
    return outputs, states


def mapped(job: Job, rows: Iterable[tuple[float, Any, Any]]) -> Iterator[tuple[float, Any, Any]]:
    """The rows that ``map`` makes of rows; each keeps the time of the one it came from."""
    for time, key, value in rows:
        if job.map is None:
            yield time, key, value
        else:
            for new_key, new_value in job.map(time, key, value):
                yield time, new_key, new_value


def spans(windows: Windows, time: float) -> list[Span]:
    """The windows [start + i slide, start + i slide + length) that hold a time, earliest first.

    >>> from taut.spark.window import Window
    >>> [span.end for span in spans(Windows(Window(10.0, 5.0)), 15.0)]
    [20.0, 25.0]
    """
    at = round(time * _MICRO)
    start = round(windows.window.start * _MICRO)
    length, slide = windows.length_us, windows.slide_us
    # the last window that has started by then, and those before it until one ends too early
    i = (at - start) // slide
    held = []
    while at < start + i * slide + length:
        held.append(windows.span(start + i * slide + length))
        i -= 1
    return held[::-1]


def _updated(job: Job, time: float, key: Any, value: Any, state: Any) -> tuple[Any, Any]:
    if job.update is not None:
        return job.update(time, key, value, state)
    assert job.update_many is not None
    values = pa.array([value], job.value_type).to_numpy(zero_copy_only=False)
    return job.update_many(np.array([time]), key, values, state)


def _row(job: Job, row: Any) -> Any:
    return row if len(job.schema.names) > 1 or isinstance(row, tuple) else (row,)

"""Rows into states, by the functions of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from taut.errors import JobError
from taut.spark.reduce.job import MICRO, Job
from taut.spark.values import Misfit, cut, to_arrow, to_python

Numbers = np.ndarray[Any, Any]


@dataclass(slots=True)
class Work:
    """Rows to be folded, in order.

    Attributes
    ----------
    names
        What states are kept by: keys, or (key, end of window).
    codes
        For each row the place of its name.
    times_us
        Of the rows.
    values
        Of the rows.
    """

    names: list[Any]
    codes: Numbers
    times_us: Numbers
    values: pa.Array


@dataclass(slots=True)
class Folded:
    """What came of it.

    Attributes
    ----------
    out
        Rows that came out.
    places
        For each of those the row that it came with.
    bad
        Rows on which a function failed, and how.
    changed
        Names whose states have changed, or may have, and by how many rows.
    """

    out: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    bad: dict[int, str] = field(default_factory=dict)
    changed: dict[Any, int] = field(default_factory=dict)


def fold(job: Job, work: Work, states: dict[Any, Any]) -> Folded:
    """Fold rows into states, which are changed in place."""
    done = Folded()
    if not len(work.codes):
        return done
    if job.update is not None:
        _one_by_one(job, work, states, done)
    else:
        _key_by_key(job, work, states, done)
    counts = np.bincount(np.delete(work.codes, [*done.bad]) if done.bad else work.codes)
    for code in np.flatnonzero(counts).tolist():
        name = work.names[code]
        done.changed[name] = int(counts[code])
    for at in done.bad:
        # a function that fails may have changed the state in place before
        name = work.names[int(work.codes[at])]
        if name in states:
            done.changed.setdefault(name, 0)
    return done


def finalized(job: Job, name: tuple[Any, int], state: Any) -> list[Any]:
    """The rows of a window that is over."""
    assert job.finalize is not None and job.windows is not None
    key, end = name
    return list(job.finalize(key, job.windows.span(end), state) or ())


def _one_by_one(job: Job, work: Work, states: dict[Any, Any], done: Folded) -> None:
    assert job.update is not None
    update, names, windows = job.update, work.names, job.windows
    out, places = done.out, done.places
    rows = zip(
        work.codes.tolist(),
        (work.times_us / MICRO).tolist(),
        to_python(work.values),
        strict=True,
    )
    for at, (code, time, value) in enumerate(rows):
        name = names[code]
        key = name if windows is None else name[0]
        try:
            state = states[name] if name in states else _begun(job, name)
            state, come = update(time, key, value, state)
            if come:
                for row in _rows(come):
                    out.append(row)
                    places.append(at)
        except Exception as error:
            while places and places[-1] == at:
                places.pop()
                out.pop()
            done.bad[at] = _told(job, "update", error)
        else:
            states[name] = state


def _key_by_key(job: Job, work: Work, states: dict[Any, Any], done: Folded) -> None:
    assert job.update_many is not None
    update, names, windows = job.update_many, work.names, job.windows
    order = np.argsort(work.codes, kind="stable")
    codes = work.codes[order]
    times = (work.times_us / MICRO)[order]
    values = as_array(work.values)[order]
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]]).tolist()
    ends = [*starts[1:], len(codes)]
    for code, start, end in zip(codes[starts].tolist(), starts, ends, strict=True):
        name = names[code]
        key = name if windows is None else name[0]
        try:
            state = states[name] if name in states else _begun(job, name)
            state, come = update(times[start:end], key, values[start:end], state)
            rows = list(_rows(come)) if come is not None else []
        except Exception as error:
            why = _told(job, "update_many", error)
            done.bad.update(dict.fromkeys(order[start:end].tolist(), why))
        else:
            states[name] = state
            if rows:
                done.out += rows
                done.places += [int(order[end - 1])] * len(rows)


def _rows(come: Iterable[Any]) -> Iterable[Any]:
    """Rows that a function gives; text would pass for a row a letter."""
    if isinstance(come, str | bytes | dict):
        raise TypeError(f"{cut(come)} are no rows: a list of them is needed")
    return come


def _begun(job: Job, name: Any) -> Any:
    if job.windows is None:
        return job.init(name)
    return job.init(name[0], job.windows.span(name[1]))


def _told(job: Job, what: str, error: Exception) -> str:
    hint = ""
    if isinstance(error, TypeError | ValueError) and "unpack" in str(error):
        hint = " (it should return the state and rows, as in: return state, [])"
    return f"{what} failed with {type(error).__name__}: {error}{hint}"


def as_array(values: pa.Array) -> Numbers:
    """Values for a function on arrays: numbers as such, all else as objects."""
    kind = values.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if plain and not values.null_count:
        array: Numbers = values.to_numpy(zero_copy_only=False)
        return array
    objects = np.empty(len(values), dtype=object)
    objects[:] = to_python(values)
    return objects


def as_columns(job: Job, rows: Iterable[Any], what: str) -> list[pa.Array]:
    """Rows that a function put out, by column."""
    made, wide = list(rows), len(job.schema)
    if wide == 1:
        made = [row if isinstance(row, tuple) else (row,) for row in made]
    for row in made:
        if not isinstance(row, tuple | list) or len(row) != wide:
            names = ", ".join(job.schema.names)
            raise JobError(
                f"job {job.name!r}: {what} gave the row {cut(row)}: a tuple of {wide} is needed, "
                f"for output {names}"
            )
    columns = list(zip(*made, strict=True)) if made else [()] * wide
    arrays = []
    for field_, values in zip(job.schema, columns, strict=True):
        try:
            arrays.append(to_arrow(list(values), field_))
        except Misfit as misfit:
            value = values[misfit.at]
            raise JobError(
                f"job {job.name!r}: {what} gave {cut(value)} ({type(value).__name__}) for output "
                f"{field_.name!r}: {misfit.needed} is needed; in row {cut(made[misfit.at])}"
            ) from None
    return arrays

"""Rows into states, by the functions of a job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from taut.errors import JobError
from taut.spark.reduce.codec import Codec
from taut.spark.reduce.job import MICRO, Job, is_plain
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
    rows
        Where a row has several states, one after the other here: which row each is of. It then
        counts in all of them, or in none if a function fails.
    """

    names: list[Any]
    codes: Numbers
    times_us: Numbers
    values: pa.Array
    rows: Numbers | None = None


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


def fold(job: Job, work: Work, states: dict[Any, Any], codec: Codec | None = None) -> Folded:
    """Fold rows into states, which are changed in place.

    ``codec`` is for rows that have several states, which may have to be as they were.
    """
    done = Folded()
    if not len(work.codes):
        return done
    if work.rows is not None:
        kept = _Kept(states, codec or Codec(job))
        (_row_by_row if job.update is not None else _until_none_fails)(job, work, kept, done)
    elif job.update is not None:
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


@dataclass(slots=True)
class _Kept:
    """States that functions may change in place, and that can be had as they were."""

    states: dict[Any, Any]
    codec: Codec

    def noted(self, names: Iterable[Any]) -> list[tuple[Any, bytes]]:
        """What is needed to set some of them back."""
        found = ((name, self.states[name]) for name in names if name in self.states)
        return [(name, self.codec.state(name, s)) for name, s in found if not is_plain(s)]

    def set_back(self, noted: Iterable[tuple[Any, bytes]]) -> None:
        """As they were."""
        for name, data in noted:
            self.states[name] = self.codec.read_state(data)

    def copy(self, name: Any) -> Any:
        """One that may be changed, of a state that stays."""
        state = self.states[name]
        return state if is_plain(state) else self.codec.read_state(self.codec.state(name, state))


def _row_by_row(job: Job, work: Work, kept: _Kept, done: Folded) -> None:
    """One by one, where a row has several states."""
    assert job.update is not None and job.windows is not None and work.rows is not None
    update, states, out, places = job.update, kept.states, done.out, done.places
    names = [work.names[code] for code in work.codes.tolist()]
    times, values = (work.times_us / MICRO).tolist(), to_python(work.values)
    starts = np.flatnonzero(np.r_[True, work.rows[1:] != work.rows[:-1]]).tolist()
    for start, end in zip(starts, [*starts[1:], len(names)], strict=True):
        mark, new = len(out), {}
        noted = kept.noted(names[start:end])
        try:
            for at in range(start, end):
                name = names[at]
                state = states[name] if name in states else _begun(job, name)
                new[name], come = update(times[at], name[0], values[at], state)
                for row in _rows(come or ()):
                    out.append(row)
                    places.append(at)
        except Exception as error:
            del out[mark:], places[mark:]
            kept.set_back(noted)
            done.bad.update(dict.fromkeys(range(start, end), _told(job, "update", error)))
        else:
            states.update(new)


def _until_none_fails(job: Job, work: Work, kept: _Kept, done: Folded) -> None:
    """Key by key, where a row has several states: again without rows that failed in another."""
    assert job.update_many is not None and work.rows is not None
    order = np.argsort(work.codes, kind="stable")
    codes, rows = work.codes[order], work.rows[order]
    times, values = (work.times_us / MICRO)[order], as_array(work.values)[order]
    starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    group = np.cumsum(np.r_[False, codes[1:] != codes[:-1]])
    ends = [*starts[1:].tolist(), len(codes)]
    failed: dict[int, str] = {}
    made: dict[int, tuple[Any, Any, list[Any], int]] = {}
    todo = list(range(len(starts)))
    while todo:
        new: dict[int, str] = {}
        for n in todo:
            made.pop(n, None)
            at = np.arange(starts[n], ends[n])
            at = at[~np.isin(rows[at], [*failed])] if failed else at
            if not len(at):
                continue
            name = work.names[int(codes[starts[n]])]
            state = kept.copy(name) if name in kept.states else None
            try:
                if name not in kept.states:
                    state = _begun(job, name)
                state, come = job.update_many(times[at], name[0], values[at], state)
                out = list(_rows(come)) if come is not None else []
                made[n] = (name, state, out, int(order[at[-1]]))
            except Exception as error:
                new |= dict.fromkeys(rows[at].tolist(), _told(job, "update_many", error))
        failed |= new
        todo = np.unique(group[np.isin(rows, [*new])]).tolist()
    for n in sorted(made):
        name, state, come, place = made[n]
        kept.states[name] = state
        done.out += come
        done.places += [place] * len(come)
    for unit in np.flatnonzero(np.isin(work.rows, [*failed])).tolist():
        done.bad[unit] = failed[int(work.rows[unit])]


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

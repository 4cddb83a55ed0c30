"""A run as it was recorded: its records, sorted by what they are about."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from taut.errors import TautError
from taut.watch.records import (
    Batch,
    Ended,
    Expected,
    LeftOut,
    Record,
    Reduced,
    Run,
    Source,
    Started,
    Turn,
)
from taut.watch.results import same_life
from taut.watch.runs import VARIABLE, folder_of_runs, read, runs


class RunError(TautError, ValueError):
    """A run that cannot be read, or is not there; says what was looked for."""


@dataclass(slots=True)
class Recorded:
    """What a trace holds, by kind and query; batches in the order in which they were written.

    A query that was started again under its name is another one, as on the live page: ``q``, then
    ``q (2)``. Sources are kept by query and by which of its sources they are.
    """

    run: Run
    started: dict[str, Started] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    turns: dict[str, list[Turn]] = field(default_factory=dict)
    batches: dict[str, list[Batch]] = field(default_factory=dict)
    sources: dict[tuple[str, str], list[Source]] = field(default_factory=dict)
    reduced: dict[str, list[Reduced]] = field(default_factory=dict)
    expected: dict[str, list[Expected]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict, repr=False)
    _taken: set[str] = field(default_factory=set, repr=False)

    @classmethod
    def of(cls, records: Iterable[Record], where: str = "the run") -> Recorded:
        """Sort records; the first one says what runs."""
        them = iter(records)
        first = next(them, None)
        if not isinstance(first, Run):
            raise RunError(f"{where} holds no run: a trace begins with a record of kind 'run'")
        found = cls(first)
        for record in them:
            found._take(record)
        for batches in found.batches.values():
            batches.sort(key=lambda batch: batch.written)
        return found

    def _take(self, record: Record) -> None:
        match record:
            case Started():
                self.started[self._start(record)] = record
            case Ended():
                self.ended[self._name(record.query)] = record
            case Turn():
                self.turns.setdefault(self._name(record.query), []).append(record)
            case Batch():
                self.batches.setdefault(self._name(record.query), []).append(record)
            case Source():
                key = self._name(record.query), record.source
                self.sources.setdefault(key, []).append(record)
            case Reduced():
                self.reduced.setdefault(self._name(record.query), []).append(record)
            case Expected():
                self.expected.setdefault(self._name(record.query), []).append(record)
            case LeftOut():
                self.left_out.append(record)

    def _start(self, started: Started) -> str:
        """The name of what is told to have started: a new one when it was started again."""
        name = self._name(started.query)
        if not same_life(self.started.get(name), name in self.ended, started):
            del self._names[started.query]
        return self._name(started.query)

    def _name(self, query: str) -> str:
        """The name of the last that was started under this one."""
        found = self._names.get(query)
        if found is None:
            found, n = query, 1
            while found in self._taken:
                n += 1
                found = f"{query} ({n})"
            self._names[query] = found
            self._taken.add(found)
        return found

    @property
    def queries(self) -> list[str]:
        """The queries by name, in the order in which they were started."""
        return list(dict.fromkeys([*self.started, *self.batches]))

    @property
    def begins(self) -> float:
        """When the run began."""
        return self.run.at

    @property
    def ends(self) -> float:
        """The last time that anything was recorded."""
        last = [them[-1].written for them in self.batches.values()]
        last += [each.at for each in self.started.values()]
        last += [each.at for each in self.ended.values()]
        last += [them[-1].at for them in self.turns.values()]
        last += [them[-1].at for them in self.sources.values()]
        last += [them[-1].at for them in self.reduced.values()]
        last += [them[-1].at for them in self.expected.values()]
        return max(self.run.at, *last) if last else self.run.at

    def held_since(self, query: str) -> dict[float, float]:
        """Since when a query's turns had been waited for, by when they were granted."""
        return {turn.at: turn.held_since for turn in self.turns.get(query, ())}

    @property
    def missing(self) -> int:
        """Records that were left out while it was recorded."""
        return sum(each.records for each in self.left_out)


def load(run: str | Path) -> Recorded:
    """Read a run: its folder, the folder of several for the newest, or a single file."""
    return Recorded.of(read(run), str(run))


def newest() -> Path:
    """The newest run where runs are recorded by default."""
    folder = folder_of_runs()
    if folder is None:
        raise RunError(
            f"no run is named, and {VARIABLE}={os.environ.get(VARIABLE, '')} says that none are "
            "recorded: give the folder of a run"
        )
    found = runs()
    if not found:
        raise RunError(
            f"no run is named, and none is recorded in {str(folder)!r}: a taut.Runtime records "
            f"there while it runs; give the folder of a run, or name theirs in {VARIABLE}"
        )
    return found[-1]

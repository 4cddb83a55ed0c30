"""A run as it was recorded: its records, sorted by what they are about."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from taut.errors import TautError
from taut.watch.records import (
    VERSION,
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
    decode,
)


class RunError(TautError, ValueError):
    """A run that cannot be read, or is not there; says what was looked for."""


@dataclass(slots=True)
class Recorded:
    """What a trace holds, by kind; batches by query, in the order in which they were written."""

    run: Run
    started: dict[str, Started] = field(default_factory=dict)
    ended: dict[str, Ended] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    batches: dict[str, list[Batch]] = field(default_factory=dict)
    sources: dict[str, list[Source]] = field(default_factory=dict)
    reduced: dict[str, list[Reduced]] = field(default_factory=dict)
    expected: dict[str, list[Expected]] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    @classmethod
    def of(cls, records: Iterable[Record], where: str = "the run") -> Recorded:
        """Sort records; the first one says what runs."""
        them = iter(records)
        first = next(them, None)
        if not isinstance(first, Run):
            raise RunError(f"{where} holds no run: a trace begins with a record of kind 'run'")
        found = cls(_of_this_version(first, where))
        for record in them:
            found._take(record, where)
        for batches in found.batches.values():
            batches.sort(key=lambda batch: batch.written)
        return found

    def _take(self, record: Record, where: str) -> None:
        match record:
            case Run():
                _of_this_version(record, where)
            case Started():
                self.started[record.query] = record
                self.ended.pop(record.query, None)
            case Ended():
                self.ended[record.query] = record
            case Turn():
                self.turns.append(record)
            case Batch():
                self.batches.setdefault(record.query, []).append(record)
            case Source():
                self.sources.setdefault(record.query, []).append(record)
            case Reduced():
                self.reduced.setdefault(record.query, []).append(record)
            case Expected():
                self.expected.setdefault(record.query, []).append(record)
            case LeftOut():
                self.left_out.append(record)

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
        last += [turn.at for turn in self.turns[-1:]]
        last += [them[-1].at for them in self.sources.values()]
        last += [them[-1].at for them in self.reduced.values()]
        last += [them[-1].at for them in self.expected.values()]
        return max(self.run.at, *last) if last else self.run.at

    def held_since(self, query: str) -> dict[float, float]:
        """Since when a query's turns had been waited for, by when they were granted."""
        return {turn.at: turn.held_since for turn in self.turns if turn.query == query}

    @property
    def missing(self) -> int:
        """Records that were left out while it was recorded."""
        return sum(each.records for each in self.left_out)


def load(run: str | Path) -> Recorded:
    """Read a run: its folder, or a single file of it; ``.jsonl``, or the same with ``.gz``."""
    path = Path(run)
    return Recorded.of(_read(path), str(path))


def newest(folder: str | Path | None = None) -> Path:
    """The newest run in a folder of runs; without one, in that where runs are recorded."""
    where = Path(folder or "taut-runs")
    runs = [path for path in where.glob("*/") if any(path.glob("*.jsonl"))]
    if not runs:
        raise RunError(f"no run in {str(where)!r}")
    return max(runs, key=lambda path: max(file.stat().st_mtime for file in path.glob("*.jsonl")))


def _of_this_version(run: Run, where: str) -> Run:
    if run.version > VERSION:
        raise _newer(run.version, where)
    return run


def _newer(version: int, where: str) -> RunError:
    return RunError(
        f"{where} was recorded in format {version}, by a newer Taut; this one reads formats up to "
        f"{VERSION}: read it with the Taut that wrote it, or a newer one"
    )


def _read(path: Path) -> Iterator[Record]:
    for file in _files(path):
        lines = _lines(file)
        for n, line in enumerate(lines, 1):
            try:
                yield decode(line)
            except msgspec.ValidationError as error:
                raise _refused(line, f"{file}, line {n}", error) from None
            except msgspec.DecodeError as error:
                if n < len(lines):
                    raise RunError(f"{file}, line {n}: no record of a run: {error}") from None
                # the last line of a run that was killed is cut off: all before it counts


def _refused(line: bytes, where: str, error: Exception) -> RunError:
    """Why a line is no record: that a newer version wrote it, or what is wrong with it."""
    found = msgspec.json.decode(line)
    version = found.get("version") if isinstance(found, dict) else None
    if isinstance(version, int) and version > VERSION:
        return _newer(version, where)
    return RunError(f"{where}: no record of a run: {error}")


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted([*path.glob("*.jsonl"), *path.glob("*.jsonl.gz")])
    if not found:
        what = "has no files *.jsonl" if path.is_dir() else "does not exist"
        raise RunError(f"run {str(path)!r} {what}: give the folder of a run, or a file of it")
    return found


def _lines(file: Path) -> list[bytes]:
    try:
        data = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    except (OSError, EOFError) as error:
        raise RunError(f"{file} cannot be read: {error}") from None
    return [line for line in data.split(b"\n") if line.strip()]

"""Runs that were recorded: where they are, and reading them back."""

from __future__ import annotations

import contextlib
import gzip
import os
import re
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import msgspec

from taut.errors import TautError
from taut.watch.records import VERSION, Record, Run, Started, decode

if TYPE_CHECKING:
    import pandas as pd

FILE = "{:06d}.jsonl"
KEEP_RUNS = 20
VARIABLE = "TAUT_TRACE"

_FILE = re.compile(r"(\d{6,})\.jsonl")
_RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]+")
_GZIP = b"\x1f\x8b"
_LONGEST_HEAD = 65_536
_STILLBORN_S = 3_600.0
_OFF = {"off", "false", "no", "0"}
_KINDS = {str(kind.__struct_config__.tag): kind for kind in get_args(Record)}


def folder_of_runs(trace: bool | str | Path | None = None) -> Path | None:
    """Where runs are recorded, each in a folder of its own; None where they are not.

    Parameters
    ----------
    trace
        A folder; False for none; or None for that of the variable ``TAUT_TRACE`` (``off`` for
        none), else ``taut/runs`` in the user's cache.
    """
    if trace is False:
        return None
    if trace is not None and trace is not True:
        if not isinstance(trace, (str, Path)) or not str(trace).strip():
            raise TautError(f"trace={trace!r}: a folder, False for none, or None for the default")
        return Path(trace).expanduser()
    said = os.environ.get(VARIABLE, "").strip()
    if said.lower() in _OFF and trace is None:
        return None
    if said and said.lower() not in _OFF:
        return Path(said).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "taut" / "runs"


def folder_name(run: str, at: float) -> str:
    """The name of a run's folder: names sort as the runs began.

    >>> folder_name("3fa2c1", 0.0)
    '19700101-000000-3fa2c1'
    """
    return time.strftime("%Y%m%d-%H%M%S-", time.gmtime(at)) + run


def runs(folder: str | Path | None = None) -> list[Path]:
    """The recorded runs of a folder, by default where they are recorded, the oldest first."""
    place = folder_of_runs(folder)
    if place is None or not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if _has_files(path))


def _has_files(folder: Path) -> bool:
    try:
        return folder.is_dir() and bool(numbered(folder))
    except OSError:  # somebody else's: those beside it can be read all the same
        return False


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The files of a run with their numbers, in order."""
    found = [(int(m[1]), p) for p in folder.iterdir() if (m := _FILE.fullmatch(p.name))]
    return sorted(found)


def keep_newest(folder: Path, count: int) -> None:
    """Delete recorded runs, but for those that were written to last.

    By what was written last and not by when they began: one that has run for weeks goes on. What
    is no run of Taut's, or only a link to one, is left alone. Folders of runs in which nothing was
    ever written go after an hour.
    """
    found = []
    with contextlib.suppress(OSError):
        for run in folder.iterdir():
            # each by itself: one that cannot be read or deleted keeps no other
            with contextlib.suppress(OSError):
                if _is_empty_run(run):
                    run.rmdir()
                elif _is_run(run):
                    files = [path for _, path in numbered(run)]
                    found.append((max(p.lstat().st_mtime for p in (run, *files)), run, files))
    found.sort(key=lambda each: each[0])
    for _, run, files in found[: max(0, len(found) - count)]:
        # what else somebody has put there stays, and so does the folder
        with contextlib.suppress(OSError):
            for path in files:
                path.unlink()
            run.rmdir()


def _is_empty_run(folder: Path) -> bool:
    """Whether nothing was written into a run's folder, and nothing will be."""
    old = time.time() - folder.lstat().st_mtime > _STILLBORN_S
    return old and _may_be_run(folder) and not any(folder.iterdir())


def _may_be_run(folder: Path) -> bool:
    return bool(_RUN.fullmatch(folder.name)) and folder.is_dir() and not folder.is_symlink()


def _is_run(folder: Path) -> bool:
    """Whether a folder is itself a run of Taut's, by its name and by what it holds."""
    if not _may_be_run(folder):
        return False
    for _, path in numbered(folder)[:1]:
        with path.open("rb") as file, contextlib.suppress(msgspec.DecodeError):
            return isinstance(decode(file.readline(_LONGEST_HEAD)), Run)
    return False


def read(folder: str | Path) -> Iterator[Record]:
    """The records of a run, in order: what runs, then what happened.

    Parameters
    ----------
    folder
        Of a run; or of several, for the newest; or a single file, which may be packed with gzip.

    Raises
    ------
    TautError
        When there is no run, a newer Taut has written it, or a line is broken; says which. A last
        line that is cut off is none: what wrote it was killed, or writes it now.
    """
    run: Run | None = None
    started: dict[str, Started] = {}
    for path in _files(Path(folder).expanduser()):
        for record in _records(path):
            # every file begins with what runs: told once is enough
            if isinstance(record, Run):
                if run is not None and record.run == run.run:
                    continue
                run = record
            elif isinstance(record, Started):
                if started.get(record.query) == record:
                    continue
                started[record.query] = record
            yield record


def to_pandas(folder: str | Path, kind: str = "batch") -> pd.DataFrame:
    """The records of one kind as a table, a row for each; times are seconds since the epoch.

    Parameters
    ----------
    folder
        As for :func:`read`.
    kind
        ``batch``, ``turn``, ``started``, ``ended``, ``source``, ``reduced``, ``expected``,
        ``run`` or ``left out``.
    """
    import pandas as pd

    if kind not in _KINDS:
        raise TautError(f"kind={kind!r}: one of {', '.join(sorted(_KINDS))}")
    wanted = _KINDS[kind]
    rows = [_row(record) for record in read(folder) if isinstance(record, wanted)]
    return pd.DataFrame(rows, columns=None if rows else list(wanted.__struct_fields__))


def _row(record: Record) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(record).items():
        if name == "slack":
            parts = {} if value is None else msgspec.structs.asdict(value)
            row |= {
                f"slack_{part}": parts.get(part)
                for part in ("value", "due", "earliest", "latest", "cost")
            }
        else:
            row[name] = msgspec.to_builtins(value)
    return row


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise TautError(f"trace {str(place)!r}: there is no such folder")
    found = numbered(place)
    if not found:
        several = runs(place)
        found = numbered(several[-1]) if several else []
    if not found:
        raise TautError(
            f"trace {str(place)!r}: no run is recorded there; give the folder of a run, which has "
            "files such as 000001.jsonl, or the folder around it"
        )
    return [path for _, path in found]


def _records(path: Path) -> Iterator[Record]:
    for number, line in enumerate(_lines(path), 1):
        try:
            record = decode(line)
        except msgspec.DecodeError as error:
            if not line.endswith(b"\n"):
                return
            raise TautError(_wrong(path, number, line, error)) from None
        if isinstance(record, Run) and record.version > VERSION:
            raise TautError(_newer(path, record.version))
        yield record


def _lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, packed with gzip or not; none of one that is gone."""
    try:
        with path.open("rb") as file:
            packed = file.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
            with gzip.open(file) if packed else contextlib.nullcontext(file) as lines:
                yield from lines
    except FileNotFoundError:
        return  # the oldest file of a run that goes on
    except (OSError, EOFError, zlib.error) as error:
        raise TautError(f"trace {path}: cannot be read: {error}") from None


def _wrong(path: Path, number: int, line: bytes, error: Exception) -> str:
    with contextlib.suppress(msgspec.DecodeError):
        version = getattr(msgspec.json.decode(line, type=_Versioned), "version", 0)
        if version > VERSION:
            return _newer(path, version)
    return f"trace {path}, line {number}: {error}: {line[:80]!r}"


def _newer(path: Path, version: int) -> str:
    return (
        f"trace {path}: written in format {version} by a newer Taut, and this one reads up to "
        f"{VERSION}; update Taut to read it"
    )


class _Versioned(msgspec.Struct):
    version: int = 0

"""Profiles and plans as JSON files."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from taut.errors import PlanError

Kept = TypeVar("Kept")


class _Kept(msgspec.Struct):
    format: int


def save(value: object, path: str | Path) -> None:
    """Write it, all of it or nothing."""
    path = Path(path)
    draft = path.with_name(path.name + ".part")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")
    draft.replace(path)


def load(
    kind: type[Kept], path: str | Path, what: str, format: int, error: type[PlanError]
) -> Kept:
    """Read one back; what is damaged, or was written by another Taut, is refused."""
    try:
        data = Path(path).read_bytes()
        # first its format: what another Taut has written may have other parts
        found = msgspec.json.decode(data, type=_Kept).format
        if found == format:
            return msgspec.json.decode(data, type=kind)
    except OSError as why:
        raise error(f"{what} {path}: {why.strerror or why}") from why
    except (msgspec.DecodeError, PlanError) as why:
        raise error(
            f"{what} {path} cannot be read: {why}; it may be cut short, make a new one"
        ) from why
    raise error(f"{what} {path} has format {found}, this Taut reads {format} here: make a new one")

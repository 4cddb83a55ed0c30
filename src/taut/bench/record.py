"""The record of a benchmark: what ran, where, when, and its figures."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from taut.errors import TautError


class BenchError(TautError, RuntimeError):
    """A benchmark that could not run, or a figure that is no number."""


def machine() -> dict[str, Any]:
    """The facts of this machine that a figure depends on."""
    import pyspark

    from taut.spark.java import find_java

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cores = getattr(os, "sched_getaffinity", None)
    return {
        "cores": len(cores(0)) if cores else os.cpu_count(),
        "memory_gb": memory >> 30,
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "java": find_java().version,
    }


@dataclass(slots=True)
class Record:
    """One run of a command; :meth:`write` gives the JSON that every benchmark shares.

    Parameters
    ----------
    name : str
        The benchmark: ``queries``, ``lanes``, ...
    options : dict
        Everything needed to run it again.
    """

    name: str
    options: dict[str, Any]
    figures: dict[str, float] = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    _begun: float = field(default_factory=monotonic, repr=False)

    def add(self, figures: Mapping[str, float]) -> None:
        """Add figures by their dotted names; only finite numbers, and each name once."""
        for name, value in figures.items():
            if isinstance(value, bool) or not math.isfinite(value):
                raise BenchError(f"figure {name} = {value!r}: must be a finite number")
            if name in self.figures:
                raise BenchError(f"figure {name} was given twice")
            self.figures[name] = value

    def as_dict(self) -> dict[str, Any]:
        """The record as the JSON has it."""
        return {
            "name": self.name,
            "options": self.options,
            "machine": machine(),
            "started": self.started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "seconds": round(monotonic() - self._begun, 1),
            "figures": self.figures,
        }

    def write(self, path: Path) -> None:
        """Write the JSON, all of it or nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".part")
        draft.write_text(json.dumps(self.as_dict(), indent=1) + "\n")
        draft.replace(path)

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from taut.bench.lanes import site as module
from taut.bench.lanes.site import SPECULATING, Site


class Applications:
    """Stands for Spark: what was started and stopped, and with which settings."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.conf: list[Mapping[str, str]] = []

    @contextlib.contextmanager
    def application(self, folder: Path, master: str, conf: Mapping[str, str]) -> Iterator[Any]:
        self.told.append("start")
        self.conf.append(conf)
        yield object()
        self.told.append("stop")


@pytest.fixture
def applications(monkeypatch: pytest.MonkeyPatch) -> Applications:
    made = Applications()
    monkeypatch.setattr(module, "application", made.application)
    return made


def test_all_variants_share_an_application(tmp_path: Path, applications: Applications) -> None:
    where = Site(tmp_path, "local[2]", None, own=False)
    first, fresh = where.place("default")
    assert fresh
    assert where.place("shared") == (first, False)
    where.close()
    assert applications.told == ["start", "stop"]
    assert applications.conf == [{}]


def test_with_speculation_each_run_has_its_own(tmp_path: Path, applications: Applications) -> None:
    where = Site(tmp_path, "local[2]", None, own=True)
    places = [where.place(variant) for variant in ("default", "speculation", "default")]
    assert [fresh for _, fresh in places] == [True] * 3
    assert len({id(place) for place, _ in places}) == 3
    where.close()
    assert applications.told == ["start", "stop"] * 3
    assert applications.conf == [{}, SPECULATING, {}]

"""What ``taut simulate speed`` says of itself; how fast it is, a benchmark measures."""

from __future__ import annotations

import pytest

from taut.sim import speed
from taut.sim.papers import Effort


@pytest.mark.parametrize(("wanted", "told"), [(1.0, "reached"), (1e12, "not reached, tasks-")])
def test_whether_it_is_as_fast_as_wanted_is_said(
    monkeypatch: pytest.MonkeyPatch, wanted: float, told: str
) -> None:
    monkeypatch.setattr(speed, "WANTED", wanted)
    experiment = speed.EXPERIMENTS["speed"]
    found = experiment.run(Effort(scale=0.01))
    assert found.notes[1].startswith(f"{wanted:,.0f} a second are wanted: {told}")
    flat = experiment.flat(found)
    assert flat["speed.wanted.hops_per_s"] == wanted
    assert all(flat[f"speed.{name}.hops_per_s"] > 0.0 for name in speed.kinds())

"""Every table and figure of the works that Taut builds on, as a named experiment."""

from __future__ import annotations

from collections.abc import Mapping

from taut.sim.papers import backlog, balance, conditions, deadline, planner, slack, tails
from taut.sim.papers.experiment import Axes, Effort, Experiment, Found

__all__ = ["EXPERIMENTS", "Axes", "Effort", "Experiment", "Found"]

EXPERIMENTS: Mapping[str, Experiment] = {
    experiment.name: experiment
    for work in (tails, balance, conditions, planner, backlog, slack, deadline)
    for experiment in work.EXPERIMENTS
}
"""By name, in the order they are told of."""

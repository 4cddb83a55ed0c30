"""Profiles of a job whose costs are known."""

from __future__ import annotations

import math
import time

import numpy as np

from taut.planning.phases import stage
from taut.planning.profile import Profile, Sample, Windows
from taut.planning.resident import Served
from taut.planning.settings import Cluster
from taut.planning.trials import mixtures

SIZES = (5_000, 60_000)
CLUSTER = Cluster(1, 2)


def sample(
    lanes: int,
    reducers: int,
    rows: int,
    *,
    cluster: Cluster = CLUSTER,
    out: int = 0,
    factor: float = 1.0,
    fixed: float = 0.2,
    task: float = 0.05,
    row_us: float = 10.0,
    knee: float = math.inf,
    beyond_us: float = 0.0,
    skew: float = 0.0,
) -> Sample:
    """A batch that took what these costs say, times a factor."""
    share, beside = stage(lanes, cluster)
    reduced, crowded = stage(reducers, cluster, skew)
    seconds = {
        "plan": 0.2 * fixed,
        "log": 0.1 * fixed,
        "map": 0.2 * fixed
        + 0.2e-6 * row_us * rows * share * (1 + 0.2 * beside)
        + 1e-6 * beyond_us * max(0.0, rows - knee) * share,
        "reduce": 0.2 * fixed
        + task * reducers / cluster.slots
        + 0.8e-6 * row_us * rows * reduced * (1 + 0.3 * crowded)
        + 5e-6 * out * reduced,
        "write": 0.1 * fixed + 1e-6 * out,
        "after": 0.2 * fixed,
    }
    return Sample(
        lanes, reducers, rows, out, 0, {name: factor * value for name, value in seconds.items()}
    )


def profile(
    *,
    spread: float = 0.05,
    batches: int = 12,
    window: float = 0.0,
    cluster: Cluster = CLUSTER,
    sizes: tuple[int, ...] = SIZES,
    seed: int = 1,
    **costs: float,
) -> Profile:
    """Batches at the settings that are profiled, and two sizes."""
    random = np.random.default_rng(seed)
    samples = [
        sample(
            run.lanes,
            run.reducers,
            rows,
            cluster=cluster,
            out=8_000 if window and index % 2 else 0,
            factor=float(random.lognormal(-(spread**2) / 2, spread)),
            **costs,
        )
        for run in mixtures(cluster)
        for rows in sizes
        for index in range(batches)
    ]
    windows = Windows(window) if window else None
    return Profile(
        "job", "4.3.0", cluster.executors, cluster.cores, samples, windows, taken=time.time()
    )


def served(mean: float = 0.02, pause: float = 0.35, lanes: int = 4, even: bool = False) -> Served:
    """A profile of resident lanes: what rows take is exponential, or all the same."""
    drawn = np.random.default_rng(7)
    rows = [mean] * 400 if even else drawn.exponential(mean, 400).tolist()
    pauses = [0.9 * pause, pause, 1.1 * pause]
    return Served("calls", "4.3.0", lanes, rows, pauses, time.time())

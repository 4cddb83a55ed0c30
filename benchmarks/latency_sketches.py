"""How exact Taut's latency sketches are, how fast they merge, and how large they get.

    python benchmarks/latency_sketches.py [--rounds 5]

Errors are relative to the exact quantile of the same million latencies, the worst of all rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from taut.watch.latency import Latencies

MANY, PIECES = 1_000_000, 1_000
SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "exponential": lambda rng, n: rng.exponential(0.2, n),
    "lognormal": lambda rng, n: rng.lognormal(-1.0, 1.0, n),
    "pareto, a = 2": lambda rng, n: 0.1 * (1.0 + rng.pareto(2.0, n)),
    "pareto, a = 1.1": lambda rng, n: 0.1 * (1.0 + rng.pareto(1.1, n)),
    "two modes": lambda rng, n: np.where(
        rng.random(n) < 0.995, rng.normal(0.2, 0.02, n), rng.normal(5.0, 0.5, n)
    ),
}


def errors(found: Latencies, exact: np.ndarray) -> np.ndarray:
    seen = found.total()
    assert seen is not None
    return np.abs(np.array([seen.p50, seen.p99, seen.p999]) / exact - 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{MANY:,} latencies, error in percent: one sketch, and {PIECES:,} merged")
    print(f"{'':16} {'p50':>6} {'p99':>6} {'p99.9':>6}   {'p50':>6} {'p99':>6} {'p99.9':>6}")
    merging, sizes = [], []
    for name, draw in SHAPES.items():
        worst = np.zeros((2, 3))
        for seed in range(rounds):
            values = draw(np.random.default_rng(seed), MANY)
            exact = np.quantile(values, [0.5, 0.99, 0.999], method="inverted_cdf")
            whole = Latencies()
            whole.observe_all(0.0, values)
            parts = []
            for piece in np.array_split(values, PIECES):
                parts.append(Latencies())
                parts[-1].observe_all(0.0, piece)
            merged = Latencies()
            began = time.perf_counter()
            for part in parts:
                merged._all().merge(part._all())
            merging.append(time.perf_counter() - began)
            sizes.append(len(merged.to_bytes()))
            worst = np.maximum(worst, [errors(whole, exact), errors(merged, exact)])
        told = "   ".join(" ".join(f"{100 * e:6.2f}" for e in row) for row in worst)
        print(f"{name:16} {told}")
    print(
        f"merging {PIECES:,} sketches of {MANY // PIECES:,}: "
        f"median {1e3 * np.median(merging):.1f} ms, worst {1e3 * max(merging):.1f} ms; "
        f"{max(sizes):,} bytes"
    )
    began = time.perf_counter()
    one = Latencies()
    for n in range(100_000):
        one.observe(n / 1_000, 0.2)
    print(f"observing one latency: {1e9 * (time.perf_counter() - began) / 100_000:.0f} ns")


if __name__ == "__main__":
    main()

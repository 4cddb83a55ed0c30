"""What ``bench lanes`` is to run, with what each topology takes unless it is told otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from taut.bench.lanes.pauses import Pauses
from taut.bench.record import BenchError
from taut.workloads.topologies import TOPOLOGIES, Topology

TIMINGS = ("batch", "resident")
SPECULATION = "speculation"
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "default": {"dispatch": "fixed"},
    "timeout": {"dispatch": "fixed", "replay": "adaptive"},
    "shared": {"dispatch": "shared"},
    "executor": {"dispatch": "executor"},
    "balance": {"dispatch": "balance"},
    "two-choices": {"dispatch": "two-choices"},
    "replicate-20": {"dispatch": "fixed", "replay": "replicate-20"},
    "replicate-50": {"dispatch": "fixed", "replay": "replicate-50"},
    "replicate-100": {"dispatch": "fixed", "replay": "replicate-100"},
    "shared+timeout": {"dispatch": "shared", "replay": "adaptive"},
    "balance+timeout": {"dispatch": "balance", "replay": "adaptive"},
    "egress-buffered": {"dispatch": "fixed", "egress": "buffered"},
    "egress": {"dispatch": "fixed", "egress": "largest-backlog"},
    "egress-round-robin": {"dispatch": "fixed", "egress": "round-robin"},
    SPECULATION: {},
}
"""By name, the options of the source; ``default`` is what Spark does, and ``speculation`` is stock
Spark with a setting of its own."""
ONLY: Mapping[str, tuple[str, str]] = {
    SPECULATION: (
        "batch",
        "resident tasks run until their batch ends, so that none is later than others, and Spark "
        "copies none",
    ),
    "two-choices": (
        "resident",
        "it chooses for each row as it arrives, and those of a batch are all there",
    ),
    **dict.fromkeys(
        ("egress-buffered", "egress", "egress-round-robin"),
        ("resident", "it decides which lane writes, and of a batch the driver writes all"),
    ),
}
"""Variants that mean something in one timing only, and why."""
BALANCING = ("balance", "two-choices")
"""Ways of dealing out that adjust themselves every so often."""

_LOW_LOAD = Pauses(every_s=3.5, mean_s=0.06)
_UTILISED_SERVICE_S = 0.02
"""Service time at a given utilisation: long beside what asking for a tuple takes, about 1 ms, by
which lanes are busier than was asked for."""
OWN: Mapping[str, Mapping[str, Any]] = {
    "exclamation": {"pauses": _LOW_LOAD},
    "page-load": {"pauses": _LOW_LOAD},
    "processing": {"pauses": _LOW_LOAD},
    "queue": {},
    "sink": {"timing": "resident", "lanes": 4},
    "balance-a": {"timing": "resident", "lanes": 14, "warm_up_s": 60.0},
    "balance-b": {"timing": "resident", "lanes": 5, "warm_up_s": 60.0},
    "balance-c": {"timing": "resident", "lanes": 5, "warm_up_s": 60.0},
}
"""What a topology takes in place of the defaults of :class:`Spec`; pauses only when resident."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run; one for every variant and round.

    Attributes
    ----------
    rate, service_s, heavy, slow
        The topology's own when None.
    utilisation
        Sets the rate so that lanes are busy for this share of the time; service times are then
        exponential, no lane is slow and no tuple heavy.
    batch
        Every batch has so many tuples; without, a batch takes what has arrived.
    pauses
        Lanes are paused like this.
    horizon_s
        Length of resident batches; None leaves it to the source.
    balance_every_s
        How often dispatch that balances adjusts itself.
    """

    topology: str = "queue"
    timing: str = "batch"
    lanes: int = 8
    rate: int | None = None
    seconds: float = 60.0
    batch: int | None = None
    heavy: float | None = None
    slow: float | None = None
    service_s: float | None = None
    utilisation: float | None = None
    pauses: Pauses | None = None
    horizon_s: float | None = None
    balance_every_s: float = 5.0
    warm_up_s: float = 10.0
    grace_s: float = 60.0

    def __post_init__(self) -> None:
        if self.topology not in TOPOLOGIES:
            raise BenchError(f"topology {self.topology!r}: one of {', '.join(TOPOLOGIES)}")
        if self.timing not in TIMINGS:
            raise BenchError(f"timing {self.timing!r}: one of {', '.join(TIMINGS)}")
        if self.lanes < 1 or self.seconds <= 0:
            raise BenchError(f"lanes={self.lanes}, seconds={self.seconds}: both must be above zero")
        if self.batch is not None and self.timing == "resident":
            raise BenchError("batch: only with timing 'batch'")
        if self.horizon_s is not None and self.timing == "batch":
            raise BenchError("horizon: only with timing 'resident'")
        if self.topology == "sink" and self.timing == "batch":
            raise BenchError("sink: only with timing 'resident'; of a batch the driver writes all")
        if self.service_s is not None and not TOPOLOGIES[self.topology].service_s:
            raise BenchError(f"service: operators of {self.topology} compute, they do not wait")
        if self.utilisation is not None:
            self._check_utilisation(self.utilisation)

    def _check_utilisation(self, utilisation: float) -> None:
        if not 0.0 < utilisation < 1.0:
            raise BenchError(f"utilisation={utilisation}: a share between 0 and 1 is needed")
        for name in ("rate", "heavy", "slow"):
            if getattr(self, name) is not None:
                raise BenchError(f"{name}: follows from utilisation; give one of the two")
        if TOPOLOGIES[self.topology].outputs_vary or not TOPOLOGIES[self.topology].service_s:
            raise BenchError(
                f"utilisation: tuples of {self.topology} do not all take a known time; "
                "use queue or exclamation"
            )

    @classmethod
    def of(cls, topology: str, **given: Any) -> Spec:
        """With what the topology takes, unless something else is given; None is not given.

        >>> Spec.of("exclamation", timing="resident").pauses
        Pauses(every_s=3.5, mean_s=0.06)
        >>> Spec.of("exclamation").pauses is None, Spec.of("balance-a").lanes
        (True, 14)
        """
        told = {name: value for name, value in given.items() if value is not None}
        chosen = {**OWN.get(topology, {}), **told}
        resident = chosen.get("timing", cls().timing) == "resident"
        if not resident or "utilisation" in chosen:
            chosen = {name: v for name, v in chosen.items() if name != "pauses" or name in told}
        # 0 pauses are none
        chosen["pauses"] = chosen.get("pauses") or None
        return cls(topology, **chosen)

    @property
    def what(self) -> Topology:
        """The topology itself."""
        own = TOPOLOGIES[self.topology]
        if self.utilisation is not None:
            service = self.service_s or _UTILISED_SERVICE_S
            return replace(
                own, rate=max(1, round(self.utilisation * self.lanes / service)),
                service_s=service, service="exponential", heavy=0.0, slow=0.0,
            )  # fmt: skip
        given = {name: getattr(self, name) for name in ("rate", "heavy", "slow", "service_s")}
        return replace(own, **{name: v for name, v in given.items() if v is not None})

    def source(self, variant: str) -> dict[str, str]:
        """The options of the source for a variant.

        >>> Spec(batch=500).source("shared")
        {'dispatch': 'shared', 'maxOffsetsPerTrigger': '500', 'minOffsetsPerTrigger': '500'}
        """
        told = dict(VARIANTS[variant])
        if self.batch is not None:
            told |= dict.fromkeys(("maxOffsetsPerTrigger", "minOffsetsPerTrigger"), str(self.batch))
        if self.horizon_s is not None:
            told["horizon"] = f"{self.horizon_s} s"
        if told.get("dispatch") in BALANCING:
            told["balanceEvery"] = f"{self.balance_every_s} s"
        return told

    def options(self) -> dict[str, Any]:
        """All of it, for the record."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        pauses = self.pauses and {"every_s": self.pauses.every_s, "mean_s": self.pauses.mean_s}
        what = self.what
        return given | {"rate": what.rate, "service_s": what.service_s, "pauses": pauses}

"""What a reducer goes by, and what it tells."""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

LATE, CROWDED, CLOSED, WAITED = (
    "too late to be on time",
    "no time for all",
    "its window is closed",
    "waited too long",
)
"""Why rows were not worked on."""

BATCH = "streaming.sql.batchId"
"""The local property in which Spark tells tasks the number of their batch."""
WRITTEN = "taut.reduce.written"
"""The one in which the driver tells them which batch was out last, and when."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What the user has chosen.

    Attributes
    ----------
    objective
        Seconds from arrival until a row must be out; infinite without one.
    policy
        A name out of :data:`taut.policy.deadline.CHOICES`.
    late
        What becomes of rows that are not worked on in time: "side-output", "process" or "fail".
    patience
        Seconds after its arrival that a row is kept for, to be worked on when there is time.
    keep_bad
        Whether rows on which a function fails go to the side output.
    budget
        Bytes of memory for states.
    """

    objective: float = math.inf
    policy: str = "cost-aware"
    late: str = "side-output"
    patience: float = 0.0
    keep_bad: bool = False
    budget: float = math.inf

    @property
    def chooses(self) -> bool:
        """Whether some rows may not be worked on at once."""
        return self.objective < math.inf and self.policy != "fifo"

    @property
    def waits(self) -> bool:
        """Whether rows may be put by for later."""
        return self.patience > 0.0 and self.chooses


class Moment(msgspec.Struct, frozen=True):
    """Where a batch stands: when it was planned, and what has been heard of the one before."""

    batch: int
    stamp_us: int
    watermark_us: int = -(2**62)
    written: tuple[int, float] | None = None
    """A batch, and when it was out."""


class Stats(msgspec.Struct):
    """What a reducer tells of a batch."""

    reducer: int
    job: str
    batch: int
    began: float
    ended: float
    predicted: float
    rows: int = 0
    kept: int = 0
    readmitted: int = 0
    results: int = 0
    """Rows that came out."""
    shed: dict[str, int] = {}
    bad: int = 0
    waiting: int = 0
    deadlines: list[tuple[float, int]] = []
    """Of the rows that were worked on in their batch, and on which no function failed: deadlines,
    and how many rows have them."""
    shed_deadlines: list[tuple[float, int]] = []
    """Of the rows that were not, and do not wait."""
    hot: int = 0
    hot_bytes: int = 0
    cold: int = 0
    sought: int = 0
    row_us: float = 0.0
    cold_us: float = 0.0
    lead: float = 0.0
    after: float = 0.0

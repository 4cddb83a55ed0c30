"""What was measured of a job: batches, phase by phase, at a few settings. Kept in a file."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from taut.errors import ProfileError
from taut.planning import files
from taut.planning.settings import Cluster

FORMAT = 2
PHASES = ("plan", "log", "map", "reduce", "write", "after")
"""Of a micro-batch, in turn: finding offsets and planning; writing the offset log; the tasks that
read and map; those that reduce; the rest until its rows are written; and what follows until the
next one can start, such as the commit log."""
STALE_S = 30 * 86_400.0
LEAST_BATCHES = 4
"""In all: with fewer a slow one cannot be told from the rule."""


class Sample(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One batch: at which settings, how many rows in and out, the seconds of each phase.

    ``swept`` are the seconds by which the watermark went on with it: windows that ended in them are
    what came out. 0 where there is none, or where it is not known. ``filled`` are those of which
    the only open window has rows, and ``state_rows`` then are its keys; 0 where several are open.
    """

    lanes: int
    reducers: int
    rows: int
    out: int
    state_rows: int
    seconds: dict[str, float]
    swept: float = 0.0
    filled: float = 0.0

    @property
    def total(self) -> float:
        """From its start until the next batch can start."""
        return sum(self.seconds.values())


class Windows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When the windows of a job end, in seconds.

    Attributes
    ----------
    every, phase
        They end at ``phase`` after each multiple of ``every``.
    delay
        From their end until a row may show that it has passed: by how much the watermark is behind
        the newest row, and what rows need to arrive.
    apart
        Whether a row is in one of them alone.
    """

    every: float
    phase: float = 0.0
    delay: float = 0.0
    apart: bool = True

    def filled(self, first: float, watermark: float, newest: float) -> float:
        """Seconds of rows in the only open window; 0 if there are several, or none.

        Parameters
        ----------
        first, newest
            The times of the first row of all and of the newest.
        watermark
            Windows that end up to there are gone.

        >>> two = Windows(2.0)
        >>> two.filled(0.5, 6.1, 7.5), two.filled(6.5, 6.1, 7.5), two.filled(0.5, 5.9, 7.5)
        (1.5, 1.0, 0.0)
        """
        nth, last = (math.floor((at - self.phase) / self.every) for at in (watermark, newest))
        # before there is a watermark nothing is gone, nor has anything come before the first row
        nth = max(nth, math.floor((first - self.phase) / self.every))
        if not self.apart or nth != last:
            return 0.0
        return newest - max(first, nth * self.every + self.phase)


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The batches of one job on one cluster.

    Attributes
    ----------
    app
        What the job is called.
    windows
        When they end, if there are any: their results come a batch after their rows.
    taken
        When, in epoch seconds.
    dry
        Queries whose source ran out of rows before they had run the batches that they should have.
    """

    app: str
    spark: str
    executors: int
    cores: int
    samples: list[Sample]
    windows: Windows | None = None
    taken: float = 0.0
    dry: int = 0
    format: int = FORMAT

    @property
    def cluster(self) -> Cluster:
        """Where it was measured."""
        return Cluster(self.executors, self.cores)

    def merged(self, later: Profile | Iterable[Sample]) -> Profile:
        """With what was measured later, of the same job on the same cluster."""
        if not isinstance(later, Profile):
            samples = [*self.samples, *later]
            return msgspec.structs.replace(self, samples=samples, taken=time.time())
        for what in ("app", "spark", "executors", "cores", "windows"):
            mine, theirs = getattr(self, what), getattr(later, what)
            if mine != theirs:
                raise ProfileError(f"profiles of {what} {mine!r} and {theirs!r} cannot be merged")
        return msgspec.structs.replace(
            self,
            samples=[*self.samples, *later.samples],
            taken=max(self.taken, later.taken),
            dry=self.dry + later.dry,
        )

    def save(self, path: str | Path) -> None:
        """Write it, all of it or nothing."""
        files.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read one; what is damaged, or was written by another Taut, is refused."""
        return files.load(cls, path, "profile", FORMAT, ProfileError)

    def check(self, *, spark: str | None = None, now: float | None = None) -> None:
        """Refuse a profile that a plan cannot be made from."""
        if not self.samples:
            raise ProfileError(
                f"profile of {self.app!r} has no batch: did the source give any row?"
            )
        for sample in self.samples:
            whole = set(sample.seconds) == set(PHASES) and min(sample.seconds.values()) >= 0.0
            if not whole or not 0.0 < sample.total < math.inf or min(sample.rows, sample.out) < 0:
                raise ProfileError(f"profile of {self.app!r}: {sample} cannot have been measured")
        if self.windows is not None and not (self.windows.every > 0.0 <= self.windows.delay):
            raise ProfileError(
                f"profile of {self.app!r}: {self.windows}: windows end every so many seconds, "
                "above zero, and are seen after that"
            )
        if max(sample.rows for sample in self.samples) == 0:
            raise ProfileError(
                f"profile of {self.app!r}: no batch has a row, so what a row costs is unknown; "
                "profile it while its source has rows"
            )
        if len(self.samples) < LEAST_BATCHES:
            raise ProfileError(
                f"profile of {self.app!r} has {len(self.samples)} batches: at least "
                f"{LEAST_BATCHES} are needed"
            )
        check_taken(self.app, self.spark, self.taken, spark, now)


def check_taken(app: str, on: str, taken: float, spark: str | None, now: float | None) -> None:
    """Refuse what was measured on another Spark, or long ago."""
    if spark is not None and on != spark:
        raise ProfileError(
            f"profile of {app!r} was taken on Spark {on}, this is {spark}: take a new one"
        )
    now = time.time() if now is None else now
    if now - taken > STALE_S:
        raise ProfileError(
            f"profile of {app!r} is {(now - taken) / 86_400.0:.0f} days old: take a "
            "new one, or set its taken= if nothing has changed"
        )


def groups(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Batches that are alike: same settings, about as many rows in and out."""
    found: dict[tuple[int, ...], list[Sample]] = {}
    for sample in samples:
        size = sample.rows.bit_length(), sample.out.bit_length()
        found.setdefault((sample.lanes, sample.reducers, *size), []).append(sample)
    return list(found.values())


def typical(group: Sequence[Sample]) -> Sample:
    """The median of batches that are alike, phase by phase."""
    seconds = {
        phase: median(sample.seconds[phase] for sample in group) for phase in group[0].seconds
    }
    return msgspec.structs.replace(
        group[0],
        rows=round(median(sample.rows for sample in group)),
        out=round(median(sample.out for sample in group)),
        seconds=seconds,
    )

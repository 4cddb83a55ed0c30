"""Profiling: the real job runs at a few settings and sizes of batches, for a minute or two.

All of them take turns, some batches each: a machine that others use as well is slow for seconds at
a time, and what is tried in one go would have all of that or nothing.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from taut.errors import ProfileError
from taut.planning.profile import Profile, Sample, Windows
from taut.planning.settings import Settings
from taut.planning.trials import (
    BATCHES,
    CLOSER,
    CLOSER_BATCHES,
    CLOSER_TURN,
    CUT,
    SECONDS,
    TURN,
    closer,
    guesses,
    mixtures,
    sized,
    trials,
)
from taut.slo import Slo
from taut.spark.planning.app import App, cluster_of
from taut.spark.planning.meter import Stage, read_stages
from taut.spark.planning.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_WARM = CUT + 3
"""Batches of a run while it warms up, also if it takes longer than it should."""
_LEAST_TURNS = 2
"""That each query has, also if that takes longer than it should."""
_NEEDED = 4
"""Two settings with small and large batches: without them there is nothing to plan from."""
_AS_LONG = 2.0
"""Times what the needed ones took to begin, that has to be left for the others: some for turns."""
_AT_ONCE = 1.5
"""Times the rows that were asked for, from which on a batch was not made to keep to them."""
_WARM_UPS = 13.0
"""Of the seconds of a profile, the most that one of the runs of its warm-up takes is a part."""


@dataclass(frozen=True, slots=True)
class Step:
    """How profiling stands, for whoever watches."""

    doing: str
    done: int
    of: int
    batches: int


Watcher = Callable[[Step], None]


def take(
    spark: SparkSession,
    app: App,
    name: str,
    *,
    rate: float | None = None,
    slo: Slo | None = None,
    warm_up: float = 6.0,
    seconds: float = SECONDS,
    watch: Watcher = lambda step: None,
) -> Profile:
    """Profile an app, in about ``seconds``; on a slow machine it takes longer.

    Parameters
    ----------
    rate
        Rows a second that it is planned for: the first batches are of a quarter of a second and of
        two. How many rows the others have follows from how long those took.
    slo
        The objective that it is planned for: large batches are those that just meet it, and the
        last part of the time is for the settings that a plan would have.
    warm_up
        Seconds of each of the first runs, which are not counted: a JVM is slow at first, and how
        many rows large batches should have is found with them.
    seconds
        Stops after that, with fewer settings or batches if need be.
    """
    began = time.monotonic()
    warm_up = min(warm_up, seconds / _WARM_UPS)
    cluster = cluster_of(spark)
    most = mixtures(cluster)[0]
    windows: Windows | None = None
    dry = 0
    at_once: tuple[int, int] | None = None
    with _folder() as folder:

        def warmed(rows: int) -> list[Sample]:
            nonlocal windows, dry, at_once
            step = Step(f"warming up, {rows:,} rows a batch", 0, len(trials(cluster, rows)), 0)
            trial = Trial(spark, app, most.but(cap=rows), folder)
            try:
                trial.run(_LEAST_WARM, warm_up, lambda seen: watch(step))
                windows = trial.windows
                dry += trial.dry
                if at_once is None and trial.largest > _AT_ONCE * rows:
                    at_once = trial.largest, rows
                return trial.samples()[-3:]
            finally:
                trial.stop()

        large = sized(warmed, rate, slo.seconds if slo else None, lambda: windows is not None)
        if not large and at_once is not None:
            raise ProfileError(
                f"{name}: a batch had {at_once[0]:,} rows where {at_once[1]:,} at most were asked "
                "for, and too few came after it: the app has to read with settings.cap (several "
                "sources with a share of it each), and its source to hold a backlog"
            )
        if not large:
            raise ProfileError(
                f"{name}: its source had rows for {CUT + 1} batches of {guesses(rate)[0]:,} at "
                "most, and more are needed: does it hold a backlog, and does the app's sink write "
                "what it is given?"
            )

        with _Rounds(spark, app, folder, began, watch) as rounds:

            def so_far() -> Profile:
                return Profile(
                    app=name,
                    spark=spark.version,
                    executors=cluster.executors,
                    cores=cluster.cores,
                    samples=rounds.samples(),
                    windows=windows,
                    taken=time.time(),
                    dry=dry + sum(trial.dry for trial in rounds.trials),
                )

            first = seconds * (1.0 - CLOSER) if slo else seconds
            todo = trials(cluster, large)
            before = rounds.left(first)
            rounds.begin(todo[:_NEEDED])
            # in a new session all of that is slow, and would be again
            if rounds.left(first) > _AS_LONG * (before - rounds.left(first)):
                rounds.begin(todo[_NEEDED:])
            rounds.run(first, BATCHES)
            profile = so_far()
            last = closer(profile, slo, rate)
            if last is not None:
                rounds.look_closer(last, seconds)
                profile = so_far()
    return profile


@dataclass(slots=True)
class _Rounds:
    """Trials that take turns."""

    spark: SparkSession
    app: App
    folder: Path
    began: float
    watch: Watcher
    trials: list[Trial] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    since: float = field(default_factory=time.time)
    ends: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> _Rounds:
        return self

    def __exit__(self, *error: object) -> None:
        self.ends.close()

    def left(self, until: float) -> float:
        """Seconds, until so many have passed since profiling began."""
        return until - (time.monotonic() - self.began)

    def begin(self, settings: Sequence[Settings]) -> None:
        """Start queries, all at once, and wait until they have run the batches that are not taken.

        A new one starts processes and opens state stores, for seconds, and hardly needs the cores.
        """
        before = len(self.trials)
        for each in settings:
            trial = Trial(self.spark, self.app, each, self.folder, CUT)
            self.ends.callback(trial.stop)
            self.trials.append(trial)
        for trial in self.trials[before:]:
            self._tell(trial)
            trial.begun()

    def run(self, until: float, batches: int) -> None:
        """Turn by turn, until all have so many batches, or for so long if all have had a few."""
        turns = 0
        while turns * TURN < batches + CUT and (turns < _LEAST_TURNS or self.left(until) > 0.0):
            for trial in self.trials:
                if turns >= _LEAST_TURNS and self.left(until) <= 0.0:
                    return
                self._turn(trial, TURN)
            self._read()
            turns += 1

    def look_closer(self, settings: Settings, until: float) -> None:
        """One more, which has most of the turns from now on."""
        others = list(self.trials)
        self.begin([settings])
        last, nth = self.trials[-1], 0
        while last.seen < CLOSER_BATCHES + CUT and not last.dry:
            if self.left(until) <= 0.0 and last.seen >= CUT + _LEAST_TURNS * TURN:
                return
            self._turn(last, CLOSER_TURN)
            self._turn(others[nth % len(others)], TURN)
            nth += 1

    def samples(self) -> list[Sample]:
        """Of all of them."""
        self._read()
        return [sample for trial in self.trials for sample in trial.samples(self.stages)]

    def _read(self) -> None:
        """Stages since it was last read: Spark forgets old ones. All queries are held now."""
        now = time.time()
        self.stages += read_stages(self.spark, self.since)
        self.since = now

    def _turn(self, trial: Trial, batches: int) -> None:
        if not trial.dry:
            self._tell(trial)
            trial.turn(batches)

    def _tell(self, trial: Trial) -> None:
        done = sum(one.seen > CUT for one in self.trials)
        seen = sum(one.seen for one in self.trials)
        self.watch(Step(f"{trial.settings}", done, len(self.trials), seen))


@contextmanager
def _folder() -> Iterator[Path]:
    """For checkpoints, as long as they are needed."""
    folder = Path(tempfile.mkdtemp(prefix="taut-profile-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

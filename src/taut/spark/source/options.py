"""The options of a Taut source, read from the text that Spark carries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from taut.duration import seconds
from taut.errors import DurationError, StartError
from taut.policy.admission import Limits, Spend
from taut.policy.backlog import ADMISSIONS, EGRESSES, TAU
from taut.policy.balance import PERIOD
from taut.policy.chunking import Chunking, FixedSize, Guided
from taut.policy.dealing import DISPATCHES, Dispatch
from taut.policy.timeout import REPLAYS, AdaptiveTimeout, Replay
from taut.spark.source.follower import OPTION as CONTROL
from taut.spark.source.logs import OPTIONS

if TYPE_CHECKING:
    from taut.spark.source.operators import Chain

NAMES = (
    "lanes", "dispatch", "balanceEvery", "replay", "replayBudget", "admission", "egress",
    "egressEvery", "chunk", "timing", "horizon", "startingOffsets", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "failOnDataLoss", "host", "beat", "silence",
)  # fmt: skip
"""What a source of any log takes; ``lanes`` and ``host`` have better defaults in ``taut.read``."""
_CARRIED = ("log", "operators", "arrowschema", CONTROL)
"""What ``taut.read`` adds itself."""
_BATCH_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "admission")
_ONLY_WITH = {
    "balanceEvery": ("dispatch", ("balance", "two-choices")),
    "replayBudget": ("replay", ("adaptive",)),
    "egressEvery": ("egress", ("largest-backlog", "round-robin")),
}
"""Options that say how another one does what it does."""
_RESIDENT_ONLY = ("horizon",)
_ALONE = ("fixed", "shared", "executor", "none", "all", "buffered")
"""What a single lane can do."""
_STARTS = ("earliest", "latest")
_RESIDENT_CHUNK = 0.01
"""Seconds that a resident lane works on a chunk: none of its rows is out before all are."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How a Taut source takes rows from its log.

    ``start`` is ``"earliest"``, ``"latest"`` or offsets by partition.
    """

    lanes: int = 2
    dispatch: str = "shared"
    balance_every: float = PERIOD
    replay: str = "none"
    replay_budget: float = 0.03
    admission: str = "proportional"
    egress: str = "all"
    egress_every: float = TAU
    chunk: int | None = None
    limits: Limits = field(default_factory=Limits)
    start: str | Mapping[str, int] = "latest"
    fail_on_data_loss: bool = True
    host: str = "127.0.0.1"
    beat: float = 1.0
    silence: float = 5.0
    timing: str = "batch"
    horizon: float | None = None

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise StartError(f"lanes={self.lanes}: at least 1 is needed")
        for name, known in (
            ("dispatch", DISPATCHES),
            ("replay", REPLAYS),
            ("admission", ADMISSIONS),
            ("egress", EGRESSES),
        ):
            if getattr(self, name) not in known:
                raise StartError(
                    f"{name}={getattr(self, name)!r} is not known; one of: {', '.join(known)}"
                )
        self._refuse_contradictions()
        if self.timing not in ("batch", "resident"):
            raise StartError(f"timing={self.timing!r}: must be batch or resident")
        if self.horizon is not None and not self.horizon >= 1.0:
            raise StartError(f"horizon={self.horizon} s: at least 1 s is needed")
        if self.timing == "resident" and not isinstance(self.start, str):
            raise StartError(
                "timing='resident' starts at a time: startingOffsets must be earliest or latest"
            )
        if not 0.0 < self.beat < self.silence:
            raise StartError(
                f"beat={self.beat} s, silence={self.silence} s: a lane must be able to "
                "miss a beat, so 0 < beat < silence"
            )

    def _refuse_contradictions(self) -> None:
        if self.dispatch == "two-choices" and self.timing == "batch":
            raise StartError(
                "dispatch='two-choices' needs timing='resident': it chooses for each row as it "
                "arrives, and those of a batch are all there; for batches take 'balance'"
            )
        for name, needs in (
            ("dispatch", "to give rows to"),
            ("replay", "to give rows to"),
            ("egress", "to take turns with"),
        ):
            given = getattr(self, name)
            if self.lanes == 1 and given not in _ALONE:
                raise StartError(f"{name}={given!r} needs another lane {needs}: lanes=1 has none")
        for name, given in (
            ("balanceEvery", self.balance_every),
            ("egressEvery", self.egress_every),
        ):
            if not 0.001 <= given <= 3_600.0:
                raise StartError(f"{name}={given} s: 1 ms to 1 h is needed")
        if not 0.0 < self.replay_budget <= 1.0:
            raise StartError(
                f"replayBudget={self.replay_budget}: the share of the chunks that may be issued "
                "twice is needed, above 0 and at most 1, such as 0.03"
            )

    def refuse_sinkless(self, chain: Chain) -> None:
        """Refuse an egress where there is nothing that lanes send."""
        if self.egress != "all" and chain.sink is None:
            raise StartError(
                f"egress={self.egress!r} decides which lane's sink may write: give the stream one "
                "with .to(sink), or leave egress out"
            )

    def dispatching(self) -> Dispatch:
        """Who takes which rows."""
        return Dispatch(self.dispatch, self.balance_every)

    def replaying(self) -> Replay:
        """Which chunks are issued twice."""
        if self.replay == "adaptive":
            return AdaptiveTimeout(budget=self.replay_budget)
        return REPLAYS[self.replay]()

    def admitting(self) -> Spend:
        """Which partitions a batch takes its rows from, when it may not take all."""
        return ADMISSIONS[self.admission]()

    def chunking(self, stride: int = 1) -> Chunking:
        """How large chunks are, where a row takes ``stride`` offsets.

        Resident lanes take what there is, down to a single row.
        """
        if self.chunk is not None:
            return FixedSize(self.chunk)
        if self.timing == "batch":
            return Guided(4 * stride, 10_000 * stride)
        return Guided(stride, 1_000 * stride, share=1.0, shortest=0.0, longest=_RESIDENT_CHUNK)

    @classmethod
    def parse(cls, given: Mapping[str, str], *, steered: bool = False) -> SourceOptions:
        """From the options of a data source; Spark hands their names over in lower case.

        A source that is ``steered`` may be given a limit while it runs.

        >>> SourceOptions.parse({"lanes": "4", "maxoffsetspertrigger": "100"}).limits.most
        100
        """
        options = {k.lower(): v for k, v in given.items()}
        _refuse_idle(options)
        _refuse_unlimited(options, steered or CONTROL in options)
        chunk = options.get("chunk", "guided")
        most = options.get("maxoffsetspertrigger")
        horizon = options.get("horizon", "auto")
        try:
            limits = Limits(
                None if most is None else _whole("maxOffsetsPerTrigger", most),
                _whole("minOffsetsPerTrigger", options.get("minoffsetspertrigger", "0")),
                _seconds("maxTriggerDelay", options.get("maxtriggerdelay", "15 min")),
            )
        except ValueError as error:
            raise StartError(str(error)) from error
        return cls(
            lanes=_whole("lanes", options.get("lanes", "2")),
            dispatch=options.get("dispatch", "shared"),
            balance_every=_seconds("balanceEvery", options.get("balanceevery", str(PERIOD))),
            replay=options.get("replay", "none"),
            replay_budget=_share("replayBudget", options.get("replaybudget", "0.03")),
            admission=options.get("admission", "proportional"),
            egress=options.get("egress", "all"),
            egress_every=_seconds("egressEvery", options.get("egressevery", str(TAU))),
            chunk=None if chunk == "guided" else _whole("chunk", chunk),
            limits=limits,
            start=_start(options.get("startingoffsets", "latest")),
            fail_on_data_loss=_truth("failOnDataLoss", options.get("failondataloss", "true")),
            host=options.get("host", "127.0.0.1"),
            beat=_seconds("beat", options.get("beat", "1 s")),
            silence=_seconds("silence", options.get("silence", "5 s")),
            timing=options.get("timing", "batch"),
            horizon=None if horizon == "auto" else _seconds("horizon", horizon),
        )


def refuse_unknown(given: Mapping[str, str]) -> None:
    """Refuse options that nothing reads: most are others with a letter too few.

    >>> refuse_unknown({"log": "files", "path": "in", "maxOffsetPerTrigger": "9"})
    Traceback (most recent call last):
    taut.errors.StartError: option maxOffsetPerTrigger='9' is not known: maxOffsetsPerTrigger?
    """
    kind = {k.lower(): v for k, v in given.items()}.get("log", "")
    names = (*NAMES, *OPTIONS.get(kind, ()))
    known = {name.lower(): name for name in (*names, *_CARRIED)}
    for name, value in given.items():
        if name.lower() in known or ("kafka.*" in names and name.lower().startswith("kafka.")):
            continue
        near = get_close_matches(name.lower(), known, n=1)
        meant = f"{known[near[0]]}?" if near else f"a {kind} log takes {', '.join(names)}"
        raise StartError(f"option {name}={value!r} is not known: {meant}")


def _refuse_idle(options: Mapping[str, str]) -> None:
    """Refuse options that mean nothing in the timing that was chosen."""
    resident = options.get("timing") == "resident"
    for name in _BATCH_ONLY if resident else _RESIDENT_ONLY:
        if name.lower() in options:
            needs, why = (
                ("batch", "a resident one takes all that arrives")
                if resident
                else ("resident", "a batch takes what has arrived, and ends")
            )
            raise StartError(
                f"option {name}={options[name.lower()]!r} needs timing={needs!r}: {why}"
            )
    for name, (other, values) in _ONLY_WITH.items():
        if name.lower() in options and options.get(other) not in values:
            raise StartError(
                f"option {name}={options[name.lower()]!r} needs {other}="
                f"{' or '.join(repr(value) for value in values)}: nothing else has use for it"
            )


def _refuse_unlimited(options: Mapping[str, str], steered: bool) -> None:
    """Refuse a choice of what to take where all is taken."""
    chosen = options.get("admission") in ADMISSIONS
    if chosen and "maxoffsetspertrigger" not in options and not steered:
        raise StartError(
            f"option admission={options['admission']!r} needs maxOffsetsPerTrigger: without it "
            "batches take all that waits, and there is nothing to choose"
        )


def _seconds(name: str, given: str) -> float:
    """A duration; a number alone is in seconds, though Spark carries it as text."""
    try:
        return seconds(float(given) if given.replace(".", "", 1).isdigit() else given)
    except DurationError as error:
        raise StartError(f"option {name}: {error}") from None


def _whole(name: str, given: str) -> int:
    try:
        return int(given)
    except ValueError:
        raise StartError(f"option {name}={given!r}: a whole number is needed") from None


def _share(name: str, given: str) -> float:
    try:
        return float(given)
    except ValueError:
        raise StartError(f"option {name}={given!r}: a share such as 0.03 is needed") from None


def _truth(name: str, given: str) -> bool:
    if given.lower() not in ("true", "false"):
        raise StartError(f"option {name}={given!r}: true or false is needed")
    return given.lower() == "true"


def _start(given: str) -> str | dict[str, int]:
    if given in _STARTS:
        return given
    try:
        found = json.loads(given)
        return {str(p): int(offset) for p, offset in found.items()}
    except (ValueError, AttributeError, TypeError):
        raise StartError(
            f"option startingOffsets={given!r}: earliest, latest, or offsets by partition "
            """such as '{"0": 23, "1": -2}' (-2 is earliest, -1 latest)"""
        ) from None

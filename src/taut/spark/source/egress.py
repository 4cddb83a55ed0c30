"""Egress: the lanes of an executor that write through one narrow place go one at a time.

Rows that a lane has to write wait in its outbox, and every ``tau`` seconds the lane with the
largest backlog, or by another policy the next one, gets the signal. Three rules:

- The *agent*, a thread in the process of one of the lanes, gives the signal to the lane that the
  policy picks, every ``tau``. It looks past lanes that have nothing to write, that are dead, or
  that were not heard for a second (a sink that hangs), and lets a lane that has waited for longer
  than that go first.
- A signal whose lane has nothing to write is free. A lane that waits takes it at once if the
  policy would pick it now, without the agent: a lane that is alone waits for nobody.
- An agent that is not heard any more leaves all lanes free to write, and one of them takes its
  place. There is none until two lanes have something to write at the same time.

The signal is advice. Two lanes that write at once, because a write was under way when the signal
went on, or because two saw it free in the same moment, do no harm to each other; and nothing here
may stop a stream: whatever goes wrong with the signal, lanes write when they like.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from taut.policy.backlog import EGRESSES, TAU, Signals
from taut.spark.source.outbox import Free, Gate, Outbox
from taut.spark.source.signals import Board

__all__ = ["Gate", "Outbox", "SharedGate", "chosen", "gate"]

log = logging.getLogger("taut")

_SECOND = 1_000_000_000
_warned = False


class SharedGate:
    """The gate of a lane that shares an egress with the others on its board.

    Parameters
    ----------
    board
        Where its lane has a slot; left when the gate is closed.
    policy
        Makes what picks among lanes that wait. It is made anew for each pick, and sees these lanes
        from the one after the last on, so that the first of them is the next in turn.
    tau
        Seconds after which the signal is given anew.
    clock
        Nanoseconds, the same for all processes of the machine.
    """

    def __init__(
        self,
        board: Board,
        policy: Callable[[], Signals],
        tau: float = TAU,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._board = board
        self._policy = policy
        self._tau = tau
        self._clock = clock
        self._gone = int(max(5.0 * tau, 0.25) * _SECOND)
        self._silent = int(max(20.0 * tau, 1.0) * _SECOND)
        self._rows = self._since = 0
        self._over = threading.Event()
        self._agent: threading.Thread | None = None

    def waits(self, rows: int) -> None:
        """So many rows wait now."""
        self._rows = rows
        self._board.say(rows, self._clock(), self._since)

    def open(self) -> bool:
        """Whether this lane has the signal, or nobody gives it out."""
        now = self._clock()
        mine = self._take(now)
        if not mine and self._leaderless(now):
            mine = not self._elected(now) and self._leaderless(now)
        self._since = 0 if mine else self._since or now
        self._board.say(self._rows, now, self._since)
        return mine

    def close(self) -> None:
        """Leave the board; again is harmless."""
        self._over.set()
        if self._agent is not None:
            self._agent.join(1.0)  # a policy that hangs is not waited for
        self._board.leave()

    def give(self) -> None:
        """What the agent does every ``tau``: give the signal to a lane that waits, if one does."""
        now = self._clock()
        self._board.beat = now
        heard = now - self._silent
        waiting = self._board.waiting(heard)
        for slot in [slot for slot in waiting if not self._board.alive(slot)]:
            self._board.forget(slot)
            del waiting[slot]
        since = {slot: self._board.since(slot) for slot in waiting}
        starved = [slot for slot in waiting if 0 < since[slot] < heard]
        if starved:
            self._board.signal = min(starved, key=since.__getitem__)
        elif waiting:
            self._board.signal = chosen(waiting, self._board.signal, self._policy())

    def _take(self, now: int) -> bool:
        """Whether this lane has the signal, after taking it if it was free and is due to it."""
        holder, own = self._board.signal, self._board.slot
        if holder == own:
            return True
        waiting = self._board.waiting(now - self._silent) | {own: self._rows}
        if holder in waiting or chosen(waiting, holder, self._policy()) != own:
            return False
        self._board.signal = own
        return True

    def _leaderless(self, now: int) -> bool:
        return not self._board.beat or now - self._board.beat > self._gone

    def _elected(self, now: int) -> bool:
        """Become the agent, unless another lane is."""
        if self._agent is not None or not self._board.stand(now):
            return False
        self._agent = threading.Thread(target=self._serve, name="taut-egress-agent", daemon=True)
        self._agent.start()
        return True

    def _serve(self) -> None:
        try:
            while not self._over.wait(self._tau):
                self.give()
        except Exception as error:
            # a policy may raise anything; unheard, but still the agent, it leaves all lanes free
            log.warning("egress: lanes write when they like, the policy failed: %r", error)


def chosen(waiting: Mapping[int, int], last: int | None, signals: Signals) -> int | None:
    """The lane that is to write next, of those with so many rows, after the last one.

    >>> from taut.policy.backlog import LargestBacklog, RoundRobinSignal
    >>> waiting = {1: 5, 4: 2, 7: 3}
    >>> chosen(waiting, 4, LargestBacklog()), chosen(waiting, 4, RoundRobinSignal())
    (1, 7)
    """
    order = sorted(waiting, key=lambda slot: (last is not None and slot <= last, slot))
    picked = signals.pick([waiting[slot] for slot in order])
    return None if picked is None else order[picked]


def gate(
    key: str, executor: str, egress: str, tau: float = TAU, folder: Path | None = None
) -> Gate:
    """A lane's gate among the lanes that name the same key and executor.

    One that is always open, with a warning, where they cannot have a board.
    """
    global _warned  # noqa: PLW0603  once a process: a worker runs one lane after another
    if egress not in EGRESSES:
        raise ValueError(f"egress={egress!r} is not known; one of: {', '.join(EGRESSES)}")
    if not tau > 0.0:
        raise ValueError(f"tau={tau} s: more than 0 is needed")
    policy = EGRESSES[egress]
    if policy is None:
        return Free()
    try:
        return SharedGate(Board(key, executor, folder), policy, tau)
    except (OSError, ImportError) as error:  # Windows has no fcntl
        if not _warned:
            _warned = True
            log.warning("egress=%s: lanes write when they like, without a board: %s", egress, error)
        return Free()

"""A lane's pulse: it says that the lane lives, and hears when a chunk is not worth working on.

Where chunks are issued twice, the lane that is second would work on for nothing, and a batch would
wait for it. Its function is interrupted as by Ctrl-C: a signal to the main thread of the worker
raises :class:`taut.Abandoned` there, also in the middle of a call that waits for another machine.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self, TypeVar

from taut.errors import Abandoned
from taut.spark.source.connection import Connection, Place
from taut.spark.source.protocol import Beat, Heard, Reply

T = TypeVar("T")
_SIGNAL = signal.SIGUSR1
_AFTER_IMPORT = 0.02
"""Seconds after which a function is interrupted that was importing something."""


class Pulse:
    """The pulse of one attempt of a lane, in a thread of its own."""

    def __init__(self, place: Place, number: int, attempt: int) -> None:
        self._place = place
        self._number = number
        self._attempt = attempt
        self._over = threading.Event()
        self._lost: frozenset[int] = frozenset()
        self._current: int | None = None
        self._begun = threading.Event()
        self._main = threading.main_thread().ident
        self._thread = threading.Thread(target=self._run, name=f"taut-beat-{number}", daemon=True)

    def __enter__(self) -> Self:
        if self._place.replays:
            _arm(self)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._begun.set()
        _disarm(self)

    def begin(self) -> None:
        """The lane has joined: it can be heard from now on."""
        self._begun.set()

    def lost(self, chunk: int) -> bool:
        """Whether another lane has finished a chunk, as far as is known here."""
        return chunk in self._lost

    def work(self, chunk: int, do: Callable[[], T]) -> T | None:
        """What ``do`` gives; None when another lane finished the chunk before."""
        try:
            self._current = chunk
            # whoever hears of it from now on sees what is worked on, and sends a signal
            done = None if chunk in self._lost else do()
            self._current = None
        except Abandoned:
            self._current = None
            if chunk not in self._lost:
                raise  # a function's own
            return None
        except BaseException:
            # nobody is to be interrupted in what follows an error
            self._current = None
            raise
        return done

    def interrupt(self, frame: FrameType | None) -> None:
        """In the main thread, at any moment of it; not in the middle of an import.

        A module that is half imported is broken for as long as the process lives.
        """
        if self._current not in self._lost:
            return
        if _importing(frame):
            threading.Timer(_AFTER_IMPORT, self._send).start()
        else:
            raise Abandoned(f"another lane has finished chunk {self._current}")

    def _run(self) -> None:
        connection = Connection(self._place)
        # whether the last answer was held until there was news, or it was time; where chunks may
        # be lost the first is asked for as soon as the lane is known
        held = self._place.replays and self._begun.wait(self._place.beat)
        while not self._over.wait(0.0 if held else self._place.beat):
            held = False
            # refused (it may come before the lane has joined) or not heard: the lane itself will
            # learn of it when it asks, and until then says that it lives
            with contextlib.suppress(OSError):
                known = tuple(sorted(self._lost))
                reply: Reply = connection.ask(
                    Beat(self._place.batch, self._number, self._attempt, known)
                )
                if isinstance(reply, Heard):
                    held = self._place.replays
                    self._hear(reply)
        connection.close()

    def _hear(self, heard: Heard) -> None:
        news = frozenset(heard.lost) - self._lost
        # those that are no longer open are not told again
        self._lost = frozenset(heard.lost)
        if self._current in news:
            self._send()

    def _send(self) -> None:
        if self._current in self._lost and _armed is self and self._main is not None:
            signal.pthread_kill(self._main, _SIGNAL)


_armed: Pulse | None = None


def _arm(pulse: Pulse) -> None:
    """Let signals interrupt this lane, if it runs where signals are handled."""
    global _armed  # noqa: PLW0603 -- a process has one handler of a signal
    if threading.current_thread() is not threading.main_thread():
        return
    handler = signal.getsignal(_SIGNAL)
    if handler is signal.SIG_DFL:
        # for good: a signal that is under way when a lane ends must find a handler
        signal.signal(_SIGNAL, _handle)
    elif handler is not _handle:
        return  # somebody else's: a lane works on to the end of its chunk
    _armed = pulse


def _disarm(pulse: Pulse) -> None:
    global _armed  # noqa: PLW0603
    if _armed is pulse:
        _armed = None


def _handle(number: int, frame: FrameType | None) -> None:
    if _armed is not None:
        _armed.interrupt(frame)


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False

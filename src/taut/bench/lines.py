"""Progress in one line that keeps itself current, or as plain lines where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console

_LINE_EVERY_S = 10.0


class Stage(Protocol):
    """Where a benchmark is: round 0 is the warm-up."""

    @property
    def round(self) -> int: ...
    @property
    def variant(self) -> str: ...
    @property
    def phase(self) -> str: ...


Now = TypeVar("Now", bound=Stage)


@contextmanager
def live(console: Console, words: Callable[[Now], list[str]]) -> Iterator[Callable[[Now], None]]:
    """Something to tell how a run stands, in these words after what runs."""
    if not console.is_terminal or console.is_dumb_terminal:
        lines = Lines(console)
        yield lambda now: lines.tell(
            (now.round, now.variant, now.phase), [*_stage(now), *words(now)]
        )
        return
    from rich.markup import escape

    with console.status("starting Spark") as status:
        yield lambda now: status.update(escape(", ".join([*_stage(now), *words(now)])))


def _stage(now: Stage) -> list[str]:
    return [f"round {now.round}" if now.round else "warm-up", f"{now.variant}: {now.phase}"]


class Lines:
    """One line whenever ``phase`` changes, and one every ten seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: Hashable = None
        self._begun = self._at = time.monotonic()

    def tell(self, phase: Hashable, words: list[str]) -> None:
        """Say it, or leave it out."""
        moment = time.monotonic()
        if phase == self._last and moment - self._at < _LINE_EVERY_S:
            return
        self._last, self._at = phase, moment
        clock = f"{moment - self._begun:5.0f} s  "
        self._console.print(clock + ", ".join(words), highlight=False, markup=False, soft_wrap=True)

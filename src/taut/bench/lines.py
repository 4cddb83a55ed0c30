"""Progress as plain lines, for where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

_LINE_EVERY_S = 10.0


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
        self._console.print(clock + ", ".join(words), highlight=False, soft_wrap=True)

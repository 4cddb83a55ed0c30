"""A process that takes what it can get of a machine: ``python -m taut.bench.rival``.

It compresses without end, and ends when its standard input does.
"""

from __future__ import annotations

import random
import sys
import threading
import zlib

_BYTES, _WORDS = 1 << 20, 4_096


def text(seed: int = 1) -> bytes:
    """Something to compress that takes a while: words at random out of a few thousand."""
    drawn = random.Random(seed)
    words = [drawn.randbytes(drawn.randint(2, 9)) for _ in range(_WORDS)]
    return b" ".join(drawn.choices(words, k=_BYTES // 6))


def main() -> None:
    """Compress until the input ends."""
    over = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        over.set()

    threading.Thread(target=listen, daemon=True).start()
    given = text()
    while not over.is_set():
        zlib.compress(given, 9)


if __name__ == "__main__":
    main()

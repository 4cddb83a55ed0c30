"""``python -m taut``."""

from __future__ import annotations

from taut.cli import main

if __name__ == "__main__":
    main()

"""What a failure is called where there is room for a line or two."""

from __future__ import annotations

MOST = 400
"""Characters."""
_TRACEBACK = "Traceback (most recent call last)"
_DEBUG = "\n=== Streaming Query ==="
"""From there on Spark tells offsets and plans."""
_BETWEEN = ("During handling", "The above exception", "at ", "Caused by", "JVM ", "Driver stack")


def first_line(text: str) -> str:
    """The first line with anything on it."""
    return next((line for line in text.splitlines() if line.strip()), text).strip()


def in_short(error: str) -> str:
    """An error for those who watch: what was raised, then where; tracebacks are for the log.

    >>> in_short("sink raised on batch 1: OSError: no space")
    'sink raised on batch 1: OSError: no space'
    >>> in_short('''sink raised on batch 1: PythonException:
    ...   An exception was thrown from the Python worker:
    ... Traceback (most recent call last):
    ...   File "app.py", line 39, in boom
    ...     raise ValueError("bad")
    ... ValueError: bad
    ... ''')
    'ValueError: bad (sink raised on batch 1: PythonException)'
    """
    error = error.partition(_DEBUG)[0]
    head, found, traces = error.partition(_TRACEBACK)
    where = first_line(head).rstrip(": ")
    # of several the last was raised by the code that is furthest inside, or handled the others
    last = traces.rpartition(_TRACEBACK)[2]
    raised = next(
        (
            line.strip()
            for line in last.splitlines()[1:]
            if line.strip() and not line[0].isspace() and not line.startswith(_BETWEEN)
        ),
        None,
    )
    if not found or raised is None:
        return _cut(where if found else first_line(error), MOST)
    said = _cut(raised, MOST * 3 // 4)
    return f"{said} ({_cut(where, MOST // 4)})" if where else said


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

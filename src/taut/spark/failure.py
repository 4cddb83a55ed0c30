"""What a failure is called where there is room for a line or two."""

from __future__ import annotations

MOST = 400
"""Characters."""
_TRACEBACK = "Traceback (most recent call last)"
_BETWEEN = ("Traceback", "During handling", "The above exception", "at ", "Caused by", "JVM ")


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
    head, found, trace = error.partition(_TRACEBACK)
    where = first_line(head).rstrip(": ")
    raised = [
        line.strip()
        for line in trace.splitlines()[1:]
        if line.strip() and not line[0].isspace() and not line.startswith(_BETWEEN)
    ]
    if not found or not raised:
        return _cut(where if found else first_line(error), MOST)
    last = _cut(raised[-1], MOST * 3 // 4)
    return f"{last} ({_cut(where, MOST // 4)})" if where else last


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"

"""How far a command is, on a terminal and elsewhere."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from taut.progress import bar


def test_without_a_terminal_each_text_is_a_line_once() -> None:
    out = StringIO()
    with bar(Console(file=out, width=200)) as tell:
        tell(0, 2, "first [of them]")
        tell(0, 2, "first [of them]")
        tell(1, 2, "second")
    assert out.getvalue() == "0 of 2: first [of them]\n1 of 2: second\n"


def test_a_terminal_has_a_bar_that_goes_on() -> None:
    out = StringIO()
    with bar(Console(file=out, width=100, force_terminal=True, color_system=None)) as tell:
        tell(1, 4, "first [of them]")
        tell(4, 4, "second")
    last = out.getvalue().replace("\x1b[?25h", "").rstrip().splitlines()[-1]
    assert "4/4" in last
    assert "second" in last
    assert "0:00:0" in last

"""A recorded run as one page that can be mailed, and two side by side.

>>> from taut.watch.recorded import load
>>> from taut.watch.report import figures, report
>>> run = load("runs/2026-11-17")                                       # doctest: +SKIP
>>> page = report(run, figures(run))                                    # doctest: +SKIP
"""

from __future__ import annotations

from taut.watch.report.compare import compare
from taut.watch.report.figures import RunFigures, figures
from taut.watch.report.page import report

__all__ = ["RunFigures", "compare", "figures", "report"]

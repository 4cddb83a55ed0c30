"""``python machines_driver.py FOLDER``: a short benchmark on two unequal machines.

Leaves FOLDER/lanes.json.
"""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

from taut.bench.cluster import Machine
from taut.bench.lanes import measure, run
from taut.bench.lanes.spec import Spec

MACHINES = [Machine(1, cores=0.6, rivals=1), Machine(1, cores=0.6)]


def main(folder: Path) -> None:
    spec = Spec("balance-b", "batch", lanes=2, rate=100, seconds=3.0, warm_up_s=2.0, pauses=None)
    with (
        patch.object(measure, "machines", lambda *_, **__: MACHINES),
        patch.object(run, "_LEAD_S", 2.0),
    ):
        record, _ = measure.bench(spec, ["speculation"], 1, print, print)
    record.write(folder / "lanes.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

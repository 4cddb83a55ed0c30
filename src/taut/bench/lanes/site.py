"""Where the runs of a benchmark happen: this machine, or a cluster; one application or several."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from taut.bench.cluster import Cluster, Machine, cluster
from taut.bench.lanes.spec import SPECULATION
from taut.bench.place import Place, application, bench_folder
from taut.bench.record import BenchError

SPECULATING = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.75",
}
"""A copy of a task once three quarters have ended and it takes half as long again as their median.
That is what Spark took before version 4, which waits for nine tenths and three times as long."""
_ON_A_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
    "spark.pyspark.python": sys.executable,
}
_EXECUTORS_WITHIN_S = 180.0


class Site:
    """Gives a place to run a variant at.

    Parameters
    ----------
    own
        Whether each run has an application of its own: speculation is a setting of one, and others
        are to be as fresh.
    """

    def __init__(self, folder: Path, master: str, cluster: Cluster | None, own: bool) -> None:
        self._folder = folder
        self._master = master
        self._cluster = cluster
        self._own = own
        self._place: Place | None = None
        self._stack = contextlib.ExitStack()

    def place(self, variant: str) -> tuple[Place, bool]:
        """A place for a run, and whether nothing has run there yet."""
        if self._place is not None and not self._own:
            return self._place, False
        self.close()
        conf = {} if self._cluster is None else dict(_ON_A_CLUSTER)
        if variant == SPECULATION:
            conf |= SPECULATING
        self._place = self._stack.enter_context(application(self._folder, self._master, conf))
        if self._cluster is not None:
            _await_executors(self._place, len(self._cluster.machines))
        return self._place, True

    @property
    def conditions(self) -> Callable[[], AbstractContextManager[None]] | None:
        """What makes machines as slow and as busy as they are to be, once lanes run on them."""
        return None if self._cluster is None else self._cluster.as_told

    def close(self) -> None:
        """Stop the application, if there is one."""
        self._stack.close()
        self._place = None


@contextlib.contextmanager
def site(lanes: int, machines: Sequence[Machine] | None, own: bool) -> Iterator[Site]:
    """A site with these machines, or on this one."""
    with bench_folder() as folder, contextlib.ExitStack() as stack:
        started = None if machines is None else stack.enter_context(cluster(folder, machines))
        master = f"local[{lanes}]" if started is None else started.address
        made = Site(folder, master, started, own)
        stack.callback(made.close)
        yield made


def _await_executors(place: Place, wanted: int) -> None:
    # PySpark does not tell; names of the JVM are found at run time
    context: Any = place.spark.sparkContext._jsc
    limit = time.monotonic() + _EXECUTORS_WITHIN_S
    # the driver is among them
    while (there := context.sc().getExecutorMemoryStatus().size() - 1) < wanted:
        if time.monotonic() > limit:
            raise BenchError(f"{there} of {wanted} executors came within {_EXECUTORS_WITHIN_S:g} s")
        time.sleep(0.1)

"""A SparkSession whose fixed cost per micro-batch is low.

A micro-batch pays for its bookkeeping even when it has no rows: an entry in the offset log, one
in the commit log, a state file per partition, a task per partition. :data:`SETTINGS` lowers that,
one setting at a time; ``docs/session.md`` has what each was measured to save, and what it trades.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from taut.doctor import check_environment
from taut.errors import EnvironmentProblem
from taut.spark.java import use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MOST_PARTITIONS = 8
"""The cap on shuffle partitions: each costs a task and a state file in every batch."""

CHECKSUMS = "spark.taut.local.writeChecksums"
"""Taut's own setting: whether the local file system writes a ``.crc`` beside each file."""

_STREAMING = "org.apache.spark.sql.execution.streaming"
_HAS_AFFINITY = hasattr(os, "sched_getaffinity")
_LOCAL_MASTER = re.compile(r"local(?:\[\s*(\*|[0-9]+)\s*(?:,\s*[0-9]+\s*)?\])?")


@dataclass(frozen=True, slots=True)
class Setting:
    """A default of :func:`session`.

    ``local_only`` settings are left out unless the master is ``local``: they are about files and
    sockets of one machine.
    """

    key: str
    value: str
    why: str
    local_only: bool = False


SETTINGS: tuple[Setting, ...] = (
    Setting(
        "spark.sql.streaming.checkpointFileManagerClass",
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager",
        "Spark's default starts eight readlink processes for each checkpoint file it renames.",
        local_only=True,
    ),
    Setting(
        CHECKSUMS,
        "false",
        "Each .crc file is one more file, and one more chmod process, per checkpoint file.",
        local_only=True,
    ),
    Setting(
        "spark.sql.streaming.stateStore.providerClass",
        f"{_STREAMING}.state.RocksDBStateStoreProvider",
        "State outgrows the Java heap without long pauses; transformWithState needs it.",
    ),
    Setting(
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
        "true",
        "A commit writes the changes of the batch; without it, a snapshot of RocksDB's files.",
    ),
    Setting(
        "spark.sql.codegen.cache.maxEntries",
        "10000",
        "Many queries have more than 100 pieces of generated code; past that each batch of each "
        "query compiles its own anew.",
    ),
    Setting(
        "spark.buffer.pageSize",
        "1m",
        "Every hash table of every task takes a page; Spark's own default is up to 64 MB of it.",
    ),
    Setting(
        "spark.python.unix.domain.socket.enabled",
        "true",
        "Over TCP a Python worker's last rows wait some 40 ms for the kernel's delayed "
        "acknowledgement, in every stage with Python in it.",
    ),
    Setting(
        "spark.ui.enabled",
        "false",
        "Spark's page keeps every job, stage and batch in memory.",
    ),
    Setting("spark.ui.showConsoleProgress", "false", "A progress bar per micro-batch is noise."),
    Setting("spark.log.level", "ERROR", "Spark warns on every start; failures are still logged."),
    Setting("spark.driver.host", "127.0.0.1", "Nothing outside has to connect.", local_only=True),
    Setting("spark.driver.bindAddress", "127.0.0.1", "Nor can it.", local_only=True),
)
"""What :func:`session` sets, beside the shuffle partitions and the Python of the workers."""


def session(
    master: str = "local[*]",
    app_name: str = "taut",
    conf: Mapping[str, object] | None = None,
    **more: object,
) -> SparkSession:
    """Start Spark with Taut's settings, or take the Spark that is already running.

    Parameters
    ----------
    master
        As for Spark: ``"local[4]"``, ``"spark://host:7077"``, ``"yarn"``.
    app_name
        The name Spark shows.
    conf
        Spark settings; each wins over Taut's for the same key.
    **more
        The same, as keywords: ``session(**{"spark.driver.memory": "4g"})``.

    Returns
    -------
    SparkSession
        A classic session (not Spark Connect). Where one is active already it is that one: it
        gets the settings that can change while Spark runs and were not set on it before, and a
        ``RuntimeWarning`` names those that cannot change.

    Raises
    ------
    EnvironmentProblem
        No fit Java or pandas, or the environment asks for Spark Connect.

    Examples
    --------
    >>> spark = taut.session("local[4]", conf={"spark.driver.memory": "4g"})  # doctest: +SKIP
    >>> spark.conf.get("spark.sql.shuffle.partitions")  # doctest: +SKIP
    '4'
    """
    given = _texts({**(conf or {}), **more})
    _refuse_connect(given)
    check_environment()

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    # Not getActiveSession: that is per thread, and Spark is per process.
    if SparkContext._active_spark_context is not None:
        running = SparkSession.builder.getOrCreate()
        _adopt(running, master, given)
        return running
    use_java()
    _choose_python(master, given)
    builder = SparkSession.builder.master(master).appName(app_name)
    for key, value in (defaults(master) | given).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _set_checksums(spark)
    return spark


def defaults(master: str) -> dict[str, str]:
    """What Taut sets for this master where the caller has not.

    Examples
    --------
    >>> defaults("local[2]")["spark.sql.shuffle.partitions"]
    '2'
    >>> "spark.sql.shuffle.partitions" in defaults("yarn")  # its cores are not known yet
    False
    """
    threads = _local_threads(master)
    chosen = {s.key: s.value for s in SETTINGS if threads is not None or not s.local_only}
    if threads is not None:
        chosen["spark.sql.shuffle.partitions"] = str(min(threads, MOST_PARTITIONS))
        chosen["spark.driver.memory"] = f"{_heap_gb()}g"
        chosen["spark.pyspark.python"] = os.environ.get("PYSPARK_PYTHON") or sys.executable
    return chosen


def _heap_gb() -> int:
    """A quarter of this machine's memory, 1 to 4 GB: Spark's own default is always 1."""
    pages, page = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return min(4, max(1, pages * page // 4 // 2**30))


def _local_threads(master: str) -> int | None:
    """How many tasks a local master runs at a time; None for a cluster."""
    match = _LOCAL_MASTER.fullmatch(master.strip())
    if match is None:
        return None
    if match[1] == "*":
        # The cores this process may use, which is what the JVM counts too.
        return max(1, len(os.sched_getaffinity(0)) if _HAS_AFFINITY else os.cpu_count() or 1)
    return max(1, int(match[1] or 1))


def _texts(conf: Mapping[str, object]) -> dict[str, str]:
    """Spark settings as the text that Spark reads, or a refusal of what is not one."""
    for key, value in conf.items():
        if not key.startswith("spark."):
            raise TypeError(
                f"{key!r} is no parameter of session() and no Spark setting; those start with "
                "'spark.', as in conf={'spark.driver.memory': '4g'}"
            )
        if value is None:
            raise TypeError(f"{key} is None: give a value, or leave it out for Taut's default")
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in conf.items()}


def _refuse_connect(given: Mapping[str, str]) -> None:
    asked = {
        "spark.remote": given.get("spark.remote"),
        "spark.api.mode=connect": given.get("spark.api.mode") == "connect",
        "SPARK_REMOTE": os.environ.get("SPARK_REMOTE"),
    }
    found = [name for name, there in asked.items() if there]
    if found:
        raise EnvironmentProblem(
            f"{found[0]} asks for Spark Connect, and Taut needs the classic Spark of this "
            "process: unset it and give session() the master instead"
        )


def _choose_python(master: str, given: Mapping[str, str]) -> None:
    """Python data sources and functions run under this interpreter, which has their packages.

    The JVM takes it from the environment, which it inherits when it starts. What a cluster's
    machines have is for its user to say.
    """
    asked = given.get("spark.pyspark.python")
    if asked is not None:
        os.environ["PYSPARK_PYTHON"] = asked
    elif _local_threads(master) is not None and not os.environ.get("PYSPARK_PYTHON"):
        os.environ["PYSPARK_PYTHON"] = sys.executable


def _adopt(spark: SparkSession, master: str, given: dict[str, str]) -> None:
    """Set what a running session still takes, and name what it does not."""
    from pyspark.errors import PySparkException

    present = {**dict(spark.sparkContext.getConf().getAll()), **spark.conf.getAll}
    ours = defaults(str(spark.sparkContext.master))
    wanted = {k: v for k, v in ours.items() if k not in present} | given
    ignored = [] if spark.sparkContext.master == master else [f"master {master!r}"]
    for key, value in wanted.items():
        if present.get(key) == value:
            continue
        try:
            spark.conf.set(key, value)
        except PySparkException:
            ignored.append(key)
    _set_checksums(spark)
    if ignored:
        warnings.warn(
            "Spark is already running, and these are read only when it starts, so they are "
            f"ignored: {', '.join(ignored)}. Call taut.session() before anything else starts "
            "Spark, or stop the running session first.",
            RuntimeWarning,
            stacklevel=3,
        )


def _set_checksums(spark: SparkSession) -> None:
    """Hadoop has no setting for this, only a switch on the file system object of the JVM."""
    write = spark.conf.get(CHECKSUMS, "")
    if write in {"true", "false"}:
        # Names of the JVM are found at run time; PySpark has no types for them.
        jvm: Any = spark._jvm
        local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsc.hadoopConfiguration())
        local.setWriteChecksum(write == "true")

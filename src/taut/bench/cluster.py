"""A real standalone cluster of Spark on loopback: a master and workers, each a machine of its own.

Machines have addresses of their own (127.0.0.1, 127.0.0.2, ...), so that Spark takes them for
different hosts. One that is given a number of cores is a control group: its worker and all that it
starts (executors, and the Python workers of those) get no more than that together.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from taut.bench.cgroup import CpuGroup, Hierarchy, cpu_group
from taut.bench.record import BenchError
from taut.workloads.topologies.topology import MACHINE

MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_START_WITHIN_S = 120.0
_LOOK_EVERY_S = 0.05
_DAEMON = {"SPARK_DAEMON_MEMORY": "512m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A worker of the cluster.

    Attributes
    ----------
    slots
        Tasks that it runs at a time.
    cores
        Cores that all its processes together get; None for as many as there are.
    rivals
        Other processes on it, which take what they can get: each compresses without end.
    host
        Its address; None for the next one of loopback.
    memory
        What Spark may use of it.
    """

    slots: int = 1
    cores: float | None = None
    rivals: int = 0
    host: str | None = None
    memory: str = "1g"


@dataclass(slots=True)
class Cluster:
    """A cluster that runs; ``address`` is its master's."""

    address: str
    machines: Sequence[Machine]
    folder: Path
    _groups: dict[int, CpuGroup] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """Tasks that run at a time."""
        return sum(machine.slots for machine in self.machines)

    @contextlib.contextmanager
    def as_told(self) -> Iterator[None]:
        """Meanwhile machines are as slow as they are to be, and as busy.

        At other times they are not: to start an executor on a fifth of a core takes a minute.
        """
        with contextlib.ExitStack() as stack:
            stack.callback(self._limit, False)
            self._limit(True)
            for number, machine in enumerate(self.machines):
                for rival in range(machine.rivals):
                    command = (sys.executable, "-m", "taut.bench.rival")
                    name = f"rival-{number}-{rival}"
                    group = self._groups.get(number)
                    stack.enter_context(
                        process(self.folder, name, *command, told=True, group=group)
                    )
            yield

    def _limit(self, on: bool) -> None:
        for number, group in self._groups.items():
            group.limit(self.machines[number].cores if on else None)


@contextlib.contextmanager
def cluster(
    folder: Path, machines: Sequence[Machine], env: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A master and a worker for each machine, which end with the context.

    Executors inherit ``env``.
    """
    import pyspark

    hosts = [machine.host or f"127.0.0.{number + 1}" for number, machine in enumerate(machines)]
    for host in hosts:
        _check_host(host)
    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    ports = ("--port", "0", "--webui-port", "0")
    log = folder / "master.log"
    with _told_to_end(), contextlib.ExitStack() as stack:
        groups = _groups(machines, stack)
        command: tuple[str, ...] = (spark_class, MASTER, "--host", "127.0.0.1", *ports)
        stack.enter_context(process(folder, "master", *command, env=_DAEMON))
        _until(lambda: _STARTED.search(log.read_text()), "the master started", log)
        found = _STARTED.search(log.read_text())
        assert found is not None
        for number, (machine, host) in enumerate(zip(machines, hosts, strict=True)):
            size = ("--cores", str(machine.slots), "--memory", machine.memory)
            work = ("--work-dir", str(folder / f"work-{number}"))
            place = ("--host", host, *ports, *size, *work)
            own = {"SPARK_LOCAL_IP": host, MACHINE: f"{number}/{len(machines)}"}
            command = (spark_class, WORKER, *place, found[1])
            name, group = f"worker-{number}", groups.get(number)
            stack.enter_context(
                process(folder, name, *command, env=_DAEMON | own | dict(env or {}), group=group)
            )
        wanted = len(machines)
        _until(
            lambda: log.read_text().count("Registering worker") == wanted,
            f"{wanted} workers registered", log,
        )  # fmt: skip
        yield Cluster(found[1], tuple(machines), folder, groups)


@contextlib.contextmanager
def _told_to_end() -> Iterator[None]:
    """Meanwhile SIGTERM ends this process in good order, so that it takes the others along."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say what a signal does
        return

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _groups(machines: Sequence[Machine], stack: contextlib.ExitStack) -> dict[int, CpuGroup]:
    """A control group for each machine that needs one."""
    bounded = [n for n, machine in enumerate(machines) if machine.cores or machine.rivals]
    if not bounded:
        return {}
    hierarchy = Hierarchy.find()
    return {
        number: stack.enter_context(cpu_group(f"taut-{os.getpid()}-{number}", hierarchy))
        for number in bounded
    }


@contextlib.contextmanager
def process(
    folder: Path,
    name: str,
    *command: str,
    told: bool = False,
    env: Mapping[str, str] | None = None,
    group: CpuGroup | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with a process group and a log of its own, stopped by its id.

    With an input if it is ``told``, which ends when whoever started it does.
    """
    from taut.spark.java import use_java

    given = dict(os.environ)
    use_java(given)
    given |= {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **(env or {})}
    with (folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(
            command,
            stdin=subprocess.PIPE if told else subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=given,
        )
    try:
        if group is not None:
            group.add(running.pid)
        yield running
    finally:
        if running.stdin is not None:
            running.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGTERM)
        try:
            running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()


def _check_host(host: str) -> None:
    try:
        with socket.socket() as probe:
            probe.bind((host, 0))
    except OSError as error:
        raise BenchError(
            f"a machine at {host} is needed, and this system does not have the address: {error}; "
            "Linux has all of 127.0.0.0/8, elsewhere it must be added to the loopback interface"
        ) from error


def _until(condition: Callable[[], object], what: str, log: Path) -> None:
    limit = time.monotonic() + _START_WITHIN_S
    while not condition():
        if time.monotonic() > limit:
            raise BenchError(
                f"not within {_START_WITHIN_S:g} s: {what}; {log} ends with\n"
                + log.read_text()[-2_000:]
            )
        time.sleep(_LOOK_EVERY_S)

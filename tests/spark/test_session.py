"""taut.session: what it sets, who wins, and what it says about what it cannot set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from taut.errors import EnvironmentProblem
from taut.spark import session as module
from taut.spark.session import CHECKSUMS, MOST_PARTITIONS, SETTINGS, Setting, defaults, session

ROOT = Path(module.__file__).parents[3]
KEYS = [setting.key for setting in SETTINGS]

# Settings are read when a JVM starts, so a real session needs a process of its own.
SCRIPT = """
import json, sys, warnings
from pathlib import Path
from taut.spark.session import CHECKSUMS, SETTINGS, session

folder = Path(sys.argv[1])
spark = session("local[2]", "mine", conf={"spark.sql.shuffle.partitions": 3},
                **{"spark.ui.showConsoleProgress": True, "spark.driver.memory": "768m"})
facts = {
    "conf": {k: spark.conf.get(k, None) for k in [s.key for s in SETTINGS]
             + ["spark.sql.shuffle.partitions", "spark.driver.memory", "spark.pyspark.python"]},
    "app": spark.sparkContext.appName,
    "ui": spark.sparkContext.uiWebUrl,
    "class": type(spark).__module__,
    "python": spark.range(1).rdd.map(lambda _: __import__("sys").executable).first(),
}

def run(number):
    # One more file, and the query from its checkpoint on.
    (folder / "in" / f"{number}.txt").write_text("a\\na\\nb\\n")
    seen = []
    query = (spark.readStream.text(str(folder / "in")).groupBy("value").count().writeStream
             .outputMode("complete").option("checkpointLocation", str(folder / "checkpoint"))
             .trigger(availableNow=True)
             .foreachBatch(lambda batch, _: seen.append({r[0]: r[1] for r in batch.collect()}))
             .start())
    query.awaitTermination()
    return seen[-1]

def crcs():
    return len(list((folder / "checkpoint" / "commits").glob(".*.crc")))

(folder / "in").mkdir()
manager = "spark.sql.streaming.checkpointFileManagerClass"
taut = spark.conf.get(manager)
facts["counts"], facts["crcs"] = [], []
for number, ours in enumerate([True, False, True, False]):
    with warnings.catch_warnings(record=True) as silent:
        warnings.simplefilter("always")
        session("local[2]", conf={
            CHECKSUMS: not ours,
            manager: taut if ours else taut.replace("FileSystemBased", "FileContextBased"),
        })
    facts["counts"].append(run(number))
    facts["crcs"].append(crcs())
facts["silent"] = [str(w.message) for w in silent if w.category is RuntimeWarning]

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    again = session("local[3]", conf={"spark.driver.memory": "2g",
                                      "spark.sql.streaming.pollingDelay": "20ms"})
facts["same"] = again is spark
facts["partitions kept"] = again.conf.get("spark.sql.shuffle.partitions")
facts["polling"] = again.conf.get("spark.sql.streaming.pollingDelay")
facts["said"] = [str(w.message) for w in said if w.category is RuntimeWarning]
facts["blamed"] = [w.filename for w in said if w.category is RuntimeWarning]
print("FACTS " + json.dumps(facts))
spark.stop()
"""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("session")
    script = folder / "script.py"
    script.write_text(SCRIPT)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    env["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, str(script), str(folder)],
        env=env,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FACTS ")]
    assert lines, done.stderr
    found: dict[str, Any] = json.loads(lines[0].removeprefix("FACTS "))
    return found


@pytest.mark.spark
def test_settings_reach_a_real_session(facts: dict[str, Any]) -> None:
    expected = defaults("local[2]") | {"spark.ui.showConsoleProgress": "true"}
    assert {k: facts["conf"][k] for k in KEYS} == {k: expected[k] for k in KEYS}
    assert facts["ui"] is None
    assert facts["app"] == "mine"
    assert facts["class"] == "pyspark.sql.session"


@pytest.mark.spark
def test_the_callers_settings_win_and_become_text(facts: dict[str, Any]) -> None:
    assert facts["conf"]["spark.sql.shuffle.partitions"] == "3"
    assert facts["conf"]["spark.ui.showConsoleProgress"] == "true"
    assert facts["conf"]["spark.driver.memory"] == "768m"


@pytest.mark.spark
def test_workers_run_under_this_python(facts: dict[str, Any]) -> None:
    assert facts["python"] == facts["conf"]["spark.pyspark.python"] == sys.executable


@pytest.mark.spark
def test_a_checkpoint_moves_between_tauts_file_settings_and_sparks(facts: dict[str, Any]) -> None:
    assert facts["counts"] == [{"a": 2 * n, "b": n} for n in (1, 2, 3, 4)]


@pytest.mark.spark
def test_checksum_files_are_written_only_when_asked_for(facts: dict[str, Any]) -> None:
    assert facts["crcs"] == [0, 1, 1, 2]


@pytest.mark.spark
def test_a_running_session_is_returned_and_what_it_cannot_take_is_named(
    facts: dict[str, Any],
) -> None:
    (said,) = facts["said"]
    assert facts["same"]
    assert "master 'local[3]'" in said
    assert "spark.driver.memory" in said
    assert "pollingDelay" not in said
    assert facts["polling"] == "20ms"
    assert facts["blamed"][0].endswith("script.py")


@pytest.mark.spark
def test_a_running_session_keeps_what_was_set_on_it(facts: dict[str, Any]) -> None:
    assert facts["partitions kept"] == "3"


@pytest.mark.spark
def test_a_running_session_that_can_take_everything_is_no_cause_to_warn(
    facts: dict[str, Any],
) -> None:
    assert facts["silent"] == []


def test_docs_name_every_setting() -> None:
    page = (ROOT / "docs" / "session.md").read_text()
    assert [key for key in [*KEYS, "spark.sql.shuffle.partitions"] if f"`{key}`" not in page] == []


def test_settings_are_unique_and_say_why() -> None:
    assert len(set(KEYS)) == len(KEYS)
    assert all(isinstance(s, Setting) and s.why.endswith(".") for s in SETTINGS)


@pytest.mark.parametrize(
    ("master", "partitions"),
    [
        ("local", "1"),
        ("local[1]", "1"),
        ("local[4]", "4"),
        ("local[4, 3]", "4"),
        ("local[64]", str(MOST_PARTITIONS)),
    ],
)
def test_shuffle_partitions_follow_the_cores(master: str, partitions: str) -> None:
    assert defaults(master)["spark.sql.shuffle.partitions"] == partitions


def test_all_cores_count_for_a_star(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HAS_AFFINITY", False)
    monkeypatch.setattr(os, "cpu_count", lambda: 6)
    assert defaults("local[*]")["spark.sql.shuffle.partitions"] == "6"


@pytest.mark.parametrize("master", ["yarn", "spark://host:7077", "local-cluster[2,1,1024]"])
def test_a_cluster_gets_no_setting_of_one_machine(master: str) -> None:
    chosen = defaults(master)
    assert not {s.key for s in SETTINGS if s.local_only} & set(chosen)
    assert CHECKSUMS not in chosen
    assert "spark.sql.shuffle.partitions" not in chosen
    assert "spark.sql.streaming.stateStore.providerClass" in chosen


def test_the_python_of_the_environment_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "python9")
    assert defaults("local")["spark.pyspark.python"] == "python9"
    module._choose_python("local", {})
    assert os.environ["PYSPARK_PYTHON"] == "python9"
    module._choose_python("local", {"spark.pyspark.python": "python8"})
    assert os.environ["PYSPARK_PYTHON"] == "python8"


def test_this_python_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    module._choose_python("local", {})
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    module._choose_python("spark://master:7077", {})
    assert os.environ["PYSPARK_PYTHON"] == "", "a cluster's machines have their own"
    assert "spark.pyspark.python" not in defaults("spark://master:7077")


def test_a_keyword_that_is_no_setting_is_refused() -> None:
    with pytest.raises(TypeError, match=r"'cores' is no parameter.*start with 'spark\.'"):
        session(cores=4)


def test_none_is_refused() -> None:
    with pytest.raises(TypeError, match=r"spark\.ui\.enabled is None"):
        session(conf={"spark.ui.enabled": None})


@pytest.mark.parametrize("conf", [{"spark.remote": "sc://host"}, {"spark.api.mode": "connect"}])
def test_connect_is_refused(conf: dict[str, str]) -> None:
    with pytest.raises(EnvironmentProblem, match=r"spark\.(remote|api).*Spark Connect"):
        session(conf=conf)


def test_connect_by_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    with pytest.raises(EnvironmentProblem, match="SPARK_REMOTE"):
        session()

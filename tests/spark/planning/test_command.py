from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from tests.planning.synthetic import profile, served

from taut.cli import main
from taut.errors import PlanError
from taut.planning.plan import Plan
from taut.planning.resident import ResidentPlan
from taut.spark.planning.app import load_app


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "job.py"
    path.write_text("def app(spark, settings):\n    return None\n")
    return path


def planned(app: Path, *options: str) -> str:
    kept = app.parent / "profile.json"
    if not kept.exists():
        profile().save(kept)
    result = CliRunner().invoke(main, ["plan", str(app), "--profile", str(kept), "--slo", *options])
    return result.output


def test_a_plan_from_a_profile(app: Path, tmp_path: Path) -> None:
    conf, saved = tmp_path / "spark.conf", tmp_path / "plan.json"
    told = planned(app, "p99 <= 2 s", "--rate", "20k", "--conf", str(conf), "--save", str(saved))
    assert "job: p99 <= 2 s at 20,000 rows a second" in told
    assert "spark.sql.shuffle.partitions=" in told
    assert conf.read_text().startswith("spark.executor.instances 1\n")
    assert json.loads(saved.read_bytes())["rate"] == 20_000


def test_a_rate_with_more_to_spare(app: Path, tmp_path: Path) -> None:
    saved = tmp_path / "plan.json"

    def highest(*options: str) -> float:
        planned(app, "p99 <= 2 s", "--save", str(saved), *options)
        return Plan.load(saved).rate

    assert highest("--spare", "0.05") == highest() > 1.05 * highest("--spare", "0.2")
    assert Plan.load(saved).spare == 0.2
    for odd in ("nan", "inf"):
        assert f"{odd}: a number is needed" in planned(app, "p99 <= 2 s", "--spare", odd)
        assert f"{odd}: a number is needed" in planned(app, "p99 <= 2 s", "--seconds", odd)
    assert "not in the range x>=0" in " ".join(planned(app, "p99 <= 2 s", "--spare", "-1").split())


def test_the_fewest_nodes(app: Path) -> None:
    told = planned(app, "p99 <= 2 s", "--rate", "150k", "--nodes", "1..10")
    assert "executors with 2 cores" in told
    assert "extrapolated" in told


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["p99 <= 10 ms"], "cannot be met at any rate"),
        (["soon"], "is not an objective"),
        (["p99 <= 1 s", "--rate", "fast"], "rows a second above zero, such as 50k"),
        (["p99 <= 1 s", "--rate", "0"], "rows a second above zero"),
        (["p99 <= 1 s", "--nodes", "9..3"], "such as 4 or 1..10"),
    ],
)
def test_what_is_wrong_is_said(app: Path, options: list[str], said: str) -> None:
    assert said in planned(app, *options)


def test_a_profile_of_another_app_or_spark_is_refused(app: Path, tmp_path: Path) -> None:
    other = msgspec.structs.replace(profile(), app="other")
    other.save(tmp_path / "profile.json")
    assert "is of 'other', and the app is 'job'" in planned(app, "p99 <= 2 s")
    older = msgspec.structs.replace(profile(), spark="3.5.0")
    older.save(tmp_path / "profile.json")
    assert "was taken on Spark 3.5.0" in planned(app, "p99 <= 2 s")


def test_lanes_from_a_profile(app: Path, tmp_path: Path) -> None:
    kept, saved = tmp_path / "lanes.json", tmp_path / "plan.json"
    msgspec.structs.replace(served(), app="job").save(kept)

    def told(*options: str) -> str:
        given = ["plan", str(app), "--resident", "--profile", str(kept), "--slo", *options]
        return CliRunner().invoke(main, given).output

    found = told("p99 <= 1 s", "--rate", "100", "--save", str(saved))
    assert "job: p99 <= 1 s at 100 rows a second, resident" in found
    assert "options of taut.read:" in found
    assert "  chunk='1'" in found
    assert ResidentPlan.load(saved).rate == 100
    assert "--nodes does not go with --resident" in told("p99 <= 1 s", "--nodes", "2")
    assert "about what batches cost" in told("p99 <= 1 s", "--spare", "0.1")
    assert "cannot be met at any rate" in told("p99 <= 1 ms")
    served().save(kept)
    assert "is of 'calls', and the app is 'job'" in told("p99 <= 1 s")


def test_files_that_are_no_app(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no such file"):
        load_app(tmp_path / "none.py")
    (tmp_path / "empty_app.py").write_text("")
    with pytest.raises(PlanError, match=r"has no function app\(spark, settings\)"):
        load_app(tmp_path / "empty_app.py")

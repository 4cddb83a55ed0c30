from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.planning.synthetic import profile, sample

from taut.errors import ProfileError
from taut.planning.profile import Profile, Windows, groups, typical


def changed(**changes: object) -> Profile:
    return msgspec.structs.replace(profile(), **changes)


def test_a_profile_comes_back_from_its_file(tmp_path: Path) -> None:
    taken = profile(window=2.0)
    taken.save(tmp_path / "job.json")
    assert Profile.load(tmp_path / "job.json") == taken
    assert [path.name for path in tmp_path.iterdir()] == ["job.json"]


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    profile().save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ProfileError, match=r"job\.json cannot be read: .*make a new one"):
        Profile.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"none\.json: No such file"):
        Profile.load(tmp_path / "none.json")


def test_another_format_is_refused(tmp_path: Path) -> None:
    changed(format=99).save(tmp_path / "job.json")
    with pytest.raises(ProfileError, match="has format 99, this Taut reads 2"):
        Profile.load(tmp_path / "job.json")


def test_another_spark_is_refused() -> None:
    profile().check(spark="4.3.0")
    with pytest.raises(ProfileError, match=r"taken on Spark 4\.3\.0, this is 4\.4\.0"):
        profile().check(spark="4.4.0")


def test_a_stale_one_is_refused() -> None:
    with pytest.raises(ProfileError, match="is 40 days old"):
        profile().check(now=profile().taken + 40 * 86_400)


def test_no_batches_no_rows_too_few() -> None:
    with pytest.raises(ProfileError, match="has no batch: did the source give any row"):
        changed(samples=[]).check()
    with pytest.raises(ProfileError, match="no batch has a row"):
        changed(samples=[sample(1, 1, 0)] * 5).check()
    with pytest.raises(ProfileError, match="at least 4 are needed"):
        changed(samples=[sample(1, 1, 10)] * 2).check()


def test_what_cannot_have_been_measured_is_refused() -> None:
    wrong = msgspec.structs.replace(sample(1, 1, 10), seconds={"plan": 1.0})
    with pytest.raises(ProfileError, match="cannot have been measured"):
        changed(samples=[wrong] * 5).check()
    good = sample(1, 1, 10)
    for odd in (
        sample(1, 1, 10, factor=-1.0),
        sample(1, 1, 10, factor=0.0),
        sample(1, 1, -10),
        msgspec.structs.replace(good, out=-1),
        msgspec.structs.replace(good, seconds=good.seconds | {"more": 1.0}),
    ):
        with pytest.raises(ProfileError, match="cannot have been measured"):
            changed(samples=[good] * 5 + [odd]).check()
    for windows in (Windows(0.0), Windows(-1.0), Windows(1.0, delay=-1.0)):
        with pytest.raises(ProfileError, match="windows end every so many seconds"):
            changed(windows=windows).check()


def test_what_an_older_taut_has_written_is_said_to_be_that(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text('{"app": "job", "window": 2.0, "format": 1}')
    with pytest.raises(ProfileError, match="has format 1, this Taut reads 2"):
        Profile.load(tmp_path / "job.json")


def test_what_was_seen_since_makes_it_new() -> None:
    old = changed(taken=1.0)
    old.merged([sample(1, 1, 10)]).check()


def test_later_batches_are_added() -> None:
    early, late = profile(), profile(seed=2)
    both = early.merged(late)
    assert len(both.samples) == len(early.samples) + len(late.samples)
    assert early.merged(late.samples).samples == both.samples
    with pytest.raises(ProfileError, match="cores 2 and 4 cannot be merged"):
        early.merged(changed(cores=4))


def test_batches_that_are_alike_stand_together() -> None:
    alike = [sample(1, 1, 1000), sample(1, 1, 1010), sample(1, 1, 999, factor=9.0)]
    other = [sample(1, 2, 1000), sample(1, 1, 60_000), sample(1, 1, 1000, out=50)]
    found = groups([*alike, *other])
    assert found[0] == alike
    assert len(found) == 4
    assert typical(alike).total == pytest.approx(sample(1, 1, 1010).total, rel=1e-3)

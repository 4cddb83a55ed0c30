"""Jobs are profiled, planned, started and watched on a real Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from pyspark.sql import functions as F
from tests.conftest import Eventually

import taut
from taut.planning.profile import PHASES, Windows
from taut.planning.settings import Settings
from taut.spark.planning import profiling, trial
from taut.spark.planning.app import cluster_of, configured, made, windows_of
from taut.spark.planning.meter import Batch, Meter, read_stages
from taut.watch.records import Expected, Record
from taut.workloads.generator import Load
from taut.workloads.reduce import windowed_words, words, words_load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
RATE = 20_000


def nowhere(df: DataFrame, batch_id: int) -> None:
    df.write.format("noop").mode("overwrite").save()


def counting(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
    """Words counted by a reducer, from a backlog of an hour."""
    rows = words_load(
        spark,
        RATE,
        time.time() - 3_600,
        keys=500,
        partitions=settings.lanes,
        max_rows_per_batch=settings.cap,
    )
    counted = taut.map_reduce(rows, words(threshold=50), time="time")
    return counted.frame, counted.sink(nowhere, shed=nowhere)


def plain(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
    """Spark's own count of groups, live."""
    rows = Load(time.time() - 5, 2_000, None, settings.lanes, settings.cap).stream(spark)
    counts = rows.withColumn("at", F.current_timestamp()).withWatermark("at", "1 second")
    counts = counts.groupBy(F.window("at", "1 second"), (F.col("n") % 5).alias("k")).count()
    return counts, nowhere


@pytest.fixture(scope="module")
def taken(spark: SparkSession) -> taut.Profile:
    return profiling.take(spark, counting, "counting", rate=RATE, warm_up=6.0, seconds=30.0)


def test_a_profile_has_all_phases_at_several_settings(
    spark: SparkSession, taken: taut.Profile
) -> None:
    taken.check(spark=spark.version)
    assert taken.cluster == cluster_of(spark) == taut.Cluster(1, 2)
    assert {(one.lanes, one.reducers) for one in taken.samples} >= {(2, 2), (1, 1)}
    assert max(one.rows for one in taken.samples) >= 4 * min(one.rows for one in taken.samples)
    for one in taken.samples:
        assert set(one.seconds) == set(PHASES)
        assert min(one.seconds.values()) >= 0.0
        assert one.seconds["reduce"] > 0.0
        assert one.seconds["map"] > 0.0
        # most rows of 500 keys pass a multiple of 50 once in a while
        assert one.out > 0
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_a_plan_runs_and_is_watched(
    spark: SparkSession,
    taken: taut.Profile,
    tmp_path: Path,
    eventually: Eventually,
    heard: list[Record],
) -> None:
    plan = taut.plan(profile=taken, slo="mean <= 60 s", rate=1_000, spark=spark)
    assert plan.expected["mean"].seconds < 60.0
    # with so long an objective it may have batches every half minute, for which nobody waits here
    plan = msgspec.structs.replace(plan, settings=plan.settings.but(trigger=0.0))

    def live(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        rows = words_load(spark, 1_000, time.time(), keys=500, partitions=settings.lanes)
        counted = taut.map_reduce(rows, words(threshold=50), time="time")
        return counted.frame, counted.sink(nowhere, shed=nowhere)

    planned = plan.apply(spark, live, tmp_path / "checkpoint")
    try:
        eventually(lambda: len(planned.batches()) > 4)
        drift = planned.drift()
        assert drift is not None
        assert 0.0 < drift.observed < 60.0
        assert drift.measure == "mean"
        assert 500 < drift.rate < 2_000
        first, *_, last = [record for record in heard if isinstance(record, Expected)]
        assert (first.query, first.observed, first.planned_rate) == (plan.app, None, 1_000)
        assert (last.observed, last.rate) == (drift.observed, drift.rate)
        assert last.phases == plan.phases
        assert ("beyond" in str(drift)) == drift.beyond
        again = planned.replan()
        assert again.rate == pytest.approx(planned.drift().rate, rel=0.2)  # type: ignore[union-attr]
        assert len(again.profile.samples) > len(taken.samples)
    finally:
        planned.stop()


def test_what_cannot_be_had_is_refused_with_the_number(taken: taut.Profile) -> None:
    with pytest.raises(taut.Infeasible, match="a batch without rows takes") as no:
        taut.plan(profile=taken, slo="p99 <= 10 ms")
    assert no.value.nearest_slo is not None


def test_batches_of_plain_spark_are_measured_too(
    spark: SparkSession, tmp_path: Path, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(2, 3)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with configured(spark, settings):
        frame, sink = made(plain, spark, settings)
        assert windows_of(frame, sink) == Windows(1.0, delay=1.0)
        meter = Meter(spark, sink, settings)
        writer = frame.writeStream.foreachBatch(meter)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    try:
        eventually(lambda: len(meter.batches(query.recentProgress)) >= 6)
        batches = meter.batches(query.recentProgress)
        # Spark tells what it observed of a batch some time after it
        eventually(lambda: sum(one.sample.out for one in meter.batches(query.recentProgress)) >= 5)
    finally:
        meter.stop(query)
    assert not query.isActive
    assert sum(batch.sample.rows for batch in batches) >= 10_000
    for batch in batches:
        assert batch.start < batch.written < batch.next_start
    assert_charged(batches, query.recentProgress)
    assert max(batch.sample.reducers for batch in batches) == 3
    # the watermark goes on by as much as time does
    swept = sum(batch.sample.swept for batch in batches)
    assert 0.0 < swept <= batches[-1].next_start - batches[0].start + 5.0
    # Spark forgets stages: what a batch took is not known, nor if it may have had more of them
    fourth = batches[3].start
    kept = [stage for stage in read_stages(spark, batches[0].start) if stage.began >= fourth]
    monkeypatch.setattr("taut.spark.planning.meter.read_stages", lambda spark, since: kept)
    assert meter.batches(query.recentProgress)[0].number == batches[4].number


def assert_charged(batches: Sequence[Batch], progress: Sequence[Any]) -> None:
    """For what Spark says that they took, or until the next one where that follows at once."""
    took = {one["batchId"]: one["durationMs"]["triggerExecution"] / 1e3 for one in progress}
    at_once, rounding = 0.05, 0.01
    for batch in batches:
        least = took[batch.number]
        assert least - rounding < batch.sample.total < least + at_once + rounding
        assert batch.written - batch.start < batch.sample.total + rounding
    # such as for the log of what was committed
    assert max(batch.sample.seconds["after"] for batch in batches) > 0.0


def test_a_query_runs_some_batches_and_is_held(
    spark: SparkSession, tmp_path: Path, eventually: Eventually
) -> None:
    """What it was held for is no time of a batch; and how full its only window was is known."""
    settings = Settings(1, 1, cap=500)

    def minutes(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        begun = 3_600.0 * (time.time() // 3_600.0) - 3_590.0
        rows = words_load(spark, RATE, begun, max_rows_per_batch=settings.cap)
        late = rows.withWatermark("time", "0 seconds")
        counted = taut.map_reduce(late, windowed_words("60 s"), time="time")
        return counted.frame, counted.sink(nowhere, shed=nowhere)

    with configured(spark, settings):
        frame, sink = made(minutes, spark, settings)
        meter = Meter(spark, sink, settings, windows_of(frame, sink), batches=3)
        writer = frame.writeStream.foreachBatch(meter)
        query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        eventually(meter.held.is_set)
        assert len(meter.written) == 3
        # something else has its turn
        assert spark.range(1_000).groupBy((F.col("id") % 7).alias("k")).count().count() == 7
        assert len(meter.written) == 3
        until = time.time()
        meter.resume(4)
        eventually(meter.held.is_set)
        assert len(meter.written) == 7
        progress = query.recentProgress
        batches = {batch.number: batch for batch in meter.batches(progress)}
    finally:
        meter.stop(query)
    for number, batch in batches.items():
        assert batch.sample.filled == pytest.approx((number + 1) * 500 / RATE, abs=2 / RATE + 2e-3)
        assert 0 < batch.sample.state_rows <= (number + 1) * 500
    held = batches.pop(2)
    assert held.next_start >= until > held.written
    waited = until - meter.written[2]
    assert held.sample.total < held.next_start - held.start - waited + 0.01
    assert_charged(list(batches.values()), progress)


def test_waiting_for_the_next_interval_is_no_time_of_a_batch(
    spark: SparkSession, tmp_path: Path, eventually: Eventually
) -> None:
    """Or a plan from what was seen would take an idle query for a busy one."""
    settings = Settings(1, 1, trigger=3.0)
    with configured(spark, settings):
        frame, sink = made(plain, spark, settings)
        meter = Meter(spark, sink, settings)
        writer = frame.writeStream.foreachBatch(meter).trigger(**settings.trigger_options())
        query = writer.option("checkpointLocation", str(tmp_path)).start()
    try:
        eventually(lambda: len(meter.batches(query.recentProgress)) >= 4)
        progress = query.recentProgress
    finally:
        meter.stop(query)
    batches = meter.batches(progress)
    assert_charged(batches, progress)
    assert any(batch.sample.total < batch.next_start - batch.start - 0.1 for batch in batches)


@pytest.mark.parametrize("reduced", [False, True])
def test_files_of_trials_go_beside_those_of_the_job_and_are_removed(
    spark: SparkSession, tmp_path: Path, reduced: bool
) -> None:
    """The app is the same in each, and they write at the same time."""
    out, shed = tmp_path / "out", tmp_path / "shed"
    sink = taut.sink("parquet", path=str(out))

    def files(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        rows = words_load(spark, RATE, time.time() - 60, max_rows_per_batch=settings.cap)
        if not reduced:
            return rows.select("key"), sink
        counted = taut.map_reduce(rows, words(threshold=5), time="time")
        return counted.frame, counted.sink(sink, shed=taut.sink("json", path=str(shed)))

    work = tmp_path / "work"
    work.mkdir()
    trials = [trial.Trial(spark, files, Settings(1, 1, cap=500), work, 2) for _ in range(2)]
    try:
        for each in trials:
            each.begun()
        written = list(tmp_path.glob("_out-profile-*/batch_id=*/*.parquet"))
        assert {path.parent.name for path in written} == {"batch_id=0", "batch_id=1"}
        assert len({path.parents[1] for path in written}) == 2
    finally:
        for each in trials:
            each.stop()
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


def test_a_cap_that_would_be_taken_for_bytes_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    read: dict[str, Any] = {"path": str(tmp_path), "format": "text"}

    def lines(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        return taut.read(spark, "files", **read, **settings.source()).load(), nowhere

    with pytest.raises(taut.PlanError, match=r"=500, .* one of its bytes, not a row.*=120 \* "):
        made(lines, spark, Settings(1, 1, cap=500))
    assert made(lines, spark, Settings(1, 1))[1] is nowhere

    def taken_into_account(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        assert settings.cap is not None
        return taut.read(
            spark, "files", **read, maxOffsetsPerTrigger=4 * settings.cap
        ).load(), nowhere

    assert made(taken_into_account, spark, Settings(1, 1, cap=500))[1] is nowhere


def test_a_plan_on_a_new_checkpoint_does_not_write_over_results(
    spark: SparkSession, taken: taut.Profile, tmp_path: Path
) -> None:
    (tmp_path / "out" / "batch_id=0").mkdir(parents=True)

    def app(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        return plain(spark, settings)[0], taut.sink("json", path=str(tmp_path / "out"))

    plan = taut.plan(profile=taken, slo="mean <= 60 s", rate=1_000, spark=spark)
    with pytest.raises(taut.StartError, match="holds results and checkpoint="):
        plan.apply(spark, app, tmp_path / "checkpoint")


def test_a_trial_whose_source_runs_dry_has_no_more_turns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_DRY_S", 1.0)

    def short(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        rows = Load(time.time() - 60, 100, 250, 1, settings.cap).stream(spark)
        return rows, nowhere

    tried = trial.Trial(spark, short, Settings(1, 1, cap=100), tmp_path, 2)
    try:
        tried.begun()
        assert (tried.seen, tried.dry) == (2, False)
        tried.turn(2)
        assert (tried.seen, tried.dry) == (3, True)
    finally:
        tried.stop()
    # nor is it waited for while it warms up
    warms = trial.Trial(spark, short, Settings(1, 1, cap=100), tmp_path)
    try:
        warms.run(5, 0.1, lambda seen: None)
        assert (warms.seen, warms.dry) == (3, True)
    finally:
        warms.stop()


def test_a_trial_that_only_has_what_comes_now_and_then_has_run_dry(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A topic that is read to its end still gets a row now and then: no batches to plan from."""

    def trickle(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        # 10,000 rows were waiting, and one comes every second
        rows = Load(time.time() - 10_000, 1, None, 1, settings.cap).stream(spark)
        return rows, nowhere

    tried = trial.Trial(spark, trickle, Settings(1, 1, cap=2_500), tmp_path, 3)
    try:
        tried.begun()
        assert not tried.dry
        for _ in range(2):
            if not tried.dry:
                tried.turn(2)
        assert tried.dry
        assert tried.largest == 2_500
    finally:
        tried.stop()
    # four full batches were waiting, of which the first two are never taken; the short ones are not
    assert {one.rows for one in tried.samples([])} == {2_500}


def test_an_app_that_reads_all_at_once_is_told_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_DRY_S", 1.0)

    def greedy(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        return Load(time.time() - 60, 100, 5_000, 1).stream(spark), nowhere

    with pytest.raises(taut.ProfileError, match=r"had 5,000 rows where 100 at most .*settings.cap"):
        profiling.take(spark, greedy, "greedy", rate=400, seconds=6.0)


def test_a_profile_whose_source_runs_dry_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the warm-up or later: batches of 800 rows and more are asked for, of 4,000 in all."""
    monkeypatch.setattr(trial, "_DRY_S", 1.0)

    def short(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        return Load(time.time() - 60, 100, 4_000, 1, settings.cap).stream(spark), nowhere

    assert profiling.take(spark, short, "short", rate=400, seconds=6.0).dry > 0

    def shorter(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        return Load(time.time() - 60, 100, 200, 1, settings.cap).stream(spark), nowhere

    with pytest.raises(taut.ProfileError, match="rows for 3 batches of 100 at most"):
        profiling.take(spark, shorter, "shorter", rate=400, seconds=6.0)


def test_the_windows_of_a_job_are_known(spark: SparkSession) -> None:
    rows = words_load(spark, 10, time.time())
    for behind, delay in (("0 seconds", 0.0), ("90 seconds", 90.0), ("250 milliseconds", 0.25)):
        late = rows.withWatermark("time", behind)
        counted = taut.map_reduce(late, windowed_words("3 s"), time="time")
        sink = counted.sink(nowhere, shed=nowhere)
        assert windows_of(counted.frame, sink) == Windows(3.0, delay=delay)
    counted = taut.map_reduce(rows, words(), time="time")
    assert windows_of(counted.frame, counted.sink(nowhere, shed=nowhere)) is None
    hops = rows.withWatermark("time", "1 month")
    hops = hops.groupBy(F.window("time", "4 seconds", "3 seconds", "500 milliseconds")).count()
    # from 0.5 on every 3 s, each 4 s long: the first of a multiple of 3 s ends 1.5 s after it
    assert windows_of(hops, nowhere) == Windows(3.0, 1.5, 31 * 86_400.0, apart=False)


def test_an_app_that_fails_says_so(spark: SparkSession) -> None:
    def failing(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        def sink(df: DataFrame, batch_id: int) -> None:
            raise ValueError("no room left")

        return plain(spark, settings)[0], sink

    with pytest.raises(taut.ProfileError, match="no room left"):
        profiling.take(spark, failing, "failing", warm_up=1.0, seconds=2.0)


def test_a_source_without_rows_says_so(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "_PATIENCE_S", 2.0)

    def idle(spark: SparkSession, settings: Settings) -> tuple[DataFrame, Any]:
        return Load(time.time() + 3_600, 10).stream(spark), nowhere

    with pytest.raises(taut.ProfileError, match="does its source have rows"):
        profiling.take(spark, idle, "idle", warm_up=1.0, seconds=2.0)


@pytest.mark.parametrize(
    ("given", "said"),
    [(None, "a streaming DataFrame and a sink are needed"), ("batch", "streaming DataFrame is")],
)
def test_apps_that_give_something_else(spark: SparkSession, given: Any, said: str) -> None:
    def odd(spark: SparkSession, settings: Settings) -> Any:
        return (spark.range(3), nowhere) if given == "batch" else given

    with pytest.raises(taut.PlanError, match=said):
        taut.plan(odd, slo="p99 <= 1 s", spark=spark)

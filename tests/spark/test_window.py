from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import taut
from taut.spark.window import Window, WindowLearner, inspect, window_column


@given(
    slide_ms=st.integers(1, 100_000),
    factor=st.integers(1, 7),
    start_ms=st.integers(-100_000, 100_000),
    at_ms=st.integers(0, 2_000_000_000_000),
)
def test_the_next_end_is_the_first_after(
    slide_ms: int, factor: int, start_ms: int, at_ms: int
) -> None:
    window = Window(slide_ms * factor / 1e3, slide_ms / 1e3, start_ms / 1e3)
    end_ms = round(window.end_after(at_ms / 1e3) * 1e3)
    assert at_ms < end_ms <= at_ms + slide_ms
    assert (end_ms - start_ms) % slide_ms == 0


def test_ends_between_is_half_open() -> None:
    window = Window(2.0, 1.0)
    assert window.ends_between(10.0, 13.0) == 3
    assert window.ends_between(10.5, 10.9) == 0
    assert window.ends_between(13.0, 10.0) == 0
    assert window.ends_between(1.0, 3.0e8) == 299_999_999


def test_what_a_caller_may_give() -> None:
    assert Window.of("12 seconds") == Window(12.0, 12.0)
    assert Window.of(("5 s", "3 s", "500 ms")) == Window(5.0, 3.0, 0.5)
    with pytest.raises(taut.StartError, match="give a length"):
        Window.of(("1 s", "1 s", "0 s", "9 s"))


def test_learned_from_two_ends() -> None:
    learner = WindowLearner()
    learner.observe(10.75, 22.75)
    assert learner.window() is None
    learner.observe(46.75, 58.75)
    learner.observe(22.75, 34.75)
    assert learner.window() == Window(12.0, 12.0, 10.75)


def test_sessions_are_not_learned_as_windows() -> None:
    learner = WindowLearner()
    learner.observe(1.0, 3.0)
    learner.observe(5.0, 9.0)
    assert learner.window() is None


def stream(spark: SparkSession) -> DataFrame:
    return spark.readStream.format("rate").load().withWatermark("timestamp", "2 seconds")


@pytest.mark.spark
@pytest.mark.parametrize(
    ("given", "window"),
    [
        (("12 seconds",), Window(12.0, 12.0)),
        (("5 seconds", "3 seconds"), Window(5.0, 3.0)),
        (("12 seconds", "12 seconds", "750 milliseconds"), Window(12.0, 12.0, 0.75)),
        (("1 hour", "10 minutes"), Window(3600.0, 600.0)),
        (("20 seconds", "1 second"), Window(20.0, 1.0)),
    ],
)
def test_read_from_the_plan(spark: SparkSession, given: tuple[str, ...], window: Window) -> None:
    counts = stream(spark).groupBy(F.window("timestamp", *given), "value").count()
    for shape in (counts, counts.select("count"), counts.where("count > 1").select("window.end")):
        assert inspect(shape).window == window


@pytest.mark.spark
def test_read_past_many_columns(spark: SparkSession) -> None:
    wide = stream(spark).select("timestamp", *[F.col("value").alias(f"c{i}") for i in range(60)])
    counts = wide.groupBy(F.window("timestamp", "4 seconds"), "c1").agg(
        *[F.sum(f"c{i}") for i in range(60)]
    )
    assert inspect(counts.select("c1")).window == Window(4.0, 4.0)


@pytest.mark.spark
def test_the_window_nearest_to_the_output_counts(spark: SparkSession) -> None:
    inner = stream(spark).groupBy(F.window("timestamp", "2 seconds")).count()
    outer = inner.groupBy(F.window(F.window_time("window"), "6 seconds")).sum("count")
    assert inspect(outer).window == Window(6.0, 6.0)


@pytest.mark.spark
def test_shapes_without_a_window(spark: SparkSession) -> None:
    session = stream(spark).groupBy(F.session_window("timestamp", "5 seconds"), "value").count()
    assert inspect(session).window is None
    assert inspect(session).session
    plain = spark.readStream.format("rate").load()
    assert inspect(plain.where("value > 1")).window is None
    unbounded = plain.groupBy(F.window("timestamp", "5 seconds")).count()
    assert inspect(unbounded).window is None, "never final without a watermark"


@pytest.mark.spark
def test_the_window_column_of_an_output(spark: SparkSession) -> None:
    counts = stream(spark).groupBy(F.window("timestamp", "2 seconds").alias("w")).count()
    assert window_column(counts.schema) == "w"
    assert window_column(counts.select("count").schema) is None


@pytest.mark.parametrize(
    ("length", "ends", "slide"),
    [(10, [10, 11], 1), (10, [10, 12, 13], 1), (10, [10, 20], 10), (10, [10, 40], 10)],
)
def test_learned_from_ends(length: int, ends: list[int], slide: int) -> None:
    learner = WindowLearner()
    for end in ends:
        learner.observe(end - length, end)
    assert learner.window() == Window(length, slide)


def test_ends_that_fit_no_grid_yet_are_not_guessed_from() -> None:
    learner = WindowLearner()
    for end in (10, 22):
        learner.observe(end - 10, end)
    assert learner.window() is None
    learner.observe(3, 13)
    assert learner.window() == Window(10.0, 3.0, 0.0)

"""Tweets as JSON lines, as they come from Twitter's interfaces and archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from taut.workloads.reduce.options import whole

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CORRUPT = "_corrupt"
_FIELDS = f"text string, full_text string, created_at string, {_CORRUPT} string"
# Wed Oct 10 20:19:24 +0000 2018. Spark refuses to read a day of the week.
_TWITTER = r"^\w{3} (\w{3}) (\d{2}) (\d{2}:\d{2}:\d{2}) ([+-]\d{4}) (\d{4})$"


def tweets(
    spark: SparkSession, path: str, *, streaming: bool = True, files_per_batch: int | None = None
) -> DataFrame:
    """Tweets from files of JSON lines, by Spark's own file source; ``.gz`` and the like are read.

    Parameters
    ----------
    path
        A folder or a pattern; new files in it are read as they come.
    streaming
        False: what is there now, as a batch.
    files_per_batch
        Take at most so many files a batch.

    Returns
    -------
    DataFrame
        ``time``: ``created_at``, as Twitter writes it or ISO 8601 (UTC is not assumed: without an
        offset it is in the session's time zone). ``key``: null, for a map to find. ``value``:
        ``full_text``, else ``text``. ``arrival``: when the file came, by its modification time.
        ``bad``: null; but a line that is no JSON, or has no text or no time that can be read, is
        kept in it as it was, with ``time`` and ``value`` null. Empty lines are no tweets.
        Use ``.where("bad is null")`` for a job, and look at the others.
    """
    reader = spark.readStream if streaming else spark.read
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", whole("files_per_batch", files_per_batch, 1))
    lines = reader.format("text").load(path)
    tweet = F.from_json("value", _FIELDS, {"columnNameOfCorruptRecord": _CORRUPT})
    read = (
        lines.where(F.trim("value") != "")
        .select("value", F.col("_metadata.file_modification_time").alias("arrival"),
                tweet.alias("tweet"))
        .select(
            F.col("value").alias("line"),
            "arrival",
            F.coalesce("tweet.full_text", "tweet.text").alias("text"),
            created(F.col("tweet.created_at")).alias("created"),
            F.col(f"tweet.{_CORRUPT}").isNotNull().alias("corrupt"),
        )
    )  # fmt: skip
    good = ~F.col("corrupt") & F.col("text").isNotNull() & F.col("created").isNotNull()
    return read.select(
        F.when(good, F.col("created")).alias("time"),
        F.lit(None).cast("string").alias("key"),
        F.when(good, F.col("text")).alias("value"),
        "arrival",
        F.when(~good, F.col("line")).alias("bad"),
    )


def created(text: Column) -> Column:
    """The timestamp that ``created_at`` stands for; null when it cannot be read."""
    sortable = F.regexp_replace(text, _TWITTER, "$5 $1 $2 $3 $4")
    twitter = F.try_to_timestamp(sortable, F.lit("yyyy MMM dd HH:mm:ss Z"))
    return F.when(text.rlike(_TWITTER), twitter).otherwise(text.try_cast("timestamp"))

"""Ads: the Yahoo streaming benchmark. Views per campaign and tumbling window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from taut.workloads.columns import Delay, event_time, pick, windowed, with_watermark
from taut.workloads.windows import Windowing, milliseconds, staggered

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from taut.workloads.generator import Load

CAMPAIGNS = 100
ADS_PER_CAMPAIGN = 10
RATE = 1_000
"""Events a second and query. Published: 10,000 in 3 s on 24 cores; this is scaled to two."""

_EVENT = (
    "user_id string, page_id string, ad_id string, ad_type string, event_type string, "
    "event_time bigint, ip_address string"
)
_NO_DELAY = Delay()


def windows(index: int, of: int, window_s: float) -> Windowing:
    """Tumbling windows of ``window_s``."""
    length = milliseconds(window_s)
    return staggered(length, length, index, of)


def payload(delay: Delay = _NO_DELAY) -> Column:
    """The JSON text of event ``n``, as it would come off the wire."""
    n = F.col("n")
    micros = F.unix_micros(event_time(n, delay)).cast("string")
    # Put together as text: Spark would see through from_json(to_json(...)) and skip the parsing.
    return F.concat(
        F.lit('{"user_id":"user-'), pick(n, 1, 10_000).cast("string"),
        F.lit('","page_id":"page-'), pick(n, 2, 1_000).cast("string"),
        F.lit('","ad_id":"ad-'), pick(n, 3, CAMPAIGNS * ADS_PER_CAMPAIGN).cast("string"),
        F.lit('","ad_type":"'), _one_of(n, 4, "banner", "modal", "sponsored", "mail", "mobile"),
        F.lit('","event_type":"'), _one_of(n, 5, "view", "click", "purchase"),
        F.lit('","event_time":'), micros,
        F.lit(',"ip_address":"10.'), pick(n, 6, 256).cast("string"), F.lit('.3.4"}'),
    )  # fmt: skip


def campaigns(spark: SparkSession) -> DataFrame:
    """Which campaign each ad belongs to."""
    # As a table of values: Spark broadcasts that without a job, and would run one in each batch
    # for anything that it has to compute.
    ads = range(CAMPAIGNS * ADS_PER_CAMPAIGN)
    values = ", ".join(f"('ad-{ad}', {ad // ADS_PER_CAMPAIGN}L)" for ad in ads)
    return spark.sql(f"SELECT * FROM VALUES {values} AS ads(ad_id, campaign_id)")


def views(
    spark: SparkSession, numbers: DataFrame, at: Windowing, delay: Delay = _NO_DELAY
) -> DataFrame:
    """Views per campaign and window of the events with these numbers."""
    # A generator, because Spark would push the filter below a projection and parse once for it
    # and once more for each field.
    event = F.inline(F.array(F.from_json("payload", _EVENT)))
    seen = (
        numbers.select(payload(delay).alias("payload"))
        .select(event)
        .where(F.col("event_type") == "view")
        .select("ad_id", F.timestamp_micros("event_time").alias("event_time"))
    )
    return (
        with_watermark(seen, delay)
        .join(F.broadcast(campaigns(spark)), "ad_id")
        .groupBy(windowed("event_time", at).alias("window"), "campaign_id")
        .agg(F.count("*").alias("count"))
        .select(F.col("window.end").alias("end"), "campaign_id", "count")
    )


def build(
    spark: SparkSession,
    index: int,
    of: int,
    window_s: float,
    load: Load,
    delay: Delay = _NO_DELAY,
) -> DataFrame:
    """Query ``index`` of ``of``."""
    return views(spark, load.stream(spark), windows(index, of, window_s), delay)


def _one_of(n: Column, salt: int, *texts: str) -> Column:
    return F.element_at(F.array(*map(F.lit, texts)), pick(n, salt, len(texts)).cast("int") + 1)

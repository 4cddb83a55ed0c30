"""What each workload must give, computed in plain Python from the same text on the wire."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from pyspark.sql import SparkSession

from taut.workloads import Delay, Load, Windowing, ads, linear_road, taxi

Result = dict[tuple[int, ...], tuple[int, ...]]


def covering(at: Windowing, micros: int) -> list[int]:
    """The ends of the windows that a moment falls in."""
    moment = micros // 1_000
    last = moment - (moment - at.offset_ms) % at.slide_ms
    starts = range(last, moment - at.length_ms, -at.slide_ms)
    return [start + at.length_ms for start in starts]


def closed(result: Result, latest_us: int, delay: Delay) -> Result:
    """Only the windows that the watermark has passed."""
    watermark = latest_us // 1_000 - delay.bound_ms
    return {key: value for key, value in result.items() if key[0] <= watermark}


def texts(spark: SparkSession, load: Load, column: Any) -> list[str]:
    return [row[0] for row in load.batch(spark).select(column).collect()]


def views(spark: SparkSession, load: Load, at: Windowing, delay: Delay) -> Result:
    events = [json.loads(text) for text in texts(spark, load, ads.payload(delay))]
    seen = [event for event in events if event["event_type"] == "view"]
    counts: dict[tuple[int, ...], int] = defaultdict(int)
    for event in seen:
        campaign = int(event["ad_id"].removeprefix("ad-")) // ads.ADS_PER_CAMPAIGN
        for end in covering(at, event["event_time"]):
            counts[end, campaign] += 1
    latest = max(event["event_time"] for event in seen)
    return closed({key: (count,) for key, count in counts.items()}, latest, delay)


def fares(spark: SparkSession, load: Load, at: Windowing, delay: Delay) -> Result:
    totals: dict[tuple[int, ...], list[int]] = defaultdict(lambda: [0, 0, 0, 0, -1])
    latest = 0
    for text in texts(spark, load, taxi.record(delay)):
        micros, _, longitude, latitude, meters, cents, passengers, seconds = text.split(",")
        if cents == "n/a" or int(cents) <= 0 or int(passengers) <= 0:
            continue
        if int(meters) * 3.6 / int(seconds) >= 150:
            continue
        column = (float(longitude) - taxi.WEST) / taxi.CELL // 1
        row = (float(latitude) - taxi.SOUTH) / taxi.CELL // 1
        if not (0 <= column < taxi.COLUMNS and 0 <= row < taxi.ROWS):
            continue
        latest = max(latest, int(micros))
        for end in covering(at, int(micros)):
            total = totals[end, int(row * taxi.COLUMNS + column)]
            total[0] += 1
            total[1] += int(cents)
            total[2] += int(meters)
            total[3] += int(passengers)
            total[4] = max(total[4], int(int(cents) * 1_000 / int(meters) // 1))
    return closed({key: tuple(total) for key, total in totals.items()}, latest, delay)


def tolls(spark: SparkSession, load: Load, at: Windowing, delay: Delay) -> Result:
    each = linear_road.substream(load)
    rows = {
        name: linear_road.reports(each.batch(spark), name, delay)
        .selectExpr("unix_micros(event_time)", "xway", "segment", "speed")
        .collect()
        for name in linear_road.SUBSTREAMS
    }
    speeds: dict[tuple[int, ...], list[int]] = defaultdict(list)
    volumes: dict[tuple[int, ...], int] = defaultdict(int)
    panes: dict[tuple[int, ...], int] = defaultdict(int)
    for micros, xway, segment, speed in rows["speed"]:
        for end in covering(at, micros):
            speeds[end, xway, segment].append(speed)
    for micros, xway, segment, _ in rows["volume"]:
        for end in covering(at, micros):
            volumes[end, xway, segment] += 1
    for micros, xway, segment, speed in rows["accident"]:
        (pane,) = covering(linear_road.panes(at), micros)
        panes[pane, xway, segment] |= speed == 0
    accidents: dict[tuple[int, ...], int] = defaultdict(int)
    for (pane, xway, segment), stopped in panes.items():
        for end in covering(at, pane * 1_000 - 1):
            accidents[end, xway, segment] += stopped
    result: Result = {}
    for key in speeds.keys() & volumes.keys() & accidents.keys():
        speed, volume = sum(speeds[key]) // len(speeds[key]), volumes[key]
        over = volume - linear_road.FREE_REPORTS
        free = speed >= linear_road.FREE_FLOW_KMH or over <= 0 or accidents[key] > 0
        result[key] = (speed, volume, accidents[key], 0 if free else 2 * over * over)
    latest = min(max(row[0] for row in rows[name]) for name in rows)
    return closed(result, latest, delay)

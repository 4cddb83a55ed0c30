from __future__ import annotations

import gzip
import json
import os
import struct
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from taut.workloads import WorkloadError
from taut.workloads.reduce import tweets, world_cup
from taut.workloads.reduce.world_cup_log import RECORD, parsed

BEGAN = 893_964_000
CAME = 1_790_000_000
Request = tuple[int, int, int]


def packed(requests: list[Request]) -> bytes:
    """As it is published: big-endian, 20 bytes each."""
    return b"".join(struct.pack(">IIIIBBBB", *each, 4_096, 0, 2, 3, 33) for each in requests)


def requests(low: int, high: int) -> list[Request]:
    return [(BEGAN + n // 3, n * 7_919 % 5_000, 2**32 - 1 - n) for n in range(low, high)]


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, (CAME, CAME))


def rows(df: DataFrame) -> list[tuple[int, int, int, int]]:
    at = F.unix_micros("time"), "key", "value", F.unix_micros("arrival")
    return [tuple(row) for row in df.select(*at).collect()]


def streamed(df: DataFrame, folder: Path) -> list[list[Row]]:
    batches: list[list[Row]] = []
    query = (
        df.writeStream.option("checkpointLocation", str(folder))
        .foreachBatch(lambda batch, _: batches.append(batch.collect()))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return batches


def as_clicks(wanted: list[Request], came_us: int = CAME * 10**6) -> list[tuple[int, ...]]:
    return [(time * 10**6, client, page, came_us) for time, client, page in wanted]


def test_records_are_read_across_the_edges_of_chunks() -> None:
    wanted = requests(0, 200_000)
    data = packed(wanted)
    assert len(data) % (1 << 20)
    cut = 20 * 70_001
    both = gzip.compress(data[:cut], 1) + gzip.compress(data[cut:], 1)
    for content in (data, gzip.compress(data, 1), both):
        arrays = list(parsed("f", content))
        assert max(array.nbytes for array in arrays) <= (1 << 20) + RECORD.itemsize
        got = [(int(r["time"]), int(r["client"]), int(r["object"])) for a in arrays for r in a]
        assert got == wanted
    assert list(parsed("f", b"")) == []
    assert list(parsed("f", gzip.compress(b""))) == []


def test_a_file_that_ends_early_is_named_with_the_offset() -> None:
    data = packed(requests(0, 100))
    with pytest.raises(WorkloadError, match=r"day_38: the record at offset 1980 has 7 bytes"):
        list(parsed("day_38", data[:-13]))
    with pytest.raises(WorkloadError, match=r"day_38: the record at offset 1980 has 7 bytes"):
        list(parsed("day_38", gzip.compress(data[:-13])))
    with pytest.raises(WorkloadError, match=r"day_38: gzip data ends early, after \d+ unpacked"):
        list(parsed("day_38", gzip.compress(data)[:-20]))
    damaged = bytearray(gzip.compress(data))
    damaged[-6] ^= 0xFF
    with pytest.raises(
        WorkloadError, match=r"day_38: gzip data damaged after offset 0 .*data check"
    ):
        list(parsed("day_38", bytes(damaged)))


@pytest.mark.spark
def test_world_cup_files_as_they_come(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    write(logs / "wc_day38_1.gz", gzip.compress(packed(requests(0, 500))))
    write(logs / "wc_day38_2", packed(requests(500, 900)))
    both = as_clicks(requests(0, 900))

    df = world_cup(spark, str(logs), streaming=False)
    assert sorted(rows(df)) == sorted(both)
    types = [("time", "timestamp"), ("key", "bigint"), ("value", "bigint")]
    assert df.dtypes == [*types, ("arrival", "timestamp")]

    stream = world_cup(spark, str(logs), files_per_batch=1)
    first = streamed(stream, tmp_path / "checkpoint")
    assert sorted(len(batch) for batch in first) == [400, 500]
    write(logs / "wc_day38_3.gz", gzip.compress(packed(requests(900, 950))))
    (more,) = streamed(world_cup(spark, str(logs)), tmp_path / "checkpoint")
    clients = [row["key"] for batch in [*first, more] for row in batch]
    assert sorted(clients) == sorted(client for _, client, _ in requests(0, 950))


@pytest.mark.spark
def test_world_cup_at_a_rate(spark: SparkSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    write(logs / "wc_1", packed(requests(0, 500)))
    write(logs / "wc_2", b"")
    write(logs / "wc_3", packed(requests(500, 900)))
    write(logs / "_SUCCESS", b"no data")
    wanted = [
        (time * 10**6, client, page, CAME * 10**6 + n * 10**6 // 7)
        for n, (time, client, page) in enumerate(requests(0, 900))
    ]

    df = world_cup(spark, str(logs), rate=7, start=CAME, streaming=False)
    assert sorted(rows(df), key=lambda row: row[3]) == wanted
    stream = world_cup(spark, f"file://{logs}/wc_*", rate=7, start=CAME - 1_000.0)
    (batch,) = streamed(stream, tmp_path / "checkpoint")
    assert [(row["key"], row["value"]) for row in batch] == [row[1:3] for row in wanted]


@pytest.mark.spark
def test_world_cup_says_what_is_wrong(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "wc_day9", packed(requests(0, 10))[:-1])
    with pytest.raises(PySparkException, match=r"wc_day9: the record at offset 180 has 19 bytes"):
        world_cup(spark, str(tmp_path), streaming=False).collect()
    with pytest.raises(WorkloadError, match=r"wc_day9: the record at offset 180 has 19 bytes"):
        world_cup(spark, str(tmp_path), rate=10)
    with pytest.raises(WorkloadError, match=r"path=.*no files there"):
        world_cup(spark, str(tmp_path / "none*"), rate=10)
    with pytest.raises(WorkloadError, match=r"start=5\.0: needs rate="):
        world_cup(spark, str(tmp_path), start=5.0)
    with pytest.raises(WorkloadError, match="files_per_batch=0"):
        world_cup(spark, str(tmp_path), files_per_batch=0)
    write(tmp_path / "wc_day9", gzip.compress(packed(requests(0, 10))))
    with pytest.raises(WorkloadError, match=r"wc_day9 is gzip'ed.*unpack"):
        world_cup(spark, str(tmp_path), rate=10)


GOOD = [
    ({"created_at": "Wed Oct 10 20:19:24 +0000 2018", "text": "Ünïcode \n two"}, 1_539_202_764),
    ({"created_at": "Wed Oct 10 20:19:24 +0200 2018", "text": "a", "id": 1}, 1_539_195_564),
    ({"created_at": "2018-10-10T20:19:24.250Z", "text": "b", "full_text": "b+"}, 1_539_202_764.25),
    ({"created_at": "2018-10-10T20:19:24", "full_text": "c", "user": {"id": 7}}, 1_539_202_764),
    ({"created_at": "Wed Oct 10 20:19:24 +0000 2018", "text": ""}, 1_539_202_764),
]  # fmt: skip
BAD = [
    '{"created_at": "Wed Oct 10 20:19:24 +0000 2018", "text": "cut o',
    "no json",
    '{"delete": {"status": {"id": 1}}}',
    '{"created_at": "Wed Oct 10 20:19:24 +0000 2018"}',
    '{"created_at": "Wed Oct 99 20:19:24 +0000 2018", "text": "a"}',
    '{"created_at": "Wed Okt 10 20:19:24 +0000 2018", "text": "a"}',
    '{"created_at": "yesterday", "text": "a"}',
    '{"created_at": null, "text": "a"}',
    '{"text": "a"}',
    '["text"]',
    "7",
]


def text_of(lines: list[str]) -> bytes:
    return "\n".join([*lines, "", "  ", ""]).encode()


@pytest.mark.spark
def test_tweets(spark: SparkSession, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    good = [json.dumps(tweet) for tweet, _ in GOOD]
    write(files / "a.jsonl", text_of([*good[:2], *BAD]))
    write(files / "b.jsonl.gz", gzip.compress(text_of(good[2:])))

    df = tweets(spark, str(files), streaming=False)
    names = ["time", "key", "value", "arrival", "bad"]
    assert df.columns == names
    got = df.select(
        F.unix_micros("time").alias("at"), "key", "value", "bad", F.unix_micros("arrival")
    ).collect()
    assert {row[4] for row in got} == {CAME * 10**6}
    assert {row["key"] for row in got} == {None}
    wanted = [(round(at * 1e6), t.get("full_text", t.get("text"))) for t, at in GOOD]
    fine = [(row["at"], row["value"]) for row in got if row["bad"] is None]
    assert sorted(fine) == sorted(wanted)
    bad = [row for row in got if row["bad"] is not None]
    assert sorted(row["bad"] for row in bad) == sorted(BAD)
    assert {(row["at"], row["value"]) for row in bad} == {(None, None)}

    batches = streamed(tweets(spark, str(files), files_per_batch=1), tmp_path / "checkpoint")
    assert sorted(len(batch) for batch in batches) == [3, 2 + len(BAD)]
    assert batches[0][0].__fields__ == names

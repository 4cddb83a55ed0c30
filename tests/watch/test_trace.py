from __future__ import annotations

import contextlib
import gzip
import logging
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from taut.errors import TautError
from taut.watch.records import Batch, Ended, LeftOut, Record, Run, Started, Turn, encode
from taut.watch.runs import folder_name, folder_of_runs, keep_newest, runs
from taut.watch.trace import Files, Trace, read, to_pandas

RUN = Run(1.0, "abc123", "least-slack", concurrency=2, hold_limit=60.0)


def batch(number: int, query: str = "q") -> Batch:
    at = 100.0 + number
    return Batch(query, number, at, at, at, at + 0.1, at + 0.3, input=1.0)


def batches(records: Iterator[Record]) -> list[int]:
    return [record.batch for record in records if isinstance(record, Batch)]


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "run"
    files = Files(folder, RUN)
    told = [Started(2.0, "q"), Turn(3.0, "q", 2.5, "batch", "planned"), batch(0), Ended(9.0, "q")]
    files.write(told, 10.0)
    files.close()
    assert list(read(folder)) == [RUN, *told]
    assert list(read(tmp_path / "a")) == [RUN, *told], "the newest run of a folder"
    assert list(read(folder / "000001.jsonl")) == [RUN, *told]


def test_files_stay_few_and_each_begins_with_what_runs(tmp_path: Path) -> None:
    files = Files(tmp_path, RUN, file_bytes=2_000, total_bytes=8_000)
    files.write([Started(2.0, "gone"), Started(2.0, "q", "p99 <= 1 s")], 2.0)
    files.write([Ended(3.0, "gone")], 3.0)
    for n in range(0, 400, 4):
        files.write([batch(m) for m in range(n, n + 4)], float(n))
        assert size(tmp_path) <= 8_000
    files.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert 3 <= len(names) <= 4
    assert names[0] > "000010.jsonl"
    for name in names:
        first, second, *rest = read(tmp_path / name)
        assert (first, second) == (RUN, Started(2.0, "q", "p99 <= 1 s"))
        assert rest
    records = list(read(tmp_path))
    assert records[:2] == [RUN, Started(2.0, "q", "p99 <= 1 s")]
    assert sum(isinstance(record, (Run, Started)) for record in records) == 2, "told once"
    found = batches(iter(records))
    assert found == list(range(found[0], 400)), "the newest, without a gap"


def test_a_folder_that_has_files_is_not_overwritten(tmp_path: Path) -> None:
    for n in range(2):
        files = Files(tmp_path, RUN)
        files.write([batch(n)], 1.0)
        files.close()
    assert batches(read(tmp_path)) == [0, 1]


@contextlib.contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("a disk of a few kilobytes needs the command mount")
    if done.returncode:
        pytest.skip(f"a disk of a few kilobytes needs root: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = tmp_path / "disk"
    with small_disk(disk, 64):
        now = [10.0]
        files = Files(disk / "run", RUN, retry_after=30.0, clock=lambda: now[0])
        files.write([Started(1.0, "q")], 1.0)
        written = 0
        while not files.failing:
            files.write([batch(written)], 9e9)  # by a clock that is set back from here on
            written += 1
        assert files.left_out == 1
        now[0] = 20.0
        files.write([batch(written), batch(written + 1)], 20.0)
        assert files.left_out == 3, "not tried before its time"
        now[0] = 41.0
        files.write([batch(written + 2)], 41.0)
        assert files.left_out == 4, "tried, and still full"
        assert batches(read(disk / "run")) == list(range(written - 1)), "no half line"
        (disk / "run" / "000001.jsonl").unlink()
        now[0] = 80.0
        files.write([batch(written + 3)], 80.0)
        assert not files.failing
        _, _, gap, last = read(disk / "run")
        files.close()
    assert isinstance(gap, LeftOut)
    assert gap.records == 4
    assert "No space left" in gap.why
    assert last == batch(written + 3)
    assert [r.levelno for r in caplog.records].count(logging.WARNING) == 1
    assert "No space left" in caplog.text
    assert "the queries go on" in caplog.text


def test_a_folder_that_cannot_be_made_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    trace = Trace(Files(tmp_path / "file" / "run", RUN), keep_runs=20)
    trace.write([batch(0)])
    trace.close()
    assert trace.note() is not None
    assert "Not a directory" in str(trace.note())
    assert caplog.text.count("cannot be written to") == 1


def test_a_folder_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    files = Files(tmp_path / "run", RUN)
    files.write([Started(1.0, "q"), batch(0)], 1.0)
    (tmp_path / "run" / "000001.jsonl").unlink()
    (tmp_path / "run").rmdir()
    files.write([batch(1)], 2.0)
    files.close()
    assert list(read(tmp_path / "run")) == [RUN, Started(1.0, "q"), batch(1)]


def test_a_record_that_json_cannot_hold_is_left_out(tmp_path: Path) -> None:
    files = Files(tmp_path, RUN)
    files.write([batch(0), Turn(1.0, "q", float("-inf"), "batch", "policy"), batch(1)], 1.0)
    files.write([batch(2)], 2.0)
    files.close()
    records = list(read(tmp_path))
    assert batches(iter(records)) == [0, 1, 2]
    (gap,) = (record for record in records if isinstance(record, LeftOut))
    assert gap.records == 1


def test_whoever_writes_never_waits_for_the_disk(tmp_path: Path) -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Slow(Files):
        def write(self, records: object, now: float) -> None:
            entered.set()
            assert go_on.wait(60)
            super().write(records, now)  # type: ignore[arg-type]

    trace = Trace(Slow(tmp_path, RUN), most_waiting=5, clock=lambda: 7.0)
    trace.write([batch(0)])
    assert entered.wait(60)
    trace.write([batch(n) for n in range(1, 21)])
    go_on.set()
    trace.close()
    records = list(read(tmp_path))
    assert batches(iter(records)) == [0, 1, 2, 3, 4, 5]
    assert records[-1] == LeftOut(7.0, 15, "they came faster than they could be written")
    trace.write([batch(99)])
    trace.close()
    assert 99 not in batches(read(tmp_path))


def lines(path: Path, *more: bytes) -> Path:
    path.write_bytes(b"".join([encode(RUN) + b"\n", encode(batch(0)) + b"\n", *more]))
    return path


def test_a_line_that_is_cut_off_is_the_end(tmp_path: Path) -> None:
    for cut in range(1, len(encode(batch(1)))):
        path = lines(tmp_path / "000001.jsonl", encode(batch(1))[:cut])
        assert batches(read(path)) == [0]


def test_a_file_packed_with_gzip_is_read_as_it_is(tmp_path: Path) -> None:
    plain = lines(tmp_path / "000001.jsonl", encode(batch(1)) + b"\n")
    packed = tmp_path / "kept.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert list(read(packed)) == list(read(plain))
    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(TautError, match=r"kept.jsonl.gz: cannot be read"):
        list(read(packed))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"kind":"batch"\n', r"000001.jsonl, line 3: .*truncated"),
        (b'{"kind":"batch"}\n', "line 3: Object missing required field `query`"),
        (b'{"kind":"dance"}\n', "line 3: Invalid value 'dance'"),
        (b'{"kind":"run","version":99}\n', "format 99 by a newer Taut"),
        (
            encode(Run(1.0, "b", "p", 1, 1.0, version=2)) + b"\n",
            "format 2 by a newer Taut, and this one reads up to 1; update Taut",
        ),
    ],
)
def test_what_is_wrong_with_a_line_is_said(tmp_path: Path, line: bytes, said: str) -> None:
    path = lines(tmp_path / "000001.jsonl", line, encode(batch(2)) + b"\n")
    with pytest.raises(TautError, match=said):
        list(read(path))


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TautError, match="no run is recorded there"):
        list(read(tmp_path))
    with pytest.raises(TautError, match="no such folder"):
        list(read(tmp_path / "none"))


def test_a_table_for_pandas(tmp_path: Path) -> None:
    files = Files(tmp_path, RUN)
    files.write([Turn(3.0, "q", 2.5, "batch", "planned"), batch(0), batch(1)], 1.0)
    files.close()
    table = to_pandas(tmp_path)
    assert list(table.batch) == [0, 1]
    assert list(table.written - table.run) == pytest.approx([0.2, 0.2])
    turns = to_pandas(tmp_path, "turn")
    assert turns.why.tolist() == ["planned"]
    assert "slack_due" in turns.columns
    assert list(to_pandas(tmp_path, "reduced").columns)[:2] == ["at", "query"]
    with pytest.raises(TautError, match="kind='turns': one of batch, ended"):
        to_pandas(tmp_path, "turns")


def test_where_runs_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder_of_runs() is None, "off for the tests"
    assert folder_of_runs(False) is None
    assert folder_of_runs(tmp_path) == tmp_path
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder_of_runs(True) == tmp_path / "taut" / "runs"
    monkeypatch.setenv("TAUT_TRACE", "")
    assert folder_of_runs() == tmp_path / "taut" / "runs"
    monkeypatch.setenv("TAUT_TRACE", str(tmp_path / "here"))
    assert folder_of_runs() == tmp_path / "here"
    assert runs() == []
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("TAUT_TRACE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folder_of_runs() == tmp_path / ".cache" / "taut" / "runs"
    with pytest.raises(TautError, match="trace=3: a folder, False"):
        folder_of_runs(3)  # type: ignore[arg-type]


def some_runs(place: Path, count: int) -> list[Path]:
    """Runs that were written to one after the other."""
    made = []
    for n in range(count):
        folder = place / folder_name(f"{n:06x}", 1_000.0 * n)
        files = Files(folder, RUN)
        files.write([batch(n)], 1.0)
        files.close()
        for path in (folder / "000001.jsonl", folder):
            os.utime(path, (n, n))
        made.append(folder)
    return made


def test_a_clock_that_is_set_back_delays_no_retry(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    now = [0.0]
    files = Files(tmp_path / "file" / "run", RUN, retry_after=30.0, clock=lambda: now[0])
    files.write([batch(0)], 9e9)
    assert files.failing
    (tmp_path / "file").unlink()
    now[0] = 31.0
    files.write([batch(1)], 1.0)
    assert not files.failing
    files.close()


def test_only_runs_are_deleted_and_no_links_are_followed(tmp_path: Path) -> None:
    archive = some_runs(tmp_path / "archive", 1)[0]
    place = tmp_path / "runs"
    made = some_runs(place, 3)
    link = place / "19700101-000000-abc"
    link.symlink_to(archive)
    notes = place / "19700101-000001-abc"
    notes.mkdir()
    (notes / "000001.jsonl").write_text("precious\n")
    begun, stillborn, other = (place / f"19700101-00000{n}-abc" for n in (2, 3, 4))
    for folder in (begun, stillborn, other):
        folder.mkdir()
    (other / "notes.txt").write_text("precious\n")
    for folder in (stillborn, other, place / "mine"):
        folder.mkdir(exist_ok=True)
        os.utime(folder, (99, 99))
    keep_newest(place, 1)
    assert begun.is_dir(), "a run that is about to write"
    assert not stillborn.exists()
    assert (other / "notes.txt").is_file()
    assert (place / "mine").is_dir()
    assert (archive / "000001.jsonl").is_file()
    assert link.is_symlink()
    assert (notes / "000001.jsonl").read_text() == "precious\n"
    assert [path.exists() for path in made] == [False, False, True]


def test_a_run_that_cannot_be_deleted_or_read_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = some_runs(tmp_path, 6)
    unlink, iterdir = Path.unlink, Path.iterdir

    def refusing(path: Path, *args: bool, **options: bool) -> None:
        if path.parent == made[0]:
            raise PermissionError(13, "not yours", str(path))
        unlink(path, *args, **options)

    def hidden(path: Path) -> Iterator[Path]:
        if path == made[1]:
            raise PermissionError(13, "not yours", str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "unlink", refusing)
    monkeypatch.setattr(Path, "iterdir", hidden)
    assert runs(tmp_path) == [made[0], *made[2:]]
    keep_newest(tmp_path, 2)
    assert [path.exists() for path in made] == [True, True, False, False, True, True]


def test_the_runs_that_were_written_last_are_kept(tmp_path: Path) -> None:
    made = some_runs(tmp_path, 6)
    (tmp_path / "notes").mkdir()
    os.utime(made[0] / "000001.jsonl", (99, 99))
    assert runs(tmp_path) == made
    keep_newest(tmp_path, 3)
    assert runs(tmp_path) == [made[0], made[4], made[5]], "the first one still writes"
    assert (tmp_path / "notes").is_dir()
    trace = Trace(Files(tmp_path / folder_name("f", 9e3), RUN), keep_runs=2)
    trace.write([batch(9)])
    trace.close()
    assert len(runs(tmp_path)) == 2
    keep_newest(tmp_path / "none", 3)

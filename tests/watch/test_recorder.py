from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from taut.watch import hub
from taut.watch.recorder import Recorder
from taut.watch.records import Batch, LeftOut, Reduced, Run, Source, Started
from taut.watch.trace import Files, Trace, read

RUN = Run(1.0, "abc123", "least-slack", concurrency=2, hold_limit=60.0)


def batch(number: int) -> Batch:
    at = 100.0 + number
    return Batch("q", number, at, at, at, at + 0.1, at + 0.3, input=1.0)


def test_records_reach_the_board_and_the_trace(
    tmp_path: Path, eventually: Callable[..., None]
) -> None:
    recorder = Recorder(Trace(Files(tmp_path, RUN)))
    assert recorder.tell is None
    assert not hub.heard()
    recorder.open(RUN, [Started(2.0, "q")])
    recorder.open(RUN)
    assert recorder.tell is not None
    recorder.tell(batch(0))
    hub.tell(Source(3.0, "q"))
    snapshot = recorder.snapshot(101.0, notes=["so"], overhead=0.5)
    assert (snapshot.run, snapshot.notes, snapshot.overhead) == ("abc123", ("so",), 0.5)
    assert [query.batches for query in snapshot.queries] == [1]
    assert [source.query for source in snapshot.sources] == ["q"]
    recorder.tell(batch(1))
    eventually(lambda: any(tmp_path.iterdir()) and batch(1) in list(read(tmp_path)))
    recorder.check()
    recorder.close()
    recorder.close()
    assert recorder.tell is None
    assert not hub.heard()
    assert list(read(tmp_path)) == [RUN, Started(2.0, "q"), batch(0), Source(3.0, "q"), batch(1)]
    assert recorder.snapshot(102.0).queries[0].batches == 2
    assert recorder.cpu_seconds > 0


def test_too_many_records_are_counted(tmp_path: Path) -> None:
    recorder = Recorder(Trace(Files(tmp_path, RUN)), most_waiting=3)
    recorder.open(RUN)
    assert recorder.tell is not None
    with recorder._lock:  # nobody looks meanwhile
        for n in range(10):
            recorder.tell(batch(n))
    recorder.close()
    *_, last = read(tmp_path)
    assert isinstance(last, LeftOut)
    assert last.records == 7
    assert any("7 records were left out" in note for note in recorder.snapshot(1.0).notes)


def test_a_record_that_makes_no_sense_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    recorder.open(RUN, [Started(2.0, "q")])
    assert recorder.tell is not None
    for _ in range(2):
        recorder.tell(Batch("q", 0, *["soon"] * 5))  # type: ignore[arg-type]
    recorder.tell(batch(1))
    assert recorder.snapshot(101.0).queries[0].batches >= 1
    recorder.close()
    assert caplog.text.count("was not understood") == 1


def test_runtimes_of_one_process_hear_of_their_own_queries() -> None:
    first, second = Recorder(), Recorder()
    first.open(Run(0.0, "A", "p", 1, 60.0), [Started(0.0, "a")])
    second.open(Run(0.0, "B", "p", 1, 60.0), [Started(0.0, "b")])

    def told() -> list[list[str]]:
        return [[s.query for s in each.snapshot(101.0).sources] for each in (first, second)]

    hub.own("a", "A")
    hub.own("b", "B")
    for name in ("a", "b", "taut.read 123abc"):
        hub.tell(Source(100.0, name))
    assert told() == [["a", "taut.read 123abc"], ["b", "taut.read 123abc"]]
    hub.tell(Reduced(100.0, "b", 0, on_time=0, late=10))
    assert [each.snapshot(101.0).reduces != () for each in (first, second)] == [False, True]
    hub.own("a", "B")  # it has ended in the one, and was started in the other
    hub.own("c", "A")
    hub.disown("A")
    for name in ("a", "c"):
        hub.tell(Source(101.0, name))
    first.close()
    second.close()
    assert [s.query for s in second.snapshot(101.0).sources] == ["a", "b", "c", "taut.read 123abc"]
    assert [s.at for s in first.snapshot(101.0).sources if s.query == "a"] == [100.0]
    hub.disown("B")
    assert not hub._owners


def test_one_that_was_closed_does_not_open(tmp_path: Path) -> None:
    recorder = Recorder(Trace(Files(tmp_path / "run", RUN)))
    recorder.close()
    recorder.open(RUN)
    assert recorder.tell is None
    assert not (tmp_path / "run").exists(), "nothing to say, nothing made"

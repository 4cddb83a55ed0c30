"""Watching reaches neither who starts queries nor the threads that run them; without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.watched import Owner

from taut.spark.failure import MOST, in_short
from taut.spark.freely import FreeBatches
from taut.spark.probe import Out
from taut.spark.runtime import Runtime
from taut.spark.watching import Watching
from taut.spark.window import Shape, Window
from taut.watch import hub
from taut.watch.records import Batch, Ended, Record, Source, Turn
from taut.watch.trace import read


def query(name: str) -> Any:
    probe = SimpleNamespace(window=None, watermark=0.0)
    return SimpleNamespace(
        name=name, ended_told=False, started_at=0.0, slo=None, window=None, resident=0, probe=probe,
        active=True, error=lambda: None, stands=lambda now: None,
    )  # fmt: skip


@pytest.fixture
def owner() -> Owner:
    return Owner()


@pytest.fixture
def watching(owner: Owner) -> Iterator[Watching]:
    made = Watching(owner, False)
    yield made
    made.close()
    assert not hub._owners


OUT = Out(1.0, 1.0, 1.0, 0.0, 0.0, 0, 0, 0.0)


def everything(watching: Watching, name: str = "q") -> None:
    watching.started(query(name))
    watching.granted(name)
    watching.wrote(query(name), 0, 1.0, 1.0, 2.0, OUT, False)
    watching.wrote_freely(name, 0, 1.0, 2.0, 1.0)
    watching.ended(query(name), None)


def test_what_fails_in_watching_is_told_once_and_raises_nothing(
    watching: Watching, owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    owner._turns.add("q", 0.0)
    owner._turns.planned("q", 0.0)
    owner._turns.grant(0.0, lambda held: [])

    def fails(record: Record) -> None:
        raise RuntimeError("no memory")

    watching.tell = fails
    everything(watching)
    watching.granted("unknown")
    assert caplog.text.count("no memory") == 1
    assert "the queries go on" in caplog.text


def test_closing_while_others_tell_reaches_nobody(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    class Closing(Watching):
        """Closed by another thread right after it was looked whether somebody watches."""

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            if name == "tell" and value is not None:
                self.__dict__["tell"] = None
            return value

    owner._turns.add("q", 0.0)
    owner._turns.planned("q", 0.0)
    owner._turns.grant(0.0, lambda held: [])
    watching, told = Closing(owner, False), list[Record]()
    for call in (
        lambda: watching.started(query("q")),
        lambda: watching.granted("q"),
        lambda: watching.wrote(query("q"), 0, 1.0, 1.0, 2.0, OUT, False),
        lambda: watching.wrote_freely("q", 0, 1.0, 2.0, None),
        lambda: watching.ended(query("q"), None),
    ):
        watching.tell = told.append
        call()
    assert len(told) == 5
    assert not caplog.records
    assert [r.input_known for r in told if isinstance(r, Batch)] == [True, False]
    watching.close()


def test_a_trace_that_cannot_be_opened_keeps_no_query_from_starting(
    owner: Owner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    watching = Watching(owner, tmp_path)

    def fails(self: Watching) -> None:
        raise ImportError("numpy is broken")

    monkeypatch.setattr(Watching, "_run_record", fails)
    everything(watching)
    everything(watching)
    assert caplog.text.count("numpy is broken") == 1
    with pytest.raises(ImportError):
        watching.snapshot()
    watching.close()


def test_a_turn_that_goes_on_is_told_once(watching: Watching, owner: Owner) -> None:
    told: list[Record] = []
    watching.tell = told.append
    turns = owner._turns
    turns.add("q", 0.0)
    turns.fail(RuntimeError("policy"))
    for at in range(1, 4):
        assert turns.planned("q", float(at))
        watching.granted("q")
        assert turns.written("q", at + 0.5, None)
    turns.idle("q", 9.0)
    turns.planned("q", 10.0)
    watching.granted("q")
    assert [(turn.at, turn.why) for turn in told if isinstance(turn, Turn)] == [
        (1.0, "open"),
        (10.0, "open"),
    ]


def test_runtimes_own_what_they_have_started(owner: Owner) -> None:
    first, second = Watching(owner, False), Watching(Owner(), False)
    first.started(query("a"))
    for each in (first, second):
        each.snapshot()
    hub.tell(Source(1.0, "a"))
    seen = [[source.query for source in each.snapshot().sources] for each in (first, second)]
    assert seen == [["a"], []]
    first.close()
    second.close()
    assert not hub._owners


def test_a_count_begun_anew_leaves_out_what_was_before(owner: Owner, tmp_path: Path) -> None:
    watching = Watching(owner, False)
    owner.queries["q"] = query("q")
    watching.started(owner.queries["q"])
    before = watching.snapshot()
    watching.wrote_freely("q", 0, 1.0, 2.0, 1.0)
    assert watching.snapshot().queries[0].batches == 1
    watching.begin_anew(tmp_path)
    watching.note = "Counted anew."
    watching.wrote_freely("q", 1, 3.0, 4.0, 1.0)
    hub.tell(Source(5.0, "q"))
    after = watching.snapshot()
    assert after.run != before.run
    assert (after.notes, after.queries[0].batches) == (("Counted anew.",), 1)
    assert [source.query for source in after.sources] == ["q"], "told once, to the new one"
    assert watching.cpu_seconds >= 0.0
    watching.close()
    assert watching.folder is not None
    recorded = [record for record in read(watching.folder) if isinstance(record, Batch)]
    assert [batch.batch for batch in recorded] == [1]
    assert not hub.heard()
    assert not hub._owners


def test_windows_that_ended_before_the_count_began_are_not_in_it(
    watching: Watching, owner: Owner
) -> None:
    owner.queries["q"] = query("q")
    watching.snapshot()
    watching.begin_anew(False)
    told: list[Record] = []
    watching.tell = told.append
    probe: Any = SimpleNamespace(name="q", window=Window(1.0, 1.0), watermark=0.0)
    # six windows come out with a batch, five of them late; the last two ended after the beginning
    began = float(round(watching._counts_from))
    watching._counts_from = began + 0.5
    out = Out(0.0, began, 6.0, began - 3.5, began + 2.5, 6, 5, 0.0)
    watching.wrote_by_itself(probe, 3, began + 2.6, began + 2.7, out)
    watching.wrote_by_itself(probe, 4, began + 2.6, began + 2.7, replace(out, upto=began + 0.4))
    first, second = (batch for batch in told if isinstance(batch, Batch))
    assert (first.windows, first.late, first.ends) == (2, 1, (began + 1.0, began + 2.0))
    assert (second.windows, second.late, second.ends) == (0, 0, ())


def test_without_turns_nothing_limits_them(watching: Watching, owner: Owner) -> None:
    assert watching.snapshot().concurrency == 2
    owner.policy_name = "spark-default"
    assert watching.snapshot().concurrency == 0


def test_of_a_failure_those_who_watch_hear_in_short(watching: Watching) -> None:
    told: list[Record] = []
    watching.tell = told.append
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: bad\n'
    watching.ended(query("q"), f"sink raised on batch 1: PythonException:\n{trace}")
    watching.ended(query("r"), "x" * 5_000)
    errors = [record.error for record in told if isinstance(record, Ended)]
    assert errors[0] == "ValueError: bad (sink raised on batch 1: PythonException)"
    assert len(errors[1] or "") == MOST


def test_of_what_spark_tells_at_length_only_what_was_raised_is_left() -> None:
    inner = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: got\n  4\n'
    proxy = f"An exception was raised by the Python Proxy. Return Message: {inner}\nMore: 1\n"
    stages = "Driver stacktrace:\n\tat org.apache.spark\n"
    plan = "=== Streaming Query ===\nIdentifier: x\nLogical Plan:\nProject [a]\n"
    said = in_short(f"[STREAM_FAILED] Query terminated: {proxy}{stages}\n{plan}")
    assert said.startswith("ValueError: got ([STREAM_FAILED] Query terminated: An exception")
    assert in_short(said) == said
    outer = f"{inner}\nDuring handling of the above exception\n\n{inner}"
    assert in_short(outer.replace("ValueError: got\n  4", "OSError: no", 1)) == "ValueError: got"
    assert in_short(f"Job aborted\n\n{plan}") == "Job aborted"


def test_facts_that_cannot_be_read_are_told_once(
    watching: Watching, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Record] = []
    watching.tell = told.append
    shape = Shape(Window(1.0, 1.0), watermark=True, session=False, stateful=True)
    batches = FreeBatches("q", shape, 1.0, watching)
    for batch in range(3):
        batches.wrote(None, object(), batch, batch + 1.0, batch + 1.5)
    assert [batch.batch for batch in told if isinstance(batch, Batch)] == [0, 1, 2]
    assert caplog.text.count("something is not told") == 1


def test_everything_is_closed_whatever_happens(watching: Watching, owner: Owner) -> None:
    closed: list[str] = []

    class Page:
        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            closed.append(self.name)
            if self.name == "bad":
                raise OSError("its port")

    class Interrupted:
        ended_told = False

        @property
        def active(self) -> bool:
            raise KeyboardInterrupt

    watching.snapshot()
    assert hub.heard()
    owner.queries["q"] = Interrupted()
    watching._pages = [Page("good"), Page("bad")]  # type: ignore[list-item]
    with pytest.raises(OSError, match="its port"):
        watching.close()
    assert closed == ["bad", "good"]
    assert not hub.heard()
    assert watching.tell is None
    owner.queries.clear()
    watching._pages = []


def test_a_stop_that_is_interrupted_closes_what_watches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    context = SimpleNamespace(master="local[2]", defaultParallelism=2)
    spark: Any = SimpleNamespace(version="4.3", sparkContext=context, _jvm=None)
    runtime = Runtime(spark, "fcfs", trace=False)
    runtime.snapshot()
    assert hub.heard()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("taut.spark.runtime.end_all", interrupted)
    with pytest.raises(KeyboardInterrupt):
        runtime.stop()
    assert not hub.heard()
    runtime.stop()

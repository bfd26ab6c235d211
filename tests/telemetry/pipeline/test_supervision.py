"""Why a query has ended, what is said of it, and what is tried again."""

from __future__ import annotations

import traceback
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from penstock.cli.failure import Failure
from penstock.cli.spark_log import SparkLog
from penstock.cli.telemetry import run as telemetry_run
from penstock.jobs import executors
from penstock.jobs.ledger import StateBroken
from penstock.jobs.supervision import (
    BatchFailed,
    Guard,
    JvmEnded,
    QueryFailed,
    Retries,
    is_transient,
    reason_of,
)
from penstock.telemetry.pipeline import jobs
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job, Started
from penstock.telemetry.pipeline.publish import Topics, TopicsUnreachable
from penstock.telemetry.thresholds import load_thresholds

NO_WORKER = (
    "An error occurred while calling o71.collectToPython.\n"
    ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 failed 1 times\n"
    "org.apache.spark.SparkException: Python worker failed to connect back.\n"
    "\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:203)\n"
)
#: as of a query whose planning process was killed
PLANNER_KILLED = "[STREAM_FAILED] Query [id = a, runId = b] terminated with exception:  SQLSTATE: XXKST"
PLANNER_TRACE = (
    "java.io.EOFException\n"
    "\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)\n"
    "\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.init(R.scala:1)\n"
)
MARK = "py4j.protocol.Py4JJavaError: An error occurred while calling"


def said_to_java(error: Exception) -> str:
    """The text of py4j for the JVM when a batch raises this."""

    def fails(messages: Any, batch_id: int) -> None:
        raise error

    guard = Guard(fails)
    try:
        guard(None, 7)
    except BatchFailed:
        assert guard.error is error
        return traceback.format_exc()
    raise AssertionError


def test_a_long_text_overflows_the_stack_of_spark_and_a_batch_reports_a_short_one(
    spark: SparkSession,
) -> None:
    java = cast(Any, spark)._jvm
    streams = java.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    long_text = f"{MARK} o71.collectToPython.\n" + "\tat org.apache.spark.Some.call(Some.scala:1)\n" * 2000
    with pytest.raises(Py4JJavaError, match="StackOverflowError"):
        streams.PROXY_ERROR().findFirstIn(long_text)
    said = said_to_java(RuntimeError(long_text))
    assert len(said) < 2000
    assert not streams.PROXY_ERROR().findFirstIn(said).isDefined()
    # One that `stop` has interrupted is still known as such.
    said = said_to_java(RuntimeError(f"{long_text}Caused by: java.lang.InterruptedException"))
    assert len(said) < 2000
    assert streams.PROXY_ERROR().findFirstIn(said).isDefined()


def test_a_reason_is_one_line_without_stack_traces() -> None:
    assert reason_of(RuntimeError(NO_WORKER)) == (
        "RuntimeError: org.apache.spark.SparkException: Python worker failed to connect back."
    )
    assert (
        reason_of(TopicsUnreachable("gpu.alerts: no response in time")) == "gpu.alerts: no response in time"
    )
    assert reason_of(ValueError()) == "ValueError"
    stream = "[STREAM_FAILED] Query [id = a] terminated with exception: Python worker exited unexpectedly"
    assert reason_of(RuntimeError(stream)) == "RuntimeError: Python worker exited unexpectedly"
    text = "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n    f()\nKeyError: 'samples'"
    assert reason_of(RuntimeError(text)).endswith("KeyError: 'samples'")


def test_connection_errors_are_transient() -> None:
    assert is_transient(RuntimeError(NO_WORKER))
    assert is_transient(TopicsUnreachable("no answer"))
    assert is_transient(ConnectionResetError("gone"))
    assert is_transient(RuntimeError("penstock.registry.http.RegistryUnreachable: no answer"))
    assert not is_transient(RuntimeError("KeyError: 'samples'"))


class Captured(StreamingQueryException):
    """An error as PySpark has it: the text of a Java error, its stack trace, and the error that caused it."""

    def __init__(self, text: str, trace: str, cause: Captured | None = None) -> None:
        super().__init__(text)
        self._stackTrace, self._cause = trace, cause


def test_a_killed_process_is_known_by_the_trace_behind_an_empty_text() -> None:
    killed = Captured(PLANNER_KILLED, "at a.B.c(B.scala)", Captured("java.io.EOFException", PLANNER_TRACE))
    assert is_transient(killed)
    assert reason_of(killed) == "a Python process of Spark has ended unexpectedly (java.io.EOFException)"
    other = PLANNER_TRACE.replace("java.io.EOFException", "java.lang.OutOfMemoryError: Java heap space")
    dead = Captured(PLANNER_KILLED, "", Captured("java.lang.OutOfMemoryError", other))
    assert not is_transient(dead)
    assert reason_of(dead) == "Captured: java.lang.OutOfMemoryError: Java heap space"


def test_frames_decide_nothing_by_their_names() -> None:
    trace = "java.lang.IllegalStateException: wrong\n\tat org.apache.spark.FetchFailed.run(F.scala:1)\n"
    assert not is_transient(Captured("wrong", trace))


def test_an_error_whose_text_is_in_a_jvm_that_has_ended() -> None:
    class Lost(Exception):
        def __str__(self) -> str:
            raise Py4JNetworkError("Error while sending")

    assert reason_of(Lost()) == "Lost"
    assert not is_transient(Lost())


def test_tries_are_bounded_and_a_batch_that_is_done_starts_the_count_again() -> None:
    retries, error = Retries(3), RuntimeError(NO_WORKER)
    assert [retries.next_wait_s(error, None) for _ in range(4)] == [1.0, 2.0, 4.0, None]
    assert retries.next_wait_s(error, 5) == 1.0
    assert retries.next_wait_s(ValueError("wrong"), 5) is None


class Query:
    """Stands for Spark's: each look at it gives the next of these."""

    lastProgress = None

    def __init__(self, *looks: bool | Exception, died_of: Exception | None = None) -> None:
        self._looks = list(looks)
        self._died_of = died_of
        self.stopped = False

    def awaitTermination(self, timeout: float | None = None) -> bool:
        look = self._looks.pop(0)
        if isinstance(look, Exception):
            raise look
        return look

    def exception(self) -> Exception | None:
        return self._died_of

    def stop(self) -> None:
        self.stopped = True


class FakeBatches:
    def __init__(self, *failures: Exception, repeats: int = 0) -> None:
        self.closed = 0
        self._failures = list(failures)
        self._repeats = repeats

    def must_repeat(self) -> bool:
        self._repeats -= 1
        return self._repeats >= 0

    def close(self) -> None:
        if self._failures:
            raise self._failures.pop(0)
        self.closed += 1


def started(query: Query, *, until_end: bool = False) -> Started:
    return Started(
        query=cast(Any, query),
        guard=Guard(lambda messages, batch: None),
        until_end=until_end,
        batches=cast(Any, FakeBatches()),
    )


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (Query(True), "without a reason"),
        (Query(True, died_of=StreamingQueryException("worker exited")), "worker exited"),
        (Query(StreamingQueryException("worker exited")), "worker exited"),
        (Query(Py4JNetworkError("Answer from Java side is empty")), "the JVM of Spark has ended"),
        (Query(ConnectionRefusedError(111, "Connection refused")), "the JVM of Spark has ended"),
    ],
)
def test_a_query_that_dies_gives_the_reason(query: Query, reason: str) -> None:
    with pytest.raises(QueryFailed, match=reason):
        started(query).wait(1)


def test_the_error_of_a_batch_is_its_cause_and_not_the_text_for_spark() -> None:
    failed = started(Query(StreamingQueryException("BatchFailed: batch 3: gpu.alerts: no response in time")))
    failed.guard.error = TopicsUnreachable("gpu.alerts: no response in time")
    with pytest.raises(QueryFailed, match="no response in time") as raised:
        failed.wait(1)
    assert is_transient(cast(Exception, raised.value.__cause__))


def test_a_disk_that_fails_is_not_the_jvm() -> None:
    class FullDisk(FakeBatches):
        def close(self) -> None:
            raise OSError(28, "No space left on device")

    backfill = Started(
        query=cast(Any, Query(True)),
        guard=Guard(lambda messages, batch: None),
        until_end=True,
        batches=cast(Any, FullDisk()),
    )
    with pytest.raises(OSError, match="No space left"):
        backfill.complete()


def test_a_batch_that_failed_fails_a_backfill_even_if_spark_knows_no_reason() -> None:
    backfill = started(Query(True), until_end=True)
    backfill.guard.error = RuntimeError(NO_WORKER)
    with pytest.raises(QueryFailed, match="failed to connect back"):
        backfill.complete()
    assert cast(Any, backfill.batches).closed == 0


class Shown:
    batch_id: int | None = None

    def saw(self, query: Any) -> None: ...


def keep_running(
    monkeypatch: pytest.MonkeyPatch, queries: list[Started], stop: Event, *, closes: bool = False
) -> None:
    waiting = iter(queries)
    monkeypatch.setattr(jobs, "start", lambda *reported: next(waiting))
    monkeypatch.setattr(executors, "executors_of", lambda spark: None)
    monkeypatch.setattr(stop, "wait", lambda seconds: stop.is_set())
    ending = telemetry_run._Ending(closes, 2)
    telemetry_run._keep_running(
        None, cast(Job, None), ending, stop, cast(Any, Shown()), lambda report: None, lambda: None
    )


def test_a_transient_failure_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    last = started(Query(False, True), until_end=True)
    failing = [started(Query(StreamingQueryException(NO_WORKER))) for _ in range(2)]
    keep_running(monkeypatch, [*failing, last], Event())
    assert cast(Any, last.batches).closed == 1
    assert capsys.readouterr().err.count("Python worker failed to connect back") == 2


@pytest.mark.parametrize(("text", "tries"), [(NO_WORKER, 3), ("KeyError: 'samples'", 1)])
def test_a_failure_that_stays_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, text: str, tries: int
) -> None:
    queries = [started(Query(StreamingQueryException(text))) for _ in range(tries)]
    with pytest.raises(QueryFailed, match="the query has ended"):
        keep_running(monkeypatch, queries, Event())


def test_a_jvm_that_has_ended_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    dead = started(Query(ConnectionRefusedError(111, "Connection refused")))
    with pytest.raises(JvmEnded, match="the JVM of Spark has ended"):
        keep_running(monkeypatch, [dead], Event())


@pytest.mark.parametrize("closes", [False, True])
def test_windows_are_closed_at_a_signal_on_request(monkeypatch: pytest.MonkeyPatch, closes: bool) -> None:
    stop, query = Event(), Query()
    stop.set()
    one = started(query)
    keep_running(monkeypatch, [one], stop, closes=closes)
    assert (cast(Any, one.batches).closed, query.stopped) == (int(closes), True)


def test_windows_that_fail_to_close_at_a_signal_are_closed_by_the_next_try(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, query = Event(), Query()
    stop.set()
    batches = FakeBatches(StreamingQueryException(NO_WORKER))
    failing = Started(
        query=cast(Any, query),
        guard=Guard(lambda messages, batch: None),
        until_end=False,
        batches=cast(Any, batches),
    )
    second = started(Query())
    keep_running(monkeypatch, [failing, second], stop, closes=True)
    assert query.stopped, "the next query has the same name"
    assert (batches.closed, cast(Any, second.batches).closed) == (0, 1)


def test_windows_are_closed_after_the_batch_that_an_earlier_try_has_begun(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, query, batches = Event(), Query(False, False), FakeBatches(repeats=2)
    stop.set()
    one = Started(
        query=cast(Any, query),
        guard=Guard(lambda messages, batch: None),
        until_end=False,
        batches=cast(Any, batches),
    )
    keep_running(monkeypatch, [one], stop, closes=True)
    assert query._looks == [], "the batch has run"
    assert (batches.closed, query.stopped) == (1, True)


def test_a_batch_that_fails_at_a_signal_is_repeated_before_windows_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop, query = Event(), Query()
    stop.set()
    batches = FakeBatches(StateBroken("batch 1 was interrupted"))
    failing = Started(
        query=cast(Any, query),
        guard=Guard(lambda messages, batch: None),
        until_end=False,
        batches=cast(Any, batches),
    )
    failing.guard.error = RuntimeError(NO_WORKER)
    second = started(Query())
    keep_running(monkeypatch, [failing, second], stop, closes=True)
    assert query.stopped and cast(Any, second.batches).closed == 1


def test_a_query_whose_state_is_broken_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, query = Event(), Query()
    stop.set()
    batches = FakeBatches(StateBroken("state and checkpoint differ"))
    broken = Started(
        query=cast(Any, query),
        guard=Guard(lambda messages, batch: None),
        until_end=False,
        batches=cast(Any, batches),
    )
    with pytest.raises(StateBroken):
        keep_running(monkeypatch, [broken], stop, closes=True)
    assert query.stopped


class LostStart:
    """Stands for the start of a session whose JVM dies while PySpark connects to it."""

    def __init__(self, ending: str | None) -> None:
        self._ending = ending

    def session(self, preload: Any) -> Any:
        raise Py4JNetworkError("Error while sending or receiving")

    def jvm_ending(self) -> str | None:
        return self._ending


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("was killed with SIGSEGV", "the JVM of Spark was killed with SIGSEGV; a new start continues"),
        (None, "the JVM has ended: Py4JNetworkError: Error while sending or receiving"),
    ],
)
def test_a_jvm_that_dies_during_the_start_is_named(ending: str | None, said: str) -> None:
    with pytest.raises(Failure, match=f"^Spark did not start: {said}"):
        telemetry_run._session(cast(Any, LostStart(ending)), SparkLog(None))


class DeadSession:
    """Stands for a session whose JVM does not respond, or whose planning fails."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def dataSource(self) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "expected", "is_retried"),
    [
        (ConnectionRefusedError(111, "Connection refused"), JvmEnded, False),
        (Py4JNetworkError("Answer from Java side is empty"), JvmEnded, False),
        (StreamingQueryException(NO_WORKER), QueryFailed, True),
        (StreamingQueryException("there is no such topic"), QueryFailed, False),
    ],
)
def test_a_query_that_cannot_be_started_gives_the_reason(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    error: Exception,
    expected: type[QueryFailed],
    is_retried: bool,
) -> None:
    for method in ("create", "wait_for"):
        monkeypatch.setattr(Topics, method, lambda *_: None)
    job = Job("localhost:1", "topic", str(tmp_path), Settings(load_thresholds()))
    with pytest.raises(expected) as raised:
        jobs.start(cast(Any, DeadSession(error)), job, lambda report: None)
    cause = raised.value if expected is JvmEnded else raised.value.__cause__
    assert is_transient(cast(Exception, cause)) is is_retried

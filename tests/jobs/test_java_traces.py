"""Java's stack traces: the end of a Python process, and what only looks like it."""

from __future__ import annotations

import pytest

from penstock.jobs.supervision import innermost, lost_process, without_frames

PLANNER = """\
java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset(Some.scala:2)
\tat org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution.runBatch(MicroBatch.scala:3)
"""
WRAPPED = (
    f"org.apache.spark.sql.streaming.StreamingQueryException: null\n\tat a.B.c(B.java)\nCaused by: {PLANNER}"
)
DAMAGED_FILE = """\
java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:386)
\tat org.apache.spark.sql.execution.streaming.checkpointing.HDFSMetadataLog.get(Log.scala:2)
"""


@pytest.mark.parametrize(
    "error",
    ["java.io.EOFException", "java.io.IOException: Broken pipe", "java.io.IOException: Stream closed"],
)
def test_a_python_process_that_ends_is_known_by_the_frames_of_the_error(error: str) -> None:
    assert lost_process(PLANNER.replace("java.io.EOFException", error)) == error
    assert lost_process(WRAPPED.replace("java.io.EOFException", error)) == error


@pytest.mark.parametrize(
    "text",
    [
        "",
        "java.io.EOFException",
        DAMAGED_FILE,
        # The frames belong to another error.
        DAMAGED_FILE
        + PLANNER.replace("java.io.EOFException", "Caused by: java.lang.IllegalStateException: x"),
        PLANNER.replace("java.io.EOFException", "java.lang.OutOfMemoryError: Java heap space"),
    ],
)
def test_other_errors_are_no_lost_process(text: str) -> None:
    assert lost_process(text) is None


def test_the_last_cause_of_a_trace() -> None:
    assert innermost(WRAPPED) == "java.io.EOFException"
    assert innermost("only a text") is None


def test_a_text_without_its_frames() -> None:
    text = "java.lang.Error: at last\n\tat x.FetchFailed.y(Z.java:1)\nat noon nothing happened\n"
    assert without_frames(text) == "java.lang.Error: at last\nat noon nothing happened"

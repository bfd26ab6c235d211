"""Why a query has ended, whether another try may help, and how often it is tried.

Spark matches the text of a batch's error against `(.|\\r\\n|\\r|\\n)*` when a query is stopped
(`StreamExecution.PROXY_ERROR`). Java's regular expressions recurse once for each character of such a group: a
text of some thousand characters overflows the stack, and the query then ends without any reason. So a batch
raises a short text only, and its error itself is kept here.

Java's stack traces tell which error is the cause, and whether a Python process of Spark was lost. Spark reads
from its Python processes through sockets. Where Spark expects the end of one, it raises an error that says
so. Elsewhere, such as in the process that plans a stream, the end of a process is an end of input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from penstock.model.errors import PenstockError

__all__ = [
    "BatchFailed",
    "Guard",
    "JvmEnded",
    "QueryFailed",
    "Retries",
    "Transient",
    "innermost",
    "is_transient",
    "lost_process",
    "reason_of",
    "without_frames",
]

#: far below what overflows a stack of 1 MiB, the traceback that py4j puts around it included
_TEXT_MAX: Final = 200
_REASON_MAX: Final = 500
_PROXY_ERROR: Final = "py4j.protocol.Py4JJavaError: An error occurred while calling"
#: By these Spark knows that `stop` has interrupted a batch.
_INTERRUPTIONS: Final = (
    "java.lang.InterruptedException",
    "java.io.InterruptedIOException",
    "java.nio.channels.ClosedByInterruptException",
)
#: what Spark puts before the reason
_STREAM_FAILED: Final = re.compile(r"\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ?")
#: what Spark puts behind it
_SQL_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}$", re.MULTILINE)
#: Texts of errors that a loaded machine, a killed worker or a lost connection causes.
_TRANSIENT: Final = (
    "Python worker failed to connect back",
    "Python worker exited unexpectedly",
    "Python planner process",
    "ExecutorLostFailure",
    "Executor heartbeat timed out",
    "FetchFailed",
    "penstock.net.peer_errors.Peer",
    "PeerLost:",
    "PeerRefused:",
    "PeerRejected:",
    "RegistryUnreachable:",
    "Connection refused",
    "Connection reset by peer",
    "SocketTimeoutException",
)


class Transient(PenstockError):
    """A failure of a batch that the same batch may not have when it is run again."""


class BatchFailed(PenstockError):
    """A batch raised an error; the message is its short form."""


class QueryFailed(PenstockError):
    """The query, the JVM or a worker has ended; the message says why."""


class JvmEnded(QueryFailed):
    """Spark does not respond any more: the command must be started again."""


class Guard:
    """Runs batches for `foreachBatch`, and keeps the error that ended one."""

    def __init__(self, process: Callable[[Any, int], None]) -> None:
        self._process = process
        self.error: Exception | None = None

    def __call__(self, messages: Any, batch_id: int) -> None:
        try:
            self._process(messages, batch_id)
        except Exception as error:  # noqa: BLE001 - raised again, in short
            self.error = error
            raise BatchFailed(_short(error, batch_id)) from None


def _short(error: Exception, batch_id: int) -> str:
    text = _message(error)
    interruption = next((name for name in _INTERRUPTIONS if name in text), None)
    if interruption is not None:
        return f"{_PROXY_ERROR} batch {batch_id}: {interruption}"
    return f"batch {batch_id}: {reason_of(error)}"[:_TEXT_MAX]


def reason_of(error: BaseException) -> str:
    """One line that says what went wrong, without stack traces."""
    traces = "\n".join(_texts(error))
    lost = lost_process(traces)
    if lost is not None:
        return f"a Python process of Spark has ended unexpectedly ({lost})"[:_REASON_MAX]
    text = _SQL_STATE.sub("", _STREAM_FAILED.sub("", _message(error)))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    messages = [
        line for line in lines if not line.startswith(("at ", "File ", "...", "Traceback", "JVM stacktrace"))
    ]
    # The last line of a Python traceback names the error; before it there is the code that raised it.
    causes = [line for line in messages if any(mark in line for mark in _TRANSIENT)]
    pythons = [line for line in messages if "Error: " in line or "Exception: " in line]
    line = next(iter([*causes, *pythons[-1:], *messages]), innermost(traces) or type(error).__name__)
    name = (
        ""
        if isinstance(error, PenstockError) or type(error).__name__ in line
        else f"{type(error).__name__}: "
    )
    return f"{name}{line}"[:_REASON_MAX]


def is_transient(error: BaseException) -> bool:
    """Whether the same batch may succeed when it is run again."""
    if isinstance(error, JvmEnded):
        return False
    if isinstance(error, Transient | ConnectionError):
        return True
    text = "\n".join(_texts(error))
    heads = without_frames(text)
    return lost_process(text) is not None or any(mark in heads for mark in _TRANSIENT)


def _message(error: BaseException) -> str:
    """The text of an error. An error of Java reads it from the JVM, which may have ended."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever py4j raises without a JVM
        return type(error).__name__


def _texts(error: BaseException) -> Iterator[str]:
    """The text of an error, and the stack traces of the Java errors behind it.

    PySpark's errors have no other access to their traces than these attributes. The text alone has no cause:
    that of a query whose Python process was killed is empty.
    """
    yield _message(error)
    behind: Any = error
    while behind is not None:
        yield getattr(behind, "_stackTrace", None) or ""
        behind = getattr(behind, "_cause", None)


class Retries:
    """Counts tries that made no progress. `limit` of them in a row may be repeated."""

    def __init__(self, limit: int, first_wait_s: float = 1.0, wait_max_s: float = 30.0) -> None:
        self._limit = limit
        self._first_wait_s = first_wait_s
        self._wait_max_s = wait_max_s
        self._failed = 0
        self._batch_id: int | None = None

    def next_wait_s(self, error: BaseException, batch_id: int | None) -> float | None:
        """How long to wait before the next try; None where there shall be none.

        `batch_id` is the last batch that is done: one that is new starts the count again.
        """
        if batch_id != self._batch_id:
            self._failed, self._batch_id = 0, batch_id
        self._failed += 1
        if not is_transient(error) or self._failed > self._limit:
            return None
        return min(self._wait_max_s, self._first_wait_s * 2.0 ** (self._failed - 1))


_CAUSED_BY: Final = "Caused by: "
#: errors of a socket whose other side has ended
_BROKEN: Final = (
    "java.io.EOFException",
    "java.io.IOException: Broken pipe",
    "java.io.IOException: Connection reset",
    "java.io.IOException: Stream closed",
    "java.net.SocketException",
    "java.nio.channels.AsynchronousCloseException",
    "java.nio.channels.ClosedChannelException",
)
#: where Spark reads from a Python process, or writes to one
_PYTHON_FRAMES: Final = (
    "org.apache.spark.api.python.",
    "org.apache.spark.sql.execution.python.",
    "org.apache.spark.sql.execution.datasources.v2.python.",
)


class _Error(NamedTuple):
    """An error of a trace: its class with its message, and the frames below it."""

    head: str
    frames: list[str]


def lost_process(text: str) -> str | None:
    """The error by which Spark noticed the end of a Python process; None if there is none in `text`."""
    for head, frames in _errors(text):
        if head.startswith(_BROKEN) and any(frame.startswith(_PYTHON_FRAMES) for frame in frames):
            return head
    return None


def innermost(text: str) -> str | None:
    """The class and message of the last cause in `text`; None if there is no stack trace in it."""
    heads = [head for head, frames in _errors(text) if frames]
    return heads[-1] if heads else None


def without_frames(text: str) -> str:
    """The text without its stack frames."""
    return "\n".join(line for line in text.splitlines() if _frame(line) is None)


def _errors(text: str) -> Iterator[_Error]:
    head, frames = "", list[str]()
    for line in text.splitlines():
        frame = _frame(line)
        if frame is not None:
            frames.append(frame)
        elif line.strip():
            yield _Error(head, frames)
            head, frames = line.strip().removeprefix(_CAUSED_BY), []
    yield _Error(head, frames)


def _frame(line: str) -> str | None:
    """The method of a stack frame, without its module; None if the line is none."""
    stripped = line.strip()
    if not stripped.startswith("at ") or "(" not in stripped:
        return None
    return (
        stripped.removeprefix("at ").rpartition("/")[2] if "/" in stripped.partition("(")[0] else stripped[3:]
    )

"""Reads Java's stack traces: which error is the cause, and whether a Python process of Spark was lost.

Spark reads from its Python processes through sockets. Where Spark expects the end of one, it raises an error
that says so. Elsewhere, such as in the process that plans a stream, the end of a process is a plain
`java.io.EOFException` without a message; only its stack frames tell it from the end of a damaged file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

__all__ = ["innermost", "lost_process", "without_frames"]

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

"""The exceptions of the bridge.

BridgeError             the bridge cannot continue: the message says why
├── ConnectionLost      a connection failed: the bridge opens it again
└── WriteFailed         a target has not stored a message
"""

from __future__ import annotations

from penstock.model.errors import PenstockError

__all__ = ["BridgeError", "ConnectionLost", "WriteFailed", "reason"]


class BridgeError(PenstockError):
    """The bridge cannot continue; a retry does not help."""


class ConnectionLost(BridgeError):
    """The connection to a system failed. Messages that were not acknowledged there are delivered again."""


class WriteFailed(BridgeError):
    """The target has not stored a message, or has not said so in time."""

    def __init__(self, message: str, *, retriable: bool) -> None:
        super().__init__(message)
        self.retriable = retriable


def reason(error: BaseException) -> str:
    """The text of an error of another library, whose own text may be empty."""
    return f"{type(error).__name__}: {error}".rstrip(": ")

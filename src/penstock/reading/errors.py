"""Errors of reading ranges of topics, besides error codes of brokers.

PenstockError
└── ReadingError
    ├── WrongOption     an option, or a schema, that cannot be: the user's to change
    └── DataLost        records that should be read are gone, and the caller has not said to skip them

Connections fail with `net.peer_errors`, as those of all clients; the caller retries.
"""

from __future__ import annotations

from penstock.model.errors import PenstockError

__all__ = ["DataLost", "ReadingError", "WrongOption"]


class ReadingError(PenstockError):
    """Anything that a reader of ranges itself raises on purpose."""


class WrongOption(ReadingError, ValueError):
    """The user's to change."""


class DataLost(ReadingError):
    """Records that should be read are gone."""

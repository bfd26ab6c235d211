"""Errors of requests to other brokers, and what each says about the fate of a request.

PeerGone            the peer has not responded
├── PeerRefused     the connection was refused: the process has ended or not started; nothing was sent
├── PeerLost        the connection ended or was invalid: sent requests may have been carried out
│   └── PeerRejected    the peer has refused the login: another attempt is refused, too
└── PeerTimedOut    no response in time: as before; the peer may hang, or be cut off
"""

from __future__ import annotations

import errno
from typing import Self

from penstock.model.errors import PenstockError

__all__ = ["PeerGone", "PeerLost", "PeerRefused", "PeerRejected", "PeerTimedOut", "cause_of", "is_refusal"]


class PeerGone(PenstockError):
    """The peer has not responded."""

    def copy(self) -> Self:
        """An error for one more caller: an exception that is raised twice mixes up its tracebacks."""
        return type(self)(*self.args)


class PeerRefused(PeerGone):
    """The connection was refused: the process has ended or not started. Nothing was sent."""


class PeerLost(PeerGone):
    """The connection ended or was invalid. Sent requests may have been carried out."""


class PeerRejected(PeerLost):
    """The peer has refused the login. The same login is refused again, and counted as a failure each time."""


class PeerTimedOut(PeerGone):
    """There was no response in time, to this request or to an earlier one on the same connection."""


def cause_of(error: OSError) -> str:
    """Why a connection could not be made, in words."""
    if is_refusal(error):
        return "connection refused"
    return (error.strerror or str(error)).lower() if error.errno else str(error)


def is_refusal(error: OSError) -> bool:
    """Returns true if every address of a host refused; for several, asyncio reports only error texts."""
    if isinstance(error, ConnectionRefusedError):
        return True
    text = str(error)
    refusals = text.count(f"[Errno {errno.ECONNREFUSED}]")
    return 0 < refusals == text.count("[Errno ")
